//! Random sequences over random machines, against the oracle; and long runs over many CPUs.

use super::both::Limits;
use super::oracle::Oracle;
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// What happens to a queue.
#[derive(Clone, Copy, Debug)]
enum Event {
    Queue(usize),
    End(usize),
    Cancel(usize),
    SetMax(usize),
    SetMin(usize),
    Freeze,
    Thaw,
    /// So many CPUs of a node are online.
    Cpus(usize, usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => any::<usize>().prop_map(Event::Queue),
        8 => any::<usize>().prop_map(Event::End),
        2 => any::<usize>().prop_map(Event::Cancel),
        2 => (1..40usize).prop_map(Event::SetMax),
        1 => (0..20usize).prop_map(Event::SetMin),
        1 => Just(Event::Freeze),
        1 => Just(Event::Thaw),
        1 => (any::<usize>(), 0..9usize).prop_map(|(node, n)| Event::Cpus(node, n)),
    ]
}

/// CPUs of 1 to 8 nodes, and for each front end its node or none.
fn machine() -> impl Strategy<Value = (Vec<usize>, Vec<Option<usize>>)> {
    proptest::collection::vec(0..9usize, 1..=8).prop_flat_map(|cpus| {
        let nodes = cpus.len();
        let front = proptest::option::weighted(0.8, 0..nodes);
        (Just(cpus), proptest::collection::vec(front, 1..10))
    })
}

/// A queue under random events, and what is known of it from outside.
struct Run {
    limits: Limits<u32>,
    cpus: Vec<usize>,
    next: u32,
    active: Vec<(FrontEnd, u32)>,
    /// By front end, in the order of queueing.
    inactive: Vec<VecDeque<u32>>,
    /// Started by the event at hand.
    started: Vec<(FrontEnd, u32)>,
    frozen: bool,
}

impl Run {
    fn new(share: Share, max: usize, cpus: &[usize], fronts: &[Option<usize>]) -> Self {
        let mut limits = Limits::new(share, max, cpus);
        for node in fronts {
            limits.add_front(*node);
        }
        Self {
            limits,
            cpus: cpus.to_vec(),
            next: 0,
            active: Vec::new(),
            inactive: vec![VecDeque::new(); fronts.len()],
            started: Vec::new(),
            frozen: false,
        }
    }

    /// Does it. Returns what the oracle is to do: the same, in terms of items.
    fn event(&mut self, event: Event) -> Option<Done> {
        self.started.clear();
        let started = &mut self.started;
        let note = |front, item| started.push((front, item));
        let done = match event {
            Event::Queue(n) => {
                let front = n % self.inactive.len();
                self.next += 1;
                self.inactive[front].push_back(self.next);
                self.limits.admit(front, self.next, note);
                Done::Queue(front, self.next)
            }
            Event::End(n) => {
                let at = n.checked_rem(self.active.len())?;
                let (front, _) = self.active.swap_remove(at);
                self.limits.leave(front, note);
                Done::End(front)
            }
            Event::Cancel(n) => {
                let front = n % self.inactive.len();
                let at = (n / 16).checked_rem(self.inactive[front].len())?;
                let item = self.inactive[front].remove(at)?;
                assert_eq!(self.limits.remove(front, |i| *i == item), Some(item));
                Done::Cancel(front, item)
            }
            Event::SetMax(max) => {
                self.limits.set_max_active(max, note);
                Done::Set
            }
            Event::SetMin(min) => {
                self.limits.set_min_active(min, note);
                Done::Set
            }
            Event::Freeze => {
                self.frozen = true;
                self.limits.freeze();
                Done::Set
            }
            Event::Thaw => {
                self.frozen = false;
                self.limits.thaw(note);
                Done::Set
            }
            Event::Cpus(node, n) => {
                let node = node % self.cpus.len();
                self.cpus[node] = n;
                self.limits.set_cpus(&self.cpus, note);
                Done::Set
            }
        };
        for (front, item) in &self.started {
            // P3: what starts is the oldest of its front end.
            assert_eq!(self.inactive[*front].pop_front(), Some(*item));
            self.active.push((*front, *item));
        }
        assert_eq!(self.limits.active(), self.active.len());
        for (front, inactive) in self.inactive.iter().enumerate() {
            assert_eq!(self.limits.front(front).1, inactive.len());
        }
        Some(done)
    }

    fn effective(&self) -> (usize, usize) {
        match self.frozen {
            true => (0, 0),
            false => (self.limits.max_active(), self.limits.min_active()),
        }
    }

    fn waiting(&self) -> usize {
        self.inactive.iter().map(VecDeque::len).sum()
    }
}

enum Done {
    Queue(FrontEnd, u32),
    End(FrontEnd),
    Cancel(FrontEnd, u32),
    Set,
}

proptest! {
    /// P3, P6, and the order of activation: step by step what the oracle does.
    #[test]
    fn per_node_does_what_the_oracle_does(
        (cpus, fronts) in machine(),
        max in 1..40usize,
        events in proptest::collection::vec(event(), 1..200),
    ) {
        let mut run = Run::new(Share::PerNode, max, &cpus, &fronts);
        let groups: Vec<_> = fronts
            .iter()
            .map(|node| if cpus.len() == 1 { 0 } else { node.unwrap_or(cpus.len()) })
            .collect();
        let mut oracle = Oracle::new(max, default_min_active(max), &cpus, &groups);
        for event in events {
            let Some(done) = run.event(event) else { continue };
            let expected = match done {
                Done::Queue(front, item) => oracle.admit(front, item),
                Done::End(front) => oracle.leave(front),
                Done::Cancel(front, item) => {
                    prop_assert_eq!(oracle.remove(front, item), Some(item));
                    Vec::new()
                }
                Done::Set => {
                    let (max, min) = run.effective();
                    oracle.set(max, min, &run.cpus)
                }
            };
            let seen: Vec<_> = run.started.iter().map(|(_, item)| *item).collect();
            prop_assert_eq!(seen, expected);
        }
    }

    /// P1, P6 with `Lend`: never more than the limit, nor less while something waits.
    #[test]
    fn lend_is_exact_and_wastes_nothing(
        (cpus, fronts) in machine(),
        max in 1..40usize,
        events in proptest::collection::vec(event(), 1..300),
    ) {
        let mut run = Run::new(Share::Lend, max, &cpus, &fronts);
        for event in events {
            let before = run.active.len();
            if run.event(event).is_none() {
                continue;
            }
            let (limit, _) = run.effective();
            let active = run.active.len();
            prop_assert!(active <= limit.max(before), "{active} of {limit}");
            // These limits are far below 8 for each node: nobody may keep a reserve.
            prop_assert!(run.waiting() == 0 || active >= limit, "{active} of {limit}");
        }
        // All of it runs in the end.
        run.event(Event::Thaw);
        while !run.active.is_empty() {
            run.event(Event::End(7));
        }
        prop_assert_eq!(run.waiting(), 0);
    }

    /// The same with limits at which nodes have counts of their own and reserves.
    #[test]
    fn lend_with_large_limits_keeps_no_more_than_the_reserves(
        nodes in 2..=8usize,
        per_node in 32..120usize,
        seed in any::<u64>(),
    ) {
        let cpus = vec![12; nodes];
        let max = nodes * per_node;
        let fronts: Vec<_> = (0..nodes).map(Some).collect();
        let mut run = Run::new(Share::Lend, max, &cpus, &fronts);
        prop_assert!(!run.limits.is_central());
        let mut rng = fastrand::Rng::with_seed(seed);
        for n in 0..4_000 {
            let hot = n / 500;
            let queue = rng.usize(..max * 2) >= run.active.len() && rng.bool();
            let place = if rng.u8(..10) < 9 { hot } else { rng.usize(..nodes) };
            run.event(if queue { Event::Queue(place) } else { Event::End(rng.usize(..)) });
            prop_assert!(run.active.len() <= max);
            let idle = run.limits.idle_tokens();
            prop_assert_eq!(run.active.len() + idle, max);
            prop_assert!(run.waiting() == 0 || idle <= max / 8, "{idle} of {max} idle");
        }
    }

    /// P4: whatever the changes and cancels, one at a time and in the order of queueing.
    #[test]
    fn ordered_stays_in_order(
        events in proptest::collection::vec((0..8u8, any::<usize>()), 1..200),
    ) {
        let mut queue = Ordered::new();
        let mut expected = VecDeque::new();
        let mut running: Option<usize> = None;
        let mut next = 0u32;
        for (what, n) in events {
            let mut started = Vec::new();
            match what {
                0..=3 => {
                    next += 1;
                    expected.push_back((queue.newest(), next));
                    queue.admit(next, |front, item| started.push((front, item)));
                }
                4..=5 => {
                    let Some(front) = running.take() else { continue };
                    queue.leave(front, |front, item| started.push((front, item)));
                }
                6 => {
                    queue.change();
                }
                _ => {
                    let Some(at) = n.checked_rem(expected.len()) else { continue };
                    let (front, item) = expected.remove(at).expect("it is within");
                    let note = |front, item| started.push((front, item));
                    prop_assert_eq!(queue.remove(front, |i| *i == item, note), Some(item));
                }
            }
            for (front, item) in started {
                prop_assert!(running.replace(front).is_none(), "one at a time");
                prop_assert_eq!(expected.pop_front(), Some((front, item)));
            }
            prop_assert!(running.is_some() || expected.is_empty(), "something waits");
        }
    }

    /// P8: the rule of the parts, by real numbers.
    #[test]
    fn shares_obey_their_rule(
        max in 1..3000usize,
        min in 0..64usize,
        cpus in proptest::collection::vec(0..200usize, 1..9),
    ) {
        let total: usize = cpus.iter().sum();
        let seen = shares(max, min, &cpus);
        for (share, cpus) in seen.nodes.iter().zip(&cpus) {
            let exact = max as f64 * *cpus as f64 / total.max(1) as f64;
            prop_assert!(*share as f64 >= exact.min(max as f64) - 1e-6);
            prop_assert!(*share >= min.min(max) && *share >= 1 && *share <= max);
            prop_assert!((*share as f64) < exact + 1.0 || *share <= min.max(1));
        }
        prop_assert!(cpus.contains(&0) || seen.nodes.iter().sum::<usize>() >= max);
    }
}

/// Load that moves about over 96 CPUs on 8 nodes. Returns the most that were active at once.
fn moving_load(share: Share, max: usize, items: u32) -> (usize, Run) {
    let fronts: Vec<_> = (0..96).map(|cpu| Some(cpu / 12)).collect();
    let mut run = Run::new(share, max, &[12; 8], &fronts);
    let mut rng = fastrand::Rng::with_seed(max as u64);
    let (mut most, mut hot) = (0, 0);
    while run.next < items {
        // As often as every 20 ms when items take 200 us and 768 of them are active.
        if rng.u32(..150_000) == 0 {
            hot = rng.usize(..8);
        }
        let few = run.waiting() < 2 * max;
        let queue = run.active.is_empty() || (few && rng.u8(..16) < 9);
        let event = match queue {
            true if rng.u8(..10) == 0 => Event::Queue(rng.usize(..96)),
            true => Event::Queue(12 * hot + rng.usize(..12)),
            false => Event::End(rng.usize(..)),
        };
        // The checks of `Run::event` cost more than all else: they are for the short runs.
        run.event_unchecked(event);
        most = most.max(run.active.len());
    }
    (most, run)
}

impl Run {
    fn event_unchecked(&mut self, event: Event) {
        let Self { limits, active, .. } = self;
        match event {
            Event::Queue(front) => {
                self.next += 1;
                self.inactive[front].push_back(self.next);
                let inactive = &mut self.inactive;
                limits.admit(front, self.next, |front, item| {
                    assert_eq!(inactive[front].pop_front(), Some(item));
                    active.push((front, item));
                });
            }
            Event::End(n) => {
                let at = n % active.len();
                let (front, _) = active.swap_remove(at);
                let inactive = &mut self.inactive;
                limits.leave(front, |front, item| {
                    assert_eq!(inactive[front].pop_front(), Some(item));
                    active.push((front, item));
                });
            }
            _ => unreachable!("only load"),
        }
    }
}

/// A debug build takes fewer.
const MANY: u32 = if cfg!(debug_assertions) {
    200_000
} else {
    1_000_000
};

#[test]
fn a_million_items_with_moving_load_never_exceed_what_is_allowed() {
    for max in [8, 16, 768] {
        let (most, run) = moving_load(Share::Lend, max, MANY);
        assert!(most <= max, "{most} of {max}");
        // What idle nodes keep in reserve is not used, when nodes have counts of their own.
        assert!(most >= if max < 768 { max } else { max * 7 / 8 }, "{most}");
        let per_item = run.limits.touches().sum() as f64 / f64::from(MANY);
        println!("limit {max}: {per_item:.4} touches per item");
        assert!(max < 768 || per_item < 1.0 / 50.0, "{per_item} at {max}");

        let (most, _) = moving_load(Share::PerNode, max, MANY);
        let allowed: usize = shares(max, default_min_active(max), &[12; 8])
            .nodes
            .iter()
            .sum();
        assert!(most <= allowed, "{most} of {allowed}");
        assert!(most > max.min(96), "{most}: the floors add up");
    }
}
