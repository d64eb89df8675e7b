//! Which hardware queue serves which CPU.

use inflight_topology::{Scope, Topology};

/// From CPU number to hardware queue, for any number.
#[derive(Debug)]
pub(crate) struct CpuMap {
    /// By CPU number; `UNMAPPED` for numbers between those of the topology's CPUs.
    table: Box<[u32]>,
    hw_queues: usize,
}

const UNMAPPED: u32 = u32::MAX;

impl CpuMap {
    /// By the number alone.
    pub(crate) fn modulo(hw_queues: usize) -> Self {
        Self {
            table: Box::default(),
            hw_queues,
        }
    }

    /// Even groups of neighbours.
    ///
    /// The CPUs stand in a row in which those of a node, within it of a cache, within it of a core
    /// stand together. The row is cut into as many pieces as there are hardware queues; the pieces
    /// differ by at most one CPU, the longer ones first. With more queues than CPUs each CPU has
    /// one of its own, and the rest are reached only by
    /// [`AllocOptions::hw_queue`](crate::AllocOptions).
    pub(crate) fn by_row(row: Vec<usize>, hw_queues: usize) -> Self {
        let mut table = vec![UNMAPPED; row.iter().max().map_or(0, |last| last + 1)];
        let pieces = hw_queues.min(row.len()).max(1);
        let (short, longer) = (row.len() / pieces, row.len() % pieces);
        let mut cpus = row.into_iter();
        for piece in 0..pieces {
            let len = short + usize::from(piece < longer);
            for cpu in cpus.by_ref().take(len) {
                table[cpu] = u32::try_from(piece).expect("at most 65,536 hardware queues");
            }
        }
        Self {
            table: table.into(),
            hw_queues,
        }
    }

    #[inline]
    pub(crate) fn hw_queue_of(&self, cpu: usize) -> usize {
        match self.table.get(cpu) {
            Some(&queue) if queue != UNMAPPED => queue as usize,
            _ => cpu % self.hw_queues,
        }
    }
}

/// The CPUs of a machine, neighbours together.
pub(crate) fn row_of_neighbours(topology: &Topology) -> Vec<usize> {
    let pod = |scope, cpu| topology.pod_of(scope, cpu).map(|pod| pod.id());
    let mut row: Vec<usize> = topology.cpus().iter().collect();
    row.sort_by_key(|&cpu| {
        [Scope::Numa, Scope::Cache, Scope::CacheShard, Scope::Smt].map(|scope| pod(scope, cpu))
    });
    row
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(machine: &str, hw_queues: usize) -> Vec<usize> {
        let topology = Topology::synthetic(machine).unwrap();
        let map = CpuMap::by_row(row_of_neighbours(&topology), hw_queues);
        topology
            .cpus()
            .iter()
            .map(|cpu| map.hw_queue_of(cpu))
            .collect()
    }

    #[test]
    fn vectors() {
        assert_eq!(map("core:8", 3), [0, 0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(map("core:4", 1), [0; 4]);
        assert_eq!(map("core:2", 5), [0, 1], "a queue each, three unmapped");
        // CPUs 0-3 are the first threads of the cores, 4-7 the second ones.
        assert_eq!(map("core:4 smt:2", 4), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(map("numa:2 core:2 smt:2", 2), [0, 0, 1, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn unknown_cpus_are_served_too() {
        let topology = Topology::synthetic("core:4").unwrap();
        let map = CpuMap::by_row(row_of_neighbours(&topology), 3);
        assert_eq!(map.hw_queue_of(4), 1);
        assert_eq!(map.hw_queue_of(usize::MAX), usize::MAX % 3);
        assert_eq!(CpuMap::modulo(3).hw_queue_of(7), 1);
    }

    proptest! {
        #[test]
        fn groups_are_even_and_keep_neighbours_together(
            numa in 1usize..4, cache in 1usize..4, core in 1usize..6, smt in 1usize..3,
            hw_queues in 1usize..70,
        ) {
            let machine = format!("numa:{numa} cache:{cache} core:{core} smt:{smt}");
            let topology = Topology::synthetic(&machine).unwrap();
            let map = CpuMap::by_row(row_of_neighbours(&topology), hw_queues);
            let mut sizes = vec![0usize; hw_queues];
            for cpu in topology.cpus().iter() {
                sizes[map.hw_queue_of(cpu)] += 1;
            }
            let used = hw_queues.min(topology.cpus().len());
            let (mapped, unmapped) = sizes.split_at(used);
            prop_assert!(mapped.iter().max().unwrap() - mapped.iter().min().unwrap() <= 1);
            prop_assert!(unmapped.iter().all(|&size| size == 0));

            // As soon as the queues divide the caches evenly, no queue crosses a cache.
            if (numa * cache) % hw_queues == 0 || hw_queues % (numa * cache) == 0 {
                let per_cache = (core * smt * numa * cache) / hw_queues;
                for pod in topology.pods(Scope::Cache) {
                    let mut queues: Vec<usize> =
                        pod.cpus().iter().map(|cpu| map.hw_queue_of(cpu)).collect();
                    queues.sort_unstable();
                    queues.dedup();
                    let most = (core * smt).div_ceil(per_cache.max(1)).max(1);
                    prop_assert!(queues.len() <= most);
                }
            }
        }
    }
}
