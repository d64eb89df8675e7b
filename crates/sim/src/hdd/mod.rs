//! Split IO on one hard disk, under each admission policy of the shipped tag set.
//!
//! Closed-loop jobs write 1 MiB at random places, in pieces of 128 KiB that each need a tag of a
//! [`TagSet`](inflight_tags::TagSet) of 64. The disk has a write-back cache and writes sorted. What
//! is simulated is the disk, the time of the CPUs and the latency of wakes; who gets which tag when
//! is decided by the library itself.
//!
//! ```
//! use inflight_sim::hdd::{Policy, Scenario};
//!
//! let outcome = Scenario::new(4, Policy::Preempt).seconds(2.0).run()?;
//! assert!(outcome.mib_s > 60.0, "nobody waits for a tag yet");
//! # Ok::<(), inflight_sim::hdd::RunError>(())
//! ```

mod disk;
mod goals;
mod job;
mod measure;
mod model;
mod plot;
mod policy;
mod published;
mod scenario;
mod single;
mod table;

pub use crate::goal::Goal;
pub use disk::{Disk, Issued, Reaction, Request};
pub use measure::{Outcome, jain};
pub use model::{Dispatch, Model};
pub use plot::{plot, plot_single};
pub use policy::{Policy, Rule};
pub use published::{Published, SingleIo, single_io, split_io};
pub use scenario::{RunError, Scenario};
pub use single::{Single, Singles, single_goals, singles};
pub use table::{Row, Table};
