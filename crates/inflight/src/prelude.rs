//! The names most programs use. Flushes and the log are not among them:
//! [`FlushDomain`](crate::flush::FlushDomain) is in [`flush`](crate::flush),
//! [`Log`](crate::flush::log::Log) in [`flush::log`](crate::flush::log).
//!
//! ```
//! use inflight::prelude::*;
//! let queue = SbitmapQueue::builder(8).build().unwrap();
//! assert!(queue.try_get().is_some());
//! ```

pub use crate::{Requeue, WorkqueueSink};
pub use inflight_sbitmap::{Fairness, GetError, GetManyError, IdGuard, Sbitmap, SbitmapQueue};
pub use inflight_tags::{
    Admission, AllocError, AllocOptions, Completions, Expired, FreezeError, HwQueueOptions,
    RedeemError, SharePolicy, Split, Steering, Tag, TagSet, Tenant, TenantError,
};
pub use inflight_topology::{CpuSet, Scope, Topology};
pub use inflight_workqueue::{
    Attrs, Concurrency, DelayedWork, JoinError, JoinHandle, Kind, Modified, QueueError, Queued,
    Share, WaitError, Work, Workqueue, WorkqueueSystem, blocking,
};
#[cfg(all(feature = "serve", target_os = "linux", not(any(loom, shuttle))))]
pub use inflight_workqueue_serve::Serve;
