//! A socket on which a running process shows its workqueues, and lets their limits be changed.
//!
//! Opt-in: nothing is there before [`Serve::serve`] is called. The program `inflight-wq` asks it;
//! so does [`ask`]. A client connects, sends one line, a [`Request`], and gets one line, a
//! [`Reply`]; then the server closes.
//!
//! ```
//! use inflight_workqueue::WorkqueueSystem;
//! use inflight_workqueue_serve::{Reply, Request, Serve, ask};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("wq");
//! let sys = WorkqueueSystem::builder().build()?;
//! let _server = sys.serve(&path)?; // inflight-wq --socket DIR/wq monitor
//!
//! let Reply::Dump { text } = ask(&path, &Request::Dump)? else { panic!() };
//! assert!(text.contains("Worker Pools"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The server has a thread of its own and takes the queues' locks as `stats()` and `dump()` do,
//! once for each answer and at most a thousand times a second. It serves several clients at a time,
//! waits for none of them, and closes those that take longer than 2 s or send more than 4 KiB.
//!
//! Linux only: elsewhere, and under a model checker, this crate is empty.

#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod client;
mod control;
mod pause;
mod server;
mod socket;
mod wire;

pub use client::{AskError, ask};
pub use server::{ServeError, Server};
pub use wire::{
    ControlFile, QueueCounters, QueueFiles, Reply, Request, TraceLine, VERSION, WireError,
};

use inflight_workqueue::WorkqueueSystem;
use std::path::Path;

/// Shows a system on a socket. Of [`WorkqueueSystem`] alone.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use inflight_workqueue_serve::Serve;
///
/// let dir = tempfile::tempdir()?;
/// let sys = WorkqueueSystem::builder().build()?;
/// let _server = sys.serve(dir.path().join("wq"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Serve: sealed::Sealed {
    /// Shows this system on a Unix socket at `path`, to `inflight-wq` and to [`ask`], until the
    /// value returned is dropped.
    ///
    /// The socket's mode is 0600: only this user and root can ask, and change limits. A socket that
    /// a process left there when it ended is replaced; anything else that has the name is
    /// not. Begins to [measure](WorkqueueSystem::measure_cpu_time) CPU time, which clients show.
    /// Shown are queues that somebody has a handle on. The server does not keep the system alive,
    /// and goes on when it has ended. It has a thread of its own; no worker waits for a client.
    ///
    /// # Errors
    ///
    /// [`ServeError`]: the name is taken, its directory locked, or socket or thread cannot be had.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # use inflight_workqueue_serve::{Serve, ServeError};
    /// let sys = WorkqueueSystem::builder().build()?;
    /// assert_eq!(sys.serve("Cargo.toml").unwrap_err(), ServeError::NotASocket);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn serve(&self, path: impl AsRef<Path>) -> Result<Server, ServeError>;
}

impl Serve for WorkqueueSystem {
    fn serve(&self, path: impl AsRef<Path>) -> Result<Server, ServeError> {
        let server = Server::start(self.observer(), path.as_ref())?;
        self.measure_cpu_time();
        Ok(server)
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for inflight_workqueue::WorkqueueSystem {}
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/workqueue-serve.md")]
struct Chapter;
