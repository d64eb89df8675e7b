//! CPUs in even groups of neighbours.
//!
//! As in blk-mq, which spreads the interrupts of a device in this way.

use inflight_topology::{Scope, Topology};
use std::collections::BTreeMap;

/// The CPUs of a machine, by memory node. Within a node neighbours are together: those of a cache,
/// and in it those of a core.
#[derive(Clone, Debug)]
pub(crate) struct CpuNodes {
    /// The CPUs that can be used now.
    present: Vec<Vec<usize>>,
    /// The CPUs that may appear later.
    others: Vec<Vec<usize>>,
}

impl CpuNodes {
    pub(crate) fn new(topology: &Topology) -> Self {
        let shared_parts = |cpu| {
            [Scope::Cache, Scope::CacheShard, Scope::Smt]
                .map(|scope| topology.pod_of(scope, cpu).map(|pod| pod.id()))
        };
        let by_node = |cpus: &mut dyn Iterator<Item = usize>| {
            let mut nodes = BTreeMap::<_, Vec<usize>>::new();
            for cpu in cpus {
                nodes.entry(topology.node_of(cpu)).or_default().push(cpu);
            }
            let mut nodes: Vec<_> = nodes.into_values().collect();
            nodes
                .iter_mut()
                .for_each(|cpus| cpus.sort_by_key(|&cpu| (shared_parts(cpu), cpu)));
            nodes
        };
        let present = topology.cpus();
        Self {
            present: by_node(&mut present.iter()),
            others: by_node(
                &mut topology
                    .possible()
                    .iter()
                    .filter(|&cpu| !present.contains(cpu)),
            ),
        }
    }

    /// One more than the largest number of a CPU.
    pub(crate) fn cpus(&self) -> usize {
        let cpus = self.present.iter().chain(&self.others).flatten();
        cpus.max().map_or(0, |last| last + 1)
    }

    /// The CPUs that can be used.
    pub(crate) fn present(&self) -> impl Iterator<Item = usize> {
        self.present.iter().flatten().copied()
    }

    /// Calls `f(cpu, group)` for each CPU: first spreads the present ones over the groups, then the
    /// others, beginning with the next group.
    pub(crate) fn spread(&self, groups: usize, mut f: impl FnMut(usize, usize)) {
        let used = spread(&self.present, groups, &mut f);
        spread(&self.others, groups, |cpu, group| {
            f(cpu, (used + group) % groups);
        });
    }
}

/// Spreads CPUs over `groups`, at least one, and returns how many got any.
///
/// With no more groups than nodes, each node is in one group. With more, each node has its own
/// groups, whose sizes differ by at most one, the larger ones first. Never more groups than CPUs.
fn spread(nodes: &[Vec<usize>], groups: usize, mut f: impl FnMut(usize, usize)) -> usize {
    let groups = groups.min(nodes.iter().map(Vec::len).sum());
    if groups <= nodes.len() {
        for (node, cpus) in nodes.iter().enumerate() {
            cpus.iter().for_each(|&cpu| f(cpu, node % groups));
        }
        return groups;
    }
    let mut group = 0;
    for (cpus, share) in nodes.iter().zip(shares(nodes, groups)) {
        let (short, longer) = (cpus.len() / share, cpus.len() % share);
        let mut cpus = cpus.iter();
        for n in 0..share {
            let len = short + usize::from(n < longer);
            cpus.by_ref().take(len).for_each(|&cpu| f(cpu, group));
            group += 1;
        }
    }
    groups
}

/// How many groups each node has: by its part of the CPUs, at least one, small nodes first.
///
/// Invariant: no more groups are left than CPUs, and no fewer than nodes. So no node gets more
/// groups than it has CPUs, and all groups are assigned.
fn shares(nodes: &[Vec<usize>], groups: usize) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..nodes.len()).collect();
    by_size.sort_by_key(|&node| nodes[node].len());
    let mut cpus_left: usize = nodes.iter().map(Vec::len).sum();
    let mut groups_left = groups;
    let mut shares = vec![0; nodes.len()];
    for node in by_size {
        let cpus = nodes[node].len();
        shares[node] = (groups_left * cpus / cpus_left).max(1);
        groups_left -= shares[node];
        cpus_left -= cpus;
    }
    shares
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By CPU number; `usize::MAX` for numbers of no CPU.
    fn groups_of(topology: &Topology, groups: usize) -> Vec<usize> {
        let machine = CpuNodes::new(topology);
        let mut map = vec![usize::MAX; machine.cpus()];
        machine.spread(groups, |cpu, group| {
            assert_eq!(map[cpu], usize::MAX, "each CPU once");
            map[cpu] = group;
        });
        map
    }

    fn spread_over(machine: &str, groups: usize) -> Vec<usize> {
        groups_of(&Topology::synthetic(machine).unwrap(), groups)
    }

    #[test]
    fn g21_even_groups() {
        assert_eq!(spread_over("core:8", 3), [0, 0, 0, 1, 1, 1, 2, 2]);
        let uneven = spread_over("numa:2 core:6,2", 4);
        assert_eq!(uneven, [0, 0, 1, 1, 2, 2, 3, 3]);
        let mirrored = spread_over("numa:2 core:2,6", 4);
        assert_eq!(mirrored, [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn c51_those_that_are_not_there_come_after_those_that_are() {
        assert_eq!(spread_over("core:4 offline:1", 2), [0, 0, 0, 1]);
        assert_eq!(spread_over("core:4 offline:1", 3), [0, 0, 1, 2]);
        let free = spread_over("core:4 offline:1", 6);
        assert_eq!(free, [0, 3, 1, 2], "a group that no CPU there uses");
        let isolated = spread_over("numa:2 core:2 isolated:1,3", 3);
        assert_eq!(isolated, [0, 2, 1, 0], "continued, and round");
    }

    #[test]
    fn c52_fewer_groups_than_nodes_take_nodes_by_turns() {
        assert_eq!(spread_over("numa:3 core:1,2,1", 2), [0, 1, 1, 0]);
        assert_eq!(spread_over("numa:3 core:2", 3), [0, 0, 1, 1, 2, 2]);
        assert_eq!(spread_over("numa:3 core:2", 1), [0; 6]);
    }

    #[test]
    fn c52_siblings_stand_together() {
        // CPUs 0 to 3 are the first threads of the cores, 4 to 7 the second ones.
        assert_eq!(spread_over("core:4 smt:2", 4), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(spread_over("core:4 smt:2", 3), [0, 0, 1, 2, 0, 1, 1, 2]);
    }

    /// As C52 describes it, one step at a time.
    fn naive(topology: &Topology, groups: usize) -> Vec<usize> {
        let mut map = vec![usize::MAX; topology.possible().iter().max().unwrap() + 1];
        let nodes = topology.nodes();
        let on = |node| {
            let cpus = topology.cpus().iter();
            cpus.filter(move |&cpu| topology.node_of(cpu) == Some(node))
        };
        let groups = groups.min(topology.cpus().len());
        if groups <= nodes.len() {
            for (n, &node) in nodes.iter().enumerate() {
                on(node).for_each(|cpu| map[cpu] = n % groups);
            }
            return map;
        }
        let mut share = BTreeMap::new();
        let (mut groups_left, mut cpus_left) = (groups, topology.cpus().len());
        while share.len() < nodes.len() {
            let open = nodes.iter().filter(|node| !share.contains_key(*node));
            let &smallest = open.min_by_key(|&&node| on(node).count()).unwrap();
            let cpus = on(smallest).count();
            let part = std::cmp::max(1, groups_left * cpus / cpus_left);
            assert!(part <= cpus, "no more groups than CPUs");
            share.insert(smallest, part);
            groups_left -= part;
            cpus_left -= cpus;
        }
        assert_eq!((groups_left, cpus_left), (0, 0));
        let mut group = 0;
        for &node in nodes {
            let parts = share[&node];
            for part in 0..parts {
                let mut room = on(node).count() / parts;
                room += usize::from(part < on(node).count() % parts);
                while room > 0 {
                    let free = on(node).find(|&cpu| map[cpu] == usize::MAX).unwrap();
                    // Siblings of a core that was begun come first.
                    let begun = topology.pods(Scope::Smt).iter().find(|core| {
                        let mine = |cpu| topology.node_of(cpu) == Some(node);
                        let cpus = || core.cpus().iter().filter(|&cpu| mine(cpu));
                        cpus().any(|cpu| map[cpu] == usize::MAX)
                            && cpus().any(|cpu| map[cpu] != usize::MAX)
                    });
                    let free = begun.map_or(free, |core| {
                        let mut cpus = core.cpus().iter();
                        cpus.find(|&cpu| map[cpu] == usize::MAX).unwrap()
                    });
                    map[free] = group;
                    room -= 1;
                }
                group += 1;
            }
        }
        map
    }

    proptest! {
        #[test]
        fn c52_any_machine_is_spread_as_by_the_naive_way(
            cores in prop::collection::vec(1usize..8, 1..6),
            smt in 1usize..4,
            gone in prop::collection::vec(any::<bool>(), 105),
            some_are_gone in any::<bool>(),
            groups in 1usize..120,
        ) {
            let counts: Vec<String> = cores.iter().map(usize::to_string).collect();
            let mut machine = format!("numa:{} core:{} smt:{smt}", cores.len(), counts.join(","));
            let cpus = cores.iter().sum::<usize>() * smt;
            let gone: Vec<String> =
                (1..cpus).filter(|&cpu| gone[cpu]).map(|cpu| cpu.to_string()).collect();
            if some_are_gone && !gone.is_empty() {
                machine += &format!(" offline:{}", gone.join(","));
            }
            let topology = Topology::synthetic(&machine).unwrap();
            let map = groups_of(&topology, groups);
            let naive = naive(&topology, groups);
            for cpu in topology.cpus().iter() {
                prop_assert_eq!(map[cpu], naive[cpu], "CPU {} of {}", cpu, &machine);
            }
            // What a user relies on, whatever the simple model says.
            let used = groups.min(topology.cpus().len());
            let mut sizes = vec![0usize; used];
            topology.cpus().iter().for_each(|cpu| sizes[map[cpu]] += 1);
            prop_assert!(sizes.iter().all(|&size| size > 0), "no group without a CPU");
            if used > topology.nodes().len() {
                for &node in topology.nodes() {
                    let on: Vec<usize> = topology
                        .cpus()
                        .iter()
                        .filter(|&cpu| topology.node_of(cpu) == Some(node))
                        .collect();
                    let mut mine: Vec<usize> = on.iter().map(|&cpu| map[cpu]).collect();
                    mine.sort_unstable();
                    mine.dedup();
                    let sizes = mine.iter().map(|&group| sizes[group]);
                    prop_assert!(sizes.clone().max().unwrap() - sizes.clone().min().unwrap() <= 1);
                    prop_assert_eq!(sizes.sum::<usize>(), on.len(), "groups of one node");
                }
            }
            prop_assert!(
                topology.possible().iter().all(|cpu| map[cpu] < groups),
                "those that are not there are spread too"
            );
        }
    }
}
