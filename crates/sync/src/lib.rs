//! Atomics, locks, parking, threads and time of the `inflight` crates, which a model checker can
//! replace.
//!
//! The other crates use `inflight_sync::…` in place of `std::sync::…`. The same source then runs on
//! three back ends:
//!
//! | back end | chosen by | locks and atomics | what it is for |
//! |---|---|---|---|
//! | std | nothing | std atomics, parking_lot locks | production |
//! | loom | `--cfg loom` | loom's | exploring every interleaving and weak-memory outcome of a small model |
//! | shuttle | `--cfg shuttle` | shuttle's | random schedules of whole components with many threads |
//!
//! The choice is a cfg and not a feature, because features of a dependency graph unify, and a cfg
//! is not switched on by accident. To model-check your own code, set `RUSTFLAGS="--cfg loom"`: it
//! holds for the whole graph.
//!
//! The crate also has parts that make concurrent code testable: a [`time::Clock`] that a test moves
//! by hand, [`fault::Faults`] that refuse threads, a [`cpu`] number that a test may set, and a
//! [`block_hook`] that is called when a thread is about to sleep. `docs/sync.md` lists all.
#![deny(missing_docs)]

#[cfg(all(loom, shuttle))]
compile_error!("choose one back end: --cfg loom or --cfg shuttle, not both");

mod backend;
mod chunked_table;
mod debug_fields;
mod error_text;
mod executor;
mod parker;
mod prefetch;
mod printed;
mod retained_versions;
mod sequence;

pub mod asym;
pub mod block_hook;
pub mod blocks;
pub mod cpu;
pub mod fault;
pub mod model;
pub mod panics;
pub mod percpu;
pub mod registry;
pub mod rseq;
pub mod thread;
pub mod time;
pub mod wait;

#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use backend::checkers_thread_local;
pub use backend::{Condvar, Mutex, MutexGuard, atomic, cell, hint, thread_local};
pub use chunked_table::Grown;
pub use executor::{block_on, poll_until};
pub use parker::{Parker, Unparker};
pub use prefetch::prefetch_to_write;
pub use printed::Printed;
pub use retained_versions::RetainedVersions;
pub use sequence::Sequence;

/// Keeps a value on cache lines of its own, so that writers of neighbouring values do not slow it
/// down.
pub use crossbeam_utils::CachePadded;

/// The reference count of every back end is std's.
///
/// Counting references is not what the models are about. loom does not see all happens-before edges
/// of std's `Arc`, so it may report a race that cannot happen; and loom neither explores the order
/// of drops nor reports a leaked `Arc`, so a model that is about either uses loom's own. In return
/// `Weak`, `Arc<dyn Trait>` and `new_cyclic` work everywhere.
pub use std::sync::{Arc, Weak};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/sync.md")]
struct Page;
