//! Running one model in a process of its own.
//!
//! A process, because a failing model aborts: loom's objects panic again while unwinding.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::build::Model;

/// How often a running model is looked at.
const POLL: Duration = Duration::from_millis(5);

/// How models are run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// A model is stopped after this time.
    pub(crate) limit: Duration,
    /// Use the deep bound.
    pub(crate) deep: bool,
    /// Where the output of each model is kept.
    pub(crate) logs: PathBuf,
    /// More environment variables.
    pub(crate) env: Vec<(String, String)>,
}

/// What became of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It ran to its end and explored more than one execution.
    Passed,
    /// An execution failed.
    Failed,
    /// It was stopped.
    TimedOut,
    /// It passed, but says nothing of executions, or of one at most.
    Empty,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::TimedOut => "timeout",
            Self::Empty => "EMPTY",
        })
    }
}

/// The result of one run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) seconds: f64,
    pub(crate) explored: Explored,
    /// Why it did not pass.
    pub(crate) message: Option<String>,
}

/// What the model says it explored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Explored {
    /// The bound on preemptions.
    pub(crate) bound: Option<String>,
    /// The executions of all its checks together.
    pub(crate) executions: Option<u64>,
    /// The executions of its smallest check.
    least: u64,
}

/// Runs `model` to its end or to the limit.
pub(crate) fn execute(model: &Model, settings: &Settings) -> Outcome {
    let start = Instant::now();
    let log = settings.logs.join(format!(
        "{}.{}.{}.log",
        model.package, model.test, model.name
    ));
    let log = log.to_string_lossy().replace("::", ".");
    let (verdict, explored, message) = match run(model, settings, Path::new(&log)) {
        Ok((status, text)) => judge(status, &text, model.counts, settings.limit),
        Err(e) => (Verdict::Failed, Explored::default(), Some(format!("{e:#}"))),
    };
    Outcome {
        verdict,
        seconds: start.elapsed().as_secs_f64(),
        explored,
        message,
    }
}

/// The exit status, or none if the model had to be stopped, and all it printed.
fn run(model: &Model, settings: &Settings, log: &Path) -> Result<(Option<ExitStatus>, String)> {
    fs::create_dir_all(&settings.logs)?;
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(&model.binary);
    command.args(["--exact", &model.name, "--nocapture", "--test-threads=1"]);
    command
        .current_dir(&model.folder)
        .env("RUST_BACKTRACE", "0");
    command.env_remove("INFLIGHT_MODEL_DEPTH");
    if settings.deep {
        command.env("INFLIGHT_MODEL_DEPTH", "deep");
    }
    command.envs(settings.env.iter().cloned());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("cannot run {}", model.binary.display()))?;
    let end = Instant::now() + settings.limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(POLL);
    };
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    Ok((status, text))
}

fn judge(
    status: Option<ExitStatus>,
    text: &str,
    counts: bool,
    limit: Duration,
) -> (Verdict, Explored, Option<String>) {
    let explored = explored(text);
    let Some(status) = status else {
        let message = format!("stopped after {} s", limit.as_secs());
        return (Verdict::TimedOut, explored, Some(message));
    };
    if !status.success() {
        let message = first_panic(text).unwrap_or_else(|| status.to_string());
        return (Verdict::Failed, explored, Some(message));
    }
    let message = match explored.executions {
        None if counts => "explored nothing: no `model … executions …` line",
        Some(_) if explored.least <= 1 => "explored nothing: a model needs more than one execution",
        _ => return (Verdict::Passed, explored, None),
    };
    (Verdict::Empty, explored, Some(message.to_owned()))
}

/// Reads the lines `model NAME bound B executions N`. The first may stand behind what the test
/// harness printed before it.
fn explored(text: &str) -> Explored {
    let mut found = Explored::default();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|w| *w == "model") else {
            continue;
        };
        let value = |key: &str| {
            let key = words[at..].iter().position(|w| *w == key)?;
            words.get(at + key + 1).copied()
        };
        let Some(count) = value("executions").and_then(|n| n.parse().ok()) else {
            continue;
        };
        let before = found.executions;
        found.executions = Some(before.unwrap_or(0) + count);
        found.least = if before.is_some() {
            found.least.min(count)
        } else {
            count
        };
        found.bound = value("bound").map(str::to_owned).or(found.bound);
    }
    found
}

/// Where the first panic was and what it said.
fn first_panic(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let place = lines.find_map(|l| l.split_once("panicked at ").map(|(_, place)| place))?;
    // Panics inside loom: which registry the crate came from is of no interest.
    let place = place
        .split_once("/registry/src/")
        .and_then(|(_, p)| p.split_once('/'))
        .map_or(place, |(_, path)| path);
    let mut message = format!("{place} {}", lines.next().unwrap_or("").trim());
    // `assert_eq!` shows the values on lines of their own.
    let values = lines
        .map(str::trim)
        .take_while(|l| l.starts_with("left: ") || l.starts_with("right: "));
    for value in values {
        message = format!("{message}, {value}");
    }
    Some(message.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_read_behind_other_output() {
        let text = "\nrunning 1 test\ntest h4_a ... model h4_a bound 2 executions 66\nok\n";
        let found = explored(text);
        assert_eq!(found.executions, Some(66));
        assert_eq!(found.bound.as_deref(), Some("2"));
        let two = explored("model a executions 66\nmodel b bound none executions 1\n");
        assert_eq!((two.executions, two.least), (Some(67), 1));
        assert_eq!(
            explored("model a executions many\nexecutions 3"),
            Explored::default()
        );
    }

    #[test]
    fn the_first_panic_counts() {
        let text = "noise\nthread 'h4' (12) panicked at src/a.rs:1:2:\ndeadlock; threads = []\n\
                    thread 'h4' panicked at src/b.rs:3:4:\nagain\n";
        assert_eq!(
            first_panic(text).unwrap(),
            "src/a.rs:1:2: deadlock; threads = []"
        );
        let text = "thread 'a' panicked at b.rs:1:2:\nassertion `left == right` failed: why\n  \
                    left: 1\n right: 0\nnote: run with x";
        let expected = "b.rs:1:2: assertion `left == right` failed: why, left: 1, right: 0";
        assert_eq!(first_panic(text).unwrap(), expected);
        let text = "thread 'a' panicked at x/registry/src/y-1/loom-0.7.2/src/rt.rs:1:2:\ndeadlock";
        assert_eq!(
            first_panic(text).unwrap(),
            "loom-0.7.2/src/rt.rs:1:2: deadlock"
        );
        assert_eq!(first_panic("fine"), None);
    }

    #[cfg(unix)]
    #[test]
    fn verdicts() {
        use std::os::unix::process::ExitStatusExt;
        let limit = Duration::from_secs(3);
        let judge =
            |code, text, counts| judge(ExitStatus::from_raw(code).into(), text, counts, limit);
        assert_eq!(judge(0, "model a executions 2", true).0, Verdict::Passed);
        assert_eq!(judge(0, "model a executions 1", true).0, Verdict::Empty);
        assert_eq!(judge(0, "nothing", true).0, Verdict::Empty);
        assert_eq!(judge(0, "nothing", false).0, Verdict::Passed);
        let (verdict, _, message) = judge(6, "model a executions 9", true);
        assert_eq!(verdict, Verdict::Failed);
        assert!(message.unwrap().contains("signal: 6"));
        let (verdict, _, message) = super::judge(None, "", true, limit);
        assert_eq!(
            (verdict, message.as_deref()),
            (Verdict::TimedOut, Some("stopped after 3 s"))
        );
    }
}
