//! Concurrency-managed worker pools: many queues, each with its own limit, over shared workers.
//!
//! Workqueues in the style of Linux (cmwq) for a userspace engine. A [`Workqueue`] takes work items
//! and limits how many may be active at once. It owns no thread. The threads belong to worker pools
//! that all queues of a [`WorkqueueSystem`] share. There is one pool for each CPU or for each group
//! of CPUs, and each pool runs as many workers as it has CPUs. The pool lets another worker run
//! when an item says that it is about to block ([`blocking`]), waits for something of this library,
//! or is found asleep. So the CPUs stay busy while there is work, with few threads.
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
//! work.flush_blocking()?; // it has run; or .flush().await
//!
//! let read = irq.spawn(|| blocking(|| std::fs::read_to_string("Cargo.toml")));
//! assert!(read.wait()??.contains("workqueue"));
//! irq.flush_blocking()?; // everything queued before has ended
//! println!("{}", sys.dump());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which queue
//!
//! | the work | queue |
//! |---|---|
//! | short, touches data of this CPU | `.bound()` |
//! | computes for long, or blocks | `.unbound(Attrs::new())` |
//! | one at a time, in order | `.ordered()` |
//! | goes first | `.bound().highpri()` |
//! | never sleeps, run by your poll loop | `.bh()` |
//! | others wait for it to free something | add `.mem_reclaim()` |
//!
//! Do not use it for pure computation that never blocks: rayon splits that better. Do not use it
//! for thousands of waiting tasks either: an item that waits holds a thread.
//!
//! # What is promised
//!
//! | promise | see |
//! |---|---|
//! | a work never runs twice at once, on whichever queues it is queued | [`Work`] |
//! | if a work is pending already, its pending run sees what the caller of `queue` did before | [`Queued::AlreadyPending`] |
//! | `max_active` is never exceeded | [`Workqueue::set_max_active`] |
//! | later items do not delay a flush | [`Workqueue::flush`] |
//! | an item that waits for itself gets an error and does not hang | [`WaitError`] |
//! | every handle resolves | [`JoinHandle`] |
//! | shutdown runs what is queued and leaves no thread | [`WorkqueueSystem`] |

#![deny(missing_docs)]
#![cfg_attr(
    any(loom, shuttle),
    allow(
        clippy::large_enum_variant,
        clippy::result_large_err,
        reason = "a model's locks are large"
    )
)]
#![cfg_attr(
    not(feature = "unstable-sim"),
    allow(unreachable_pub, reason = "public for the simulator and for models")
)]

// The public API.
mod attrs;
mod bh;
mod builder;
mod completion;
mod current_work;
mod delayed_work;
mod error;
mod freeze;
mod join_handle;
mod leftover;
mod spawn;
mod stats;
mod system;
mod system_queues;
mod work;
mod work_item;
mod work_on_cpu;
mod workqueue;
mod wq_builder;

// What the handles share.
mod cancel;
mod choose_pool;
mod future;
mod hotplug;
mod ordered;
mod system_inner;
mod system_shared;
mod workqueue_inner;

// Items, pools and workers.
mod batch;
mod consts;
mod current;
mod fifo;
mod flush;
mod flush_colour;
mod inbox;
mod item;
mod load_hint;
mod mayday_list;
#[cfg(loom)]
mod model_support;
mod nr_active;
mod panics;
mod pool_attrs;
mod pool_core;
mod pwq;
mod queued;
mod rescuer;
mod steal_policy;
mod submitters;
#[cfg(all(test, not(any(loom, shuttle))))]
mod test_support;
mod threads;
mod timer_queue;
mod unfinished;
mod wake_placement;
mod worker;
mod worker_pool;

// Monitoring and reports.
mod busy_worker;
mod cpu_time;
mod dump;
#[cfg(feature = "metrics")]
mod ended_queues;
mod hog;
mod known_blockers;
#[cfg(feature = "metrics")]
mod metrics;
mod proc;
mod sampler;
mod shrink;
mod trace;
mod watchdog;

pub use attrs::{Attrs, Concurrency, Kind};
pub use bh::{BH_BUDGET, BH_PATIENCE, BhPoller, Polled};
pub use builder::SystemBuilder;
pub use busy_worker::BusyWorker;
pub use completion::Wait;
pub use consts::{DEFAULT_MAX_ACTIVE, MAX_ACTIVE_LIMIT, NAME_LIMIT};
pub use current::blocking;
pub use current_work::{
    CurrentItem, current_delayed_work, current_item, current_work, set_worker_desc, touch_watchdog,
};
pub use delayed_work::DelayedWork;
pub use error::{
    AttrsError, BuildError, DisableError, EnableError, FlushError, JoinError, MaxActiveError,
    MinActiveError, NotDisabled, PanicPayload, PollerError, QueueError, Rejected, SystemError,
    WaitError,
};
pub use freeze::Frozen;
pub use hog::Hog;
pub use join_handle::JoinHandle;
pub use leftover::Leftover;
pub use queued::{Modified, Queued};
pub use stats::WorkqueueStats;
pub use system::WorkqueueSystem;
pub use trace::{RecordedTrace, TraceEvent, TraceRecord, TraceStep};
pub use watchdog::Stall;
pub use work::Work;
pub use work_item::WorkItem;
pub use workqueue::Workqueue;
pub use workqueue_inner::Share;
pub use wq_builder::{WorkqueueBuilder, WorkqueueDraft};

/// Internals that the simulator and the models drive. No stability is promised.
#[cfg(any(loom, feature = "unstable-sim"))]
#[doc(hidden)]
pub mod unstable {
    pub use crate::batch::Batch;
    pub use crate::load_hint::LoadHint;
    #[cfg(loom)]
    pub use crate::model_support::{ManualPool, NumberBatch};
    pub use crate::nr_active::{Limit, NrActive, PwqId, default_min_active, node_shares};
    pub use crate::pool_core::{
        ASLEEP, BLOCKED, Deferred, INTENSIVE, PoolCore, PoolItem, PwqIndex, WakeAction, WorkerId,
        WorkerPhase, Workers,
    };
    pub use crate::steal_policy::{Costs, Load, Pod, StealPolicy, WakeTarget};
    pub use crate::submitters::Submitters;
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/workqueue.md")]
struct Page;
