//! `xtask published`: the simulator's tables and pictures beside the published ones, written into
//! the book.
//!
//! A page says where: what stands between `<!-- generated: NAME -->` and `<!-- end -->` is
//! replaced. Each simulation also says whether what must be seen is seen.

mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::marked::{filled, head};
use crate::output::say;
use tables::{Summary, float, gains, percent};

/// Simulations that draw a picture, and its name.
const DRAWN: [(&str, &str); 7] = [
    ("hdd", "hdd"),
    ("hdd --single", "single"),
    ("dmcrypt", "dmcrypt"),
    ("enqueue", "enqueue"),
    ("limit", "limit"),
    ("flush", "flush"),
    ("placement", "placement"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write nothing: fail if a table or a picture is not what the simulations give
    #[arg(long)]
    check: bool,
}

/// Runs the simulations whose tables the pages want, and writes pages and pictures, or tells which
/// of them are not what the simulations give. Also whether each simulation shows what it must.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let mut runs = Runs {
        root,
        done: BTreeMap::new(),
        drawn: Vec::new(),
        failed: false,
    };
    let mut pages: Vec<_> = std::fs::read_dir(root.join("docs"))?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    pages.sort();
    let mut made = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page)?;
        let new = filled(&text, "generated", &mut |name| runs.table(name))
            .with_context(|| page.display().to_string())?;
        made.push((page, text, new));
    }
    for (path, new) in std::mem::take(&mut runs.drawn) {
        made.push((
            path.clone(),
            std::fs::read_to_string(&path).unwrap_or_default(),
            new,
        ));
    }
    let mut good = !runs.failed;
    for (path, old, new) in made {
        if old == new {
            continue;
        }
        if options.check {
            say!("{}: {STALE}", path.display());
            good = false;
        } else {
            std::fs::write(&path, new)?;
            say!("{}: written anew", path.display());
        }
    }
    Ok(good)
}

const STALE: &str = "not what the simulations give: cargo run --release -p xtask -- published";

struct Runs<'a> {
    root: &'a Path,
    done: BTreeMap<&'static str, Value>,
    /// Pictures, and where they belong.
    drawn: Vec<(PathBuf, String)>,
    /// A simulation did not show what it must.
    failed: bool,
}

impl Runs<'_> {
    /// What a simulation printed, run once.
    fn of(&mut self, simulation: &'static str) -> Result<&Value> {
        if !self.done.contains_key(simulation) {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut command = Command::new(cargo);
            command.current_dir(self.root);
            command.args(["run", "--release", "--quiet", "-p", "inflight-sim", "--"]);
            command.args(simulation.split(' '));
            command.args(["--check", "--json"]);
            let picture = DRAWN.iter().find(|(name, _)| *name == simulation);
            let file = picture.map(|(_, name)| format!("published-{name}.svg"));
            let drawing = self.root.join("target").join("published.svg");
            if file.is_some() {
                std::fs::create_dir_all(self.root.join("target"))?;
                command.arg("--plot").arg(&drawing);
            }
            let output = command.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            let value: Value = serde_json::from_slice(&output.stdout)
                .with_context(|| format!("inflight-sim {simulation}: {}", said.trim()))?;
            let goals = value["goals"].as_array().context("no goals")?;
            ensure!(!goals.is_empty(), "inflight-sim {simulation} has no goals");
            for goal in goals.iter().filter(|goal| goal["holds"] != true) {
                say!("{simulation}: FAILS: {} ({})", goal["goal"], goal["seen"]);
                self.failed = true;
            }
            if let Some(file) = file {
                let text = std::fs::read_to_string(&drawing)?;
                self.drawn.push((self.root.join("docs").join(file), text));
            }
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
            "hdd" => tables::hdd(&self.rows("hdd")?),
            "hdd_policies" => tables::hdd_policies(&self.rows("hdd")?),
            "hdd_more" => tables::hdd_more(&self.rows("hdd")?)?,
            "rules" => tables::rules(&self.rows("hdd --rules")?),
            "small" => tables::small(&self.rows("hdd --small-every 10")?),
            "single" => tables::single(&self.rows("hdd --single")?),
            "dmcrypt" => tables::dmcrypt(&self.rows("dmcrypt")?),
            "enqueue" => tables::enqueue(&self.rows("enqueue")?),
            "calls" => tables::calls(&self.rows("enqueue")?),
            "limit" => tables::limit(&self.rows("limit")?),
            "flush" => tables::flush(&self.rows("flush")?),
            "kworker_stack" | "irq_migrate" => tables::placement(&self.rows("placement")?, name),
            "controls" => {
                let controls = self.of("placement")?["controls"].as_array();
                tables::controls(controls.context("no controls")?)
            }
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

        let rows = self.rows("hdd --single")?;
        let errors = rows.iter().filter_map(|r| r["error_pct"].as_f64());
        table.line(
            "disk, single writes, MiB/s",
            "%",
            "hdd --single",
            errors.collect(),
        );

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
        let flushes = self.of("flush")?;
        let [ours, published] =
            ["flush_ratio", "published_flush_ratio"].map(|key| float(&flushes[key]));
        let ratio = percent(ours, published);
        table.line("flushes, eager / flush-before", "%", "flush", vec![ratio]);

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
