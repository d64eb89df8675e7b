//! The ways to hand out ids that the benchmarks compare.

mod ids;
mod waiting;

pub use ids::{Count, Ids, MutexVec, RingQueue, check_ids};
pub use waiting::{ChannelList, CondvarList, SemaphoreList, WaitIds};
