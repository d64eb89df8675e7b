//! Which memory nodes are counted together, and how much they weigh.

use super::Share;

/// More nodes than that share the words of others, which costs them locality and nothing else.
const LENDING_NODES: usize = 63;

/// How many groups there are for so many nodes: one, or one for each and one, the last, for front
/// ends without a node.
pub(super) fn groups(share: Share, nodes: usize) -> usize {
    let nodes = match share {
        Share::PerNode => nodes,
        Share::Lend => nodes.min(LENDING_NODES),
    };
    if nodes <= 1 { 1 } else { nodes + 1 }
}

/// The group of a node, or of none. Nodes beyond the number of groups share one with others.
pub(super) fn group_of(node: Option<usize>, groups: usize) -> usize {
    match (node, groups) {
        (_, 1) => 0,
        (Some(node), groups) => node % (groups - 1),
        (None, groups) => groups - 1,
    }
}

/// By group. The last one, of front ends without a node, can use all CPUs.
pub(super) fn weights(cpus: &[usize], groups: usize) -> Vec<usize> {
    if groups == 1 {
        return vec![cpus.iter().sum()];
    }
    let mut weights = vec![0; groups];
    for (node, cpus) in cpus.iter().enumerate() {
        weights[group_of(Some(node), groups)] += cpus;
    }
    weights[groups - 1] = cpus.iter().sum();
    weights
}
