//! The short form of the benchmarks: what `xtask ratios` runs.
//!
//! All contenders of a load take turns in one process, round by round, and medians are compared.
//! Each section has a process of its own: what another one leaves, as memory that was freed and
//! threads that sleep, made some contenders twice as fast or slow.

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
use inflight_benches::phase::Phase;
use pools::{cancel, latency, long, memory, shared, small, wakeup};
use report::{Report, Row};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Loads with the rivals side by side: ours, the best rival, the ratio and the goal.
///
/// Contenders take turns, round by round, and medians are compared. Where two CPUs work together
/// the time that a cache line takes from one to the other is probed before and after each sample:
/// near (40 to 160 ns), far (longer), or one core that both share (less than 40 ns: only in virtual
/// machines). A host changes that within seconds. Samples whose probes disagree are put
/// aside, and each state has rows of its own, with the distance beside it. Sections
/// without a near state are measured again, within the first five minutes. Goals are those of the
/// near state; in the far state ours must be no slower than the best rival of a pool's load.
#[derive(Debug, Parser)]
#[command(name = "ratios")]
struct Cli {
    /// Print everything measured as JSON
    #[arg(long)]
    json: bool,
    /// Only this section or group of sections (repeatable). ids: pair, churn, try-lock, two, ring,
    /// mask, demand, scarce, tasks. tags: token, tenants, iter, freeze. workqueue: spawn,
    /// producers, empty, wait, windows, chain, fanout, ping, wakeup, queues, mixed, burst, cancel,
    /// flush, memory
    #[arg(long, value_name = "NAME", value_parser = names())]
    only: Vec<String>,
    /// Only the rows of the workqueue's sections with this in their name
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// How many times each contender has its turn: 9, of the workqueue's sections 31; up to twice
    /// as often where the near state was rare
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..))]
    rounds: Option<u32>,
    /// A few rounds: shows that it works, measures little
    #[arg(long)]
    quick: bool,
    /// Also print every contender of every load
    #[arg(long)]
    cells: bool,
    /// Measure one section here, and print it as JSON
    #[arg(long, hide = true)]
    here: Option<String>,
    /// Measure what this process can do and print the cells alone: for a process of another kind
    #[arg(long, hide = true)]
    child: bool,
    /// Measure one pool in a process that has done nothing else
    #[arg(long, hide = true)]
    pool_child: Option<String>,
}

/// Measures one part of the table.
type Section = fn(&Plan) -> (Vec<Cell>, Vec<Row>);

/// The group of the workqueue's sections.
const POOLS: &str = "workqueue";

/// The sections of each group, in the order of the table.
const GROUPS: [(&str, &[(&str, Section)]); 3] = [
    (
        "ids",
        &[
            ("pair", alone::pair),
            ("churn", alone::churn),
            ("try-lock", pair::try_lock),
            ("two", pair::two),
            ("ring", pair::ring),
            ("mask", alone::mask),
            ("demand", pair::demand),
            ("scarce", crowd::scarce),
            ("tasks", crowd::tasks),
        ],
    ),
    (
        POOLS,
        &[
            ("spawn", small::spawn),
            ("producers", small::producers),
            ("empty", small::empty),
            ("wait", small::wait),
            ("windows", latency::windows),
            ("chain", small::chain),
            ("fanout", long::fanout),
            ("ping", latency::ping),
            ("wakeup", wakeup::wakeup),
            ("queues", shared::queues),
            ("mixed", long::mixed),
            ("burst", long::burst),
            ("cancel", cancel::cancel),
            ("flush", latency::flush),
            ("memory", memory::memory),
        ],
    ),
    (
        "tags",
        &[
            ("token", tags::token),
            ("tenants", tags::tenants),
            ("iter", tags::iter),
            ("freeze", tags::freeze),
        ],
    ),
];

/// All groups and sections.
fn names() -> Vec<&'static str> {
    let of = |(group, sections): (&'static str, &[(&'static str, Section)])| {
        let sections: Vec<_> = sections.iter().map(|(name, _)| *name).collect();
        [vec![group], sections].concat()
    };
    GROUPS.into_iter().flat_map(of).collect()
}

/// The rounds of the workqueue's sections: they must do for two states and more.
const POOL_ROUNDS: usize = 31;

/// How often a section is measured that has had no near state.
const PASSES: usize = 6;

/// After this long no section is measured again.
const PATIENCE: Duration = Duration::from_secs(300);

/// Measures a section in a process that has done nothing else.
fn measured(cli: &Cli, name: &str) -> anyhow::Result<(Vec<Cell>, Vec<Row>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--here", name]);
    if let Some(rounds) = cli.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    if let Some(row) = &cli.row {
        command.args(["--row", row]);
    }
    if cli.quick {
        command.arg("--quick");
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "section {name}: {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let machine = Machine::prepare();
    if let Some(what) = &cli.pool_child {
        return memory::child(what);
    }
    let rounds = cli.rounds.map(|rounds| rounds as usize);
    let plan = Plan::new(machine, cli.quick, rounds);
    if cli.child {
        return report::print_json(&pair::try_lock_cells(&plan));
    }
    if let Some(name) = &cli.here {
        let pool_rounds = rounds.or((!cli.quick).then_some(POOL_ROUNDS));
        let pool_plan = Plan {
            row: cli.row.clone(),
            ..Plan::new(machine, cli.quick, pool_rounds)
        };
        let all = GROUPS.iter().flat_map(|(group, sections)| {
            let plan = if *group == POOLS { &pool_plan } else { &plan };
            sections.iter().map(move |section| (plan, section))
        });
        let mut named = all.filter(|(_, (section, _))| section == name);
        let Some((plan, (_, section))) = named.next() else {
            eprintln!("error: there is no section {name:?}");
            return ExitCode::FAILURE;
        };
        return report::print_json(&section(plan));
    }
    match measure(&cli, machine) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the sections that are asked for, and prints them.
fn measure(cli: &Cli, machine: Machine) -> anyhow::Result<ExitCode> {
    let mut report = Report::new(machine, cli.quick);
    let mut asked = Vec::new();
    for (group, sections) in GROUPS {
        if cli.row.is_some() && group != POOLS {
            continue;
        }
        for (name, _) in sections {
            let is_asked = |only: &String| only == group || only == name;
            if cli.only.is_empty() || cli.only.iter().any(is_asked) {
                asked.push((group, *name));
            }
        }
    }
    if let (Some(row), true) = (&cli.row, asked.is_empty()) {
        anyhow::bail!("--row {row:?} is of the workqueue's sections, and --only names none");
    }
    let passes = if cli.quick { 1 } else { PASSES };
    for pass in 0..passes {
        // Again where the machine was never in the near state: it may have come back.
        for (group, name) in std::mem::take(&mut asked) {
            if pass > 0 && report.elapsed() > PATIENCE {
                break;
            }
            let before = Phase::now();
            let (cells, mut rows) = measured(cli, name)?;
            let phase = before.between(Phase::now());
            for row in &mut rows {
                (row.group, row.section) = (group, name);
                row.phase = Some(phase);
            }
            if !report.add(cells, rows) {
                asked.push((group, name));
            }
        }
    }
    report.finish();
    if let (Some(row), true) = (&cli.row, report.is_empty()) {
        anyhow::bail!("no row of these sections has {row:?} in its name");
    }
    if cli.json {
        return Ok(report::print_json(&report));
    }
    report.print(cli.cells);
    Ok(ExitCode::SUCCESS)
}
