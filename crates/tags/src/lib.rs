//! Tag sets: a limit on the requests in flight, and the data of each.
//!
//! A storage engine that submits requests to a ring needs three things for each of them:
//! permission, so that no more are in flight than the device takes; memory, which must not move
//! while the device works; and a number that identifies its completion. A *tag* is all three. A
//! [`TagSet`] has a fixed number of them, divided among *hardware queues* (usually one per ring),
//! each with a slot of the user's type `T` that is made once. Taking a free tag allocates no
//! memory, and takes no lock while many tags are free.
//!
//! ```
//! use inflight_tags::TagSet;
//!
//! struct Req { off: u64, buf: Vec<u8> }
//! let set = TagSet::builder()
//!     .hw_queues(4)
//!     .depth(256)
//!     .build(|_hwq, _tag| Req { off: 0, buf: vec![0; 4096] })?;
//! let dev = set.add_tenant("nvme0n1")?; // a device; tenants share the set
//!
//! let mut tag = dev.try_alloc()?; // or alloc().await, alloc_blocking(), alloc_timeout(d)
//! tag.off = 8192; // the slot, through the tag
//! let token = tag.into_token(); // in flight: the ring carries this number
//!
//! let tag = set.redeem(token)?; // the completion: the tag again, or an error
//! assert_eq!(tag.off, 8192);
//! # let _ = tag.buf.len();
//! drop(tag); // free for the next
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | state | access to the `T` | ends by |
//! |---|---|---|
//! | [`Tag`], held | its owner only | [`into_token`](Tag::into_token), or drop: free |
//! | token, in flight | none | [`redeem`](TagSet::redeem) |
//! | token, timed out | none | [`redeem_timed_out`](TagSet::redeem_timed_out) |
//!
//! A token is refused ([`RedeemError`]) if it is of an earlier use of the slot, of another set,
//! redeemed twice or damaged. A slot in flight is never moved or freed: if the program drops the
//! last handle of the set, such slots are leaked. [`freeze`](TagSet::freeze) waits until no tag is
//! in use. [`close`](TagSet::close) ends all waits for good. [`TagSet::for_each_in_flight`] visits
//! requests while others complete.
//!
//! [`Tenant::split`] takes several tags for one request. When tags are short, the set's
//! [`Admission`] decides the order, and each [`Tenant`] has a [share](SharePolicy).
//! [`TagSet::expired`] returns late requests. [`steering`] runs completions on the CPU that
//! submitted.
//!
//! For a count without an index or memory take a semaphore instead.
//!
//! The ideas are those of the block layer's multi-queue tag sets (blk-mq), which
//! `docs/tags-items.md` goes through one by one. The protocols and their proofs are in
//! `PROTOCOL.md` beside the sources; the loom models in `tests/` use its names.
#![deny(missing_docs)]

// rustdoc shows the methods of a type in the order of these modules: what users need first is
// first.
mod alloc;

mod tenant;

mod split;

mod builder;

mod set;

mod freeze;

mod close;

mod tag;

mod expire;
mod expirers;

mod resize;

mod set_hw_queues;

mod hw_queues;

mod drain_hw_queue;

mod hotplug;

mod quiesce;

pub mod steering;

mod free_batch;

mod shares;

#[cfg(feature = "metrics")]
mod metrics;

mod active_queues;
mod admission;
mod cpu_groups;
mod cpu_map;
mod dump;
mod error;
mod get_tag;
mod hw_queue_options;
mod in_flight;
mod last_handle;
mod own_callback;
mod pending_tag;
mod put_tag;
mod queue_kind;
mod redeem;
mod set_id;
mod shared;
mod size;
mod slot;
mod stats;
mod tag_layout;
mod tag_maps;
mod tag_wait;
mod teardown;
mod token;

pub use admission::{Admission, NoPreempt, WakeAccounting};
pub use alloc::{Alloc, AllocOptions, AllocOwned};
pub use builder::TagSetBuilder;
pub use drain_hw_queue::DrainHwQueue;
pub use error::{
    AllocError, BuildError, DrainError, ExpireError, FreezeError, RedeemError, ResizeError,
    TenantError, WeightError,
};
pub use expire::{Expired, ExpiredOwned, NextExpired};
pub use freeze::{Freeze, FrozenGuard};
pub use hotplug::Cpus;
pub use hw_queue_options::HwQueueOptions;
pub use hw_queues::HwQueues;
pub use in_flight::InFlight;
#[cfg(feature = "metrics")]
pub use metrics::describe_metrics;
pub use queue_kind::QueueKind;
pub use quiesce::{Drain, QuiesceGuard};
pub use set::TagSet;
pub use set_hw_queues::SetHwQueues;
pub use shares::SharePolicy;
pub use split::{Join, NextPiece, Split};
pub use stats::{SetStats, TenantStats};
pub use steering::{CompletionSink, Completions, Steering};
pub use tag::Tag;
pub use tenant::Tenant;
pub use token::TokenTail;

#[doc(inline)]
pub use inflight_sbitmap::tenancy::Force;
pub use inflight_sbitmap::{Engine, WakePolicy};
pub use inflight_sync::time::{Clock, Instant};
pub use inflight_topology::Topology;

// Keeps the example of the README true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// Keeps the examples of the book's page true.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tags.md")]
struct Book;
