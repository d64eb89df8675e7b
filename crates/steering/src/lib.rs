//! Where completions run: on the CPU that saw them, or on the one that submitted.
//!
//! A [`Router`] decides that for each completion by the request's own [`Submission`], with
//! [`decide`](inflight_topology::steering::decide), and keeps the *done lists* of completions that
//! were sent. A [`CompletionSink`] has the workers that empty them. A request is any type that
//! implements [`Item`]. The tags of `inflight-tags` do: for tags use its `Completions`.
//!
//! `docs/steering.md` is the reference. The protocol of the done lists is in `PROTOCOL.md` beside
//! the sources. Its models and most tests are in `inflight-tags`: `tests/loom_steering.rs` and
//! `tests/steering/`.
#![deny(missing_docs)]

mod cpu_map;
mod done_list;
mod item;
mod nesting;
mod router;
mod shard;
mod sink;
mod stats;
mod submit_info;
#[cfg(all(test, not(any(loom, shuttle))))]
mod test_support;

pub use inflight_topology::steering::{
    Decision, InlineReason, RedirectReason, SpeedRule, Steering, SteeringPolicy,
};
pub use item::{Item, Link, TenantId};
pub use router::{Leftover, Router, Steered};
pub use sink::{CompletionSink, DoneListHandle, InlineSink, Runner};
pub use stats::{ShardStats, SteeringStats};
pub use submit_info::{Policies, Submission, SubmitInfo};

// Keeps the example of the README true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/steering.md")]
struct Chapter;
