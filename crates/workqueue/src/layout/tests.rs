use super::*;
use proptest::prelude::*;

fn settings(machine: &str) -> Settings {
    Settings::new(Topology::synthetic(machine).unwrap(), Scope::CacheShard)
}

fn cpus_of(place: &Place) -> String {
    match &place.cpus {
        Cpus::One(cpu) => cpu.to_string(),
        Cpus::Pod { cpus, .. } => cpus.to_string(),
    }
}

/// The places of an unbound queue, each as a list of CPUs, and the place of each CPU.
fn places(settings: &Settings, attrs: &Attrs) -> (Vec<String>, Vec<usize>) {
    let layout = Layout::new(settings, Mode::Unbound, attrs, false);
    let cpus = settings.topology.possible().iter();
    let of = cpus.map(|cpu| layout.place_of(cpu)).collect();
    (layout.places.iter().map(cpus_of).collect(), of)
}

#[test]
fn every_cpu_number_has_a_place() {
    let settings = settings("cache:2 core:2");
    let bound = Layout::new(&settings, Mode::Bound, &Attrs::new(), false);
    assert_eq!(bound.places[bound.place_of(3)].cpus, Cpus::One(3));
    assert!(bound.place_of(4_000) < 4, "an unknown CPU has a stand-in");
    let unbound = Layout::new(&settings, Mode::Unbound, &Attrs::new(), true);
    assert_eq!((unbound.place_of(1), unbound.place_of(2)), (0, 1));
    assert_eq!(unbound.places[1].target(), 2);
    assert!(unbound.places[1].is_high());
}

/// D10, by way of the default scope: shards of about eight cores, as the spec's table has them.
#[test]
fn d10_the_default_scope_splits_large_caches() {
    for (cores, sizes) in [
        (9, vec![9]),
        (12, vec![6, 6]),
        (13, vec![7, 6]),
        (16, vec![8, 8]),
        (20, vec![7, 7, 6]),
        (24, vec![8, 8, 8]),
        (36, vec![8, 7, 7, 7, 7]),
        (59, vec![9, 9, 9, 8, 8, 8, 8]),
        (60, vec![8, 8, 8, 8, 7, 7, 7, 7]),
        (96, vec![8; 12]),
    ] {
        let settings = settings(&format!("core:{cores}"));
        let layout = Layout::new(&settings, Mode::Unbound, &Attrs::new(), false);
        let got: Vec<_> = layout.places.iter().map(Place::target).collect();
        assert_eq!(got, sizes, "{cores} cores");
    }
}

/// D2, D4: what is asked for is cut to what is allowed; a pod without a part in it is served by
/// all that may be used.
#[test]
fn d2_d4_masks() {
    let mut settings = settings("cache:3 core:2");
    let cache = Attrs::new().scope(Scope::Cache);
    let two = cache.clone().cpumask(CpuSet::from([1, 2]));
    let of = |pairs: &[&str], at: [usize; 6]| {
        (
            pairs.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(),
            at.to_vec(),
        )
    };
    assert_eq!(
        places(&settings, &cache),
        of(&["0-1", "2-3", "4-5"], [0, 0, 1, 1, 2, 2])
    );
    assert_eq!(
        places(&settings, &two),
        of(&["1", "2", "1-2"], [0, 0, 1, 1, 2, 2])
    );
    settings.unbound = Some(CpuSet::from([4, 5]));
    let rest = of(&["4-5"], [0; 6]);
    assert_eq!(places(&settings, &cache), rest);
    assert_eq!(
        places(&settings, &two),
        rest,
        "nothing in common: the whole unbound mask"
    );
}

/// D15, D16: isolated CPUs are used only if the unbound mask names them.
#[test]
fn isolated_cpus_are_left_alone() {
    let mut settings = settings("core:4 isolated:3");
    let all = Attrs::new().scope(Scope::System);
    assert_eq!(places(&settings, &all).0, ["0-2"]);
    assert_eq!(
        places(&settings, &all.clone().cpumask(CpuSet::from([3]))).0,
        ["0-2"]
    );
    settings.unbound = Some(CpuSet::from([2, 3]));
    assert_eq!(settings.unbound_cpus(), CpuSet::from([2, 3]));
}

/// B2: a pool is known by nice, strictness, its CPUs and, only if it is not strict, by all that
/// its workers may use.
#[test]
fn b2_what_makes_pools_equal() {
    let settings = settings("cache:2 core:2");
    let first = |attrs: Attrs| {
        let layout = Layout::new(&settings, Mode::Unbound, &attrs, false);
        layout.places[0].clone()
    };
    let cache = Attrs::new().scope(Scope::Cache);
    let narrow = cache.clone().cpumask(CpuSet::from([0, 1, 2]));
    assert_ne!(first(cache.clone()), first(narrow.clone()));
    assert_eq!(
        first(cache.clone().strict(true)),
        first(narrow.strict(true))
    );
    assert_ne!(first(cache.clone()), first(cache.clone().strict(true)));
    assert_ne!(first(cache.clone()), first(cache.clone().nice(1)));
    assert_eq!(first(cache), first(Attrs::new().scope(Scope::CacheShard)));
}

proptest! {
    /// On any machine, with any masks: each CPU has one place, of CPUs that may be used, in its
    /// own pod if the pod has any.
    #[test]
    fn any_mask_on_any_machine(
        nodes in 1usize..4, caches in 1usize..4, cores in 1usize..12, smt in 1usize..3,
        asked in prop::collection::vec(0usize..80, 0..8),
        unbound in prop::collection::vec(0usize..80, 0..8),
        scope in 0usize..6, strict: bool,
    ) {
        let machine = format!("numa:{nodes} cache:{caches} core:{cores} smt:{smt}");
        let mut settings = settings(&machine);
        let unbound: CpuSet = unbound.into_iter().collect();
        settings.unbound = (!unbound.is_empty()).then_some(unbound.clone());
        let scope = Scope::ALL[scope];
        let asked: CpuSet = asked.into_iter().collect();
        let attrs = Attrs::new().scope(scope).strict(strict).cpumask(asked.clone());
        let all = settings.topology.cpus();
        // The oracle: what a person would do with the three sets.
        let or = |set: CpuSet, other: &CpuSet| if set.is_empty() { other.clone() } else { set };
        let global = or(unbound.intersection(all), all);
        let effective = or(global.intersection(&asked), &global);
        let layout = Layout::new(&settings, Mode::Unbound, &attrs, false);
        for cpu in all {
            let pod = settings.topology.pod_of(scope, cpu).unwrap().cpus();
            let expected = or(pod.intersection(&effective), &effective);
            let Cpus::Pod { cpus, allowed, .. } = &layout.places[layout.place_of(cpu)].cpus else {
                panic!("a pod")
            };
            prop_assert_eq!(cpus, &expected);
            prop_assert_eq!(allowed, if strict { &expected } else { &effective });
        }
        let of_all: Vec<_> = (0..layout.places.len()).flat_map(|p| layout.served_by(p)).collect();
        prop_assert_eq!(of_all.len(), all.len());
    }
}
