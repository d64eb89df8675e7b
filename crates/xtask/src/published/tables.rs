//! The tables, from what the simulations printed.

use crate::marked::{head, row};
use anyhow::{Context as _, Result};
use serde_json::Value;

pub(super) struct Summary(pub(super) String);

impl Summary {
    pub(super) fn line(&mut self, what: &str, unit: &str, command: &str, errors: Vec<f64>) {
        let mean = errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64;
        let worst = errors.iter().map(|e| e.abs()).fold(0.0, f64::max);
        let count = errors.len().to_string();
        let far = |d: f64| format!("{d:.1} {unit}");
        self.0 += &row(&[
            what,
            &count,
            &far(mean),
            &far(worst),
            &format!("`{command}`"),
        ]);
    }
}

/// How far ours is from the published, in percent of it.
pub(super) fn percent(ours: f64, published: f64) -> f64 {
    100.0 * (ours / published - 1.0)
}

/// How far the gains of the rows are from the published ones, in points.
pub(super) fn gains(rows: &[Value], wanted: impl Fn(&Value) -> bool) -> Vec<f64> {
    let far = |r: &Value| float(&r["gain_pct"]) - float(&r["published_gain_pct"]);
    rows.iter().filter(|r| wanted(r)).map(far).collect()
}

pub(super) fn hdd(rows: &[Value]) -> String {
    let mut text = head(&[
        "jobs",
        "published, kernel",
        "ours, `preempt`",
        "error",
        "published, patched",
        "ours, `as_posted`",
        "error",
        "ours, `WholeIo`",
    ]);
    for r in rows {
        let policy = |name: &str| fixed(&r["policies"][name]["mib_s"], 1);
        text += &row(&[
            &fixed(&r["jobs"], 0),
            &fixed(&r["published"]["v5_18"], 1),
            &policy("preempt"),
            &signed(&r["error_percent"]),
            &fixed(&r["published"]["patched"], 1),
            &policy("as_posted"),
            &signed(&r["patched_error_percent"]),
            &policy("ours"),
        ]);
    }
    text
}

/// The policies of a disk, in the order of the book.
const POLICIES: [&str; 6] = [
    "preempt",
    "as_posted",
    "per_waiter",
    "per_tag",
    "elastic",
    "ours",
];

/// A row for each job count, and a column for each name, with its label.
fn by_policy(rows: &[Value], names: &[(&str, &str)], cell: fn(&Value) -> String) -> String {
    let mut columns = vec!["jobs"];
    columns.extend(names.iter().map(|(_, label)| *label));
    let mut text = head(&columns);
    for r in rows {
        let mut cells = vec![fixed(&r["jobs"], 0)];
        cells.extend(names.iter().map(|(name, _)| match *name {
            "v5_18" | "patched" => fixed(&r["published"][name], 1),
            name => cell(&r["policies"][name]),
        }));
        text += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

fn with_waits(rows: &[Value]) -> Vec<Value> {
    let enough = |r: &&Value| float(&r["jobs"]) >= 16.0;
    rows.iter().filter(enough).cloned().collect()
}

/// MiB/s of every policy, where somebody waits.
pub(super) fn hdd_policies(rows: &[Value]) -> String {
    let mut names = vec![
        ("v5_18", "published v5.18"),
        ("patched", "published patched"),
    ];
    names.extend(POLICIES.map(|name| (name, name)));
    by_policy(&with_waits(rows), &names, |outcome| {
        fixed(&outcome["mib_s"], 1)
    })
}

/// More of the last row, a line for each figure.
pub(super) fn hdd_more(rows: &[Value]) -> Result<String> {
    let last = rows.last().context("no rows")?;
    let mut columns = vec![""];
    columns.extend(POLICIES);
    let mut text = head(&columns);
    for (what, key, digits) in [
        ("wakes/s of jobs that wait for a tag", "wakes_per_s", 0),
        (
            "part of the requests that continue the one before",
            "sequential",
            3,
        ),
        ("longest wait for a tag, s", "longest_wait_s", 2),
        ("evenness of the jobs, by Jain's index", "jain", 3),
    ] {
        let mut cells = vec![what.to_owned()];
        cells.extend(POLICIES.map(|name| fixed(&last["policies"][name][key], digits)));
        text += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    Ok(text)
}

/// The series as posted, and without each of its rules.
pub(super) fn rules(rows: &[Value]) -> String {
    let names = [
        ("patched", "published"),
        ("as_posted", "as posted"),
        ("in_turn", "3 off: queues in turn"),
        ("barging", "4 off: newcomers barge"),
        ("hysteresis", "5 corrected: hysteresis"),
        ("never_forced", "5 off: never let past"),
        ("later_wait", "6 off: later pieces wait"),
        ("one_tag", "7, 8 off: a wake is one tag"),
    ];
    by_policy(&with_waits(rows), &names, |outcome| {
        fixed(&outcome["mib_s"], 1)
    })
}

/// Longest and mean wait of small IOs.
pub(super) fn small(rows: &[Value]) -> String {
    let names = ["per_waiter", "per_tag", "ours"].map(|name| (name, name));
    by_policy(&with_waits(rows), &names, |outcome| {
        let longest = fixed(&outcome["small_longest_wait_s"], 3);
        format!("{longest}, {}", fixed(&outcome["small_mean_wait_s"], 3))
    })
}

/// Single writes.
pub(super) fn single(rows: &[Value]) -> String {
    let mut text = head(&["KiB", "MiB/s", "published", "error"]);
    for r in rows {
        text += &row(&[
            &fixed(&r["kib"], 0),
            &fixed(&r["mib_s"], 1),
            &fixed(&r["published_mib_s"], 1),
            &signed(&r["error_pct"]),
        ]);
    }
    text
}

/// The median call by CPUs and scopes, in ns.
pub(super) fn calls(rows: &[Value]) -> String {
    let scopes = ["cpu", "cache_shard", "cache", "numa", "system"];
    let mut columns = vec!["CPUs"];
    columns.extend(scopes);
    let mut text = head(&columns);
    for of_cpus in rows.chunk_by(|a, b| a["cpus"] == b["cpus"]) {
        let call = |scope: &str| {
            let found = of_cpus.iter().find(|r| r["scope"] == scope);
            found.map_or_else(String::new, |r| fixed(&r["call_p50_ns"], 0))
        };
        let mut cells = vec![fixed(&of_cpus[0]["cpus"], 0)];
        cells.extend(scopes.map(call));
        text += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

/// Gains of the controls of placement, by clients.
pub(super) fn controls(controls: &[Value]) -> String {
    let mut clients: Vec<f64> = controls.iter().map(|r| float(&r["clients"])).collect();
    clients.sort_by(f64::total_cmp);
    clients.dedup();
    let mut columns = vec!["control".to_owned(), "sides".to_owned()];
    columns.extend(clients.iter().map(|n| format!("{n} clients")));
    let mut text = head(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    for of_one in controls.chunk_by(|a, b| a["control"] == b["control"]) {
        let text_of = |key: &str| of_one[0][key].as_str().unwrap_or_default();
        let mut cells = vec![
            format!("`{}`", text_of("control")),
            text_of("about").to_owned(),
        ];
        cells.extend(clients.iter().map(|n| {
            let found = of_one.iter().find(|r| float(&r["clients"]) == *n);
            found.map_or_else(String::new, |r| fixed(&r["gain_pct"], 1))
        }));
        text += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

pub(super) fn dmcrypt(rows: &[Value]) -> String {
    let mut text = head(&[
        "issuers",
        "scope",
        "MiB/s (sd)",
        "published",
        "error",
        "CPU %",
        "published",
        "CPU us per IO",
        "items run elsewhere",
    ]);
    for r in rows {
        let scope = r["scope"].as_str().unwrap_or_default();
        let rate = format!("{} ({})", fixed(&r["mib_s"], 1), fixed(&r["mib_s_sd"], 1));
        text += &row(&[
            &fixed(&r["issuers"], 0),
            scope,
            &rate,
            &fixed(&r["published"]["mib_s"], 1),
            &signed(&r["error_pct"]),
            &fixed(&r["cpu_pct"], 2),
            &fixed(&r["published"]["cpu_pct"], 2),
            &fixed(&r["cpu_us_per_io"], 1),
            &fixed(&r["off_home"], 3),
        ]);
    }
    text
}

pub(super) fn enqueue(rows: &[Value]) -> String {
    let mut text = head(&[
        "scope",
        "thousand items/s",
        "published",
        "median call, ns",
        "published",
    ]);
    for r in rows
        .iter()
        .filter(|r| !r["published_items_per_s"].is_null())
    {
        let thousand = |value: &Value| format!("{:.0}", float(value) / 1000.0);
        text += &row(&[
            r["scope"].as_str().unwrap_or_default(),
            &thousand(&r["items_per_s"]),
            &thousand(&r["published_items_per_s"]),
            &fixed(&r["call_p50_ns"], 0),
            &fixed(&r["published_call_p50_ns"], 0),
        ]);
    }
    text
}

pub(super) fn limit(rows: &[Value]) -> String {
    let mut text = head(&[
        "counted",
        "`max_active`",
        "MiB/s",
        "published",
        "error",
        "items at once",
        "threads",
        "sleep for the lock",
    ]);
    for r in rows {
        text += &row(&[
            r["counted"].as_str().unwrap_or_default(),
            &fixed(&r["max_active"], 0),
            &fixed(&r["mib_s"], 0),
            &fixed(&r["published_mib_s"], 0),
            &signed(&r["error_pct"]),
            &fixed(&r["most_running"], 0),
            &fixed(&r["threads"], 0),
            &fixed(&r["asleep"], 0),
        ]);
    }
    text
}

pub(super) fn flush(rows: &[Value]) -> String {
    let mut text = head(&[
        "machine",
        "clients",
        "flush-before",
        "published",
        "eager",
        "published",
        "gain %",
        "published",
        "flush ratio",
    ]);
    for r in rows {
        let ratio = float(&r["eager"]["flushes_per_commit"])
            / float(&r["flush_before"]["flushes_per_commit"]);
        text += &row(&[
            r["machine"].as_str().unwrap_or_default(),
            &fixed(&r["clients"], 0),
            &fixed(&r["flush_before"]["file_ms"], 1),
            &fixed(&r["published_good_ms"], 1),
            &fixed(&r["eager"]["file_ms"], 1),
            &fixed(&r["published_bad_ms"], 1),
            &fixed(&r["gain_pct"], 1),
            &fixed(&r["published_gain_pct"], 1),
            &format!("{ratio:.2}"),
        ]);
    }
    text
}

pub(super) fn placement(rows: &[Value], name: &str) -> String {
    let mut text = head(&[
        "table",
        "clients",
        "before",
        "published",
        "after",
        "published",
        "gain %",
        "published",
        "migrations per IO before",
        "after",
        "CPUs of a client before",
        "after",
    ]);
    for r in rows {
        let table = r["table"].as_str().unwrap_or_default();
        if !table.starts_with(name) {
            continue;
        }
        let (before, after) = (&r["before"], &r["after"]);
        text += &row(&[
            table,
            &fixed(&r["clients"], 0),
            &fixed(&before["file_ms"], 1),
            &fixed(&r["published_before_ms"], 1),
            &fixed(&after["file_ms"], 1),
            &fixed(&r["published_after_ms"], 1),
            &fixed(&r["gain_pct"], 1),
            &fixed(&r["published_gain_pct"], 1),
            &fixed(&before["migrations_per_io"], 2),
            &fixed(&after["migrations_per_io"], 2),
            &fixed(&before["cpus_visited"], 1),
            &fixed(&after["cpus_visited"], 1),
        ]);
    }
    text
}

pub(super) fn float(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// The number with `digits` decimals; empty if it was not published.
fn fixed(value: &Value, digits: usize) -> String {
    let number = |v: f64| format!("{v:.digits$}");
    value.as_f64().map_or_else(String::new, number)
}

fn signed(percent: &Value) -> String {
    let number = |v: f64| format!("{v:+.1} %");
    percent.as_f64().map_or_else(String::new, number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_has_a_row_for_each_and_gaps_for_what_was_not_published() {
        let rows = [
            json!({"issuers": 4, "scope": "ours", "mib_s": 999.44, "mib_s_sd": 2.8,
                "published": null,
            "error_pct": null, "cpu_pct": 76.549, "cpu_us_per_io": 287.3, "off_home": 0.3041}),
        ];
        let text = dmcrypt(&rows);
        let last = text.lines().last().unwrap();
        assert_eq!(
            last,
            "| 4 | ours | 999.4 (2.8) |  |  | 76.55 |  | 287.3 | 0.304 |"
        );
        let rows = [
            json!({"scope": "cpu", "published_items_per_s": null}),
            json!({"scope": "smt", "items_per_s": 3_242_400.0, "published_items_per_s": 3_362_119,
                "call_p50_ns": 10890, "published_call_p50_ns": 10945}),
        ];
        assert!(enqueue(&rows).ends_with("|\n| smt | 3242 | 3362 | 10890 | 10945 |\n"));
    }
}
