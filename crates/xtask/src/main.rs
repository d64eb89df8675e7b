//! The project's own tools. `cargo run --release -p xtask -- <command> --help` tells about each;
//! `docs/testing-tools.md` shows how to read what they print.

mod bench_docs;
mod marked;
mod models;
mod mutants;
mod output;
mod parallel;
mod published;
mod ratios;
mod record;
mod scan;
mod table;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The project's own tools.
#[derive(Debug, Parser)]
#[command(name = "xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the house rules
    Tidy,
    /// Run the loom models, each in a process of its own
    Models(models::Options),
    /// Weaken each memory ordering in turn and look whether a model notices
    Mutants(mutants::Options),
    /// Measure ours beside the rivals: workload, ours, best rival, ratio, goal
    Ratios(ratios::Options),
    /// Write the tables of benchmarks, from the records, into README and the book
    BenchDocs(bench_docs::Options),
    /// Write the simulator's tables, beside the published ones, into the book
    Published(published::Options),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match run(&command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether the command found nothing wrong.
fn run(command: &Command) -> Result<bool> {
    let root = workspace::find_root()?;
    match command {
        Command::Tidy => tidy::run(&root),
        Command::Models(options) => models::run(&root, options),
        Command::Mutants(options) => mutants::run(&root, options),
        Command::Ratios(options) => ratios::run(&root, options),
        Command::BenchDocs(options) => bench_docs::run(&root, options),
        Command::Published(options) => published::run(&root, options),
    }
}
