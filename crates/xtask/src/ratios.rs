//! `xtask ratios`: our loads beside the rivals', in a program of its own.
//!
//! The rivals are heavy dependencies, and the other commands must not wait for them to build. With
//! `--record` what it prints is kept in the records.

use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;

use crate::output::say;
use crate::record::{self, Run};
use crate::workspace::cargo;

/// What is asked of the program: it reads that itself, and prints the help.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// As the program has them; `--help` prints them. With `--record`: see `--record --help`
    #[arg(
        value_name = "OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    options: Vec<String>,
}

/// Measures several times, and appends each row of each run to the records in benches/record.
///
/// Nothing may have been changed since the last commit, but in docs/, README.md and the records. A
/// record's commit is the last one that changed anything else.
#[derive(Debug, clap::Parser)]
#[command(name = "xtask ratios")]
struct Recording {
    /// Keep what is measured
    #[arg(long, required = true)]
    record: bool,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value = "5")]
    runs: NonZeroU32,
    /// Only this section or group of sections (repeatable), as without `--record`
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

/// Builds and runs it. Whether it could measure: a goal that is not met is no failure.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    if options.options.iter().any(|option| option == "--record") {
        let name = "xtask ratios".to_owned();
        let all = std::iter::once(name).chain(options.options.iter().cloned());
        let recording = Recording::try_parse_from(all).unwrap_or_else(|e| e.exit());
        return record(root, &recording);
    }
    let mut command = program(root);
    command.arg("--").args(&options.options);
    let status = command.status().context("cannot run cargo")?;
    Ok(status.success())
}

fn program(root: &Path) -> Command {
    let mut command = cargo();
    command.current_dir(root);
    // Not --quiet: the rivals take minutes to build, and Cargo tells of it on standard error.
    command.args(["run", "--release", "-p", "inflight-benches"]);
    command.args(["--bin", "ratios"]);
    command
}

fn record(root: &Path, recording: &Recording) -> Result<bool> {
    let only = recording.only.iter().flat_map(|name| ["--only", name]);
    let only: Vec<_> = only.collect();
    let commit = clean_commit(root)?;
    let (cpu, cpus) = (cpu_model(), std::thread::available_parallelism()?.get());
    for n in 1..=recording.runs.get() {
        let run = Run {
            commit: commit.clone(),
            start: utc(SystemTime::now().duration_since(UNIX_EPOCH)?),
            cpu: cpu.clone(),
            cpus,
            engine: String::new(),
        };
        eprintln!("run {n} of {} at {commit}", recording.runs);
        let mut command = program(root);
        // What is built is what the commit says: the lock file stays as it is.
        command.args(["--locked", "--", "--json"]).args(&only);
        command.stderr(std::process::Stdio::inherit());
        let output = command.output().context("cannot run cargo")?;
        ensure!(
            output.status.success(),
            "run {n} failed; nothing of it is kept"
        );
        let now = clean_commit(root)?;
        ensure!(
            now == commit,
            "the commit has changed from {commit} to {now}; nothing of run {n} is kept"
        );
        let rows = record::from_json(&run, &output.stdout)?;
        let files = record::append(root, &rows)?;
        let files: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
        say!("{} rows appended to {}", rows.len(), files.join(" and "));
    }
    say!("now: cargo run --release -p xtask -- bench-docs");
    Ok(true)
}

/// Paths in which a change does not change what is measured.
fn is_prose(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/") || Path::new(path).starts_with(record::FOLDER)
}

/// Git in that folder, also inside a hook of another repository.
fn own_git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder);
    for variable in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_COMMON_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_QUARANTINE_PATH",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_PARAMETERS",
    ] {
        command.env_remove(variable);
    }
    command
}

/// The last commit that changed anything but prose, if nothing else was changed since.
fn clean_commit(root: &Path) -> Result<String> {
    let git = |arguments: &[&str]| -> Result<String> {
        let mut command = own_git(root);
        let output = command.args(arguments).output();
        let output = output.context("a record names its commit, and git cannot be run")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "a record names its commit, and git says: {}",
            said.trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    };
    let status = git(&[
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=all",
    ])?;
    let changed: Vec<_> = status
        .split_terminator('\0')
        .filter_map(|entry| entry.get(3..))
        .filter(|path| !is_prose(path))
        .collect();
    ensure!(
        changed.is_empty(),
        "a record names the commit that was measured, and there are changes beside it: {}. Commit \
         them first, or take them back",
        changed.join(", ")
    );
    let commit = git(&[
        "log",
        "-1",
        "--format=%H",
        "--",
        ":/",
        ":(top,exclude)docs",
        ":(top,exclude)README.md",
        &format!(":(top,exclude){}", record::FOLDER),
    ])?;
    let commit = commit.trim();
    ensure!(
        commit.len() >= 12,
        "a record names its commit, and there is none"
    );
    Ok(commit[..12].to_owned())
}

/// What the machine calls its CPUs.
fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpu_named(&text).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The model's name and, as a virtual machine may hide it, its numbers.
fn cpu_named(cpuinfo: &str) -> Option<String> {
    let value = |wanted: &str| {
        let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let found = pairs.find(|(key, _)| key.trim() == wanted);
        found.map(|(_, value)| value.trim())
    };
    let name = value("model name")?;
    Some(match (value("cpu family"), value("model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name.to_owned(),
    })
}

/// A time since 1970 in UTC, with milliseconds.
fn utc(since: Duration) -> String {
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years begin in March here, so that the leap day is the last; eras have 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let (second, milli) = (second % 60, since.subsec_millis());
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_calendar() {
        let at = |seconds: u64| utc(Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00.000Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59.000Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000Z");
        let fine = Duration::from_millis(1_700_000_000_123);
        assert_eq!(utc(fine), "2023-11-14T22:13:20.123Z");
    }

    #[test]
    fn cpus_are_named() {
        let x86 = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        let named = cpu_named(x86).unwrap();
        assert_eq!(named, "AMD EPYC (family 25, model 17)");
        assert_eq!(cpu_named("model name : A\n").unwrap(), "A");
        assert_eq!(cpu_named("Features : fp\n"), None);
    }

    /// A repository of its own: no settings of the user's are read.
    struct Repository(tempfile::TempDir);

    impl Repository {
        fn new() -> Self {
            let it = Self(tempfile::tempdir().unwrap());
            it.git(&["init", "--quiet"]);
            it
        }

        fn git(&self, arguments: &[&str]) -> String {
            let mut command = own_git(self.0.path());
            command.args(arguments);
            for (key, value) in [
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_CONFIG_SYSTEM", "/dev/null"),
                ("GIT_AUTHOR_NAME", "a"),
                ("GIT_AUTHOR_EMAIL", "a@example.org"),
                ("GIT_COMMITTER_NAME", "a"),
                ("GIT_COMMITTER_EMAIL", "a@example.org"),
            ] {
                command.env(key, value);
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "git {arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn commit(&self, name: &str, text: &str) -> String {
            self.write(name, text);
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--no-gpg-sign", "-m", "x"]);
            self.git(&["rev-parse", "HEAD"])[..12].to_owned()
        }

        fn refused(&self) -> String {
            clean_commit(self.0.path()).unwrap_err().to_string()
        }
    }

    #[test]
    fn a_record_names_the_last_commit_of_what_is_measured() {
        let it = Repository::new();
        let first = it.commit("src/a.rs", "1");
        assert_eq!(clean_commit(it.0.path()).unwrap(), first);
        // Prose and records change nothing that is measured, committed or not.
        it.commit("docs/a.md", "1");
        it.commit("README.md", "1");
        it.commit("benches/record/a-cpu/2026-01-01.csv", "1");
        it.write("benches/record/a-cpu/2026-01-02.csv", "1");
        assert_eq!(clean_commit(it.0.path()).unwrap(), first);
        let second = it.commit("src/README.md", "1");
        assert_eq!(clean_commit(it.0.path()).unwrap(), second);
    }

    #[test]
    fn a_tree_with_changes_is_refused() {
        let it = Repository::new();
        assert!(it.refused().contains("git says"), "no commit yet");
        it.commit("src/a.rs", "1");
        it.write("src/a.rs", "2");
        assert!(it.refused().contains("changes beside it: src/a.rs."));
        it.git(&["add", "--all"]);
        assert!(it.refused().contains("changes beside it: src/a.rs."));
        it.commit("src/a.rs", "3");
        it.write("docs.rs", "new");
        it.write("src/b.rs", "new");
        assert!(
            it.refused()
                .contains("changes beside it: docs.rs, src/b.rs.")
        );
    }
}
