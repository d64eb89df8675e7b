//! Completion steering: where does a completion run, if it was seen on one CPU and its request
//! was submitted on another?
//!
//! Pure functions of plain values, after the way Linux's block layer chooses (`rq_affinity`).
//! Whoever owns the done lists carries the decision out, and must check the done list again as it
//! pushes: by then it may be closed.
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
