//! The other end: asks a running process.

use crate::socket;
use crate::wire::{Reply, Request, WireError};
use std::error::Error;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a step of the conversation may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// No answer is longer.
const ANSWER_LIMIT: u64 = 64 << 20;

/// Why there is no answer.
///
/// ```
/// use inflight_workqueue_serve::{AskError, Request, ask};
///
/// let nobody = ask("/nowhere/at/all", &Request::Dump);
/// assert!(matches!(nobody, Err(AskError::NoSocket)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AskError {
    /// There is nothing of that name.
    NoSocket,
    /// What has that name is no socket.
    NotASocket,
    /// It is another user's.
    NotPermitted,
    /// The process that had made it has ended.
    NobodyListens,
    /// The process does not answer.
    TimedOut,
    /// It ended the conversation without an answer.
    Vanished,
    /// The path has more bytes than that of a socket may have, which is 107.
    PathTooLong {
        /// How many it has.
        bytes: usize,
    },
    /// Something else went wrong.
    Io(io::ErrorKind),
    /// The answer is none of this protocol.
    Wire(WireError),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket => f.write_str("no such socket"),
            Self::NotASocket => f.write_str("not a socket"),
            Self::NotPermitted => f.write_str("permission denied: it belongs to another user"),
            Self::NobodyListens => f.write_str("nobody listens: the process has ended"),
            Self::TimedOut => f.write_str("the process does not answer"),
            Self::Vanished => f.write_str("the process has gone away without an answer"),
            Self::PathTooLong { bytes } => socket::too_long(f, *bytes),
            Self::Io(kind) => kind.fmt(f),
            Self::Wire(e) => e.fmt(f),
        }
    }
}

impl Error for AskError {}

impl From<io::Error> for AskError {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::NotFound => Self::NoSocket,
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            io::ErrorKind::ConnectionRefused => Self::NobodyListens,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Vanished,
            kind => Self::Io(kind),
        }
    }
}

/// Asks the process that [serves](crate::Serve::serve) at `path`. Waits at most 5 s for
/// each step.
///
/// # Errors
///
/// [`AskError`] if there is no answer; a request that is refused is answered by [`Reply::Error`].
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use inflight_workqueue_serve::{Reply, Request, Serve, ask};
///
/// let dir = tempfile::tempdir()?;
/// let sys = WorkqueueSystem::builder().build()?;
/// let _server = sys.serve(dir.path().join("wq"))?;
/// let Reply::Dump { text } = ask(dir.path().join("wq"), &Request::Dump)? else { panic!() };
/// assert!(text.contains("Worker Pools"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn ask(path: impl AsRef<Path>, request: &Request) -> Result<Reply, AskError> {
    let path = path.as_ref();
    if let Some(bytes) = socket::excess(path) {
        return Err(AskError::PathTooLong { bytes });
    }
    if !fs::metadata(path)?.file_type().is_socket() {
        return Err(AskError::NotASocket);
    }
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // Who refuses a question before it has read all of it has answered all the same.
    let asked = stream.write_all(request.to_line().as_bytes());
    let mut line = String::new();
    let read = BufReader::new(stream.take(ANSWER_LIMIT)).read_line(&mut line);
    match (read, asked) {
        (Ok(_), _) if line.ends_with('\n') => Reply::from_line(&line).map_err(AskError::Wire),
        (_, Err(e)) | (Err(e), _) => Err(e.into()),
        (Ok(_), Ok(())) => Err(AskError::Vanished),
    }
}
