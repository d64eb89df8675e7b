//! Which hardware queue serves which CPU.

use crate::cpu_groups::CpuNodes;
use crate::queue_kind::{Kinds, QueueKind, Span};
use inflight_sbitmap::tenancy::Users;
use inflight_sync::Grown;
use inflight_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use inflight_sync::{Mutex, cpu};
use std::collections::BTreeSet;

/// From CPU number to hardware queue, for any number and each kind. One change at a time.
///
/// It is a hint: the bit that was taken decides which hardware queue a tag is of.
#[derive(Debug)]
pub(crate) struct CpuMap {
    /// Without a topology, CPUs are distinguished only by their number.
    nodes: Mutex<Option<CpuNodes>>,
    kinds: Kinds,
    /// By kind.
    maps: [KindMap; 3],
    /// By hardware queue: whether it serves any CPU that can be used.
    serving: Box<[AtomicBool]>,
}

#[derive(Debug)]
struct KindMap {
    /// By CPU number; `UNMAPPED` for numbers of no CPU.
    table: Box<[AtomicU32]>,
    /// The CPUs beyond the table, which were not known at first.
    beyond: Grown<AtomicU32>,
    /// The hardware queues that serve numbers outside the table in turn; only one if there is a
    /// topology.
    first: AtomicUsize,
    len: AtomicUsize,
}

const UNMAPPED: u32 = u32::MAX;

impl KindMap {
    fn get(&self, cpu: usize) -> Option<&AtomicU32> {
        match self.table.get(cpu) {
            None => self.beyond.get(cpu - self.table.len()),
            found => found,
        }
    }

    fn set(&self, cpu: usize, hw_queue: u32) {
        let entry = match self.table.get(cpu) {
            Some(entry) => entry,
            None => {
                let index = cpu - self.table.len();
                // No machine has so many CPUs; they would go to the first queue.
                if index >= Grown::<AtomicU32>::MOST {
                    return;
                }
                self.beyond.get_or_make(index, || AtomicU32::new(UNMAPPED))
            }
        };
        // Relaxed: as in `lay_out`.
        entry.store(hw_queue, Ordering::Relaxed);
    }

    /// Forgets all CPUs.
    fn clear(&self) {
        let beyond = self.beyond.iter().map(|(_, entry)| entry);
        for entry in self.table.iter().chain(beyond) {
            // Relaxed: as in `lay_out`.
            entry.store(UNMAPPED, Ordering::Relaxed);
        }
    }
}

impl CpuMap {
    /// Even groups of the machine's CPUs for each kind; without a topology by the number alone.
    pub(crate) fn new(
        nodes: Option<CpuNodes>,
        kinds: Kinds,
        hw_queues: usize,
        most_hw_queues: usize,
    ) -> Self {
        let cpus = nodes.as_ref().map_or(0, CpuNodes::cpus);
        let map = |_| KindMap {
            table: (0..cpus).map(|_| AtomicU32::new(UNMAPPED)).collect(),
            beyond: Grown::new(),
            first: AtomicUsize::new(0),
            len: AtomicUsize::new(1),
        };
        let map = Self {
            nodes: Mutex::new(nodes),
            kinds,
            maps: QueueKind::ALL.map(map),
            serving: (0..most_hw_queues)
                .map(|_| AtomicBool::new(false))
                .collect(),
        };
        map.set_hw_queues(hw_queues);
        map
    }

    /// Spreads the CPUs over another number of hardware queues. A reader meanwhile finds the old or
    /// the new queue.
    pub(crate) fn set_hw_queues(&self, hw_queues: usize) {
        self.lay_out(self.nodes.lock().as_ref(), hw_queues);
    }

    /// Spreads the CPUs of another machine. A reader meanwhile finds the old or the new queue, or
    /// the first of the kind.
    pub(crate) fn set_nodes(&self, nodes: CpuNodes, hw_queues: usize) {
        let mut current = self.nodes.lock();
        self.maps.iter().for_each(KindMap::clear);
        self.lay_out(Some(&nodes), hw_queues);
        *current = Some(nodes);
    }

    fn lay_out(&self, nodes: Option<&CpuNodes>, hw_queues: usize) {
        // Relaxed throughout: a caller admitted after the change compares again; see
        // `TagMaps::admits`.
        for (kind, map) in QueueKind::ALL.into_iter().zip(&self.maps) {
            let Span { first, len } = self.kinds.span(kind, hw_queues);
            map.first.store(first, Ordering::Relaxed);
            if let Some(nodes) = nodes {
                map.len.store(1, Ordering::Relaxed);
                nodes.spread(len, |cpu, group| {
                    let queue = u32::try_from(first + group);
                    map.set(cpu, queue.expect("at most 65,536 hardware queues"));
                });
            } else {
                map.len.store(len, Ordering::Relaxed);
            }
        }
        let mut serving = vec![false; self.serving.len()];
        for cpu in present(nodes, cpu::possible) {
            for kind in QueueKind::ALL {
                serving[self.hw_queue_of(kind, cpu)] = true;
            }
        }
        for (entry, serves) in self.serving.iter().zip(serving) {
            entry.store(serves, Ordering::Relaxed);
        }
    }

    /// The number of CPUs that each hardware queue serves, for any kind: at least one. If they
    /// share their tags, the first entry is the number that all of them serve.
    pub(crate) fn users(&self, shared: bool) -> Vec<Users> {
        let nodes = self.nodes.lock();
        let mut cpus: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.serving.len()];
        // Those of the CPUs that the process is expected to run on.
        for cpu in present(nodes.as_ref(), cpu::usable) {
            for kind in QueueKind::ALL {
                let hw_queue = if shared {
                    0
                } else {
                    self.hw_queue_of(kind, cpu)
                };
                cpus[hw_queue].insert(cpu);
            }
        }
        let of = match *nodes {
            // Any CPU may name any hardware queue.
            Some(_) => cpus.iter().flatten().max().map_or(1, |last| last + 1),
            None => cpu::online(),
        };
        let users = |cpus: &BTreeSet<usize>| Users {
            count: cpus.len().max(1),
            of,
        };
        cpus.iter().map(users).collect()
    }

    /// The CPUs that can be used.
    pub(crate) fn cpus(&self) -> Vec<usize> {
        present(self.nodes.lock().as_ref(), cpu::possible)
    }

    #[inline]
    pub(crate) fn hw_queue_of(&self, kind: QueueKind, cpu: usize) -> usize {
        let map = &self.maps[kind as usize];
        // Relaxed: as in `lay_out`.
        let queue = map.get(cpu).map(|queue| queue.load(Ordering::Relaxed));
        match queue {
            Some(queue) if queue != UNMAPPED => queue as usize,
            // Relaxed: as above.
            _ => map.first.load(Ordering::Relaxed) + cpu % map.len.load(Ordering::Relaxed),
        }
    }

    /// Whether a hardware queue serves any CPU that can be used.
    pub(crate) fn serves_any(&self, hw_queue: usize) -> bool {
        // Unknown CPUs go to the first queue. Relaxed: as in `lay_out`.
        hw_queue == 0 || self.serving[hw_queue].load(Ordering::Relaxed)
    }
}

/// The CPUs that can be used; without a topology so many.
fn present(nodes: Option<&CpuNodes>, otherwise: fn() -> usize) -> Vec<usize> {
    match nodes {
        Some(nodes) => nodes.present().collect(),
        None => (0..otherwise()).collect(),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use inflight_topology::Topology;

    const DEFAULT_ONLY: Kinds = Kinds { read: 0, poll: 0 };

    fn map(nodes: &str, kinds: Kinds, hw_queues: usize) -> CpuMap {
        let topology = Topology::synthetic(nodes).unwrap();
        CpuMap::new(Some(CpuNodes::new(&topology)), kinds, hw_queues, hw_queues)
    }

    fn queues(map: &CpuMap, kind: QueueKind, cpus: usize) -> Vec<usize> {
        (0..cpus).map(|cpu| map.hw_queue_of(kind, cpu)).collect()
    }

    #[test]
    fn c51_groups_are_hardware_queues() {
        let queues = |nodes, n| queues(&map(nodes, DEFAULT_ONLY, n), QueueKind::Default, 8);
        assert_eq!(queues("core:8", 3), [0, 0, 0, 1, 1, 1, 2, 2]);
        assert_eq!(queues("numa:2 core:2 smt:2", 2), [0, 0, 1, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn a_hardware_queue_has_as_many_users_as_cpus() {
        let counts = |map: CpuMap, shared| -> Vec<usize> {
            let users = map.users(shared).into_iter();
            users.map(|users| users.count).collect()
        };
        let of = |nodes, n, shared| counts(map(nodes, DEFAULT_ONLY, n), shared);
        assert_eq!(of("core:8", 3, false), [3, 3, 2]);
        assert_eq!(
            of("core:2", 4, false),
            [1, 1, 1, 1],
            "the last two serve none"
        );
        assert_eq!(of("core:8", 3, true)[0], 8);
        let kinds = Kinds { read: 1, poll: 0 };
        assert_eq!(counts(map("core:4", kinds, 3), false), [2, 2, 4]);
        let modulo = CpuMap::new(None, DEFAULT_ONLY, 1, 1);
        assert_eq!(counts(modulo, false), [cpu::usable()]);
        assert_eq!(map("core:8", DEFAULT_ONLY, 3).users(false)[0].of, 8);
    }

    #[test]
    fn c53_a_cpu_without_a_mapping_goes_to_the_first_queue() {
        let map = map("core:4", Kinds { read: 1, poll: 1 }, 5);
        assert_eq!(map.hw_queue_of(QueueKind::Default, 4), 0);
        assert_eq!(map.hw_queue_of(QueueKind::Default, usize::MAX), 0);
        assert_eq!(map.hw_queue_of(QueueKind::Poll, usize::MAX), 4);
        let modulo = CpuMap::new(None, DEFAULT_ONLY, 3, 3);
        assert_eq!(modulo.hw_queue_of(QueueKind::Default, 7), 1);
    }

    #[test]
    fn c54_queues_beyond_the_cpus_serve_none_but_the_first_always_does() {
        let map = map("core:2", DEFAULT_ONLY, 5);
        assert_eq!(queues(&map, QueueKind::Default, 2), [0, 1]);
        let serving: Vec<usize> = (0..5).filter(|&n| map.serves_any(n)).collect();
        assert_eq!(serving, [0, 1]);
    }

    #[test]
    fn c8_each_kind_has_a_map_and_a_missing_one_falls_back() {
        let map = map("core:4", Kinds { read: 2, poll: 1 }, 5);
        assert_eq!(queues(&map, QueueKind::Default, 4), [0, 0, 1, 1]);
        assert_eq!(queues(&map, QueueKind::Read, 4), [2, 2, 3, 3]);
        assert_eq!(queues(&map, QueueKind::Poll, 4), [4; 4]);
        map.set_hw_queues(2);
        assert_eq!(queues(&map, QueueKind::Poll, 4), [1; 4]);
        assert_eq!(queues(&map, QueueKind::Read, 4), [0; 4], "none is left");
        let modulo = CpuMap::new(None, Kinds { read: 2, poll: 0 }, 5, 5);
        assert_eq!(queues(&modulo, QueueKind::Read, 4), [3, 4, 3, 4]);
        assert_eq!(queues(&modulo, QueueKind::Poll, 4), [0, 1, 2, 0]);
    }
}
