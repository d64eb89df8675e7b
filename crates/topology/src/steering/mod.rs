//! Completion steering: the CPU for a completion that was seen on one CPU and whose request was
//! submitted on another.
//!
//! Pure functions of plain values, following Linux's block layer (`rq_affinity`). The owner of the
//! done lists carries the decision out, and must check the done list again when it pushes, because
//! the list may be closed by then.
//!
//! ```
//! use inflight_topology::{Topology, steering::{Steering, decide}};
//!
//! let topo = Topology::synthetic("cache:2 core:4")?;
//! assert!(decide(0, 3, Steering::SameCache, &topo, true).is_inline());
//! assert_eq!(decide(0, 4, Steering::SameCache, &topo, true).redirect(), Some(4));
//! # Ok::<(), inflight_topology::SyntheticError>(())
//! ```

mod decision;
mod policy;

pub use decision::{Completion, Decision, DoneList, InlineReason, RedirectReason, decide};
pub use policy::{ParseSteeringError, SpeedRule, Steering, SteeringPolicy};
