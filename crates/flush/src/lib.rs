//! Shared cache flushes, durable writes, and a log.
//!
//! A disk may lose completed writes until its cache is flushed. A flush takes long, and covers the
//! completed writes of all callers. So a [`FlushDomain`] has at most one in flight, and all callers
//! that ask meanwhile share the next one. The domain starts no thread unless you ask for one: one
//! of the waiters carries the flush out.
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
//!
//! | module or type | what it gives |
//! |---|---|
//! | [`FlushDomain`] | the flushes of one device, shared; writes with flushes before and behind them |
//! | [`log`] | a log with group commit, recovery and checkpoints |
//! | [`machine`] | the state machine behind it, for drivers of your own: events in, actions out |
//! | [`Flusher`], [`Device`] | what can be flushed and written: files, io_uring (feature `io-uring`), a disk in memory with faults |
//!
//! A flush that succeeds makes durable every write whose completion its caller had seen. A flush
//! that was under way when a caller asked never serves that caller. After a failed flush there is
//! no promise about earlier writes.
//!
//! For one program that flushes one file now and then take `File::sync_data` instead.
#![deny(missing_docs)]

mod counters;
mod device;
mod domain;
mod error;
pub mod log;
pub mod machine;
#[cfg(feature = "metrics")]
mod metrics;

pub use counters::{Counters, Histogram};
#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub use device::UringDevice;
pub use device::{Device, FileDevice, Flusher, MemoryDevice, Power};
pub use domain::{FlushDomain, FlushDomainBuilder, Sequence};
pub use error::{DeviceError, FlushError, WriteError};
pub use machine::{Caps, Deferral, Flags, FlagsError};
#[cfg(feature = "metrics")]
pub use metrics::describe_metrics;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
