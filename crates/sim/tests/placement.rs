//! What must be seen: the published gains, and that they vanish where their causes do.

use inflight_sim::Seeds;
use inflight_sim::placement::{
    IdleState, Load, Machine, Outcome, Recent, Service, Side, Table, Times, Which, controls, plot,
    published, run,
};
use inflight_topology::wake::Reach;

/// The gain of the stack rule in percent, mean of three seeds.
fn gain(machine: &Machine, clients: usize) -> f64 {
    let mean = |side| {
        let runs: Vec<_> = (1..=3)
            .map(|seed| run(machine, side, clients, seed))
            .collect();
        Outcome::mean(&runs).file_ms
    };
    let [before, after] = [Side::unstacked, Side::stacked].map(|side| mean(side(Load::Requeue)));
    (1.0 - after / before) * 100.0
}

#[test]
fn all_goals_hold_with_every_seed() {
    // A debug build takes the points that tell most, and has no goal of 32 clients.
    let (seeds, most, known): (&[u64], _, _) = if cfg!(debug_assertions) {
        (&[1], 16, 12)
    } else {
        (&[1, 50, 99], usize::MAX, 13)
    };
    for &seed in seeds {
        // With 32 clients the mean of three runs is off by up to 2 %.
        let seeds = Seeds {
            first: seed,
            count: 8,
        };
        let one = Seeds { count: 1, ..seeds };
        let table = Table::run(
            &Which::ALL,
            |clients| clients <= most,
            |side| side,
            seeds,
            || (),
        );
        let table = table.with_controls(&controls(), one, || ());
        let goals = table.goals();
        assert_eq!(goals.len(), known, "all of them are looked at");
        assert!(goals.iter().all(|goal| goal.holds), "{goals:#?}\n{table}");
    }
}

#[test]
fn there_are_21_published_rows() {
    let rows = Which::ALL.map(|table| published(table).len());
    assert_eq!(rows, [5, 8, 8]);
    let gain = published(Which::IrqMigrate)[5].gain_pct();
    assert!((gain - 6.43).abs() < 0.01, "{gain}");
}

#[test]
fn without_deep_idle_states_most_of_the_gain_is_gone() {
    let whole = gain(&Machine::numa48(), 1);
    let mut light = Machine::numa48();
    light.idle = IdleState::ladder(&[(0.0, 1.0), (60.0, 3.0)]);
    let gain = gain(&light, 1);
    assert!(whole > 40.0 && gain < 20.0, "{whole} {gain}");
}

#[test]
fn a_worker_that_goes_on_after_the_wake_makes_stacking_a_loss() {
    let mut machine = Machine::uma8();
    machine.times = Times {
        tail: 40.0,
        ..machine.times
    };
    let gain = gain(&machine, 1);
    assert!(gain < -20.0, "{gain}");
}

#[test]
fn without_a_device_that_serves_one_after_the_other_the_gain_stays() {
    let mut machine = Machine::numa48();
    machine.service = Service {
        mean: 0.5,
        ..machine.service
    };
    let gain = gain(&machine, 16);
    assert!(gain > 8.0, "{gain}");
}

#[test]
fn where_no_bound_worker_wakes_the_runs_are_the_same() {
    for machine in [Machine::uma8(), Machine::numa48()] {
        for clients in [1, 4, 16] {
            let [off, on] = [Side::unstacked, Side::stacked]
                .map(|side| run(&machine, side(Load::Direct), clients, 1));
            assert_eq!(off, on);
        }
    }
}

#[test]
fn who_remembers_a_cpu_decides_how_far_a_client_wanders() {
    let machine = Machine::numa48();
    let side = Side::unstacked(Load::Requeue);
    let visited = |side| run(&machine, side, 1, 1).cpus_visited;
    assert_eq!(visited(side) as usize, 24, "round the cache");
    assert_eq!(
        visited(side.recent(Recent::Woken)) as usize,
        2,
        "to and fro"
    );
    assert_eq!(visited(Side::stacked(Load::Requeue)) as usize, 1);
    let bound = Side::unstacked(Load::RequeueBoundJournal);
    assert_eq!(
        visited(bound) as usize,
        2,
        "a bound journal lets it remember"
    );
}

#[test]
fn load_moves_clients_across_nodes_only_where_that_is_asked_for() {
    let machine = Machine::numa40();
    let near = Side::unstacked(Load::Direct);
    let far = near.rule(|rules| rules.load = Reach::Anywhere);
    let crossed = |side| run(&machine, side, 64, 1).cross_node_per_io;
    assert!(crossed(near) == 0.0 && crossed(far) > 0.0);
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_another() {
    let machine = Machine::numa48();
    let outcome = |seed| run(&machine, Side::unstacked(Load::Requeue), 4, seed);
    assert_eq!(outcome(3), outcome(3));
    assert_ne!(outcome(3), outcome(4));
}

#[test]
fn a_drawing_has_both_curves_of_each_table() {
    let table = Table::run(
        &Which::ALL,
        |clients| clients <= 2,
        |side| side,
        Seeds { first: 1, count: 1 },
        || (),
    );
    let drawing = plot(&table).unwrap();
    let texts: Vec<_> = drawing.lines().map(str::trim).collect();
    let count = |text: &str| texts.iter().filter(|line| **line == text).count();
    for table in Which::ALL {
        assert_eq!(count(table.name()), 1, "{}", table.name());
    }
    for kind in ["published", "simulated"] {
        assert_eq!(count(kind), Which::ALL.len(), "{kind}");
    }
}
