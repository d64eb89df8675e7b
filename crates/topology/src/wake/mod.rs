//! Wake placement: the CPU for a woken thread.
//!
//! Pure functions of plain values, so that queues and simulators share them: a workqueue places the
//! works that it runs again, the simulator the threads of a machine. They follow the order in which
//! Linux's scheduler searches for a CPU, limited to the facts and means of a library:
//!
//! - A woken thread stays in the cache in which it ran. It leaves it only if a [`Reach`] allows
//!   that, or if none of its CPUs may be used any more.
//! - The **stack rule**: a bound worker that would sleep next anyway lets the woken thread run on
//!   the worker's own CPU, if it ran there before. Otherwise threads move through the cache, from
//!   one cold, deeply sleeping CPU to the next.
//!
//! Every CPU number is a hint. Any number gets an answer, and acting on a stale one is correct.
//!
//! ```
//! use inflight_topology::{Topology, wake::{ShardLoad, Wake, WakeRules, WakeSource}};
//!
//! let topo = Topology::synthetic("core:4")?;
//! let last_item = WakeSource::BoundWorker(ShardLoad::new(0, 1));
//! let place = Wake::new(last_item, 2, 2).place(WakeRules::default(), &topo, |cpu| cpu != 2);
//! assert_eq!(place.cpu, 2); // although three CPUs are idle
//! # Ok::<(), inflight_topology::SyntheticError>(())
//! ```

mod placement;
mod rules;
mod shard;

pub use placement::{PlaceReason, Placement, Wake};
pub use rules::{PullOrder, Reach, WakeRules};
pub use shard::{ShardLoad, WakeSource};
