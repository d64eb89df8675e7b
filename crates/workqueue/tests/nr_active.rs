//! The shared limit against lists of who has a slot and who waits, and the parts of nodes.
#![cfg(not(any(loom, shuttle)))]

use inflight_workqueue::unstable::{NrActive, default_min_active, node_shares};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Moves of a run, unless `INFLIGHT_STRESS_MOVES` says otherwise.
const MOVES: usize = if cfg!(miri) { 200 } else { 20_000 };

fn moves() -> usize {
    let given = std::env::var("INFLIGHT_STRESS_MOVES").ok();
    given.map_or(MOVES, |given| given.parse().expect("a number of moves"))
}

/// Pwqs that take slots, give them back, wait, give up waiting, while the limit moves. Nobody has a
/// slot above the limit who did not have it before; nobody waits while one is free; who waits is
/// served in turn, and nobody who comes later before him.
#[test]
fn any_moves_keep_the_limit_and_the_turn() {
    const PWQS: u32 = 12;
    for max in [1, 3, 8, 64, 768] {
        let mut rng = fastrand::Rng::with_seed(max as u64);
        let limit = NrActive::new(max);
        let (mut now, mut used) = (max, 0);
        let mut waiting = VecDeque::new();
        for n in 0..moves() {
            let pwq = rng.u32(..PWQS);
            let is_waiting = waiting.contains(&pwq);
            match rng.u8(..20) {
                0..=8 if !is_waiting => {
                    let free = used < now && waiting.is_empty();
                    assert_eq!(limit.acquire(pwq), free, "move {n}");
                    if free {
                        used += 1;
                    } else {
                        waiting.push_back(pwq);
                    }
                }
                9 => {
                    let free = used < now && waiting.is_empty();
                    assert_eq!(limit.try_acquire(), free, "move {n}");
                    used += usize::from(free);
                }
                10..=17 if used > 0 => {
                    used -= 1;
                    let next = (used < now).then(|| waiting.pop_front()).flatten();
                    used += usize::from(next.is_some());
                    assert_eq!(limit.release(), next, "move {n}");
                }
                18 => {
                    assert_eq!(limit.forget(pwq), is_waiting, "move {n}");
                    waiting.retain(|waits| *waits != pwq);
                }
                19 => {
                    now = rng.usize(1..=2 * max);
                    limit.set_max(now);
                    // Before those who wait have what has become free, nobody else has.
                    let free = used < now && waiting.is_empty();
                    if is_waiting {
                        assert_eq!(limit.try_acquire(), free, "move {n}");
                    } else {
                        assert_eq!(limit.acquire(pwq), free, "move {n}");
                        waiting.extend((!free).then_some(pwq));
                    }
                    used += usize::from(free);
                    while let Some(next) = limit.next() {
                        assert_eq!(Some(next), waiting.pop_front(), "move {n}");
                        used += 1;
                        assert!(used <= now, "move {n}");
                    }
                }
                _ => {}
            }
            assert_eq!(limit.level(), (used, now), "move {n}");
            assert_eq!(limit.has_pending(), !waiting.is_empty(), "move {n}");
            assert!(
                used >= now || waiting.is_empty(),
                "a slot is free, move {n}"
            );
        }
    }
}

#[test]
fn default_floors() {
    let floors = [0, 1, 5, 8, 9, 1_024].map(default_min_active);
    assert_eq!(floors, [0, 1, 5, 8, 8, 8]);
}

/// C.2, with the table of the kernel's rule: by CPUs, rounded up, between the floor and the limit.
#[test]
fn c2_parts_of_nodes() {
    for (max, min, cpus, parts) in [
        (16, 8, &[12, 4][..], &[12, 8][..]),
        (16, 1, &[12, 4], &[12, 4]),
        (10, 1, &[1, 1, 1], &[4, 4, 4]),
        (3, 8, &[1, 1], &[3, 3]),
        (64, 8, &[0, 8], &[8, 64]),
        (64, 8, &[0, 0], &[8, 8]),
        (4, 0, &[0, 8], &[1, 4]),
        (1, 1, &[8, 8], &[1, 1]),
    ] {
        let shares = node_shares(max, min, cpus);
        assert_eq!(shares, parts, "{max} {min} {cpus:?}");
    }
}

proptest! {
    /// Whatever the machine is: each part lies between floor and limit, more CPUs get no less, and
    /// together they are the limit at least.
    #[test]
    fn parts_obey_their_rule(
        max in 1..5_000usize,
        min in 0..5_000usize,
        cpus in proptest::collection::vec(0..300usize, 1..9),
    ) {
        let shares = node_shares(max, min, &cpus);
        let floor = min.max(1).min(max);
        prop_assert!(shares.iter().all(|part| (floor..=max).contains(part)));
        for (a, of_a) in cpus.iter().zip(&shares) {
            for (b, of_b) in cpus.iter().zip(&shares) {
                prop_assert!(a > b || of_a <= of_b);
            }
        }
        if cpus.iter().any(|cpus| *cpus > 0) {
            prop_assert!(shares.iter().sum::<usize>() >= max);
        }
    }
}
