//! `xtask ratios`: our loads beside the rivals', in a program of its own.
//!
//! The rivals are heavy dependencies, and the other commands must not wait for them to build.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// What is asked of the program: it reads that itself, and prints the help.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// As the program has them; `--help` prints them
    #[arg(
        value_name = "OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    options: Vec<String>,
}

/// Builds and runs it. Whether it could measure: a goal that is not met is no failure.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command.args(["run", "--release", "--quiet", "-p", "inflight-benches"]);
    command
        .args(["--bin", "ratios", "--"])
        .args(&options.options);
    let status = command.status().context("cannot run cargo")?;
    Ok(status.success())
}
