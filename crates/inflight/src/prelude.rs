//! The names most programs use.
//!
//! ```
//! use inflight::prelude::*;
//! let queue = SbitmapQueue::builder(8).build().unwrap();
//! assert!(queue.try_get().is_some());
//! ```

pub use crate::WorkqueueSink;
pub use inflight_sbitmap::{Fairness, Sbitmap, SbitmapQueue};
pub use inflight_tags::{
    AllocError, AllocOptions, Completions, RedeemError, Steering, Tag, TagSet, Tenant,
};
pub use inflight_topology::{CpuSet, Scope, Topology};
pub use inflight_workqueue::{
    Attrs, BH_BUDGET, DelayedWork, JoinError, JoinHandle, Kind, QueueError, Share, Work, Workqueue,
    WorkqueueSystem, blocking,
};
#[cfg(all(feature = "serve", target_os = "linux", not(any(loom, shuttle))))]
pub use inflight_workqueue_serve::Serve;
