//! The threaded form under threads: a million items from submitters that move from CPU to CPU.

use super::*;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};

/// All threads together.
const ITEMS: usize = if cfg!(debug_assertions) {
    100_000
} else {
    1_000_000
};
const THREADS: usize = 4;
const CPUS: usize = 96;

/// Items that are active, with their front ends, and the most there ever were.
struct Active {
    fronts: Mutex<Vec<FrontEnd>>,
    now: AtomicUsize,
    most: AtomicUsize,
    /// By CPU.
    front_of: Vec<FrontEnd>,
    /// Active or waiting.
    inside: AtomicUsize,
}

impl Active {
    fn start(&self, front: FrontEnd) {
        // Relaxed: only the counts are looked at.
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        self.fronts.lock().push(front);
    }

    /// One of them ends.
    fn end(&self, slots: &Slots<u32>, rng: &mut fastrand::Rng) -> bool {
        let front = {
            let mut fronts = self.fronts.lock();
            if fronts.is_empty() {
                return false;
            }
            let at = rng.usize(..fronts.len());
            fronts.swap_remove(at)
        };
        self.now.fetch_sub(1, Ordering::Relaxed);
        self.inside.fetch_sub(1, Ordering::Relaxed);
        slots.leave(front, &mut |front, _| self.start(front));
        true
    }
}

/// One submitter, who lets items end while more are inside than he likes: up to `most`. The first
/// one changes the limit.
fn submit(seed: usize, slots: &Slots<u32>, active: &Active, changes: &[usize], most: usize) {
    let mut rng = fastrand::Rng::with_seed(seed as u64);
    let (mut cpu, mut likes) = (0, most);
    for item in 0..ITEMS / THREADS {
        if rng.u8(..32) == 0 {
            cpu = rng.usize(..CPUS);
        }
        if item % (4 * most) == 0 {
            likes = rng.usize(..=most);
        }
        active.inside.fetch_add(1, Ordering::Relaxed);
        let front = active.front_of[cpu];
        match slots.try_admit(front) {
            Ok(()) => active.start(front),
            Err(why) => {
                let started = &mut |front, _| active.start(front);
                slots.admit_slowly(front, item as u32, why, started);
            }
        }
        if seed == 0 && item % 1_024 == 0 && !changes.is_empty() {
            let limit = changes[item / 1_024 % changes.len()];
            slots.set_max_active(limit, &mut |front, _| active.start(front));
        }
        while active.inside.load(Ordering::Relaxed) > likes && active.end(slots, &mut rng) {}
    }
}

/// Returns the most that were active at once, and how many may be.
fn run(share: Share, limit: usize, nodes: usize, changes: &'static [usize]) -> (usize, usize) {
    let parts = shares(limit, default_min_active(limit), &vec![CPUS / nodes; nodes]);
    let allowed = match share {
        Share::PerNode => parts.nodes.iter().sum(),
        Share::Lend => limit,
    };
    let slots = Arc::new(Slots::new(share, limit, &vec![CPUS / nodes; nodes]));
    let active = Arc::new(Active {
        fronts: Mutex::new(Vec::new()),
        front_of: (0..CPUS)
            .map(|cpu| slots.front(cpu, Some(cpu * nodes / CPUS)))
            .collect(),
        now: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        inside: AtomicUsize::new(0),
    });
    let submitters: Vec<_> = (0..THREADS)
        .map(|seed| {
            let (slots, active) = (slots.clone(), active.clone());
            thread::spawn(move || submit(seed, &slots, &active, changes, 2 * allowed))
        })
        .collect();
    submitters.into_iter().for_each(|s| s.join().unwrap());
    let mut rng = fastrand::Rng::with_seed(9);
    while active.end(&slots, &mut rng) {}
    assert_eq!(slots.active(), 0);
    assert_eq!(slots.inactive(), 0);
    (active.most.load(Ordering::Relaxed), allowed)
}

#[test]
fn a_million_items_from_many_threads_never_exceed_what_is_allowed() {
    for limit in [8, 16, 768] {
        for share in [Share::Lend, Share::PerNode] {
            let (most, allowed) = run(share, limit, 8, &[]);
            assert!(most <= allowed, "{share:?}: {most} of {allowed}");
            // Lent tokens may be idle for a while; parts that are not lent are not all needed.
            let tried = match share {
                Share::Lend => allowed - allowed / 8,
                Share::PerNode => allowed / 2,
            };
            assert!(
                most >= tried,
                "{share:?}: {most} of {allowed}: it was not tried"
            );
        }
    }
}

#[test]
fn nor_while_the_limit_changes() {
    for nodes in [1, 2, 8] {
        let (most, allowed) = run(Share::Lend, 16, nodes, &[3, 16, 8]);
        assert!(most <= allowed, "{most} on {nodes} nodes");
    }
}
