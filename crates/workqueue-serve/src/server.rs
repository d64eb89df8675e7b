//! The server: a thread, and the clients that it talks to.

use crate::control;
use crate::socket::{self, Socket};
use crate::wire::{Reply, Request};
use inflight_sync::Parker;
use inflight_sync::thread::{Builder, JoinHandle};
use inflight_sync::time::{Clock, Instant};
use inflight_workqueue::WorkqueueSystem;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::error::Error;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// So many clients are served at a time; others wait.
const CLIENTS: usize = 16;

/// No request is longer, in bytes.
const REQUEST_LIMIT: usize = 4096;

/// A client that has not gone after so long is sent away.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Between two answers.
const REST: Duration = Duration::from_millis(1);

/// Why a system cannot be served.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use inflight_workqueue_serve::{Serve, ServeError};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// assert_eq!(sys.serve("Cargo.toml").unwrap_err(), ServeError::NotASocket);
/// # Ok::<(), inflight_workqueue::SystemError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeError {
    /// Another process, or another system of this one, serves there.
    InUse,
    /// The name belongs to a file that is no socket.
    NotASocket,
    /// The path has more bytes than that of a socket may have, which is 107.
    PathTooLong {
        /// How many it has.
        bytes: usize,
    },
    /// The socket cannot be made.
    Io(io::ErrorKind),
    /// The system refuses the server its thread.
    NoThread(io::ErrorKind),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("somebody serves there already"),
            Self::NotASocket => f.write_str("a file that is no socket has that name"),
            Self::PathTooLong { bytes } => socket::too_long(f, *bytes),
            Self::Io(io::ErrorKind::NotFound) => f.write_str("its directory does not exist"),
            Self::Io(kind) => write!(f, "the socket cannot be made: {kind}"),
            Self::NoThread(kind) => write!(f, "the server gets no thread: {kind}"),
        }
    }
}

impl Error for ServeError {}

/// A system that is being served; ends with this value, and the socket's name with it.
///
/// ```
/// # use inflight_workqueue::WorkqueueSystem;
/// use inflight_workqueue_serve::Serve;
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("wq");
/// let sys = WorkqueueSystem::builder().build()?;
/// let server = sys.serve(&path)?;
/// assert!(path.exists());
/// drop(server);
/// assert!(!path.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the socket goes with this value"]
pub struct Server {
    thread: Option<JoinHandle<()>>,
    /// Closed, it tells the thread to end.
    stop: Option<UnixStream>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell, and its panics are contained.
            let _ = thread.join();
        }
    }
}

impl Server {
    /// Serves what `system`, an observer, sees.
    pub(crate) fn start(system: WorkqueueSystem, path: &Path) -> Result<Self, ServeError> {
        let socket = Socket::listen(path)?;
        let (stop, stopped) = UnixStream::pair().map_err(|e| ServeError::Io(e.kind()))?;
        let builder = Builder::new().name("inflight/serve".to_owned());
        let thread = builder.spawn(move || serve(&system, &socket, &stopped));
        Ok(Self {
            thread: Some(thread.map_err(|e| ServeError::NoThread(e.kind()))?),
            stop: Some(stop),
        })
    }
}

/// A client.
struct Client {
    stream: UnixStream,
    /// What it has sent.
    said: Vec<u8>,
    /// What is left to tell it, once it has been heard.
    answer: Option<Vec<u8>>,
    deadline: Instant,
}

/// Whether a client stays.
#[derive(PartialEq, Eq)]
enum Then {
    Stays,
    Goes,
}

impl Client {
    fn wants(&self) -> PollFlags {
        if self.answer.is_some() {
            PollFlags::OUT
        } else {
            PollFlags::IN
        }
    }

    /// What it has said as far as it has come: `None`, not all; else the line.
    fn listen(&mut self) -> io::Result<Option<String>> {
        let mut bytes = [0; REQUEST_LIMIT];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.said.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if let Some(end) = self.said.iter().position(|b| *b == b'\n') {
                let line = &self.said[..end.min(REQUEST_LIMIT)];
                return Ok(Some(String::from_utf8_lossy(line).into_owned()));
            }
            if self.said.len() > REQUEST_LIMIT {
                return Ok(Some(String::new())); // Nothing can be made of it.
            }
        }
    }

    /// Something can be read or written.
    fn go_on(&mut self, system: &WorkqueueSystem) -> Then {
        if self.answer.is_none() {
            match self.listen() {
                Ok(None) => return Then::Stays,
                Ok(Some(line)) => {
                    // A client that makes the server panic gets no answer.
                    let reply = catch_unwind(AssertUnwindSafe(|| reply(system, &line)));
                    self.answer = reply.ok().map(|reply| reply.to_line().into_bytes());
                    rest();
                }
                Err(_) => return Then::Goes,
            }
        }
        let Some(answer) = &mut self.answer else {
            return Then::Goes;
        };
        while !answer.is_empty() {
            match self.stream.write(answer) {
                Ok(n) => drop(answer.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Then::Stays,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Then::Goes,
            }
        }
        Then::Goes
    }
}

fn reply(system: &WorkqueueSystem, line: &str) -> Reply {
    match Request::from_line(line) {
        Ok(request) => control::answer(system, &request),
        Err(e) => Reply::Error {
            error: e.to_string(),
        },
    }
}

/// However many ask, the queues' locks are left alone for a while.
fn rest() {
    let clock = Clock::system();
    let end = clock.now() + REST;
    let parker = Parker::current();
    while parker.park_until(&clock, end) {}
}

/// The thread function.
fn serve(system: &WorkqueueSystem, socket: &Socket, stopped: &UnixStream) {
    let clock = Clock::system();
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let now = clock.now();
        let wait = clients.iter().map(|c| c.deadline).min();
        let wait = wait.map(|deadline| timespec(deadline.max(now) - now));
        let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
        let listen = if clients.len() < CLIENTS {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        fds.push(PollFd::new(&socket.listener, listen));
        let streams = clients.iter().map(|c| PollFd::new(&c.stream, c.wants()));
        fds.extend(streams);
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            return; // The value that stands for this server has been dropped.
        }
        let now = clock.now();
        let mut ready_clients = ready[2..].iter();
        clients.retain_mut(|client| {
            let ready = ready_clients.next().is_some_and(|ready| *ready);
            let stays = !ready || client.go_on(system) == Then::Stays;
            stays && client.deadline > now
        });
        if ready[1] {
            clients.extend(accept(socket, now + TIMEOUT));
        }
    }
}

fn accept(socket: &Socket, deadline: Instant) -> Option<Client> {
    let (stream, _) = match socket.listener.accept() {
        Ok(accepted) => accepted,
        Err(e) => {
            if e.kind() != io::ErrorKind::WouldBlock {
                rest(); // No descriptor is left, perhaps: not again at once.
            }
            return None;
        }
    };
    stream.set_nonblocking(true).ok()?;
    Some(Client {
        stream,
        said: Vec::new(),
        answer: None,
        deadline,
    })
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
