//! `max_active` of an unbound queue for the whole system.
//!
//! A queue has a front end for each CPU. Each belongs to a memory node, or to none if its pool
//! spans several. How the limit is split among the nodes is a [`Share`]. What is done is written
//! step by step, one word at a time, as threads take them ([`steps`]), over words of two forms:
//! atomics ([`slots`]), which a queue uses, and plain numbers ([`tokens`]).
//! `PROTOCOL-limits.md` has the proof for any order.
//!
//! Order: first come, first served within a front end, also across a rise of the limit; turn by
//! turn among the front ends of a node that wait.

mod fronts;
mod groups;
mod rules;
mod share;
mod slots;
mod steps;

#[cfg(any(test, feature = "unstable-sim"))]
mod machine;
#[cfg(any(test, feature = "unstable-sim"))]
mod ordered;
#[cfg(any(test, feature = "unstable-sim"))]
mod per_node;
#[cfg(any(test, feature = "unstable-sim"))]
mod tokens;

use groups::{group_of, groups, weights};
#[cfg(any(test, feature = "unstable-sim"))]
pub use machine::Limits;
#[cfg(any(test, feature = "unstable-sim"))]
pub use ordered::Ordered;
#[cfg(any(test, loom, feature = "unstable-sim"))]
pub use rules::Tuning;
#[cfg(any(test, feature = "unstable-sim"))]
pub use share::Shares;
pub use share::{default_min_active, shares};
pub(crate) use slots::gate_of;
pub use slots::{Full, Slots, Waits};
#[cfg(any(test, feature = "unstable-sim"))]
pub use tokens::Touches;

/// What is told of each item that becomes active, with its front end.
type Started<'a, T> = dyn FnMut(usize, T) + 'a;

/// How the limit of an unbound queue is split among the memory nodes.
///
/// ```
/// use inflight_workqueue::{Attrs, Share, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").unbound(Attrs::new()).share(Share::PerNode).build()?;
/// wq.set_max_active(96)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// Each node has its part, as in Linux since 6.9. A node that is idle does not lend: with all
    /// load on one node its part is the limit. By rounding, and by `min_active` for each node, the
    /// sum can exceed the limit.
    PerNode,
    /// Nodes lend: whatever node the load is on, as many items as the limit says are active, and
    /// never one more. `min_active` means nothing.
    Lend,
}

/// A front end of a queue, by number: of the threaded form, a gate as long as it leads to one node.
pub type FrontEnd = usize;

#[cfg(all(test, not(any(loom, shuttle))))]
mod both;
#[cfg(all(test, not(any(loom, shuttle))))]
mod explore;
#[cfg(all(test, not(any(loom, shuttle))))]
mod oracle;
#[cfg(all(test, not(any(loom, shuttle))))]
mod properties;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod threads;
#[cfg(all(test, not(any(loom, shuttle))))]
mod touches;
