//! Running the program, and what every run must keep to.

use std::ffi::OsStr;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_io-engine");

/// A directory in which a test runs the program; its temporary files go there too.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn files(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }

    /// Any program, about to run here.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.0.path())
            .env("TMPDIR", self.0.path());
        command
    }

    /// Runs the program with options as one would type them.
    pub(crate) fn run(&self, options: &str) -> Ran {
        Ran::new(
            self.command(PROGRAM)
                .args(options.split_whitespace())
                .output()
                .unwrap(),
        )
    }

    /// Starts a run.
    pub(crate) fn begin(&self, options: &str) -> Child {
        let mut command = self.command(PROGRAM);
        command
            .args(options.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Starts a run that does not end by itself, and returns once its jobs or committers exist.
    pub(crate) fn start(&self, options: &str) -> Child {
        let mut child = self.begin(options);
        let tasks = format!("/proc/{}/task", child.id());
        let is_job = |task: fs::DirEntry| {
            let name = fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name.starts_with("job-") || name.starts_with("committer-"))
        };
        while !fs::read_dir(&tasks).unwrap().flatten().any(is_job) {
            assert!(child.try_wait().unwrap().is_none(), "ended before it began");
            thread::yield_now();
        }
        child
    }

    /// Whether `unshare` can make the namespaces asked for; says so if not.
    pub(crate) fn can_unshare(&self, options: &[&str]) -> bool {
        let able = self.command("unshare").args(options).arg("true").output();
        let able = able.is_ok_and(|output| output.status.success());
        if !able {
            eprintln!("skipped: no user namespaces here");
        }
        able
    }
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn new(output: Output) -> Self {
        let ran = Self {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
        ran
    }

    pub(crate) fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }

    /// Standard error is exactly one line of complaint, with `part` in it.
    pub(crate) fn complains(self, part: &str) -> Self {
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("io-engine: "), "{self:?}");
        assert!(self.stderr.contains(part), "{self:?} lacks {part}");
        self
    }

    /// The whole of standard output as one JSON object.
    pub(crate) fn json(&self) -> Json {
        Json(serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}")))
    }
}

/// The result of a `--json` run.
#[derive(Debug)]
pub(crate) struct Json(pub(crate) Value);

impl Json {
    /// A count; `a/b` is key b of object a.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.get(key)
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {self:?}"))
    }

    pub(crate) fn float(&self, key: &str) -> f64 {
        self.get(key)
            .as_f64()
            .unwrap_or_else(|| panic!("{key} in {self:?}"))
    }

    pub(crate) fn get(&self, key: &str) -> &Value {
        let path = format!("/{key}");
        self.0
            .pointer(&path)
            .unwrap_or_else(|| panic!("{key} in {self:?}"))
    }
}

/// The engines this machine has. psync always works.
pub(crate) fn engines() -> Vec<&'static str> {
    let ran = Place::new().run("--engine io_uring --size 4k --number_ios 1");
    if ran.status == Some(0) {
        return vec!["io_uring", "psync"];
    }
    eprintln!("skipped: io_uring: {}", ran.stderr);
    vec!["psync"]
}
