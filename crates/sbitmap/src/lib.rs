//! A scalable bitmap of ids, and wait queues over it.
//!
//! An IO engine gives every request in flight a small number: the index of its buffer, the ring's
//! user data, the device's tag. [`Sbitmap`] hands such numbers out, and [`SbitmapQueue`] lets
//! threads and tasks wait for one when all are taken. The design is the one of the Linux block
//! layer's sbitmap:
//!
//! - The bits are spread over several words, **each on cache lines of its own**, also when the map
//!   is small, and every CPU starts its search at its own [hint](Hint): two CPUs meet on a line
//!   only when ids run short.
//! - Freeing a bit touches a **second line** of its word. The freed bits are moved back in one step
//!   when the word looks full (*deferred clear*), so getters and putters stay out of each other's
//!   way.
//! - Waiters stand in **eight queues** and are woken in **batches**: one wake per group of freed
//!   bits, counted by a pair of counters, and never lost.
//!
//! Everything works inside `loom::model` when built with `--cfg loom`, so you can model-check your
//! own code on top of it.
//!
//! ```
//! use inflight_sbitmap::{PutError, Sbitmap, SbitmapQueue};
//! use std::time::Duration;
//!
//! let map = Sbitmap::builder(1024).build()?;
//! let bit = map.try_get().unwrap();
//! assert!(map.try_get_shallow(8).is_some(), "only from the 8 bits open to this class");
//! let mut bits = Vec::new();
//! assert_eq!(map.try_get_batch(32, &mut bits), 32);
//! if let Some(b) = map.try_get_mask(32) {
//!     map.put_mask(b)?; // bits of one word, one atomic step
//! }
//! map.put(bit)?;
//! assert_eq!(map.put(bit), Err(PutError::NotAllocated), "a double free is an error");
//! map.put_batch(&bits)?;
//!
//! let queue = SbitmapQueue::builder(2).build()?;
//! let a = queue.try_get();
//! let b = queue.get_blocking();
//! let c = queue.get_timeout(Duration::from_millis(5)); // both are taken
//! assert!(a.is_some() && c.is_none());
//! queue.put(b)?;
//! let d = inflight_sync::block_on(queue.get()); // cancel-safe
//! assert_eq!(d, b);
//! println!("{:#?}", queue.snapshot());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The waiting protocols with their proofs are in `PROTOCOL.md` (batches) and `PROTOCOL-turns.md`
//! beside the source.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod batched;
mod bitmap;
mod builder;
mod engine;
mod error;
mod fairness;
mod get;
mod get_many;
mod hint;
mod layout;
mod local;
mod mask;
/// The local engine by itself, for its models.
#[cfg(loom)]
#[doc(hidden)]
pub mod parts;
mod queue;
mod queue_builder;
mod snapshot;
mod store;
mod turns;
mod word;

pub use batched::WakePolicy;
pub use bitmap::Sbitmap;
pub use builder::SbitmapBuilder;
pub use engine::{BackEnd, Engine};
pub use error::{BuildError, PutError, ResizeError};
pub use fairness::Fairness;
pub use get::Get;
pub use get_many::{GetMany, GetManyError};
pub use hint::Hint;
pub use layout::MAX_DEPTH;
pub use mask::BitMask;
pub use queue::SbitmapQueue;
pub use queue_builder::SbitmapQueueBuilder;
pub use snapshot::{QueueSnapshot, QueueStats, Snapshot};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
