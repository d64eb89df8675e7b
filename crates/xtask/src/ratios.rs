//! `xtask ratios`: our loads beside the rivals', in a program of its own.
//!
//! The rivals are heavy dependencies, and the other commands must not wait for them to build.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// What is asked of the program.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print everything measured as JSON
    #[arg(long)]
    json: bool,
    /// Only this section (repeatable): pair, churn, try-lock, two, ring, mask, demand, scarce,
    /// tasks, spawn, requeue, ping, fanout, mixed, burst, curve, cancel, memory, meter, token,
    /// tenants, iter, freeze
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// A few rounds: shows that it works, measures little
    #[arg(long)]
    quick: bool,
    /// Also print every contender of every load
    #[arg(long)]
    cells: bool,
}

/// Builds and runs it. Whether it could measure: a goal that is not met is no failure.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command.args(["run", "--release", "--quiet", "-p", "inflight-benches"]);
    command.args(["--bin", "ratios", "--"]);
    let flags = [
        ("--json", options.json),
        ("--quick", options.quick),
        ("--cells", options.cells),
    ];
    for (flag, on) in flags {
        if on {
            command.arg(flag);
        }
    }
    for name in &options.only {
        command.args(["--only", name]);
    }
    let status = command.status().context("cannot run cargo")?;
    Ok(status.success())
}
