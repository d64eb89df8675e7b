//! What `models` prints.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::build::Model;
use super::hazards;
use super::run::{Outcome, Verdict};
use crate::output::say;
use crate::table::Table;

/// The models without results.
pub(crate) fn list(models: &[Model], as_json: bool) -> Result<()> {
    if as_json {
        let all: Vec<_> = models.iter().map(describe).collect();
        say!(
            "{}",
            serde_json::to_string_pretty(&json!({ "models": all }))?
        );
        return Ok(());
    }
    let mut table = Table::new(&["crate", "test", "model", "hazard"], &[]);
    for m in models {
        table.row(vec![
            m.package.clone(),
            m.test.clone(),
            m.name.clone(),
            hazards_of(m),
        ]);
    }
    say!("{}", table.to_string().trim_end());
    say!("models: {}", models.len());
    Ok(())
}

/// The models with their results, the failures at the end.
pub(crate) fn results(
    models: &[Model],
    outcomes: &[Outcome],
    target: &Path,
    missing: &[String],
    as_json: bool,
) -> Result<()> {
    let executions: u64 = outcomes.iter().filter_map(|o| o.explored.executions).sum();
    let seconds: f64 = outcomes.iter().map(|o| o.seconds).sum();
    let passed = outcomes
        .iter()
        .filter(|o| o.verdict == Verdict::Passed)
        .count();
    if as_json {
        let all: Vec<_> = models
            .iter()
            .zip(outcomes)
            .map(|(m, o)| result(m, o))
            .collect();
        let totals = json!({
            "models": models.len(), "passed": passed, "executions": executions,
            "seconds": rounded(seconds), "missing": missing,
        });
        say!(
            "{}",
            serde_json::to_string_pretty(&json!({ "models": all, "totals": totals }))?
        );
        return Ok(());
    }
    let heading = [
        "crate",
        "model",
        "hazard",
        "bound",
        "executions",
        "seconds",
        "result",
    ];
    let mut table = Table::new(&heading, &[3, 4, 5]);
    for (m, o) in models.iter().zip(outcomes) {
        table.row(vec![
            m.package.clone(),
            m.name.clone(),
            hazards_of(m),
            o.explored.bound.clone().unwrap_or_else(|| "-".into()),
            o.explored
                .executions
                .map_or_else(|| "-".into(), |n| n.to_string()),
            format!("{:.1}", o.seconds),
            o.verdict.to_string(),
        ]);
    }
    say!("{}", table.to_string().trim_end());
    for (m, o) in models
        .iter()
        .zip(outcomes)
        .filter(|(_, o)| o.verdict != Verdict::Passed)
    {
        say!(
            "\n{} {}: {}",
            o.verdict,
            m.name,
            o.message.as_deref().unwrap_or("")
        );
        say!("  again, alone: {}", by_hand(m, target));
    }
    for hazard in missing {
        say!("\nMISSING {hazard}: no model is about it");
    }
    let count = models.len();
    say!("models: {passed} of {count} passed, {executions} executions, {seconds:.1} s in all");
    Ok(())
}

/// The command that runs one model without this tool.
fn by_hand(model: &Model, target: &Path) -> String {
    format!(
        "RUSTFLAGS=\"--cfg loom\" CARGO_TARGET_DIR={} cargo test -p {} --profile loom --test {} \
         -- --exact {} --nocapture",
        target.display(),
        model.package,
        model.test,
        model.name
    )
}

fn hazards_of(model: &Model) -> String {
    let hazards = hazards::of(&model.name);
    if hazards.is_empty() {
        "-".to_owned()
    } else {
        hazards.join(" ")
    }
}

fn describe(model: &Model) -> Value {
    json!({
        "crate": model.package, "test": model.test, "model": model.name,
        "hazards": hazards::of(&model.name),
    })
}

fn result(model: &Model, outcome: &Outcome) -> Value {
    let mut value = describe(model);
    value["bound"] = json!(outcome.explored.bound);
    value["executions"] = json!(outcome.explored.executions);
    value["seconds"] = json!(rounded(outcome.seconds));
    value["result"] = json!(outcome.verdict.to_string());
    value["message"] = json!(outcome.message);
    value
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}
