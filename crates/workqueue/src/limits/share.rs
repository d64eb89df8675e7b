//! What a limit for the whole system is on each memory node, when nodes do not lend.

/// The part of each node, and what items may use that belong to no node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// By node.
    pub nodes: Vec<usize>,
    /// For front ends whose CPUs span several nodes.
    pub nodeless: usize,
}

/// A node gets its part by CPUs, rounded up, at least `min_active` and at most `max_active`. With
/// no CPU anywhere each gets `min_active`. Nobody's part is 0 unless all of it is, or items that
/// end up there all the same would never run.
///
/// The sum can exceed `max_active`, by rounding and by the floor; the part of items without a node
/// comes on top. `cpus` counts the usable online CPUs of each node.
#[must_use]
pub fn shares(max_active: usize, min_active: usize, cpus: &[usize]) -> Shares {
    let total: usize = cpus.iter().sum();
    let floor = min_active.max(1).min(max_active);
    let part = |&cpus: &usize| match total {
        0 => floor,
        _ => (max_active * cpus).div_ceil(total).clamp(floor, max_active),
    };
    Shares {
        nodes: cpus.iter().map(part).collect(),
        nodeless: max_active,
    }
}

/// How many interdependent items are sure to make progress on any node, unless it is set.
#[must_use]
pub const fn default_min_active(max_active: usize) -> usize {
    const FLOOR: usize = 8;
    if max_active < FLOOR {
        max_active
    } else {
        FLOOR
    }
}
