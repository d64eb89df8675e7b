//! What goes over the socket: one line of JSON each way.

use serde::{Deserialize, Serialize};

/// The version of the protocol that this library speaks, and the only one.
///
/// ```
/// assert_eq!(inflight_workqueue_serve::VERSION, 1);
/// ```
pub const VERSION: u32 = 1;

/// What a client asks for.
///
/// On the wire it is one line: `{"version":1,"do":"set","queue":"crypt","file":"max_active",
/// "value":"16"}`.
///
/// ```
/// use inflight_workqueue_serve::Request;
///
/// let line = Request::Dump.to_line();
/// assert_eq!(line, "{\"version\":1,\"do\":\"dump\"}\n");
/// assert_eq!(Request::from_line(&line), Ok(Request::Dump));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// The text of [`WorkqueueSystem::dump`](inflight_workqueue::WorkqueueSystem::dump).
    Dump,
    /// The counters of every queue.
    Stats,
    /// The control files of every queue.
    Files,
    /// A control file is written.
    Set {
        /// The queue's name.
        queue: String,
        /// The control file's.
        file: String,
        /// What is written.
        value: String,
    },
    /// The control files of the system.
    SystemFiles,
    /// One of those is written.
    SetSystem {
        /// The control file's name.
        file: String,
        /// What is written.
        value: String,
    },
    /// What has been recorded since this was asked last, while the system's file `trace` is 1.
    Trace,
}

/// What the server answers.
///
/// ```
/// use inflight_workqueue_serve::Reply;
///
/// let line = Reply::Error { error: "no".to_owned() }.to_line();
/// assert_eq!(line, "{\"version\":1,\"reply\":\"error\",\"error\":\"no\"}\n");
/// assert!(Reply::from_line(&line).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// To [`Request::Dump`].
    Dump {
        /// The dump.
        text: String,
    },
    /// To [`Request::Stats`].
    Stats {
        /// In the order in which the queues were made.
        queues: Vec<QueueCounters>,
    },
    /// To [`Request::Files`].
    Files {
        /// In the order in which the queues were made.
        queues: Vec<QueueFiles>,
    },
    /// To [`Request::SystemFiles`].
    SystemFiles {
        /// What can be written.
        files: Vec<ControlFile>,
    },
    /// To [`Request::Trace`].
    Trace {
        /// Oldest first.
        steps: Vec<TraceLine>,
        /// How many older ones there was no room for.
        dropped: u64,
    },
    /// To [`Request::Set`] and [`Request::SetSystem`]: it is done.
    Done,
    /// To anything that is wrong: one line that says what.
    Error {
        /// The line.
        error: String,
    },
}

/// A step of an item.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use inflight_workqueue_serve::{Reply, Request, Serve, ask};
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("wq");
/// let sys = WorkqueueSystem::builder().build()?;
/// let _server = sys.serve(&path)?;
/// let on = Request::SetSystem { file: "trace".to_owned(), value: "1".to_owned() };
/// assert_eq!(ask(&path, &on)?, Reply::Done);
/// sys.events().spawn(|| ()).wait()?;
/// let Reply::Trace { steps, .. } = ask(&path, &Request::Trace)? else { panic!() };
/// assert_eq!((steps[0].queue.as_str(), steps[0].step.as_str()), ("events", "queued"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TraceLine {
    /// When, in ns of the system's clock.
    pub at_ns: u64,
    /// The queue's name.
    pub queue: String,
    /// The item's name.
    pub item: String,
    /// What has happened to it, as [`TraceStep`](inflight_workqueue::TraceStep) writes it.
    pub step: String,
    /// The CPU, as in [`TraceEvent`](inflight_workqueue::TraceEvent).
    pub cpu: usize,
}

impl From<inflight_workqueue::TraceRecord> for TraceLine {
    fn from(record: inflight_workqueue::TraceRecord) -> Self {
        Self {
            at_ns: record.at_ns,
            queue: record.queue,
            item: record.item,
            step: record.step.to_string(),
            cpu: record.cpu,
        }
    }
}

/// The counters of a queue, under the names of the kernel's `wq_monitor`, and some more.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use inflight_workqueue_serve::{Reply, Request, Serve, ask};
///
/// let dir = tempfile::tempdir()?;
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("crypt").bound().build()?;
/// wq.spawn(|| ()).wait()?;
/// wq.flush_blocking()?;
/// let _server = sys.serve(dir.path().join("wq"))?;
/// let Reply::Stats { queues } = ask(dir.path().join("wq"), &Request::Stats)? else { panic!() };
/// assert_eq!((queues[0].name.as_str(), queues[0].completed), ("crypt", 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueCounters {
    /// The queue's name. Several queues may have the same.
    pub name: String,
    /// Whether it is unbound or ordered.
    pub unbound: bool,
    /// Whether it has a rescuer.
    pub mem_reclaim: bool,
    /// Its limit now: for each CPU of a bound queue, altogether for an unbound one. A BH queue has
    /// none.
    pub max_active: Option<usize>,
    /// Items queued.
    pub queued: u64,
    /// Runs that have begun.
    pub started: u64,
    /// Runs that have ended.
    pub completed: u64,
    /// Runs that have ended by panic.
    pub panicked: u64,
    /// Items taken back before their run.
    pub cancelled: u64,
    /// Items that `max_active` lets run now.
    pub active: usize,
    /// Items that wait for others to end.
    pub inactive: usize,
    /// CPU time of its items in us; `None` if it is not measured.
    pub cpu_time: Option<u64>,
    /// Items found to compute for long; of bound queues alone.
    pub cpu_intensive: u64,
    /// Workers brought because an item blocked.
    pub cm_wakeup: u64,
    /// Items found asleep that had not said so.
    pub found_asleep: u64,
    /// Workers moved back to their group of CPUs when they began to work.
    pub repatriated: u64,
    /// Workers of other groups of CPUs that were woken for items of the queue.
    pub remote_wakeups: u64,
    /// Items that a worker of another group of CPUs has taken.
    pub stolen: u64,
    /// Calls of the rescuer.
    pub mayday: u64,
    /// Items that the rescuer has run.
    pub rescued: u64,
}

/// The control files of a queue.
///
/// ```
/// # use inflight_workqueue_serve::QueueFiles;
/// let none = QueueFiles::default();
/// assert!(none.files.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueFiles {
    /// The queue's name.
    pub name: String,
    /// Those that a queue of its kind has.
    pub files: Vec<ControlFile>,
}

/// A control file, under its name in the kernel.
///
/// ```
/// # use inflight_workqueue_serve::ControlFile;
/// assert!(!ControlFile::default().writable);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ControlFile {
    /// Its name.
    pub name: String,
    /// What it says now.
    pub value: String,
    /// Whether it can be written.
    pub writable: bool,
}

/// A line that is no request or answer of this version.
///
/// ```
/// use inflight_workqueue_serve::Request;
///
/// let error = Request::from_line("{\"version\":2,\"do\":\"dump\"}").unwrap_err();
/// assert_eq!(error.to_string(), "version 2 of the protocol is asked for, this is version 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WireError(String);

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    what: &'a T,
}

fn to_line<T: Serialize>(what: &T) -> String {
    let version = VERSION;
    let text = serde_json::to_string(&Versioned { version, what });
    text.expect("names and numbers can be written") + "\n"
}

fn from_line<T: for<'a> Deserialize<'a>>(line: &str) -> Result<T, WireError> {
    let bad = |e: serde_json::Error| WireError(format!("not a line of this protocol: {e}"));
    let mut value: serde_json::Value = serde_json::from_str(line).map_err(bad)?;
    let Version { version } = serde_json::from_value(value.clone()).map_err(bad)?;
    if version != VERSION {
        let error =
            format!("version {version} of the protocol is asked for, this is version {VERSION}");
        return Err(WireError(error));
    }
    if let Some(fields) = value.as_object_mut() {
        fields.remove("version");
    }
    serde_json::from_value(value).map_err(bad)
}

impl Request {
    /// The line that says it, with its end.
    ///
    /// ```
    /// assert!(inflight_workqueue_serve::Request::Stats.to_line().ends_with('\n'));
    /// ```
    #[must_use]
    pub fn to_line(&self) -> String {
        to_line(self)
    }

    /// Reads such a line.
    ///
    /// # Errors
    ///
    /// [`WireError`] if it is not one, or of another version.
    ///
    /// ```
    /// # use inflight_workqueue_serve::Request;
    /// assert!(Request::from_line("GET / HTTP/1.1").is_err());
    /// ```
    pub fn from_line(line: &str) -> Result<Self, WireError> {
        from_line(line)
    }
}

impl Reply {
    /// The line that says it, with its end.
    ///
    /// ```
    /// assert!(inflight_workqueue_serve::Reply::Done.to_line().ends_with('\n'));
    /// ```
    #[must_use]
    pub fn to_line(&self) -> String {
        to_line(self)
    }

    /// Reads such a line.
    ///
    /// # Errors
    ///
    /// [`WireError`] if it is not one, or of another version.
    ///
    /// ```
    /// # use inflight_workqueue_serve::Reply;
    /// assert!(Reply::from_line("HTTP/1.1 200 OK").is_err());
    /// ```
    pub fn from_line(line: &str) -> Result<Self, WireError> {
        from_line(line)
    }
}
