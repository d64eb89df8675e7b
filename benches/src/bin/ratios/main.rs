//! The short form of the benchmarks: what `xtask ratios` runs.
//!
//! All contenders of a load take turns in one process, round by round, and medians are compared.

mod alone;
mod cell;
mod crowd;
mod pair;
mod pools;
mod report;
mod tags;

use cell::{Cell, Plan};
use clap::Parser;
use inflight_benches::machine::Machine;
use report::{Report, Row};
use std::process::ExitCode;

/// Loads with the rivals side by side: ours, the best rival, the ratio and the goal.
#[derive(Debug, Parser)]
#[command(name = "ratios")]
struct Cli {
    /// Print everything measured as JSON
    #[arg(long)]
    json: bool,
    /// Only this section (repeatable)
    #[arg(long, value_name = "NAME", value_parser = NAMES)]
    only: Vec<String>,
    /// A few rounds: shows that it works, measures little
    #[arg(long)]
    quick: bool,
    /// Also print every contender of every load
    #[arg(long)]
    cells: bool,
    /// Measure what this process can do and print the cells alone: for a process of another kind
    #[arg(long, hide = true)]
    child: bool,
    /// Measure one pool in a process that has done nothing else
    #[arg(long, hide = true)]
    pool_child: Option<String>,
}

/// Measures one part of the table.
type Section = fn(&Plan) -> (Vec<Cell>, Vec<Row>);

const NAMES: [&str; 23] = [
    "pair", "churn", "try-lock", "two", "ring", "mask", "demand", "scarce", "tasks", "spawn",
    "requeue", "ping", "fanout", "mixed", "burst", "curve", "cancel", "memory", "meter", "token",
    "tenants", "iter", "freeze",
];

const SECTIONS: [Section; 23] = [
    alone::pair,
    alone::churn,
    pair::try_lock,
    pair::two,
    pair::ring,
    alone::mask,
    pair::demand,
    crowd::scarce,
    crowd::tasks,
    pools::spawn,
    pools::requeue,
    pools::ping,
    pools::fanout,
    pools::mixed,
    pools::burst,
    pools::curve,
    pools::cancel,
    pools::memory,
    pools::meter,
    tags::token,
    tags::tenants,
    tags::iter,
    tags::freeze,
];

fn main() -> ExitCode {
    let cli = Cli::parse();
    let machine = Machine::prepare();
    let plan = Plan::new(machine, cli.quick);
    if let Some(what) = &cli.pool_child {
        return pools::child(what);
    }
    if cli.child {
        return report::print_json(&pair::try_lock_cells(&plan));
    }
    let mut report = Report::new(machine, cli.quick);
    for (name, section) in NAMES.iter().zip(SECTIONS) {
        if cli.only.is_empty() || cli.only.iter().any(|only| only == name) {
            let (cells, rows) = section(&plan);
            report.add(cells, rows);
        }
    }
    report.finish();
    if cli.json {
        return report::print_json(&report);
    }
    report.print(cli.cells);
    ExitCode::SUCCESS
}
