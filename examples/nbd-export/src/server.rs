//! Threads, listeners, and the end.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::adapter::{Tags, Tenant, TenantError, Workers};
use crate::connection::Connection;
use crate::export::Export;
use crate::reactor::{Reactor, Remote, Setup};

/// How often the main thread looks up.
const LOOK: Duration = Duration::from_millis(200);

/// What a Unix socket may hold for a client that has not read it. A large reply in few pieces wakes
/// the client, and this server, less often.
const SEND_BUFFER: usize = 1 << 20;

/// For so long clients may take their last answers.
const DRAIN: Duration = Duration::from_secs(5);

/// What all threads use.
pub(crate) struct Shared {
    pub(crate) exports: Vec<Arc<Export>>,
    pub(crate) tags: Tags,
    pub(crate) workers: Arc<Workers>,
    pub(crate) max_split: usize,
    pub(crate) tenant_per_client: bool,
    pub(crate) clients: AtomicU64,
    /// Reads and writes through registered buffers.
    pub(crate) with_registered: Arc<AtomicU64>,
    /// Clients that were given a tenant of their own.
    tenants: AtomicU64,
    pub(crate) started: Instant,
    pub(crate) quiet: bool,
    stop: OnceLock<Instant>,
}

impl Shared {
    pub(crate) fn new(
        exports: Vec<Arc<Export>>,
        (tags, workers): (Tags, Arc<Workers>),
        max_split: usize,
        tenant_per_client: bool,
        quiet: bool,
    ) -> Self {
        Self {
            exports,
            tags,
            workers,
            max_split,
            tenant_per_client,
            clients: AtomicU64::new(0),
            with_registered: Arc::default(),
            tenants: AtomicU64::new(0),
            started: Instant::now(),
            quiet,
            stop: OnceLock::new(),
        }
    }

    /// Whether clients are to leave when their requests are answered.
    pub(crate) fn draining(&self) -> bool {
        self.stop.get().is_some()
    }

    /// Whether clients that do not read their answers are left behind.
    pub(crate) fn overdue(&self) -> bool {
        self.stop.get().is_some_and(|since| since.elapsed() > DRAIN)
    }

    pub(crate) fn drain(&self) {
        self.stop.get_or_init(Instant::now);
    }

    /// The tags of a client.
    pub(crate) fn tenant_for(&self, export: &Export) -> Result<Tenant, TenantError> {
        if !self.tenant_per_client {
            return Ok(export.tenant.clone());
        }
        loop {
            let number = self.tenants.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{number}", export.described.name);
            match self.tags.tenant(&name, export.weight) {
                // An export may be called that.
                Err(TenantError::NameTaken { .. }) => {}
                made => return made,
            }
        }
    }

    pub(crate) fn log(&self, what: &str) {
        if !self.quiet {
            let at = self.started.elapsed().as_secs_f64();
            eprintln!("nbd-export: {at:10.3} {what}");
        }
    }
}

/// Where clients come in.
pub(crate) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// A socket at a path. One that nobody listens at any more is replaced.
    pub(crate) fn unix(path: &Path) -> Result<Self> {
        let shown = path.display();
        if path.exists() {
            if UnixStream::connect(path).is_ok() {
                bail!("{shown}: another server listens there");
            }
            use std::os::unix::fs::FileTypeExt as _;
            let kind = std::fs::symlink_metadata(path)?.file_type();
            anyhow::ensure!(kind.is_socket(), "{shown} is there, and no socket");
            std::fs::remove_file(path).with_context(|| format!("removing {shown}"))?;
        }
        let listener = UnixListener::bind(path).with_context(|| format!("--unix {shown}"))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    pub(crate) fn tcp(address: &str) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("--listen {address}"))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// How to reach it.
    pub(crate) fn uri(&self, export: &str) -> String {
        match self {
            Self::Unix(_, path) => format!("nbd+unix:///{export}?socket={}", path.display()),
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("nbd://{address}/{export}"),
                Err(_) => format!("nbd://?/{export}"),
            },
        }
    }

    fn accept(&self) -> std::io::Result<OwnedFd> {
        match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // The kernel takes less if it does not allow that.
                let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER);
                Ok(stream.into())
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                // A peer that is gone without a word is noticed in two minutes or so.
                let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
                let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(60));
                Ok(stream.into())
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Serves until told to stop, then drains: requests that were read are answered, and everything is
/// flushed.
pub(crate) fn run(
    shared: &Arc<Shared>,
    listeners: Vec<Listener>,
    setup: &Setup,
    threads: usize,
    max_connections: u64,
    mut status: impl FnMut(),
) -> Result<()> {
    let (sender, remotes) = mpsc::channel();
    let mut handles = Vec::new();
    for number in 0..threads {
        let (shared, sender, setup) = (shared.clone(), sender.clone(), setup.clone());
        let builder = thread::Builder::new().name(format!("nbd-{number}"));
        let handle = builder.spawn(move || -> Result<()> {
            let refused = |error: &std::io::Error| {
                shared.log(&format!(
                    "thread {number}: buffers are not registered: {error}"
                ));
            };
            let reactor = Reactor::new(&setup, shared.workers.files(), refused)
                .context("making an engine")?;
            let _ = sender.send(reactor.remote());
            drop(sender);
            Ok(reactor.run(|| shared.draining())?)
        });
        handles.push(handle.context("starting a thread")?);
    }
    drop(sender);
    let remotes: Vec<Remote> = remotes.iter().collect();
    if remotes.len() == threads {
        accept(shared, &listeners, &remotes, max_connections, &mut status);
    }
    shared.drain();
    drop(listeners);
    shared.log("draining");
    remotes.iter().for_each(Remote::wake);
    let mut ended = Ok(());
    for handle in handles {
        let joined = handle
            .join()
            .unwrap_or_else(|_| bail!("a thread has panicked"));
        ended = ended.and(joined);
    }
    for export in &shared.exports {
        if !export.described.read_only {
            let name = &export.described.name;
            let synced = export.file.sync_all();
            synced.with_context(|| format!("flushing {name}"))?;
        }
    }
    shared.log("everything is flushed");
    ended
}

fn accept(
    shared: &Arc<Shared>,
    listeners: &[Listener],
    remotes: &[Remote],
    max_connections: u64,
    status: &mut impl FnMut(),
) {
    let limit = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.subsec_nanos().into(),
    };
    let mut accepted = 0;
    while !shared.draining() {
        let mut fds: Vec<_> = listeners
            .iter()
            .map(|listener| PollFd::new(listener, PollFlags::IN))
            .collect();
        // An interrupted or failed wait is followed by a look, as any other.
        let _ = poll(&mut fds, Some(&limit));
        status();
        // A flush that waits for data that is under way waits for the data, or for this.
        shared.exports.iter().for_each(|e| e.domain.tick());
        for listener in listeners {
            loop {
                let socket = match listener.accept() {
                    Ok(socket) => socket,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        // Too many files are open, for instance: let some clients leave.
                        shared.log(&format!("a client was not accepted: {error}"));
                        thread::sleep(LOOK);
                        break;
                    }
                };
                if shared.clients.load(Ordering::Relaxed) >= max_connections {
                    shared.log("a client was turned away: --max-connections");
                    continue;
                }
                let shared = shared.clone();
                let remote = &remotes[accepted % remotes.len()];
                accepted += 1;
                remote.spawn(move |reactor| Box::pin(Connection::new(socket, reactor, &shared)));
            }
        }
    }
}
