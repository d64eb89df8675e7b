//! What must be seen: the model is that of the published machine, and fails to be if it is not; our
//! policy does what it should, and it is the policy that does it.

use inflight_sim::Goal;
use inflight_sim::dmcrypt::{DmCrypt3900x, Scenario, Scope, Summary, Table, dmcrypt_scopes};

/// An optimised build takes longer runs and more of them.
const SEEDS: u64 = if cfg!(debug_assertions) { 2 } else { 5 };
const SECONDS: f64 = if cfg!(debug_assertions) { 1.2 } else { 2.0 };
const QUICK: bool = cfg!(debug_assertions);

fn table(issuers: &[usize], scopes: &[Scope], change: impl Fn(&mut DmCrypt3900x)) -> Table {
    let mut model = DmCrypt3900x::default();
    change(&mut model);
    let scenario = |issuers, scope| {
        let scenario = Scenario::new(issuers, scope).seconds(SECONDS);
        scenario.model(model.clone())
    };
    Table::run(issuers, scopes, SEEDS, scenario, || ())
}

const PUBLISHED: [usize; 3] = [24, 8, 4];
const KERNEL: [Scope; 3] = [Scope::System, Scope::Cache, Scope::CacheStrict];

fn failing(goals: &[Goal]) -> Vec<String> {
    let failing = goals.iter().filter(|goal| !goal.holds);
    failing.map(ToString::to_string).collect()
}

fn error(table: &Table, issuers: usize, scope: Scope) -> f64 {
    let row = table.row(issuers, scope).expect("it was run");
    row.error_pct.expect("it was published")
}

fn mean(issuers: usize, scope: Scope, change: impl Fn(&mut DmCrypt3900x)) -> Summary {
    table(&[issuers], &[scope], change).rows[0].seen.clone()
}

fn mib_s(issuers: usize, scope: Scope, change: impl Fn(&mut DmCrypt3900x)) -> f64 {
    mean(issuers, scope, change).mean.mib_s
}

/// Issuers that stay where they are fill no cache, so being strict costs nothing.
#[test]
fn the_fit_fails_when_issuers_do_not_drift() {
    let still = |model: &mut DmCrypt3900x| model.scheduler.drift_per_s = 0.0;
    let table = table(&[4], &KERNEL, still);
    assert!(failing(&table.fit()).len() >= 3, "{table}");
    assert!(error(&table, 4, Scope::CacheStrict) > 10.0, "{table}");
}

#[test]
fn the_fit_fails_when_siblings_do_not_slow_each_other() {
    let table = table(&[24], &KERNEL[..1], |model| {
        model.scheduler.sibling_slowdown = 1.0
    });
    assert!(error(&table, 24, Scope::System) > 10.0, "{table}");
}

#[test]
fn the_fit_fails_when_idle_cpus_look_elsewhere_only_at_ticks() {
    let table = table(&[4], &KERNEL, |model| model.scheduler.look_when_idle = 0.0);
    assert!(error(&table, 4, Scope::CacheStrict) > 8.0, "{table}");
}

/// One set of constants gives the nine published rows, and ours gives what it should.
#[test]
fn all_goals_hold() {
    let table = table(&[24, 8, 4, 1], &Scope::ALL, |_| ());
    let goals = table.goals();
    assert_eq!(
        (table.fit().len(), goals.len()),
        (4, 7),
        "all of them are looked at"
    );
    assert_eq!(failing(&goals), [""; 0], "{table}");
    let with_published = table.rows.iter().filter(|row| row.error_pct.is_some());
    assert_eq!(with_published.count(), dmcrypt_scopes().len());
}

#[test]
fn without_the_rule_of_siblings_ours_loses() {
    let with = mib_s(4, Scope::Ours, |_| ());
    let without = mib_s(4, Scope::Ours, |model| model.costs.sibling_percent = 0);
    assert!(without < 0.99 * with, "{without} of {with}");
}

/// Pools that do not hear who submits take the core of the one that does.
#[test]
fn without_the_rule_of_submitters_ours_loses() {
    let with = mib_s(1, Scope::Ours, |_| ());
    let without = mib_s(1, Scope::Ours, |model| model.hears = false);
    assert!(without < 0.98 * with, "{without} of {with}");
}

#[test]
fn a_wrong_estimate_of_what_items_take_hardly_matters() {
    for issuers in PUBLISHED.into_iter().skip(if QUICK { 2 } else { 0 }) {
        let right = mib_s(issuers, Scope::Ours, |_| ());
        for factor in [0.1, 0.3, 3.0, 10.0] {
            let wrong = mib_s(issuers, Scope::Ours, |model| model.misjudged = factor);
            let part = wrong / right;
            assert!(
                (0.98..1.02).contains(&part),
                "x{factor}: {part} at {issuers}"
            );
        }
    }
}

#[test]
fn issuers_in_one_cache_are_helped_by_all() {
    let run = |scope| {
        let scenario = Scenario::new(8, scope).seconds(SECONDS).one_cache();
        scenario.mean(SEEDS).mean.mib_s
    };
    let (ours, system) = (run(Scope::Ours), run(Scope::System));
    assert!(ours >= 0.95 * system, "{ours}, system {system}");
    let strict = run(Scope::CacheStrict);
    assert!(ours >= 3.0 * strict, "{ours}, strict {strict}");
}

#[test]
fn on_two_nodes_ours_is_no_slower_than_one_pool() {
    for issuers in if QUICK { vec![8] } else { vec![48, 8, 4] } {
        let run = |scope| {
            let two = |model: &mut DmCrypt3900x| model.machine.insert_str(0, "numa:2 ");
            mean(issuers, scope, two).mean
        };
        let (ours, system) = (run(Scope::Ours), run(Scope::System));
        assert!(ours.mib_s >= 0.98 * system.mib_s, "{ours:?}\n{system:?}");
        assert!(ours.far_takes <= ours.takes && ours.takes <= 1.0);
    }
}

#[test]
fn an_item_is_taken_at_most_once_and_only_away_from_home() {
    let mut model = DmCrypt3900x::default();
    model.scheduler.pull_after = u64::MAX; // Threads run where they are woken.
    for issuers in [8, 4, 1] {
        let scenario = Scenario::new(issuers, Scope::Ours).model(model.clone());
        let outcome = scenario.seconds(0.5).run(3);
        // What runs elsewhere was taken; the items under way at both ends blur it.
        let apart = (outcome.takes - outcome.off_home).abs();
        assert!(outcome.takes <= 1.0 && apart < 0.01, "{outcome:?}");
    }
}

/// CPU numbers have gaps where CPUs are not usable: the rest is a machine of its own.
#[test]
fn cpus_that_are_not_usable_are_left_out() {
    for (machine, like) in [
        ("core:4 offline:0", "core:3"),
        ("core:4 isolated:0", "core:3"),
        ("core:2 offline:0", "core:1"),
        ("cache:2 core:2 offline:1,2", "cache:2 core:1"),
    ] {
        for scope in Scope::ALL {
            let of = |machine: &str| {
                let model = DmCrypt3900x {
                    machine: machine.to_owned(),
                    // The limits of all CPUs together are others.
                    max_active: 4096,
                    ..DmCrypt3900x::default()
                };
                let scenario = Scenario::new(3, scope).seconds(0.3).model(model);
                scenario.run(1)
            };
            assert_eq!(of(machine), of(like), "{machine}, {scope}");
        }
    }
}

/// A machine of which the model knows nothing is not simulated as another one.
#[test]
fn machines_without_constants_are_refused() {
    for (machine, says) in [
        ("core:1 smt:16", "one or two threads"),
        ("core:4 slow:1", "one speed"),
        ("core:4 fast:1", "one speed"),
    ] {
        let model = DmCrypt3900x {
            machine: machine.to_owned(),
            ..DmCrypt3900x::default()
        };
        let refused = model.topology().expect_err(machine);
        assert!(refused.contains(says), "{machine}: {refused}");
    }
    let usable = "core:1 smt:4 offline:2-3".to_owned();
    let model = DmCrypt3900x {
        machine: usable,
        ..DmCrypt3900x::default()
    };
    assert!(model.topology().is_ok());
}

/// What was published is of one machine, and says nothing of another.
#[test]
fn another_machine_is_not_asked_for_what_was_published() {
    let small = |model: &mut DmCrypt3900x| model.machine = "core:4".to_owned();
    let table = table(&[4], &KERNEL, small);
    assert!(!failing(&table.fit()).is_empty(), "{table}");
    assert_eq!(table.of_another_machine().fit(), []);
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_another() {
    for scope in Scope::ALL {
        let run = |seed| Scenario::new(5, scope).seconds(0.3).run(seed);
        assert_eq!(run(3), run(3), "{scope}");
        assert_ne!(run(3), run(4), "{scope}");
    }
}
