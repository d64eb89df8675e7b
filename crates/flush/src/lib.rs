//! Cache flushes that are shared by those who wait for them.
//!
//! | module or type | what it gives |
//! |---|---|
//! | [`FlushDomain`] | the flushes of one device, shared: one in flight, everybody else waits for the next; writes with flushes around them |
//! | [`log`] | a log with group commit, recovery and checkpoints |
//! | [`machine`] | the state machine behind it, for drivers of one's own: events in, actions out |
//! | [`Flusher`], [`Device`] | what can be flushed, and written: files, io_uring (feature `io-uring`), a disk in memory with faults |
//!
//! ```
//! use inflight_flush::FlushDomain;
//!
//! let file = tempfile::tempfile()?;
//! let domain = FlushDomain::new(file); // anything that can flush
//! domain.flush_blocking()?; // or .flush().await, flush_timeout, try_flush
//! println!("{:?}", domain.counters()); // requested, issued, merged
//! # Ok::<(), std::io::Error>(())
//! ```
#![deny(missing_docs)]

mod counters;
mod device;
mod domain;
mod error;
pub mod log;
pub mod machine;

pub use counters::{Counters, Histogram};
#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub use device::UringDevice;
pub use device::{Device, FileDevice, Flusher, MemoryDevice, Power};
pub use domain::{FlushDomain, FlushDomainBuilder, Sequence};
pub use error::{DeviceError, FlushError, WriteError};
pub use machine::{Caps, Deferral, Flags, FlagsError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
