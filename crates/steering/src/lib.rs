//! Where completions run: on the CPU that saw them, or on the one that submitted.
//!
//! A completion is seen by whoever reaps the ring. The request's memory, and whoever waits for it,
//! are where it was submitted. If the two CPUs share a cache the completion may as well run at
//! once; if not, it is cheaper to hand over one pointer than to pull over the lines of the request.
//! A [`Router`] decides that for each completion by the request's own [`Submission`], with
//! [`decide`](inflight_topology::steering::decide), and keeps the done lists; a [`CompletionSink`]
//! knows the threads that empty them. Requests are whatever implements [`Item`]: the tags of
//! `inflight-tags` do, whose `Completions` are the usual way to use this crate.
//!
//! After the way of Linux's block layer (`rq_affinity`). The protocol of the done lists is in
//! `PROTOCOL.md` beside the sources. Its models and most tests are in `inflight-tags`, whose tags
//! they steer: `tests/loom_steering.rs` and `tests/steering/`; here are unit tests only.
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

pub use cpu_map::Leftover;
pub use inflight_topology::steering::{
    Decision, InlineReason, RedirectReason, SpeedRule, Steering, SteeringPolicy,
};
pub use item::{Item, Link, TenantId};
pub use router::{Router, Steered};
pub use shard::{Panic, first_of};
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
