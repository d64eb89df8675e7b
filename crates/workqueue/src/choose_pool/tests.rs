//! Which pool an item goes to, on any machine and with any masks.

use super::*;
use inflight_topology::{CpuSet, Scope, Topology};
use proptest::prelude::*;

fn settings(machine: &str) -> Settings {
    Settings::new(Topology::synthetic(machine).unwrap(), Scope::CacheShard)
}

fn map(settings: &Settings, mode: Mode, attrs: &Attrs) -> PodMap {
    PodMap::new(settings, mode, attrs, false)
}

/// Numbers that no CPU has use another CPU's pool; CPUs that come later have pools already.
#[test]
fn every_cpu_number_has_a_place() {
    let settings = settings("numa:2 cache:2 core:2");
    for mode in [Mode::Bound, Mode::Unbound, Mode::Ordered, Mode::Bh] {
        let map = map(&settings, mode, &Attrs::new());
        assert_eq!(map.cpus(), 8);
        for cpu in (0..100).chain([usize::MAX]) {
            assert!(map.index_of(cpu) < map.pools.len());
        }
    }
    let bound = map(&settings, Mode::Bound, &Attrs::new());
    let of: Vec<_> = (0..8).map(|cpu| bound.index_of(cpu)).collect();
    assert_eq!(of, (0..8).collect::<Vec<_>>());
    assert_eq!(bound.index_of(9), 1);
}

/// Isolated CPUs are in no group, unless the unbound mask names them; items queued there have a
/// pool all the same.
#[test]
fn isolated_cpus_are_left_alone_unless_they_are_named() {
    let mut settings = settings("core:4 isolated:2-3");
    let system = Attrs::new().scope(Scope::System);
    let cpus = |settings: &Settings, cpu| {
        let map = map(settings, Mode::Unbound, &system);
        map.pools[map.index_of(cpu)].cpus.to_string()
    };
    assert_eq!(
        (cpus(&settings, 0), cpus(&settings, 3)),
        ("0-1".into(), "0-1".into())
    );
    let named = system.clone().cpumask([3].into());
    assert_eq!(
        settings.effective(&named).to_string(),
        "0-1",
        "a queue may not name them"
    );
    settings.unbound = Some([1, 2].into());
    assert_eq!(settings.effective(&system).to_string(), "1-2");
    assert_eq!(cpus(&settings, 3), "1-2");
}

fn any_set() -> impl Strategy<Value = CpuSet> {
    proptest::collection::vec(0..24usize, 0..12).prop_map(|cpus| cpus.into_iter().collect())
}

proptest! {
    /// Any masks on any machine. Each CPU has a pool. A pool has CPUs, and only usable ones. If
    /// usable CPUs are left in a CPU's own group, its pool has exactly those. Pools of different
    /// groups do not overlap, unless one stands in for others.
    #[test]
    fn any_masks_on_any_machine(
        (nodes, caches, cores, smt) in (1..4usize, 1..3usize, 1..4usize, 1..3usize),
        unbound in proptest::option::of(any_set()),
        own in any_set(),
        scope in proptest::sample::select(vec![
            Scope::Cpu, Scope::Smt, Scope::Cache, Scope::CacheShard, Scope::Numa, Scope::System,
        ]),
        strict in any::<bool>(),
    ) {
        let machine = format!("numa:{nodes} cache:{caches} core:{cores} smt:{smt}");
        let mut settings = settings(&machine);
        settings.unbound = unbound.clone();
        let all = settings.topology.cpus().clone();
        let attrs = Attrs::new().scope(scope).strict(strict).cpumask(own.clone());
        let map = map(&settings, Mode::Unbound, &attrs);
        // The same rule, written out.
        let or = |set: CpuSet, other: &CpuSet| if set.is_empty() { other.clone() } else { set };
        let usable = or(unbound.unwrap_or_default().intersection(&all), &all);
        let effective = or(own.intersection(&usable), &usable);
        for cpu in &all {
            let group = settings.topology.pod_of(scope, cpu).unwrap().cpus().clone();
            let pool = &map.pools[map.index_of(cpu)];
            let expected = or(group.intersection(&effective), &effective);
            prop_assert_eq!(&pool.cpus, &expected);
            prop_assert_eq!(&pool.allowed, if strict { &expected } else { &effective });
            prop_assert_eq!(pool.target(), pool.cpus.len());
        }
        for (n, a) in map.pools.iter().enumerate() {
            for b in &map.pools[n + 1..] {
                prop_assert_ne!(a, b, "each pool once");
                let apart = a.cpus.is_disjoint(&b.cpus);
                prop_assert!(apart || a.cpus == effective || b.cpus == effective);
                prop_assert_eq!(a.is_sibling_of(b), b.is_sibling_of(a));
            }
        }
    }
}
