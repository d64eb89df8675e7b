//! Threads, listeners, and the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::adapter::{Tenant, TenantError, Workers};
use crate::connection::Connection;
use crate::console::Console;
use crate::disk::Disks;
use crate::export::Export;
use crate::listener::Listener;
use crate::reactor::{Reactor, Remote, Setup};

/// How often the main thread looks up.
const LOOK: Duration = Duration::from_millis(200);

/// For so long clients may take their last answers.
const DRAIN: Duration = Duration::from_secs(5);

/// What all threads use.
pub(crate) struct Shared {
    pub(crate) exports: Vec<Arc<Export>>,
    pub(crate) disks: Disks,
    pub(crate) workers: Arc<Workers>,
    pub(crate) max_split: usize,
    pub(crate) tenant_per_client: bool,
    pub(crate) clients: AtomicU64,
    /// Reads and writes through registered buffers.
    pub(crate) with_registered: Arc<AtomicU64>,
    /// Clients that were given a tenant of their own.
    tenants: AtomicU64,
    pub(crate) started: Instant,
    pub(crate) console: Console,
    quiet: bool,
    stop: OnceLock<Instant>,
}

impl Shared {
    pub(crate) fn new(
        exports: Vec<Arc<Export>>,
        (disks, workers): (Disks, Arc<Workers>),
        max_split: usize,
        tenant_per_client: bool,
        console: Console,
        quiet: bool,
    ) -> Self {
        Self {
            exports,
            disks,
            workers,
            max_split,
            tenant_per_client,
            clients: AtomicU64::new(0),
            with_registered: Arc::default(),
            tenants: AtomicU64::new(0),
            started: Instant::now(),
            console,
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
            match export.disk.tags.tenant(&name, export.weight) {
                // An export may be called that.
                Err(TenantError::NameTaken { .. }) => {}
                made => return made,
            }
        }
    }

    pub(crate) fn log(&self, what: &str) {
        if let Some(line) = self.line(what) {
            self.console.line(line);
        }
    }

    fn line(&self, what: &str) -> Option<String> {
        let at = self.started.elapsed().as_secs_f64();
        (!self.quiet).then(|| format!("nbd-export: {at:10.3} {what}"))
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
            let reactor = Reactor::new(&setup, refused).context("making an engine")?;
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
    let last = ended.is_ok().then(|| shared.line("everything is flushed"));
    shared.console.end(last.flatten());
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
    // Whether nobody could be let in when that was tried last.
    let mut full = false;
    while !shared.draining() {
        let mut fds: Vec<_> = listeners
            .iter()
            .filter(|_| !full)
            .map(|listener| PollFd::new(listener, PollFlags::IN))
            .collect();
        // An interrupted or failed wait is followed by a look, as any other.
        let _ = poll(&mut fds, Some(&limit));
        status();
        let was_full = std::mem::take(&mut full);
        for listener in listeners {
            let refused = loop {
                let socket = match listener.accept() {
                    Ok(socket) => socket,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break None,
                    Err(error) => break Some(error),
                };
                if shared.clients.load(Ordering::Relaxed) >= max_connections {
                    shared.log("a client was turned away: --max-connections");
                    continue;
                }
                let shared = shared.clone();
                let remote = &remotes[accepted % remotes.len()];
                accepted += 1;
                remote.spawn(move |reactor| Box::pin(Connection::new(socket, reactor, &shared)));
            };
            let Some(error) = refused else { continue };
            full |= is_full(&error);
            if !was_full {
                shared.log(&format!("a client was not accepted: {error}"));
            }
        }
    }
}

/// Whether a client cannot be let in before others leave. It waits.
fn is_full(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
