//! What must be seen: the limit that is asked for holds, and what the multiplied one costs.

use inflight_sim::Goal;
use inflight_sim::limit::{Counted, Model, Table, run};

const LIMITS: [usize; 5] = [8, 16, 64, 256, 1024];

fn model() -> Model {
    Model {
        items: if cfg!(debug_assertions) {
            4_000
        } else {
            20_000
        },
        ..Model::default()
    }
}

fn table(model: &Model, seed: u64) -> Table {
    Table::run(model, &Counted::ALL, &LIMITS, seed, || ())
}

fn failing(goals: &[Goal]) -> Vec<String> {
    let failing = goals.iter().filter(|goal| !goal.holds);
    failing.map(ToString::to_string).collect()
}

#[test]
fn all_goals_hold_with_every_seed() {
    for seed in 1..=3 {
        let table = table(&model(), seed);
        let goals = table.goals();
        assert_eq!(goals.len(), 5, "all of them are looked at");
        assert_eq!(failing(&goals), [""; 0], "{table}");
    }
}

/// Without what a sleeper costs the limit would not matter, and the model would explain nothing.
#[test]
fn where_nobody_who_waits_sleeps_a_larger_limit_costs_nothing() {
    let spin = Model {
        spinners: usize::MAX,
        ..model()
    };
    let part = run(&spin, Counted::Cpu, 8, 1).mib_s / run(&spin, Counted::System, 8, 1).mib_s;
    assert!(part > 0.97, "{part}");
    assert!(failing(&table(&spin, 1).goals()).len() >= 2);
}

/// The limit of the system is one limit, although each cache has a pool of its own.
#[test]
fn pools_share_the_limit_of_the_system() {
    for limit in [1, 3, 8, 100] {
        let seen = run(&model(), Counted::System, limit, 1);
        assert_eq!(seen.most_running, limit);
    }
    let seen = run(&model(), Counted::Cpu, 3, 1);
    assert_eq!(seen.most_running, 3 * 96);
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_another() {
    let outcome = |seed| run(&model(), Counted::System, 16, seed);
    assert_eq!(outcome(3), outcome(3));
    assert_ne!(outcome(3), outcome(4));
}
