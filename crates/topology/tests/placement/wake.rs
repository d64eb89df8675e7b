//! Wake placement: the rules one by one, then everything against an oracle that ranks all CPUs.

use inflight_topology::wake::{
    PlaceReason, Placement, PullOrder, Reach, ShardLoad, Wake, WakeRules, WakeSource,
};
use inflight_topology::{CpuSet, Topology};

use crate::machine::{MACHINES, Machine};

const LAST: WakeSource = WakeSource::BoundWorker(ShardLoad::new(0, 1));
const MORE_QUEUED: WakeSource = WakeSource::BoundWorker(ShardLoad::new(1, 1));
const OTHERS_RUN: WakeSource = WakeSource::BoundWorker(ShardLoad::new(0, 2));

fn topo(description: &str) -> Topology {
    Topology::synthetic(description).expect("a good description")
}

fn rules(stack: bool, recent: bool, pull: Reach) -> WakeRules {
    WakeRules {
        stack,
        recent,
        pull,
        ..WakeRules::default()
    }
}

#[test]
fn the_stack_rule_needs_a_bound_worker_that_sleeps_next_on_the_same_cpu() {
    let topo = topo("core:8");
    let idle = |cpu: usize| cpu != 2;
    let place = |source, waker| {
        Wake::new(source, waker, 2)
            .place(WakeRules::default(), &topo, idle)
            .reason
    };
    assert_eq!(place(LAST, 2), PlaceReason::Stacked);
    // Each narrowing alone.
    assert_eq!(place(MORE_QUEUED, 2), PlaceReason::CacheIdle);
    assert_eq!(place(OTHERS_RUN, 2), PlaceReason::CacheIdle);
    assert_eq!(place(WakeSource::Thread, 2), PlaceReason::CacheIdle);
    // An interrupt that hits while a bound worker runs is no wake by that worker.
    assert_eq!(place(WakeSource::Interrupt, 2), PlaceReason::CacheIdle);
    assert_eq!(place(LAST, 3), PlaceReason::CacheIdle);
    let off = WakeRules {
        stack: false,
        ..WakeRules::default()
    };
    assert_eq!(Wake::new(LAST, 2, 2).place(off, &topo, idle).cpu, 3);
}

#[test]
fn the_stack_rule_needs_a_cpu_that_is_fast_enough() {
    let topo = topo("core:4 slow:0-1");
    let fast = topo.speed_of(2).expect("a usable CPU");
    let wake = Wake::new(LAST, 0, 0);
    let idle = |cpu: usize| cpu != 0;
    let place = wake.place(WakeRules::default(), &topo, idle);
    assert_eq!(place.reason, PlaceReason::Stacked);
    let place = wake.needs(fast).place(WakeRules::default(), &topo, idle);
    assert_eq!((place.cpu, place.reason), (2, PlaceReason::CacheIdle));
    // All fast ones busy: a slow idle one is better than none.
    let place = wake
        .needs(fast)
        .place(WakeRules::default(), &topo, |cpu| cpu == 1);
    assert_eq!((place.cpu, place.reason), (1, PlaceReason::TooSlow));
}

/// Two hundred wakes of a thread whose previous CPU is always busy with the waker.
fn cpus_visited(rules: WakeRules) -> usize {
    let topo = topo("core:24");
    let mut visited = CpuSet::new();
    let (mut previous, mut recent) = (0, 0);
    for _ in 0..200 {
        let wake = Wake::new(LAST, previous, previous).recent(recent);
        let place = wake.place(rules, &topo, |cpu| cpu != previous);
        if place.cpu != previous {
            (recent, previous) = (previous, place.cpu);
        }
        visited.insert(place.cpu);
    }
    visited.len()
}

#[test]
fn without_the_stack_rule_a_thread_wanders() {
    assert_eq!(cpus_visited(rules(true, true, Reach::SameCache)), 1);
    assert_eq!(
        cpus_visited(rules(false, true, Reach::SameCache)),
        2,
        "to and fro"
    );
    assert_eq!(
        cpus_visited(rules(false, false, Reach::SameCache)),
        24,
        "round the cache"
    );
}

#[test]
fn an_interrupt_pulls_within_its_reach_only() {
    let topo = topo("numa:2 core:2");
    let idle = |cpu: usize| cpu != 0;
    let wake = |waker| Wake::new(WakeSource::Interrupt, waker, 0);
    let place = |waker, pull| wake(waker).place(rules(true, false, pull), &topo, idle);
    assert_eq!(place(1, Reach::SameCache).reason, PlaceReason::Pulled);
    assert_eq!(place(2, Reach::SameCache).reason, PlaceReason::CacheIdle);
    assert_eq!(place(2, Reach::SameCache).cpu, 1);
    assert_eq!(
        place(3, Reach::Anywhere),
        Placement {
            cpu: 3,
            reason: PlaceReason::Pulled
        }
    );
    assert_eq!(place(1, Reach::Nowhere).reason, PlaceReason::CacheIdle);
}

#[test]
fn a_pull_comes_before_an_idle_previous_cpu_or_after_it() {
    let topo = topo("numa:2 core:2");
    let place = |waker, pull_order, idle: &[usize]| {
        let rules = WakeRules {
            pull_order,
            ..WakeRules::default()
        };
        let wake = Wake::new(WakeSource::Interrupt, waker, 0);
        let place = wake.place(rules, &topo, |cpu| idle.contains(&cpu));
        (place.cpu, place.reason)
    };
    let (pulled, stays) = ((1, PlaceReason::Pulled), (0, PlaceReason::PreviousIdle));
    assert_eq!(place(1, PullOrder::PullFirst, &[0, 1]), pulled);
    assert_eq!(place(1, PullOrder::PreviousFirst, &[0, 1]), stays);
    for order in PullOrder::ALL {
        assert_eq!(place(1, order, &[1]), pulled);
        assert_eq!(place(1, order, &[0]), stays);
        // In another node.
        assert_eq!(place(2, order, &[0, 2]), stays);
        // The interrupt came to the CPU where the thread was.
        assert_eq!(place(0, order, &[0, 1]), stays);
    }
}

#[test]
fn of_two_busy_cpus_the_one_with_less_to_do_is_searched_from_within_reach() {
    let topo = topo("numa:2 core:4");
    let place = |waker, load, loads: (usize, usize), idle: &[usize]| {
        let rules = WakeRules {
            load,
            ..WakeRules::default()
        };
        let wake = Wake::new(WakeSource::Thread, waker, 3).loads(loads.0, loads.1);
        let place = wake.place(rules, &topo, |cpu| idle.contains(&cpu));
        (place.cpu, place.reason)
    };
    use PlaceReason::{CacheIdle, LessLoaded, NothingIdle, PreviousIdle};
    assert_eq!(place(1, Reach::SameCache, (1, 2), &[]), (1, LessLoaded));
    assert_eq!(place(1, Reach::SameCache, (2, 2), &[]), (3, NothingIdle));
    assert_eq!(place(1, Reach::Nowhere, (1, 2), &[]), (3, NothingIdle));
    // The search goes round from the target.
    assert_eq!(place(1, Reach::SameCache, (1, 2), &[0, 2]), (2, CacheIdle));
    assert_eq!(place(1, Reach::Nowhere, (1, 2), &[0, 2]), (0, CacheIdle));
    // An idle previous CPU needs no comparison.
    assert_eq!(place(1, Reach::SameCache, (0, 2), &[3]), (3, PreviousIdle));
    // The other node, if that is asked for.
    assert_eq!(place(5, Reach::SameCache, (1, 9), &[0, 6]), (0, CacheIdle));
    assert_eq!(place(5, Reach::Anywhere, (1, 9), &[0, 6]), (6, CacheIdle));
    assert_eq!(place(5, Reach::Anywhere, (1, 9), &[]), (5, LessLoaded));
}

#[test]
fn a_whole_core_before_a_busy_ones_thread() {
    let topo = topo("core:3 smt:2"); // cores 0,3 and 1,4 and 2,5
    let wake = Wake::new(WakeSource::Thread, 0, 0);
    let place = |idle: &[usize]| {
        wake.place(WakeRules::default(), &topo, |cpu| idle.contains(&cpu))
            .cpu
    };
    assert_eq!(place(&[3, 4, 2, 5]), 2, "a whole core");
    assert_eq!(place(&[3, 4, 5]), 3, "the thread beside the previous one");
    assert_eq!(place(&[4, 5]), 4, "any");
}

struct Case<'a> {
    machine: &'a Machine,
    source: WakeSource,
    waker: usize,
    previous: usize,
    recent: Option<usize>,
    /// Of the waker's CPU and of the previous one.
    loads: Option<(usize, usize)>,
    allowed: Option<&'a CpuSet>,
    fast: bool,
    rules: WakeRules,
    idle: usize,
}

impl Case<'_> {
    fn usable(&self, cpu: usize) -> bool {
        self.machine.knows(cpu) && self.allowed.is_none_or(|set| set.contains(cpu))
    }

    fn idle(&self, cpu: usize) -> bool {
        self.idle >> cpu & 1 == 1
    }

    fn fits(&self, cpu: usize) -> bool {
        !self.fast || self.machine.speed(cpu) == Some('1')
    }

    /// Near which CPU a place is looked for.
    fn target(&self) -> usize {
        let (m, w, v) = (self.machine, self.waker, self.previous);
        let reach = match self.rules.load {
            Reach::Nowhere => w == v,
            Reach::SameCache => m.same_cache(v, w),
            Reach::Anywhere => true,
        };
        let busy = |cpu| self.usable(cpu) && !self.idle(cpu);
        let less = self.loads.is_some_and(|(waker, previous)| waker < previous);
        let slower = self.fits(v) && !self.fits(w);
        if reach && busy(w) && busy(v) && less && !slower {
            w
        } else {
            v
        }
    }

    /// How good a CPU is for a thread that may return to its previous one: the least wins.
    fn rank(&self, cpu: usize) -> Option<u32> {
        let (m, v, t) = (self.machine, self.previous, self.target());
        let near = m.same_cache(t, cpu);
        let whole = m.numbers().all(|c| !m.same_core(c, cpu) || self.idle(c));
        let reach = m.same_cache(v, cpu) && self.rules.pull == Reach::SameCache
            || self.rules.pull == Reach::Anywhere;
        let (idle, good) = (self.idle(cpu), self.idle(cpu) && self.fits(cpu));
        let pulled = good && cpu == self.waker && self.source == WakeSource::Interrupt && reach;
        let stack = self.rules.stack && self.source == LAST && self.waker == v;
        let recent = self.rules.recent && self.recent == Some(cpu);
        let ranks = [
            pulled && self.rules.pull_order == PullOrder::PullFirst,
            good && cpu == v,
            pulled,
            self.fits(cpu) && cpu == v && stack,
            good && recent && near,
            good && near && whole,
            good && m.same_core(t, cpu),
            good && near,
            idle && cpu == v,
            idle && near && whole,
            idle && m.same_core(t, cpu),
            idle && near,
            cpu == t,
        ];
        let rank = ranks.iter().position(|&yes| yes)?;
        u32::try_from(rank).ok()
    }

    fn oracle(&self) -> Option<usize> {
        let usable = || self.machine.numbers().filter(|&cpu| self.usable(cpu));
        let round = |anchor: usize, cpu: usize| (cpu <= anchor, cpu);
        if self.usable(self.previous) {
            let ranked = usable().filter_map(|cpu| {
                let rank = self.rank(cpu)?;
                Some((rank, round(self.target(), cpu), cpu))
            });
            return ranked.min().map(|(.., cpu)| cpu);
        }
        let m = self.machine;
        let known = |cpu: &usize| m.knows(*cpu);
        let anchor = [self.previous, self.waker, 0].into_iter().find(known)?;
        let distance = |cpu: usize| match () {
            () if m.same_cache(anchor, cpu) => 0,
            () if m.same_node(anchor, cpu) => 1,
            () => 2,
        };
        let nearest = usable().map(distance).min()?;
        // Within that distance or nearer; nothing usable is nearer.
        let badness = |cpu: usize| 2 * u32::from(!self.idle(cpu)) + u32::from(!self.fits(cpu));
        usable()
            .filter(|&cpu| distance(cpu) == nearest)
            .map(|cpu| (badness(cpu), cpu != anchor, round(anchor, cpu), cpu))
            .min()
            .map(|(.., cpu)| cpu)
    }

    fn check(&self, topo: &Topology) {
        let mut wake = Wake::new(self.source, self.waker, self.previous);
        if let Some(recent) = self.recent {
            wake = wake.recent(recent);
        }
        if let Some((waker, previous)) = self.loads {
            wake = wake.loads(waker, previous);
        }
        if let Some(allowed) = self.allowed {
            wake = wake.allowed(allowed);
        }
        if self.fast {
            wake = wake.needs(topo.speed_of(fastest(self.machine)).expect("usable"));
        }
        let place = wake.place(self.rules, topo, |cpu| self.idle(cpu));
        let note = || {
            format!(
                "{}: {:?} by {} of {}, recent {:?}, loads {:?}, idle {:b}, {:?} -> {place:?}",
                self.machine.description,
                self.source,
                self.waker,
                self.previous,
                self.recent,
                self.loads,
                self.idle,
                self.rules
            )
        };
        let expected = self.oracle();
        assert_eq!(place.cpu, expected.unwrap_or(self.previous), "{}", note());
        assert_eq!(
            place.reason == PlaceReason::NoCpu,
            expected.is_none(),
            "{}",
            note()
        );
        let gone = expected.is_some() && !self.usable(self.previous);
        assert_eq!(
            place.reason == PlaceReason::PreviousGone,
            gone,
            "{}",
            note()
        );
        // The promise apart from all order: nobody leaves the cache unasked.
        let pulled = place.reason == PlaceReason::Pulled;
        let asked = if pulled {
            self.rules.pull
        } else {
            self.rules.load
        };
        if !gone && expected.is_some() && asked != Reach::Anywhere {
            assert!(
                self.machine.same_cache(self.previous, place.cpu),
                "{}",
                note()
            );
        }
    }
}

fn fastest(machine: &Machine) -> usize {
    let cpus = machine.numbers().filter(|&cpu| machine.knows(cpu));
    cpus.max_by_key(|&cpu| machine.speed(cpu)).expect("a CPU")
}

fn all_rules() -> Vec<WakeRules> {
    let mut all = Vec::new();
    for pull in Reach::ALL {
        for on in 0..4 {
            // Where nobody is pulled there is no order.
            let orders = if pull == Reach::Nowhere { 1 } else { 2 };
            for pull_order in PullOrder::ALL.into_iter().take(orders) {
                all.push(WakeRules {
                    pull_order,
                    ..rules(on & 1 != 0, on & 2 != 0, pull)
                });
            }
        }
    }
    all
}

/// All rules, or the default ones where the thread's mask is what is looked at.
fn rules_for(allowed: Option<&CpuSet>) -> Vec<WakeRules> {
    match allowed {
        None => all_rules(),
        Some(_) => vec![WakeRules::default()],
    }
}

/// Every wake of every machine with these rules, masks and loads.
fn check_all(
    allowed: Option<&CpuSet>,
    rules: &[WakeRules],
    loads: Option<(usize, usize)>,
    sources: &[WakeSource],
) {
    for machine in &MACHINES {
        let topo = machine.topology();
        let end = *machine.numbers().end();
        let hybrid = topo.speed_classes().len() > 1;
        let wakes = (0..=end).flat_map(|waker| (0..=end).map(move |previous| (waker, previous)));
        let wakes: Vec<(usize, usize)> = wakes.collect();
        let mut case = Case {
            machine,
            source: LAST,
            waker: 0,
            previous: 0,
            recent: None,
            loads,
            allowed,
            fast: false,
            rules: WakeRules::default(),
            idle: 0,
        };
        for &rules in rules {
            case.rules = rules;
            for &source in sources {
                case.source = source;
                for &(waker, previous) in &wakes {
                    (case.waker, case.previous) = (waker, previous);
                    for recent in [None, Some(0), Some(end)] {
                        case.recent = recent;
                        for fast in 0..=usize::from(hybrid) {
                            case.fast = fast == 1;
                            for idle in 0..1 << end {
                                case.idle = idle;
                                case.check(&topo);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_wake_on_every_machine() {
    let sets = [CpuSet::from([0, 3]), CpuSet::from([9])];
    let sources = [WakeSource::Interrupt, WakeSource::Thread, LAST, MORE_QUEUED];
    for allowed in [None, Some(&sets[0]), Some(&sets[1])] {
        check_all(allowed, &rules_for(allowed), None, &sources);
    }
}

#[test]
fn every_wake_by_load() {
    let rules = Reach::ALL.map(|load| WakeRules {
        load,
        ..WakeRules::default()
    });
    let set = CpuSet::from([0, 3]);
    let sources = [WakeSource::Interrupt, WakeSource::Thread, LAST];
    for allowed in [None, Some(&set)] {
        for loads in [(1, 2), (2, 2)] {
            check_all(allowed, &rules, Some(loads), &sources);
        }
    }
}
