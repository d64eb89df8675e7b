//! Where completions run: on the CPU that saw them, or on the one that submitted.
//!
//! The reaper of a ring sees a completion. The request's memory, and its waiter, are on the CPU
//! that submitted. If the two CPUs share a cache, the completion may run at once; if not, it is
//! cheaper to send one pointer than to fetch the cache lines of the request. [`Completions`]
//! decides that for each completion by the request's own [`Steering`] (its tenant's or its set's,
//! at its submission), with [`decide`](inflight_topology::steering::decide), and keeps the done
//! lists. A [`CompletionSink`] has the threads that empty them. The parts without tags are in
//! `inflight-steering`, re-exported here.
//!
//! The design follows Linux's block layer (`rq_affinity`). The protocol of the done lists is in
//! `inflight-steering`; the models are in `tests/loom_steering.rs`.

mod builder;
mod completions;
mod policy;

pub use builder::CompletionsBuilder;
pub use completions::Completions;
pub use inflight_steering::{
    CompletionSink, Decision, DoneListHandle, InlineReason, InlineSink, RedirectReason, Runner,
    ShardStats, SpeedRule, Steered, Steering, SteeringPolicy, SteeringStats,
};
