//! Where completions run: on the CPU that saw them, or on the one that submitted.
//!
//! [`Completions`] decides that for each completion by the request's own [`Steering`] (its tenant's
//! or its set's, at its submission), and keeps the done lists of those that were sent. A
//! [`CompletionSink`] has the threads that empty them. The parts without tags are in
//! `inflight-steering`, re-exported here; `docs/steering.md` has what is promised.
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
