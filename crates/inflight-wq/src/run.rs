//! Does what the command line says.

use crate::monitor;
use crate::options::{Command, Monitor, Options};
use clap::Parser as _;
use clap::error::ErrorKind;
use inflight_sync::time::Clock;
use inflight_sync::{Parker, Printed};
use inflight_workqueue_serve::{ControlFile, QueueFiles, Reply, Request, TraceLine, ask};
use regex::Regex;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

const EXIT_REFUSED: u8 = 1;
const EXIT_USAGE: u8 = 2;

/// What clap would answer by the whole help, without and with other options.
const NO_COMMAND: [ErrorKind; 2] = [
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::MissingSubcommand,
];
const WHICH: &str =
    "no command: dump, monitor, files, set, system, set-system or trace; --help tells more";

/// Clears a terminal and begins at its top.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Why the program ends early.
enum Ended {
    /// To be told, in one line.
    Wrong(String),
    /// Nobody reads what it prints any more.
    Unread,
}

impl From<io::Error> for Ended {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Self::Unread;
        }
        Self::Wrong(format!("printing: {e}"))
    }
}

pub(crate) fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if NO_COMMAND.contains(&error.kind()) => return complain(WHICH, EXIT_USAGE),
        Err(error) if error.use_stderr() => return complain(&one_line(&error), EXIT_USAGE),
        Err(help) => {
            let printed = help.print().and_then(|()| io::stdout().flush());
            return conclude(printed.map_err(Ended::from));
        }
    };
    let socket = match options.socket() {
        Ok(socket) => socket,
        Err(error) => return complain(&error, EXIT_USAGE),
    };
    conclude(run(&options, &socket))
}

fn conclude(result: Result<(), Ended>) -> ExitCode {
    match result {
        Ok(()) | Err(Ended::Unread) => ExitCode::SUCCESS,
        Err(Ended::Wrong(error)) => complain(&error, EXIT_REFUSED),
    }
}

fn complain(error: &str, status: u8) -> ExitCode {
    // Why ignored: who has closed standard error does not want to read it.
    let _ = writeln!(io::stderr(), "inflight-wq: {error}");
    ExitCode::from(status)
}

/// What clap says in several lines, in one.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let ends = ["Usage:", "For more information"];
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !ends.iter().any(|end| line.starts_with(end)));
    let words: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    let line = words.join(" ").replace(" tip: ", "; ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

fn run(options: &Options, socket: &Path) -> Result<(), Ended> {
    match &options.command {
        Command::Dump => match asked(socket, &Request::Dump)? {
            Reply::Dump { text } => print(&text),
            other => Err(unexpected(&other)),
        },
        Command::Monitor(monitor) => watch(socket, monitor),
        Command::Files { queue } => files(socket, queue.as_deref()),
        Command::Set { queue, file, value } => {
            let request = Request::Set {
                queue: queue.clone(),
                file: file.clone(),
                value: value.clone(),
            };
            write(socket, &request)
        }
        Command::System => match asked(socket, &Request::SystemFiles)? {
            Reply::SystemFiles { files } => {
                print(&files.iter().map(|file| line(file, 24)).collect::<String>())
            }
            other => Err(unexpected(&other)),
        },
        Command::SetSystem { file, value } => {
            let request = Request::SetSystem {
                file: file.clone(),
                value: value.clone(),
            };
            write(socket, &request)
        }
        Command::Trace => match asked(socket, &Request::Trace)? {
            Reply::Trace { steps, dropped } => {
                let lost = (dropped > 0).then(|| format!("[lost {dropped} steps]\n"));
                print(
                    &lost
                        .into_iter()
                        .chain(steps.iter().map(step))
                        .collect::<String>(),
                )
            }
            other => Err(unexpected(&other)),
        },
    }
}

fn write(socket: &Path, request: &Request) -> Result<(), Ended> {
    match asked(socket, request)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn step(step: &TraceLine) -> String {
    let TraceLine {
        at_ns,
        queue,
        item,
        step,
        cpu,
        ..
    } = step;
    let item = Printed(item);
    format!("{at_ns:>16} {cpu:>4} {queue:24} {step:10} {item}\n")
}

fn asked(socket: &Path, request: &Request) -> Result<Reply, Ended> {
    match ask(socket, request) {
        Ok(Reply::Error { error }) => Err(Ended::Wrong(error)),
        Ok(reply) => Ok(reply),
        Err(e) => Err(Ended::Wrong(format!("{}: {e}", socket.display()))),
    }
}

fn unexpected(reply: &Reply) -> Ended {
    Ended::Wrong(format!("another question was answered: {reply:?}"))
}

fn print(text: &str) -> Result<(), Ended> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn files(socket: &Path, wanted: Option<&str>) -> Result<(), Ended> {
    let mut queues = match asked(socket, &Request::Files)? {
        Reply::Files { queues } => queues,
        other => return Err(unexpected(&other)),
    };
    queues.retain(|queue| wanted.is_none_or(|name| queue.name == name));
    if let (Some(name), true) = (wanted, queues.is_empty()) {
        return Err(Ended::Wrong(format!("no queue has the name {name:?}")));
    }
    print(&queues.iter().map(listed).collect::<String>())
}

fn listed(queue: &QueueFiles) -> String {
    let lines = queue
        .files
        .iter()
        .map(|file| format!("{:24} {}", queue.name, line(file, 16)));
    lines.collect()
}

fn line(file: &ControlFile, width: usize) -> String {
    let mode = if file.writable { "rw" } else { "r " };
    format!("{:width$} {mode} {}\n", file.name, file.value)
}

/// Looks again and again.
fn watch(socket: &Path, monitor: &Monitor) -> Result<(), Ended> {
    let clock = Clock::system();
    let live = io::stdout().is_terminal() && !monitor.json;
    let mut next = clock.now();
    let mut first = true;
    let mut left = if monitor.interval.is_zero() {
        Some(1)
    } else {
        monitor.count
    };
    loop {
        let Reply::Stats { mut queues } = asked(socket, &Request::Stats)? else {
            return Err(Ended::Wrong("another question was answered".to_owned()));
        };
        let names = queues.iter().map(|queue| queue.name.clone()).collect();
        let patterns = &monitor.patterns;
        queues.retain(|queue| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.is_match(&queue.name))
        });
        // Later it may have gone, and come again.
        if first && queues.is_empty() && !patterns.is_empty() {
            return Err(unmatched(patterns, names));
        }
        first = false;
        if monitor.json {
            print(&monitor::json(&queues, timestamp()))?;
        } else {
            let before = if live { CLEAR } else { "\n" };
            print(&format!("{before}{}", monitor::table(&queues)))?;
        }
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(());
        }
        // After a long answer the next one comes at once, but not two.
        next = (next + monitor.interval).max(clock.now());
        let parker = Parker::current();
        while parker.park_until(&clock, next) {}
    }
}

fn unmatched(patterns: &[Regex], names: Vec<String>) -> Ended {
    let patterns: Vec<_> = patterns.iter().map(Regex::as_str).collect();
    let there = if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    };
    Ended::Wrong(format!(
        "no queue's name has {} in it; {there}",
        patterns.join(" or ")
    ))
}

/// Seconds since 1970.
fn timestamp() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or(Duration::ZERO).as_secs_f64()
}
