//! Where completions run: on the CPU that saw them, or on the one that submitted.
//!
//! [`Completions`] decides that for each completion by the request's own [`Steering`] (its tenant's
//! or its set's, at its submission), and keeps the done lists of those that were sent. A
//! [`CompletionSink`] has the threads that empty them. The parts without tags are in
//! `inflight-steering`, re-exported here; `docs/steering.md` has what is promised.
//!
//! ```
//! use inflight_tags::steering::Decision;
//! use inflight_tags::{Steering, Tag, TagSet};
//! use inflight_topology::Topology;
//!
//! struct Req { result: i32 }
//! let topo = Topology::discover()?;
//! let set = TagSet::builder()
//!     .depth(64)
//!     .topology(&topo)
//!     .steering(Steering::SameCache)
//!     .build(|_, _| Req { result: 0 })?;
//! let dev = set.add_tenant("nvme0n1")?;
//!
//! // Once: what is to happen to each request that is through. Without `.sink(..)` nobody empties
//! // done lists, and everything runs where it is seen.
//! let completions = set.completions(&topo).build(|req: Tag<Req>| {
//!     println!("{} done: {}", req.index(), req.result); // and dropped: free for the next
//! });
//!
//! let token = dev.alloc_blocking()?.into_token(); // submitted: this CPU is noted
//! // The reaper's loop: a token and a result come off the ring.
//! let ran = completions.complete(token, |req| req.result = 4096)?;
//! assert!(matches!(ran, Decision::Inline(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
