//! For programs that do much IO: the Linux kernel's block layer and workqueue mechanisms, in user
//! space.
//!
//! - **A limit on what is in flight**, with a slot of memory for each request, fair waiting and
//!   shares for several devices: [`tags`].
//! - **Worker pools that stay busy** when workers sleep, with a limit and an order for each kind of
//!   work: [`workqueue`].
//! - **Shared cache flushes**, durable writes and a log with group commit: [`flush`].
//!
//! The crate is not a runtime. Your program does the IO; only the log and the devices of [`flush`]
//! do some of their own. A wait is a future for any executor, or it blocks a thread. The library
//! starts no thread, installs no handler and reads no environment variable until you use a part
//! that needs it. All state is in values.
//!
//! ```text
//!  threads, tasks ─▶ Tenant ─▶ TagSet ── token ─▶ your ring ─▶ device
//!                      ▲       a slot for                        │
//!                      │       each tag                          │ completion
//!               the next waiter                                  ▼
//!                      └── drop(tag) ◀── Workqueue ◀── redeem(token)
//! ```
//!
//! ```
//! use inflight::prelude::*;
//!
//! struct Request { offset: u64, buffer: Vec<u8> }
//!
//! let set = TagSet::builder()
//!     .depth(32) // at most 32 requests in flight
//!     .build(|_hwq, _tag| Request { offset: 0, buffer: vec![0; 4096] })?; // slots, made once
//! let disk = set.add_tenant("disk0")?;
//! let system = WorkqueueSystem::builder().build()?; // no thread until work comes
//! let checks = system.workqueue("check").unbound(Attrs::new()).max_active(4).build()?;
//!
//! let mut tag = disk.alloc_blocking()?; // or .alloc().await, try_alloc, alloc_timeout
//! tag.offset = 8192;
//! let token: u64 = tag.into_token(); // the ring's user data: the request is in flight
//! let tag = set.redeem(token)?; // its completion; a stale, foreign or doubled token is an error
//! assert_eq!(tag.offset, 8192);
//! let sum = checks.spawn(move || tag.buffer.iter().map(|&b| u64::from(b)).sum::<u64>());
//! assert_eq!(sum.wait()?, 0); // the tag was dropped on the worker: free again
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | what it gives | usable alone as |
//! |---|---|---|
//! | [`sbitmap`] | ids, the numbers `0..depth`, fast on every CPU, and waiting for one | `inflight-sbitmap` |
//! | [`tags`] | ids with slots, tokens, tenants, timeouts | `inflight-tags` |
//! | [`steering`] | completions on the CPU that submitted | `inflight-steering` |
//! | [`workqueue`] | queues with limits over shared workers, replaced when they block | `inflight-workqueue` |
//! | `serve`, with the feature | workqueues on a socket | `inflight-workqueue-serve` |
//! | [`flush`] | cache flushes shared by those who wait; a log | `inflight-flush` |
//! | [`topology`] | which CPUs share what; pinning | `inflight-topology` |
//! | [`sync`] | atomics, locks, threads and time, which a model checker can replace | |
//!
//! Parts that need two of them are in this crate: [`WorkqueueSink`] runs completions of tags on a
//! workqueue, [`Requeue`] sends requests again that the device refused for now.
//!
//! # Features
//!
//! None is on by default. `serve`: workqueues on a socket, for the program `inflight-wq` (Linux).
//! `metrics`: counters for a recorder of the crate `metrics` 0.24. `tracing`: each step of each
//! work item is an event. `io-uring`: files that write and flush through io_uring. `futures`: for
//! the futures crates, a queue is a `Spawn`, and the tags of a split request, and late requests,
//! are a `Stream`. `serde`: CPU sets, topologies and snapshots.
//!
//! With `--cfg loom` every type works inside [`model::check`], so your own code on top can be
//! model-checked.
//!
//! # When not to use it
//!
//! For computation that forks and joins take rayon; for tasks that wait for a network, an async
//! runtime; for a count without an index, a semaphore; for tiny closures at the highest rate, a
//! channel and threads.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub use inflight_flush as flush;
pub use inflight_sbitmap as sbitmap;
pub use inflight_steering as steering;
pub use inflight_sync as sync;
pub use inflight_tags as tags;
pub use inflight_topology as topology;
pub use inflight_workqueue as workqueue;
#[cfg(feature = "serve")]
pub use inflight_workqueue_serve as serve;

#[cfg(feature = "metrics")]
mod metrics;
mod requeue;
mod workqueue_sink;

pub mod model;
pub mod prelude;

#[cfg(feature = "metrics")]
pub use metrics::describe_metrics;
pub use requeue::{Requeue, RequeueStats};
pub use workqueue_sink::WorkqueueSink;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;

/// The code of pages of the book is run as tests of this crate.
#[cfg(doctest)]
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        $(#[doc = include_str!(concat!("../../../docs/", $page, ".md"))]
        struct $name;)*
    };
}

#[cfg(doctest)]
pages! {
    Debugging: "debugging",
    FlushPage: "flush",
    Guidelines: "guidelines",
    Inflight: "inflight",
    LogPage: "log",
    RequeuePage: "requeue",
    Testing: "testing",
    LostWakeups: "needs/lost-wakeups",
    RefusedThreads: "needs/refused-threads",
    AnybodysFree: "needs/anybodys-free",
    StackedUsers: "needs/stacked-users",
    BoundedInFlight: "needs/bounded-in-flight",
    Fairness: "needs/fairness",
    SeveralAtOnce: "needs/several-at-once",
    ChangingLimits: "needs/changing-limits",
    SleepingWorkers: "needs/sleeping-workers",
    OwnStack: "needs/own-stack",
    ClassesInOnePool: "needs/classes-in-one-pool",
    Placement: "needs/placement",
    CpuSets: "needs/cpu-sets",
    Ending: "needs/ending",
    LookingInside: "needs/looking-inside",
}
