//! Cache flushes that are shared by those who wait for them, durable writes, and a log.
//!
//! A disk may lose what it has answered until its cache is flushed. A flush takes long and does the
//! same for everybody. So a [`FlushDomain`] has one in flight at most, and all that ask meanwhile
//! share the next one. It starts no thread unless it is asked to: one of those who wait carries the
//! flush out.
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
//! | [`machine`] | the state machine behind it, for drivers of one's own: events in, actions out |
//! | [`Flusher`], [`Device`] | what can be flushed and written: files, io_uring (feature `io-uring`), a disk in memory with faults |
//!
//! A flush that succeeds makes durable every write whose completion its caller had seen. A flush
//! that was under way when it was asked for does not count. After a flush that failed nothing is
//! promised of what was written before.
//!
//! Not for one program that flushes one file now and then: `File::sync_data` does that.
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

#[cfg(doctest)]
#[doc = include_str!("../../../docs/flush.md")]
struct FlushPage;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/log.md")]
struct LogPage;
