//! A scalable bitmap of ids, and wait queues over it.
//!
//! An IO engine gives each request in flight a small number: the index of its buffer, the ring's
//! user data, or the device's tag. [`Sbitmap`] hands such numbers out. With [`SbitmapQueue`]
//! threads and tasks can wait for a number while all are taken. The design is the one of the Linux
//! block layer's sbitmap:
//!
//! - The bits are spread over several words, **each on cache lines of its own**, also in a small
//!   map. Each CPU starts its search at its own [hint](Hint), so two CPUs use the same line only
//!   when ids run short.
//! - Freeing a bit writes a **second line** of its word. A getter that finds the word full moves
//!   the freed bits back in one step (*deferred clear*). So getters and putters seldom write the
//!   same line.
//!
//! A queue adds two choices:
//!
//! - **The order of waiters**, its [`Fairness`]: by default one list, first come first served, in
//!   which a woken thread may take up to 13 bits before the next is woken (`Fair`). `Fifo` is
//!   strict order. `Batched` has the block layer's eight queues and batches of wakes. The table in
//!   [`Fairness`] helps to choose.
//! - **The place of the ids**, its [`Engine`]: by default each CPU keeps some of the ids that it
//!   has freed in a small stack of its own (`Local`), with restartable sequences if the system has
//!   them. Otherwise, and with `Batched`, the ids are in the bitmap itself (`Shared`). The engines
//!   differ in speed alone. [`SbitmapQueue::back_end`] returns the engine of a queue.
//!
//! [`get_many`](SbitmapQueue::get_many) waits for several bits together.
//! [`resize`](SbitmapQueue::resize) changes the depth while other threads get, wait and put.
//!
//! A bit is a plain number. If a task is cancelled, or a thread panics, between `get` and `put`,
//! the bit is leaked. An [`id`](SbitmapQueue::id) is a guard that puts its bit when it is dropped.
//! `TagSet` of the crate `inflight-tags` has guards with a slot for each tag.
//!
//! Each wait has four forms: `try_x` (never waits), `x()` (a future), `x_blocking` and `x_timeout`.
//! Their errors are `TimedOut`, and `Closed` after a [close](SbitmapQueue::close) of the queue.
//!
//! ```
//! use inflight_sbitmap::{GetError, PutError, Sbitmap, SbitmapQueue};
//! use std::time::Duration;
//!
//! let map = Sbitmap::builder(1024).build()?;
//! let bit = map.try_get().unwrap();
//! map.put(bit)?;
//! assert_eq!(map.put(bit), Err(PutError::NotAllocated { bit }), "a double free is an error");
//!
//! let queue = SbitmapQueue::builder(2).build()?;
//! let (_a, b) = (queue.try_get(), queue.get_blocking()?);
//! let late = queue.get_timeout(Duration::from_millis(5)); // both are taken
//! assert_eq!(late, Err(GetError::TimedOut));
//! queue.put(b)?;
//! let id = inflight_sbitmap::block_on(queue.id())?; // a future for any runtime, and a guard
//! assert_eq!(id.id(), b);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features and cfgs
//!
//! - Feature `serde`, off by default: [`Snapshot`], [`QueueSnapshot`], [`QueueStats`],
//!   [`Fairness`], [`BackEnd`] and [`WakePolicy`] can be serialised and read back.
//! - `--cfg loom`: the crate works inside `loom::model`, so you can model-check your own code on
//!   top of it. The crate's README has the recipe. [`Engine::Auto`] is then `Shared`, and no
//!   timeout fires by itself.
//!
//! # Proofs
//!
//! The protocols and their proofs are beside the source: `PROTOCOL.md` (`Batched`),
//! `PROTOCOL-turns.md` (`Fair` and `Fifo`) and `PROTOCOL-local.md` (the stacks of the CPUs).
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod batched;
mod bitmap;
mod builder;
mod close;
mod cpu_hint;
mod double_free;
mod engine;
mod error;
mod fairness;
mod get;
mod id_guard;
mod layout;
mod local;
mod mask;
/// The local engine without a queue, for its models.
#[cfg(loom)]
#[doc(hidden)]
pub mod model_support;
mod newcomer_policy;
mod queue;
mod queue_builder;
mod request;
mod rules;
mod shallow_depth;
mod share_limiter;
mod snapshot;
mod store;
#[doc(hidden)]
pub mod tenancy;
mod turns;
mod waiter;
mod wake_set;
mod word;

pub use batched::WakePolicy;
pub use bitmap::Sbitmap;
pub use builder::SbitmapBuilder;
pub use cpu_hint::Hint;
pub use engine::{BackEnd, Engine};
pub use error::{BuildError, GetError, GetManyError, PutError, ResizeError};
pub use fairness::{BatchedOptions, FairOptions, Fairness};
pub use get::{Get, GetId, GetMany, GetOwned};
pub use id_guard::{Guard, IdGuard, OwnedIdGuard};
pub use layout::MAX_DEPTH;
pub use mask::BitMask;
pub use queue::SbitmapQueue;
pub use queue_builder::SbitmapQueueBuilder;
pub use snapshot::{QueueSnapshot, QueueStats, Snapshot};

/// Waits for a future on the calling thread, without a runtime.
pub use inflight_sync::block_on;
/// The clock of timed waits.
pub use inflight_sync::time::Clock;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/sbitmap.md")]
struct Page;
