//! Ways to hand out ids and ways to run closures, side by side, and the loads they are measured
//! under.
//!
//! One implementation of each load: the criterion groups in `benches/` and the short interleaved
//! form, `xtask ratios`, both run it. A load's inner loop knows its contender's type, so that a
//! virtual call is paid per sample and not per id.

mod batches;
pub mod commits;
pub mod disk;
pub mod distance;
pub mod durable;
mod ids;
mod loads;
pub mod machine;
mod ours;
pub mod phase;
pub mod pools;
mod rivals;
mod rng;
pub mod rounds;
pub mod scarce;
pub mod scopes;
pub mod stop;
pub mod tags;
pub mod tasks;
mod waiting;
pub mod wakeup;

pub use batches::{Batches, batchers};
pub use ids::{Ids, check_ids};
pub use loads::{Completer, Loads, Together};
pub use ours::{back_end, every_queue, ours, ours_waiting};
pub use rivals::{rivals, rivals_together};
pub use waiting::{WaitIds, waiting_rivals};

/// One of those compared.
#[derive(Debug)]
pub struct Contender<T: ?Sized> {
    /// What tables call it.
    pub name: &'static str,
    /// Ours or a rival, and which part it plays in a ratio.
    pub part: Part,
    /// Makes one with this many ids.
    pub make: fn(usize) -> Box<T>,
}

impl<T: ?Sized> Contender<T> {
    pub(crate) const fn new(name: &'static str, part: Part, make: fn(usize) -> Box<T>) -> Self {
        Self { name, part, make }
    }
}

impl<T: ?Sized> Clone for Contender<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Contender<T> {}

/// Which part a contender plays in a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Ours with default settings.
    Ours,
    /// Ours with a setting of its own row.
    Variant,
    /// A rival that hands out `0..depth` and says exactly when none is left, or nearly so.
    Rival,
    /// Does something else; shown for comparison and in no ratio.
    Apart,
}
