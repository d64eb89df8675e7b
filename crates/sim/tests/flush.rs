//! What must be seen: the published shape, and that the flushes make it.

use inflight_sim::Seeds;
use inflight_sim::flush::{Journal, Model, Table, plot, run};

fn table(models: &[Model], seed: u64) -> Table {
    Table::run(
        models,
        Seeds {
            first: seed,
            count: 2,
        },
        || (),
    )
}

#[test]
fn all_goals_hold_with_every_seed() {
    let seeds: &[u64] = if cfg!(debug_assertions) {
        &[1]
    } else {
        &[1, 50, 99]
    };
    for &seed in seeds {
        let table = table(&Model::published(), seed);
        let goals = table.goals();
        assert_eq!(goals.len(), 4, "all of them are looked at");
        assert!(goals.iter().all(|goal| goal.holds), "{goals:?}\n{table}");
    }
}

#[test]
fn one_client_pays_for_two_flushes_or_for_one() {
    for model in Model::published() {
        for (journal, flushes) in [(Journal::Eager, 2.0), (Journal::FlushBefore, 1.0)] {
            let outcome = run(&model, journal, 1, 3);
            assert!(
                (outcome.flushes_per_commit - flushes).abs() < 0.001,
                "{outcome:?}"
            );
        }
    }
}

#[test]
fn without_the_time_of_a_flush_nothing_is_gained() {
    let free = |model: Model| Model {
        flush: 0.1,
        flush_stalls: 0.0,
        ..model
    };
    let models: Vec<_> = Model::published().into_iter().map(free).collect();
    let table = table(&models, 1);
    assert!(!table.goals().iter().all(|goal| goal.holds));
    for row in &table.rows {
        assert!(row.gain_pct.abs() < 2.0, "{row:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_another() {
    let model = &Model::published()[0];
    let outcome = |seed| run(model, Journal::Eager, 8, seed);
    assert_eq!(outcome(3), outcome(3));
    assert_ne!(outcome(3), outcome(4));
}

#[test]
fn a_drawing_has_a_curve_of_each_kind_for_each_machine() {
    let drawing = plot(&table(&Model::published(), 1)).unwrap();
    for label in ["cpu48_sata_ssd, published", "cpu8_raid_ssd, simulated"] {
        assert!(drawing.contains(label));
    }
}
