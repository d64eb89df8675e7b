//! What queued items and idle threads have in memory: each contender in a process that has done
//! nothing else.

use super::long::burst_here;
use super::{Beside, Measure, Wanted, spec};
use crate::cell::{Cell, Figure, Plan};
use crate::report::{Goal, Row, print_json};
use inflight_benches::Part;
use inflight_benches::pools::{PoolContender, memory_of, memory_of_queued, ours, rivals};
use std::process::{Command, ExitCode};

/// The threads whose memory is measured, and the contender of ours that runs no more items.
const MANY: usize = 64;
const MEASURED: &str = "max_active 64";

const WORKS: usize = 200_000;
const WORK: &str = "work";

/// `what:said or silent:contender`.
pub(crate) fn child(what: &str) -> ExitCode {
    let mut parts = what.splitn(3, ':');
    let [what, say, name] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let figures = match what {
        "burst" => burst_here(name, say == "said"),
        _ if name == WORK => [memory_of_queued(WORKS), 0.0],
        _ => {
            let mut all = ours().into_iter().chain(rivals());
            let contender = all.find(|c| c.name == name).expect("one of the table");
            let memory = memory_of(&contender, MANY);
            [memory.queued, memory.thread / 1024.0]
        }
    };
    print_json(&figures)
}

/// What another process answers.
///
/// # Panics
///
/// If it fails: its items did not run once each.
pub(super) fn asked(what: &str) -> [f64; 2] {
    let program = std::env::current_exe().expect("this program is a file");
    let output = Command::new(program)
        .args(["--pool-child", what])
        .output()
        .expect("it can be started once more");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
    serde_json::from_slice(&output.stdout).expect("two numbers")
}

const MEASURES: [Measure; 2] = [("queued", "B"), ("idle thread", "KiB")];

pub(crate) fn memory(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let row = |what: &str, ours, beside, goal| spec(what, ours, beside, Goal::AtMost(goal));
    let mut worker = row("memory: idle worker", MEASURED, Beside::Nothing, 12.0);
    worker.measure = 1;
    let wanted = Wanted::new(
        plan,
        vec![
            row(
                "memory: queued closure of 32 B",
                MEASURED,
                Beside::Nothing,
                96.0,
            ),
            row("memory: queued work", WORK, Beside::Nothing, 24.0),
            worker,
        ],
    );
    if wanted.0.is_empty() {
        return (vec![], vec![]);
    }
    let own = |c: &PoolContender| c.part == Part::Rival || c.name == MEASURED;
    let all = ours().into_iter().chain(rivals()).filter(own);
    let names = all.map(|c| (c.name, c.part)).chain([(WORK, Part::Variant)]);
    let measured: Vec<_> = names
        .map(|(name, part)| (name, part, asked(&format!("memory:silent:{name}"))))
        .collect();
    let cells = [0, 1].map(|i| {
        let figures = measured.iter().filter(|m| i == 0 || m.0 != WORK);
        Cell {
            load: "memory".into(),
            case: MEASURES[i].0.into(),
            unit: MEASURES[i].1.into(),
            results: figures
                .map(|(name, part, bytes)| Figure::new(name, *part, &[bytes[i]]))
                .collect(),
            overlap: None,
            at: None,
            lacking: vec![],
            aside: 0,
        }
    });
    let rows = wanted.rows(&cells, &MEASURES);
    (cells.into(), rows)
}
