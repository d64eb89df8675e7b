//! Which pool an item goes to.

use super::*;
use inflight_topology::{Scope, Topology};

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
