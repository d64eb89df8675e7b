//! What queueing costs when a pool is shared by more and more CPUs.
//!
//! The published benchmark: a thread on each CPU queues an item that does nothing, waits until it
//! has run, and starts over. What is simulated is time: of each thread's own steps, of wakes, and
//! of a pool's lock, which is held for each event of its core, by one after the other in the order
//! in which they came. What the events do is decided by the core itself, the shipped one.
//!
//! ```
//! use inflight_sim::enqueue::{Model, run};
//! use inflight_topology::Scope;
//!
//! let shared = run(&Model::default(), 64, Scope::System, 1);
//! let apart = run(&Model::default(), 64, Scope::Cpu, 1);
//! assert!(shared.call_p50_ns > 3 * apart.call_p50_ns);
//! ```

mod goals;
mod machine;
mod plot;
mod published;
mod table;

pub use machine::{Model, Outcome, run};
pub use plot::plot;
pub use published::{Published, shard_bench};
pub use table::{Row, Table};
