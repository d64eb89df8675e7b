//! Whole scenarios on the core, in virtual time: one CPU, whose workers block, wake, end and are
//! looked at by the ms. Batches have one entry, as where nobody looks after a pool.
//!
//! The numbers are those of the kernel's documented execution scenarios. Every run, whatever it is
//! about, is held to the four rules that do not depend on the scheduler: an item does not start
//! while another one that counts burns; the CPU does not idle while an item is ready; no queue has
//! more items begun than it may; items of a queue start in the order in which they came.

#![cfg(not(any(loom, shuttle)))]

mod machine;
mod page;

use machine::{Cpu, FAIR, FIFO, Machine, Queue, Rules, Script};
use proptest::prelude::*;

/// A queue for each limit, the intensive ones marked.
const fn queue(max_active: usize) -> Queue {
    Queue {
        max_active,
        intensive: false,
    }
}

const fn intensive(max_active: usize) -> Queue {
    Queue {
        max_active,
        intensive: true,
    }
}

fn script(queue: usize, phases: &[u32]) -> Script {
    Script {
        queue,
        phases: phases.to_vec(),
    }
}

/// w0 burns 5, sleeps 10, burns 5; w1 and w2 burn 5 and sleep 10.
fn w0() -> Script {
    script(0, &[5, 10, 5])
}

fn w(queue: usize) -> Script {
    script(queue, &[5, 10])
}

fn run(rules: Rules, queues: &[Queue], scripts: &[Script]) -> String {
    Machine::new(rules, queues, scripts).run().join(", ")
}

/// When the item did this, and that.
fn span(log: &str, item: usize, from: &str, to: &str) -> (u32, u32) {
    let when = |what: &str| {
        let wanted = format!(" w{item} {what}");
        let mut hits = log.split(", ").filter_map(|e| e.strip_suffix(&wanted));
        hits.next().unwrap().parse().unwrap()
    };
    (when(from), when(to))
}

const WITH_TWO_INTENSIVE: [Queue; 3] = [queue(1024), intensive(1024), intensive(1024)];

const ORIGINAL: &str = "0 w0 starts, 5 w0 sleeps, 15 w0 wakes, 20 w0 ends, \
    20 w1 starts, 25 w1 sleeps, 35 w1 wakes, 35 w1 ends, \
    35 w2 starts, 40 w2 sleeps, 50 w2 wakes, 50 w2 ends";

#[test]
fn column_1_a_workqueue_with_one_worker() {
    for rules in [FIFO, FAIR] {
        let log = run(rules, &[queue(1)], &[w0(), w(0), w(0)]);
        assert_eq!(log, ORIGINAL);
    }
}

#[test]
fn column_2_room_for_three() {
    for (rules, max_active) in [(FIFO, 3), (FAIR, 3), (FIFO, 4), (FAIR, 1024)] {
        let log = run(rules, &[queue(max_active)], &[w0(), w(0), w(0)]);
        assert_eq!(
            log,
            "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 10 w2 starts, \
             15 w2 sleeps, 15 w0 wakes, 20 w0 ends, 20 w1 wakes, 20 w1 ends, \
             25 w2 wakes, 25 w2 ends"
        );
    }
}

/// At 20 two things coincide: w0's end lets w2 start, and w1 wakes. w1 ends at once, as published,
/// if who wakes comes first, or counts from its wakeup on: then w0's worker parks. Where the CPU is
/// first come, first served, and who is not on it does not count, w0's worker goes on with w2, and
/// w1 ends at 25.
#[test]
fn column_3_room_for_two() {
    let scripts = [w0(), w(0), w(0)];
    let log = run(FAIR, &[queue(2)], &scripts);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 15 w0 wakes, 20 w0 ends, \
         20 w2 starts, 20 w1 wakes, 20 w1 ends, 25 w2 sleeps, 35 w2 wakes, 35 w2 ends"
    );
    let at_wakeup = Rules {
        counts_at_wakeup: true,
        ..FIFO
    };
    let log = run(at_wakeup, &[queue(2)], &scripts);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 15 w0 wakes, 20 w0 ends, \
         20 w1 wakes, 20 w1 ends, 20 w2 starts, 25 w2 sleeps, 35 w2 wakes, 35 w2 ends"
    );
    let log = run(FIFO, &[queue(2)], &scripts);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 15 w0 wakes, 20 w0 ends, \
         20 w2 starts, 25 w2 sleeps, 25 w1 wakes, 25 w1 ends, 35 w2 wakes, 35 w2 ends"
    );
}

/// w1 and w2 are of a queue for items that compute. At 5 both leave the pool's control: on a CPU
/// that is first come, first served their burns follow each other; on a fair one they share it.
/// They could not start at 0: a running w0 delays even them.
#[test]
fn column_4_intensive_items() {
    let queues = [queue(1024), intensive(1024)];
    let log = run(FIFO, &queues, &[w0(), w(1), w(1)]);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 10 w2 starts, 15 w2 sleeps, \
         15 w0 wakes, 20 w0 ends, 20 w1 wakes, 20 w1 ends, 25 w2 wakes, 25 w2 ends"
    );
    let log = run(FAIR, &queues, &[w0(), w(1), w(1)]);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 6 w2 starts, 14 w1 sleeps, 15 w2 sleeps, \
         15 w0 wakes, 20 w0 ends, 24 w1 wakes, 24 w1 ends, 25 w2 wakes, 25 w2 ends"
    );
}

#[test]
fn intensive_items_with_one_slot() {
    for rules in [FIFO, FAIR] {
        let log = run(rules, &[queue(1024), intensive(1)], &[w0(), w(1), w(1)]);
        assert_eq!(span(&log, 1, "starts", "sleeps"), (5, 10));
        assert_eq!(span(&log, 1, "starts", "ends"), (5, 20));
        assert_eq!(span(&log, 2, "starts", "sleeps"), (20, 25));
        assert_eq!(span(&log, 2, "starts", "ends"), (20, 35));
    }
}

/// Each of a queue of its own, or the queues would take turns.
#[test]
fn intensive_items_first() {
    let scripts = [w(1), w(2), w0()];
    let log = run(FIFO, &WITH_TWO_INTENSIVE, &scripts);
    assert_eq!(span(&log, 0, "starts", "sleeps"), (0, 5));
    assert_eq!(span(&log, 1, "starts", "sleeps"), (5, 10));
    assert_eq!(span(&log, 2, "starts", "sleeps"), (10, 15));
    assert_eq!(span(&log, 0, "wakes", "ends"), (15, 15));
    assert_eq!(span(&log, 1, "wakes", "ends"), (20, 20));
    assert_eq!(span(&log, 2, "wakes", "ends"), (25, 30));
}

/// Queues take turns: the item of another queue comes before the second one of the first queue.
#[test]
fn queues_take_turns() {
    let scripts = [w(1), w(1), w0()];
    let log = run(FIFO, &[queue(1024), intensive(1024)], &scripts);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w2 starts, 10 w2 sleeps, 10 w1 starts, 15 w1 sleeps, \
         15 w0 wakes, 15 w0 ends, 20 w2 wakes, 25 w2 ends, 25 w1 wakes, 25 w1 ends"
    );
}

/// A worker counts when it is back on the CPU: w3 starts before w0 goes on. Counted at its wakeup,
/// the other way round.
#[test]
fn counting_on_arrival_and_at_wakeup() {
    let scripts = [w0(), w(1), w(2), script(0, &[5])];
    for (counts_at_wakeup, w0_burns, w3_burns) in
        [(false, (20, 25), (15, 20)), (true, (15, 20), (20, 25))]
    {
        let rules = Rules {
            counts_at_wakeup,
            ..FIFO
        };
        let log = run(rules, &WITH_TWO_INTENSIVE, &scripts);
        assert_eq!(span(&log, 3, "starts", "ends"), w3_burns);
        assert_eq!(span(&log, 0, "wakes", "ends"), w0_burns);
        assert!(span(&log, 1, "starts", "ends").1 <= 25);
        assert!(span(&log, 2, "starts", "ends").1 <= 25);
    }
}

#[test]
fn pure_burns_are_serial_whatever_the_limit() {
    let burn = script(0, &[5]);
    let log = run(FIFO, &[queue(1024)], &[burn.clone(), burn.clone(), burn]);
    let spans = [0, 1, 2].map(|n| span(&log, n, "starts", "ends"));
    assert_eq!(spans, [(0, 5), (5, 10), (10, 15)]);
}

#[test]
fn a_long_burn_and_a_short_one() {
    let scripts = [script(0, &[25]), script(0, &[5])];
    for cpu in [Cpu::Fifo, Cpu::Fair] {
        let log = run(Rules { cpu, ..FIFO }, &[queue(1024)], &scripts);
        assert_eq!(
            log, "0 w0 starts, 25 w0 ends, 25 w1 starts, 30 w1 ends",
            "nobody looks"
        );
    }
    // Found at 10; from then on they share the CPU.
    let rules = Rules {
        cpu: Cpu::Fair,
        threshold: Some(10),
        ..FIFO
    };
    let log = run(rules, &[queue(1024)], &scripts);
    assert_eq!(span(&log, 0, "starts", "is found"), (0, 10));
    let (begun, ended) = span(&log, 1, "starts", "ends");
    assert!(begun - 10 <= 1 && (19..=21).contains(&ended), "{log}");
    assert_eq!(span(&log, 0, "starts", "ends"), (0, 30));
}

/// The threshold counts the CPU time since the item came back, not that before its sleep.
#[test]
fn a_sleep_begins_the_account_of_cpu_time_anew() {
    let rules = Rules {
        cpu: Cpu::Fair,
        threshold: Some(10),
        ..FIFO
    };
    let scripts = [script(0, &[8, 1, 8]), script(0, &[12]), script(0, &[1])];
    let log = run(rules, &[queue(1024)], &scripts);
    assert!(!log.contains("w0 is found"), "{log}");
    assert!(log.contains("w1 is found"), "{log}");
}

/// Nobody says that he sleeps, and somebody looks once in a ms: each start that a sleep makes
/// possible is late by that much at most.
#[test]
fn silent_sleepers_that_are_looked_for() {
    let rules = Rules {
        silent: true,
        ..FIFO
    };
    let log = run(rules, &[queue(1024)], &[w0(), w(0), w(0)]);
    let late = |is: u32, should: u32, sleeps: u32| is >= should && is <= should + sleeps;
    assert!(late(span(&log, 1, "starts", "ends").0, 5, 1), "{log}");
    assert!(late(span(&log, 2, "starts", "ends").0, 10, 2), "{log}");
    assert!(late(span(&log, 2, "starts", "ends").1, 25, 4), "{log}");
}

prop_compose! {
    fn any_script(queues: usize)(
        queue in 0..queues,
        phases in proptest::collection::vec(1..9u32, 1..6),
    ) -> Script {
        Script { queue, phases }
    }
}

proptest! {
    /// The four rules, which every run is held to, for any items.
    #[test]
    fn any_workload_keeps_the_four_rules(
        limits in proptest::collection::vec((1..5usize, any::<bool>()), 1..4),
        scripts in proptest::collection::vec(any_script(3), 1..24),
        (fair, counts_at_wakeup) in (any::<bool>(), any::<bool>()),
        threshold in proptest::option::of(2..12u32),
    ) {
        let queues: Vec<_> = limits
            .iter()
            .map(|&(max_active, intensive)| Queue { max_active, intensive })
            .collect();
        let scripts: Vec<_> = scripts
            .into_iter()
            .map(|s| Script { queue: s.queue % queues.len(), ..s })
            .collect();
        let cpu = if fair { Cpu::Fair } else { Cpu::Fifo };
        let rules = Rules { cpu, counts_at_wakeup, threshold, silent: false };
        let log = Machine::new(rules, &queues, &scripts).run();
        let ended = log.iter().filter(|e| e.ends_with("ends")).count();
        prop_assert_eq!(ended, scripts.len());
    }
}
