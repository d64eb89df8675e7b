//! The server: a thread, and the clients that it talks to.

use crate::control;
use crate::pause::{pause, timespec};
use crate::socket::{PATH_LIMIT, Socket};
use crate::wire::{Reply, Request};
use inflight_sync::panics::dispose;
use inflight_sync::thread::{Builder, JoinHandle};
use inflight_sync::time::{Clock, Instant};
use inflight_workqueue::WorkqueueSystem;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;
use std::{fmt, mem};

/// So many clients are served at a time; others wait.
const CLIENTS: usize = 16;

/// No request is longer, in bytes.
const REQUEST_LIMIT: usize = 4096;

/// A client that has not gone after so long is sent away.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Between two answers.
const REST: Duration = Duration::from_millis(1);

/// A listener of which this is told accepts nobody any more.
const BROKEN: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);

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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another process, or another system of this one, serves there.
    #[error("somebody serves there already")]
    InUse,
    /// The name belongs to a file that is no socket.
    #[error("a file that is no socket has that name")]
    NotASocket,
    /// The path is empty.
    #[error("the path of the socket is empty")]
    EmptyPath,
    /// The path has more bytes than that of a socket may have, which is 107.
    #[error("the path of a socket has at most {limit} bytes, not {bytes}", limit = PATH_LIMIT)]
    PathTooLong {
        /// How many it has.
        bytes: usize,
    },
    /// Another process has held the `flock` of the socket's directory for 5 s. Servers hold it only
    /// while they make or remove their sockets.
    #[error("another process has locked its directory")]
    FolderLocked,
    /// The socket cannot be made.
    #[error("{}", match .0 {
        io::ErrorKind::NotFound => "its directory does not exist".to_owned(),
        kind => format!("the socket cannot be made: {kind}"),
    })]
    Io(io::ErrorKind),
    /// The system refuses the server its thread.
    #[error("the server gets no thread: {0}")]
    NoThread(io::ErrorKind),
}

/// A system that is being served; ends with this value, and the socket's name with it. A name whose
/// directory another process keeps locked for 5 s is left; the next server takes it over.
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
        Self::over(system, Socket::listen(path)?)
    }

    fn over(system: WorkqueueSystem, socket: Socket) -> Result<Self, ServeError> {
        let (stop, stopped) = UnixStream::pair().map_err(|e| ServeError::Io(e.kind()))?;
        let builder = Builder::new().name("inflight/serve".to_owned());
        let thread = builder.spawn(move || serve(&system, &socket, &stopped));
        Ok(Self {
            thread: Some(thread.map_err(|e| ServeError::NoThread(e.kind()))?),
            stop: Some(stop),
        })
    }

    /// Whether the server has ended although this value is there: it could not wait for clients or
    /// accept them any more. Its file descriptor has been closed by mistake, for instance.
    ///
    /// Nobody listens then and the name is free, so the system can be served there again.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// use inflight_workqueue_serve::Serve;
    ///
    /// let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("wq");
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let mut server = sys.serve(&path)?;
    /// // Now and then:
    /// if server.failed() {
    ///     server = sys.serve(&path)?;
    /// }
    /// assert!(!server.failed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn failed(&self) -> bool {
        // Nothing else ends the thread before this value is dropped. A thread has finished when all
        // that its function owned, the socket too, has been dropped.
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
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

    /// What it has said as far as it has come: `None`, not all; else the line, also one without an
    /// end whose client has closed its side, or the beginning of one that is too long.
    fn listen(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = [0; REQUEST_LIMIT];
        loop {
            match self.stream.read(&mut bytes) {
                // It says nothing more, so this is all of the line.
                Ok(0) if !self.said.is_empty() => return Ok(Some(mem::take(&mut self.said))),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.said.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            let end = self.said.iter().position(|b| *b == b'\n');
            if end.is_some() || self.said.len() > REQUEST_LIMIT {
                self.said.truncate(end.unwrap_or(usize::MAX));
                return Ok(Some(mem::take(&mut self.said)));
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
                    self.answer = contained(|| reply(system, &line).to_line().into_bytes());
                    // However many ask, the queues' locks are left alone for a while.
                    pause(REST);
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

fn reply(system: &WorkqueueSystem, line: &[u8]) -> Reply {
    let error = if line.len() > REQUEST_LIMIT {
        format!("a request has at most {REQUEST_LIMIT} bytes")
    } else {
        match Request::from_line(&String::from_utf8_lossy(line)) {
            Ok(request) => return control::answer(system, &request),
            Err(e) => e.to_string(),
        }
    };
    Reply::Error { error }
}

/// Calls `f`; `None` if it panicked. Never panics.
fn contained<R>(f: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(f)).map_err(dispose).ok()
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
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::NOMEM) => pause(REST),
            Err(_) => return,
        }
        if fds[1].revents().intersects(BROKEN) {
            return;
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
            match accept(socket, now + TIMEOUT) {
                Ok(client) => clients.extend(client),
                Err(_) => return,
            }
        }
    }
}

/// # Errors
///
/// Nobody will be accepted any more.
fn accept(socket: &Socket, deadline: Instant) -> Result<Option<Client>, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = match rustix::net::accept_with(&socket.listener, flags) {
        Ok(stream) => stream.into(),
        // It is no socket that listens.
        Err(e @ (Errno::BADF | Errno::NOTSOCK | Errno::INVAL | Errno::OPNOTSUPP)) => return Err(e),
        Err(e) => {
            if e != Errno::AGAIN {
                pause(REST); // No descriptor is left, perhaps: not again at once.
            }
            return Ok(None);
        }
    };
    Ok(Some(Client {
        stream,
        said: Vec::new(),
        answer: None,
        deadline,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AskError, Serve, ask};
    use inflight_sync::thread::yield_now;
    use rustix::net::Shutdown;
    use std::os::fd::OwnedFd;
    use std::panic::panic_any;

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the destructor");
        }
    }

    #[test]
    fn a_payload_that_panics_ends_no_server() {
        assert_eq!(contained(|| panic_any(Bomb)), None::<()>);
        assert_eq!(contained(|| 3), Some(3));
    }

    /// Serves at a listener that somebody else breaks.
    fn fails(breaks: impl FnOnce(&mut Socket)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wq");
        let sys = WorkqueueSystem::builder().build().unwrap();
        let mut socket = Socket::listen(&path).unwrap();
        breaks(&mut socket);
        let server = Server::over(sys.observer(), socket).unwrap();
        while !server.failed() {
            yield_now();
        }
        assert_eq!(ask(&path, &Request::Dump), Err(AskError::NoSocket));
        let next = sys.serve(&path).unwrap();
        drop(server);
        assert!(ask(&path, &Request::Dump).is_ok(), "the name is the next's");
        assert!(!next.failed());
    }

    #[test]
    fn a_server_that_cannot_poll_has_failed_and_leaves_the_name() {
        fails(|socket| rustix::net::shutdown(&socket.listener, Shutdown::Both).unwrap());
    }

    #[test]
    fn a_server_that_cannot_accept_has_failed_and_leaves_the_name() {
        let other = OwnedFd::from(tempfile::tempfile().unwrap());
        fails(|socket| socket.listener = other.into());
    }

    #[test]
    fn a_server_fails_while_it_serves() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wq");
        let sys = WorkqueueSystem::builder().build().unwrap();
        let socket = Socket::listen(&path).unwrap();
        let listener = socket.listener.try_clone().unwrap();
        let server = Server::over(sys.observer(), socket).unwrap();
        assert!(ask(&path, &Request::Dump).is_ok());
        assert!(!server.failed());
        rustix::net::shutdown(&listener, Shutdown::Both).unwrap();
        while !server.failed() {
            yield_now();
        }
    }
}
