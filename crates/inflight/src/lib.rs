//! What a userspace IO engine needs and finds in the Linux block layer and workqueue code.
//!
//! | module | what it gives | usable alone as |
//! |---|---|---|
//! | [`sbitmap`] | numbers `0..depth`, handed out fast from every CPU, with waiting | `inflight-sbitmap` |
//! | [`tags`] | tag sets: the permission to have a request in flight, its slot, and its token | `inflight-tags` |
//! | [`workqueue`] | queues with limits of their own over shared workers that are replaced when they block | `inflight-workqueue` |
//! | [`flush`] | cache flushes shared by those who wait, durable writes, a log with group commit | `inflight-flush` |
//! | [`topology`] | which CPUs share what, pinning, and where completions and woken threads belong | `inflight-topology` |
//! | [`sync`] | the door to atomics, locks, threads and time that makes all of it model-checkable | `inflight-sync` |
//!
//! What needs two of them is here: [`WorkqueueSink`] runs completions of tags on a workqueue, on
//! the CPU that submitted the request, and [`Requeue`] sends requests again that the device refused
//! for now.
//!
//! The library starts no thread, installs no handler and reads no environment variable until asked.
//! All state lives in values. With `--cfg loom` every type works inside [`model::check`]. The
//! feature `serde` is that of [`topology`] and [`sbitmap`], `metrics` that of [`tags`] and
//! [`workqueue`]; `futures`, `serve` and `tracing` are those of [`workqueue`], and `io-uring` is
//! that of [`flush`].
//!
//! An IO travels one way: a tag is allocated (its slot holds the request), turned into a token and
//! given to the ring; the completion brings the token back, which is redeemed for the tag; the slow
//! part of the completion runs on a workqueue; dropping the tag frees it and wakes who waits.
//!
//! ```
//! use inflight::prelude::*;
//!
//! struct Request { offset: u64, buffer: Vec<u8> }
//!
//! let set = TagSet::builder()
//!     .depth(32)
//!     .build(|_hwq, _tag| Request { offset: 0, buffer: vec![0; 4096] })?;
//! let disk = set.add_tenant("disk0")?;
//! let system = WorkqueueSystem::builder().build()?;
//! let checks = system.workqueue("check").unbound(Attrs::new()).max_active(4).build()?;
//!
//! let mut tag = disk.alloc_blocking()?; // waits while 32 requests are in flight
//! tag.offset = 8192;
//! let token: u64 = tag.into_token(); // the ring's user data
//! // … the device works, and its completion carries the token …
//! let tag = set.redeem(token)?;
//! assert_eq!(tag.offset, 8192);
//! let sum = checks.spawn(move || tag.buffer.iter().map(|&b| u64::from(b)).sum::<u64>());
//! assert_eq!(sum.wait()?, 0); // the tag was dropped on the worker: it is free again
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub use inflight_flush as flush;
pub use inflight_sbitmap as sbitmap;
pub use inflight_steering as steering;
pub use inflight_sync as sync;
pub use inflight_tags as tags;
pub use inflight_topology as topology;
pub use inflight_workqueue as workqueue;

mod requeue;
mod workqueue_sink;

pub mod model;
pub mod prelude;

pub use requeue::Requeue;
pub use workqueue_sink::WorkqueueSink;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/first-engine.md")]
struct FirstEngine;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guidelines.md")]
struct Guidelines;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/needs.md")]
struct Needs;
