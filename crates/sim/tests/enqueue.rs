//! What must be seen: the shape of the published table, and that the lock of a pool makes it.

use inflight_sim::Goal;
use inflight_sim::enqueue::{Model, Table, run, shard_bench};
use inflight_topology::Scope;

const CPUS: [usize; 5] = [1, 8, 72, 128, 256];

fn model() -> Model {
    Model {
        items: if cfg!(debug_assertions) { 60 } else { 400 },
        ..Model::default()
    }
}

fn table(model: &Model, seed: u64) -> Table {
    let published = shard_bench();
    let scopes: Vec<_> = published.iter().map(|row| row.scope).collect();
    Table::run(model, &CPUS, &scopes, seed, || ())
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
        assert_eq!(goals.len(), 4, "all of them are looked at");
        assert_eq!(failing(&goals), [""; 0], "{table}");
    }
}

#[test]
fn without_the_time_of_the_lock_wide_pools_cost_nothing() {
    let free = Model {
        hold: 10.0,
        ..model()
    };
    let goals = table(&free, 1).goals();
    assert!(failing(&goals).len() >= 3, "{goals:?}");
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_another() {
    let outcome = |seed| run(&model(), 40, Scope::CacheShard, seed);
    assert_eq!(outcome(3), outcome(3));
    assert_ne!(outcome(3), outcome(4));
}
