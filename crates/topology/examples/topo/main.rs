//! Shows a machine: this one, a recorded one or a described one.
//!
//! ```console
//! $ cargo run --release -p inflight-topology --example topo
//! $ cargo run --release -p inflight-topology --example topo -- --sysfs DIRECTORY
//! $ cargo run --release -p inflight-topology --example topo -- \
//!       --synthetic "numa:2 cache:2 core:6 smt:2" --svg machine.svg
//! ```

mod drawing;
mod json;
mod text;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use inflight_topology::Topology;

/// Shows a machine as its affinity scopes: which CPUs share a core, a cache, a memory node.
#[derive(Debug, Parser)]
#[command(name = "topo")]
struct Args {
    /// A machine recorded by ci/record-topology: a directory, or its one-file form (.txt).
    #[arg(long, value_name = "PATH", conflicts_with = "synthetic")]
    sysfs: Option<PathBuf>,
    /// A machine described in one line, such as "numa:2 cache:2 core:6 smt:2". There are numa,
    /// cache, core and smt with counts, offline, isolated, fast and slow with lists of CPUs.
    #[arg(long, value_name = "LINE")]
    synthetic: Option<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Writes a drawing to FILE, and prints nothing unless --json asks for it.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What to do after the arguments were read.
enum Request {
    Show(Args),
    /// Help, which clap has written.
    Print(String),
}

fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    match run(std::env::args_os(), &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("topo: {error}");
            ExitCode::from(2)
        }
    }
}

/// The program. Any error is one line for the user.
fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let text = match request(args)? {
        Request::Print(text) => text,
        Request::Show(args) => {
            let topo = machine(&args)?;
            if let Some(file) = &args.svg {
                let refused = |error| format!("{} cannot be written: {error}", file.display());
                fs::write(file, drawing::draw(&topo)).map_err(refused)?;
            }
            if args.json {
                json::text(&topo)?
            } else if args.svg.is_none() {
                text::scopes(&topo)
            } else {
                String::new()
            }
        }
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads may have seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

fn request(args: impl IntoIterator<Item = OsString>) -> Result<Request, String> {
    match Args::try_parse_from(args) {
        Ok(args) => Ok(Request::Show(args)),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            Ok(Request::Print(error.to_string()))
        }
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            let line = line.strip_prefix("error: ").unwrap_or(line);
            Err(format!("{line} (--help tells what there is)"))
        }
    }
}

fn machine(args: &Args) -> Result<Topology, Box<dyn Error>> {
    match (&args.synthetic, &args.sysfs) {
        (Some(line), _) => {
            let bad = |error| format!("--synthetic {line:?}: {error}");
            Ok(Topology::synthetic(line).map_err(bad)?)
        }
        (None, Some(path)) => Ok(Topology::from_sysfs(path)?),
        (None, None) => Ok(Topology::discover()?),
    }
}
