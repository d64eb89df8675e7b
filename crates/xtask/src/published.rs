//! `xtask published`: the simulator's tables and pictures beside the published ones, written into
//! the book.
//!
//! A page says where: what stands between `<!-- generated: NAME -->` and `<!-- end -->` is
//! replaced.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::marked::{filled, head, row};
use crate::output::say;

/// Simulations that draw a picture, and the option for it.
const DRAWN: [(&str, &str); 4] = [
    ("hdd", "--svg"),
    ("flush", "--plot"),
    ("limit", "--plot"),
    ("placement", "--plot"),
];

/// Runs the simulations whose tables the pages want, and writes the pages.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut runs = Runs {
        root,
        done: BTreeMap::new(),
    };
    let mut pages: Vec<_> = std::fs::read_dir(root.join("docs"))?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    pages.sort();
    for page in pages {
        let text = std::fs::read_to_string(&page)?;
        let new = filled(&text, "generated", &mut |name| runs.table(name))
            .with_context(|| page.display().to_string())?;
        if new != text {
            say!("{}: written anew", page.display());
            std::fs::write(&page, new)?;
        }
    }
    Ok(true)
}

struct Runs<'a> {
    root: &'a Path,
    done: BTreeMap<&'static str, Value>,
}

impl Runs<'_> {
    /// What a simulation printed, run once.
    fn of(&mut self, simulation: &'static str) -> Result<&Value> {
        if !self.done.contains_key(simulation) {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut command = Command::new(cargo);
            command.current_dir(self.root);
            command.args(["run", "--release", "--quiet", "-p", "inflight-sim", "--"]);
            command.args([simulation, "--json"]);
            if let Some((_, option)) = DRAWN.iter().find(|(name, _)| *name == simulation) {
                command.args([option, format!("docs/published-{simulation}.svg").as_str()]);
            }
            let output = command.output()?;
            ensure!(output.status.success(), "inflight-sim {simulation} failed");
            let value = serde_json::from_slice(&output.stdout)?;
            self.done.insert(simulation, value);
        }
        Ok(&self.done[simulation])
    }

    fn rows(&mut self, simulation: &'static str) -> Result<Vec<Value>> {
        let rows = self.of(simulation)?["rows"].as_array();
        Ok(rows.context("no rows")?.clone())
    }

    fn table(&mut self, name: &str) -> Result<String> {
        Ok(match name {
            "summary" => self.summary()?,
            "hdd" => hdd(&self.rows("hdd")?),
            "dmcrypt" => dmcrypt(&self.rows("dmcrypt")?),
            "enqueue" => enqueue(&self.rows("enqueue")?),
            "limit" => limit(&self.rows("limit")?),
            "flush" => flush(&self.rows("flush")?),
            "kworker_stack" | "irq_migrate" => placement(&self.rows("placement")?, name),
            _ => bail!("no table is called {name}"),
        })
    }

    /// How far ours is from each published table.
    fn summary(&mut self) -> Result<String> {
        let mut table = Summary(head(&[
            "published table",
            "values",
            "mean distance",
            "worst",
            "command",
        ]));
        let rows = self.rows("hdd")?;
        let errors = |key: &str| rows.iter().filter_map(|r| r[key].as_f64()).collect();
        table.line(
            "disk, published kernel, MiB/s",
            "%",
            "hdd",
            errors("error_percent"),
        );
        let patched = errors("patched_error_percent");
        table.line("disk, patched kernel, MiB/s", "%", "hdd", patched);

        let rows = self.rows("dmcrypt")?;
        let errors = |key: &str| rows.iter().filter_map(|r| r[key].as_f64()).collect();
        table.line("scopes, MiB/s", "%", "dmcrypt", errors("error_pct"));
        table.line("scopes, CPU", "points", "dmcrypt", errors("cpu_error"));

        let rows = self.rows("enqueue")?;
        let errors = |ours: &str, published: &str| {
            let both = |r: &Value| Some(percent(r[ours].as_f64()?, r[published].as_f64()?));
            rows.iter().filter_map(both).collect()
        };
        let rates = errors("items_per_s", "published_items_per_s");
        table.line("queueing, items/s", "%", "enqueue", rates);
        let calls = errors("call_p50_ns", "published_call_p50_ns");
        table.line("queueing, median call", "%", "enqueue", calls);

        let rows = self.rows("limit")?;
        let errors = rows.iter().filter_map(|r| r["error_pct"].as_f64());
        table.line("a multiplied limit, MiB/s", "%", "limit", errors.collect());

        let rows = self.rows("flush")?;
        let sides = [
            ("flush_before", "published_good_ms"),
            ("eager", "published_bad_ms"),
        ];
        let times = rows.iter().flat_map(|r| {
            sides.map(|(ours, published)| percent(float(&r[ours]["file_ms"]), float(&r[published])))
        });
        table.line(
            "flushes, time of a load file",
            "%",
            "flush",
            times.collect(),
        );
        table.line("flushes, gain", "points", "flush", gains(&rows, |_| true));

        let rows = self.rows("placement")?;
        for (what, name) in [
            ("stacked wakes, 8 CPUs, gain", "kworker_stack_uma8"),
            ("stacked wakes, 48 CPUs, gain", "kworker_stack_numa48_llc24"),
            ("pulled wakes, gain", "irq_migrate"),
        ] {
            let distances = gains(&rows, |r| r["table"] == name);
            table.line(what, "points", "placement", distances);
        }
        Ok(table.0)
    }
}

struct Summary(String);

impl Summary {
    fn line(&mut self, what: &str, unit: &str, command: &str, errors: Vec<f64>) {
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
fn percent(ours: f64, published: f64) -> f64 {
    100.0 * (ours / published - 1.0)
}

/// How far the gains of the rows are from the published ones, in points.
fn gains(rows: &[Value], wanted: impl Fn(&Value) -> bool) -> Vec<f64> {
    let far = |r: &Value| float(&r["gain_pct"]) - float(&r["published_gain_pct"]);
    rows.iter().filter(|r| wanted(r)).map(far).collect()
}

fn hdd(rows: &[Value]) -> String {
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

fn dmcrypt(rows: &[Value]) -> String {
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

fn enqueue(rows: &[Value]) -> String {
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

fn limit(rows: &[Value]) -> String {
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

fn flush(rows: &[Value]) -> String {
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

fn placement(rows: &[Value], name: &str) -> String {
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

fn float(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// So many digits behind the point; nothing for what was not published.
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
