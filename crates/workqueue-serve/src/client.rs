//! The other end: asks a running process.

use crate::socket::{self, PATH_LIMIT};
use crate::wire::{Reply, Request, WireError};
use inflight_sync::time::Clock;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is nothing of that name.
    #[error("no such socket")]
    NoSocket,
    /// What has that name is no socket.
    #[error("not a socket")]
    NotASocket,
    /// It is another user's.
    #[error("permission denied: it belongs to another user")]
    NotPermitted,
    /// The process that had made it has ended.
    #[error("nobody listens: the process has ended")]
    NobodyListens,
    /// The process does not answer.
    #[error("the process does not answer")]
    TimedOut,
    /// It ended the conversation without an answer.
    #[error("the process has gone away without an answer")]
    Vanished,
    /// The path has more bytes than that of a socket may have, which is 107.
    #[error("the path of a socket has at most {limit} bytes, not {bytes}", limit = PATH_LIMIT)]
    PathTooLong {
        /// How many it has.
        bytes: usize,
    },
    /// Something else went wrong.
    #[error("{0}")]
    Io(io::ErrorKind),
    /// The answer is none of this protocol.
    #[error("{0}")]
    Wire(WireError),
}

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

/// At a server at which too many wait already this waits, too, but not longer than `limit`.
fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let clock = Clock::system();
    let end = clock.now() + limit;
    let address = SocketAddrUnix::new(path)?;
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    loop {
        // A signal has interrupted the wait: what is left of the time, not all of it again.
        let left = end - clock.now();
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // On Linux it bounds the wait for a place in the queue, too.
        set_socket_timeout(&socket, Timeout::Send, Some(left))?;
        match rustix::net::connect(&socket, &address) {
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
            Ok(()) => return Ok(socket.into()),
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
    ask_within(TIMEOUT, path.as_ref(), request)
}

fn ask_within(limit: Duration, path: &Path, request: &Request) -> Result<Reply, AskError> {
    if let Some(bytes) = socket::excess(path) {
        return Err(AskError::PathTooLong { bytes });
    }
    if !fs::metadata(path)?.file_type().is_socket() {
        return Err(AskError::NotASocket);
    }
    let mut stream = connect(path, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_accepts_nobody_is_not_waited_for_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wq");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        let limit = Duration::from_millis(50);
        let asked = ask_within(limit, &path, &Request::Dump);
        assert_eq!(asked, Err(AskError::TimedOut));
    }
}
