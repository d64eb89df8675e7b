//! Wake placement: where should a thread run that is woken, and is it worth waiting for it awake?
//!
//! Pure functions of plain values, so that pools and simulators share them. They follow the order
//! in which Linux's scheduler looks for a CPU, narrowed to what a library can know and use:
//!
//! - A woken thread stays in the cache it ran in. It leaves it only where a [`Reach`] allows it,
//!   or if none of its CPUs may be used any more.
//! - The **stack rule**: a bound worker that would sleep next anyway lets the woken thread run on
//!   the worker's own CPU, if it ran there before. Otherwise threads wander through the cache,
//!   from one cold, deeply sleeping CPU to the next.
//! - A waiter spins only if the one it waits for [runs on another CPU](SpinGate).
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

mod pin_policy;
mod placement;
mod rules;
mod shard;
mod spin;

pub use pin_policy::PinPolicy;
pub use placement::{PlaceReason, Placement, Wake};
pub use rules::{PullOrder, Reach, WakeRules};
pub use shard::{ShardLoad, WakeSource, shard_of};
pub use spin::{ParkReason, Peer, Spin, SpinGate};
