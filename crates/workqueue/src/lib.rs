//! Concurrency-managed worker pools: many queues with limits of their own over shared workers.
//!
//! The workqueues of Linux (cmwq) for a userspace engine. A [`Workqueue`] takes work items and says
//! how many may be active at once; it owns no thread. The threads belong to pools that all queues
//! of a [`WorkqueueSystem`] share, one pool for each CPU or for each group of CPUs, and each pool
//! runs as many workers as it has CPUs. When an item says that it is about to block ([`blocking`]),
//! or waits with this library's own means, the pool lets another worker run, so the CPU is busy
//! while there is work and there are no more threads than that takes.
//!
//! ```
//! use inflight_topology::{Scope, Topology};
//! use inflight_workqueue::{Attrs, Work, WorkqueueSystem, blocking};
//!
//! let topo = Topology::discover()?;
//! let sys = WorkqueueSystem::builder().topology(topo).build()?; // no thread until work comes
//! let attrs = Attrs::new().scope(Scope::Cache).strict(false);
//! let crypt = sys.workqueue("kcryptd").unbound(attrs).max_active(64).build()?;
//! let irq = sys.workqueue("complete").bound().build()?;
//!
//! let sum = crypt.spawn(move || [1u8, 2, 3].iter().sum::<u8>()).wait()?;
//! assert_eq!(sum, 6);
//!
//! let work = Work::new(|| println!("rescan")); // reusable, never runs twice at once
//! assert!(irq.queue_on(0, &work)?.is_queued());
//! work.flush()?; // it has run
//!
//! let read = irq.spawn(|| blocking(|| std::fs::read_to_string("Cargo.toml")));
//! assert!(read.wait()??.contains("workqueue"));
//! irq.flush()?; // everything queued before has ended
//! println!("{}", sys.dump());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | a user relies on | and gets it from |
//! |---|---|
//! | a work never runs twice at once, through whatever queues | [`Work`] |
//! | a failing `queue` hands its news to the pending run | [`Queued::AlreadyPending`] |
//! | `max_active` is never exceeded | [`Workqueue::set_max_active`] |
//! | a flush is not held up by later items | [`Workqueue::flush`] |
//! | a wait for oneself is an error, not a deadlock | [`WouldDeadlock`] |
//! | every handle resolves | [`JoinHandle`] |
//! | shutdown runs what is queued and leaves no thread | [`WorkqueueSystem`] |

#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod attrs;
mod bh;
mod builder;
mod delayed;
mod door;
mod dump;
mod env;
mod error;
mod flush;
mod freeze;
mod future;
mod gate;
mod hand;
mod handle;
mod inactive;
mod item;
mod layout;
mod learned;
#[allow(unreachable_pub, reason = "public for the simulator")]
mod lending;
#[allow(unreachable_pub, reason = "public for the simulator and for models")]
mod limits;
mod machine;
mod meter;
#[cfg(feature = "metrics")]
mod metrics;
mod outcome;
mod panics;
mod peers;
mod place;
mod pool;
mod pools;
mod queue;
mod rescuer;
mod sampler;
#[cfg(all(feature = "serve", target_os = "linux", not(any(loom, shuttle))))]
pub mod serve;
#[cfg(any(test, feature = "unstable-sim"))]
#[doc(hidden)]
pub mod sim;
mod stats;
mod submitter;
mod system;
mod threads;
mod timekeeper;
mod trace;
mod watchdog;
mod work;
mod worker;

pub use attrs::{Attrs, Kind};
pub use bh::{BH_BUDGET, BH_PATIENCE, BhPoller, Polled};
pub use builder::{SystemBuilder, WorkqueueBuilder, WorkqueueDraft};
pub use delayed::DelayedWork;
pub use error::{
    AttrsError, BuildError, DisableError, EnableError, FlushError, JoinError, MaxActiveError,
    MinActiveError, NotDisabled, PanicPayload, PollerError, QueueError, SystemError, WouldDeadlock,
};
pub use freeze::Frozen;
pub use handle::JoinHandle;
pub use limits::Share;
pub use queue::{DEFAULT_MAX_ACTIVE, MAX_ACTIVE_LIMIT, NAME_LIMIT, Workqueue};
pub use stats::WorkqueueStats;
pub use system::{Leftover, WorkqueueSystem};
pub use trace::{TraceEvent, TraceStep};
pub use watchdog::Stall;
pub use work::{Modified, Queued, Work};
pub use worker::{blocking, touch_watchdog};

/// What models drive that no user sees.
#[cfg(loom)]
#[doc(hidden)]
pub mod modelled {
    pub use crate::limits::{Full, Share, Slots, Tuning, Waits};
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
