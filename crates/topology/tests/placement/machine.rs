//! Machines twice: as the crate is told them, and written out by hand.

use inflight_topology::Topology;

/// A character for each CPU: who has the same one shares. `-` is a CPU that cannot be used.
pub(crate) struct Machine {
    pub(crate) description: &'static str,
    caches: &'static str,
    cores: &'static str,
    nodes: &'static str,
    /// Digits: the greater, the faster.
    speeds: &'static str,
}

pub(crate) const MACHINES: [Machine; 9] = [
    Machine {
        description: "core:1",
        caches: "a",
        cores: "a",
        nodes: "a",
        speeds: "0",
    },
    Machine {
        description: "core:4",
        caches: "aaaa",
        cores: "abcd",
        nodes: "aaaa",
        speeds: "0000",
    },
    Machine {
        description: "core:2 smt:2",
        caches: "aaaa",
        cores: "abab",
        nodes: "aaaa",
        speeds: "0000",
    },
    Machine {
        description: "cache:2 core:2",
        caches: "aabb",
        cores: "abcd",
        nodes: "aaaa",
        speeds: "0000",
    },
    Machine {
        description: "numa:2 cache:2 core:1",
        caches: "abcd",
        cores: "abcd",
        nodes: "aabb",
        speeds: "0000",
    },
    Machine {
        description: "cache:2 core:1 smt:2",
        caches: "abab",
        cores: "abab",
        nodes: "aaaa",
        speeds: "0000",
    },
    // Fast and slow cores around one cache.
    Machine {
        description: "core:4 slow:2-3",
        caches: "aaaa",
        cores: "abcd",
        nodes: "aaaa",
        speeds: "1100",
    },
    // A fast and a slow core in each of two caches.
    Machine {
        description: "cache:2 core:2 fast:1,3",
        caches: "aabb",
        cores: "abcd",
        nodes: "aaaa",
        speeds: "0101",
    },
    // A hole in the numbers.
    Machine {
        description: "numa:2 core:2 offline:1",
        caches: "a-bb",
        cores: "a-cd",
        nodes: "a-bb",
        speeds: "0-00",
    },
];

impl Machine {
    pub(crate) fn topology(&self) -> Topology {
        Topology::synthetic(self.description).expect("a good description")
    }

    /// The CPUs, usable or not, and one number beyond.
    pub(crate) fn numbers(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.caches.len()
    }

    fn at(text: &str, cpu: usize) -> Option<char> {
        text.chars().nth(cpu).filter(|&c| c != '-')
    }

    pub(crate) fn knows(&self, cpu: usize) -> bool {
        Self::at(self.caches, cpu).is_some()
    }

    fn same(text: &str, a: usize, b: usize) -> bool {
        Self::at(text, a).is_some() && Self::at(text, a) == Self::at(text, b)
    }

    pub(crate) fn same_cache(&self, a: usize, b: usize) -> bool {
        Self::same(self.caches, a, b)
    }

    pub(crate) fn same_core(&self, a: usize, b: usize) -> bool {
        Self::same(self.cores, a, b)
    }

    pub(crate) fn same_node(&self, a: usize, b: usize) -> bool {
        Self::same(self.nodes, a, b)
    }

    pub(crate) fn speed(&self, cpu: usize) -> Option<char> {
        Self::at(self.speeds, cpu)
    }
}

#[test]
fn the_machines_are_those_written_out() {
    for machine in &MACHINES {
        let topo = machine.topology();
        for a in machine.numbers() {
            assert_eq!(topo.cpus().contains(a), machine.knows(a));
            for b in machine
                .numbers()
                .filter(|&b| machine.knows(a) && machine.knows(b))
            {
                let note = format!("{}: {a} and {b}", machine.description);
                assert_eq!(topo.shares_cache(a, b), machine.same_cache(a, b), "{note}");
                assert_eq!(
                    topo.node_of(a) == topo.node_of(b),
                    machine.same_node(a, b),
                    "{note}"
                );
                let faster = (
                    topo.speed_of(a) > topo.speed_of(b),
                    machine.speed(a) > machine.speed(b),
                );
                assert_eq!(faster.0, faster.1, "{note}");
            }
        }
    }
}
