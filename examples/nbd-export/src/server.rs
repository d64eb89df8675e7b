//! Threads, listeners, and the end.

use std::fmt::{self, Display};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::adapter::{Tenant, TenantError, Workers};
use crate::connection::Connection;
use crate::console::Console;
use crate::disk::Disks;
use crate::export::Export;
use crate::listener::{Listener, Peer};
use crate::options::{Options, Tenants};
use crate::reactor::{Reactor, Remote, Setup};

/// How often the main thread looks up.
const LOOK: Duration = Duration::from_millis(200);

/// For so long clients may take their last answers.
const DRAIN: Duration = Duration::from_secs(5);

/// The wish to end, and since when there is one.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<OnceLock<Instant>>);

impl Stop {
    pub(crate) fn ask(&self) {
        self.0.get_or_init(Instant::now);
    }
}

/// What all threads use.
pub(crate) struct Shared {
    pub(crate) exports: Vec<Arc<Export>>,
    pub(crate) disks: Disks,
    pub(crate) workers: Arc<Workers>,
    pub(crate) max_split: usize,
    pub(crate) tenant_per_client: bool,
    pub(crate) clients: AtomicU64,
    /// How long a client may take for the next 64 KiB of a payload that it has begun.
    pub(crate) payload_timeout: Duration,
    /// Reads and writes through registered buffers.
    pub(crate) with_registered: Arc<AtomicU64>,
    /// Clients that were given a tenant of their own.
    tenants: AtomicU64,
    pub(crate) started: Instant,
    pub(crate) console: Console,
    quiet: bool,
    stop: Stop,
}

impl Shared {
    pub(crate) fn new(
        exports: Vec<Arc<Export>>,
        (disks, workers): (Disks, Arc<Workers>),
        options: &Options,
        console: Console,
        stop: Stop,
    ) -> Self {
        Self {
            exports,
            disks,
            workers,
            max_split: options.max_split as usize * 1024,
            tenant_per_client: options.tenants == Tenants::Client,
            clients: AtomicU64::new(0),
            payload_timeout: Duration::from_secs(options.payload_timeout.into()),
            with_registered: Arc::default(),
            tenants: AtomicU64::new(0),
            started: Instant::now(),
            console,
            quiet: options.quiet,
            stop,
        }
    }

    /// Whether clients are to leave when their requests are answered.
    pub(crate) fn draining(&self) -> bool {
        self.stop.0.get().is_some()
    }

    /// Whether clients that do not read their answers are left behind.
    pub(crate) fn overdue(&self) -> bool {
        let since = self.stop.0.get();
        since.is_some_and(|since| since.elapsed() > DRAIN)
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
        self.console.line(self.line(what));
    }

    /// The same about a client that comes or goes, unless nobody wants to know.
    pub(crate) fn log_of_client(&self, what: &str) {
        if !self.quiet {
            self.log(what);
        }
    }

    fn line(&self, what: &str) -> String {
        let at = self.started.elapsed().as_secs_f64();
        format!("nbd-export: {at:10.3} {what}")
    }
}

/// Serves until told to stop, then drains: requests that were begun are answered, and everything is
/// flushed. Those that wait for memory or for their data are not.
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
        let goes_on = || {
            status();
            // Asked in this order: who is told to stop may end at once.
            let ended = handles.iter().any(JoinHandle::is_finished) && !shared.draining();
            if ended {
                shared.log("a thread has ended");
            }
            !ended
        };
        accept(shared, &listeners, &remotes, max_connections, goes_on);
    }
    shared.stop.ask();
    drop(listeners);
    shared.log("draining");
    remotes.iter().for_each(Remote::wake);
    let joined = handles.into_iter().map(|handle| {
        let joined = handle.join();
        joined.unwrap_or_else(|_| bail!("a thread has panicked"))
    });
    let flushed = shared.exports.iter().map(|export| export.flush_at_end());
    let ended = all_of(joined.chain(flushed));
    let last = ended.is_ok().then(|| shared.line("everything is flushed"));
    shared.console.end(last);
    ended
}

/// Has all of them done, whatever becomes of one. The first error.
fn all_of(steps: impl Iterator<Item = Result<()>>) -> Result<()> {
    steps.fold(Ok(()), Result::and)
}

fn accept(
    shared: &Arc<Shared>,
    listeners: &[Listener],
    remotes: &[Remote],
    max_connections: u64,
    mut goes_on: impl FnMut() -> bool,
) {
    let limit = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.subsec_nanos().into(),
    };
    let mut accepted = 0;
    let mut number = 0;
    // Whether nobody could be let in when that was tried last.
    let mut full = false;
    while goes_on() && !shared.draining() {
        let mut fds: Vec<_> = listeners
            .iter()
            .filter(|_| !full)
            .map(|listener| PollFd::new(listener, PollFlags::IN))
            .collect();
        // An interrupted or failed wait is followed by a look, as any other.
        let _ = poll(&mut fds, Some(&limit));
        let was_full = std::mem::take(&mut full);
        for listener in listeners {
            let refused = loop {
                let (socket, peer) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break None,
                    Err(error) => break Some(error),
                };
                number += 1;
                let who = Who { number, peer };
                let Some(permit) = ClientPermit::take(shared, max_connections, who) else {
                    shared.log_of_client(&format!("{who} was turned away: --max-connections"));
                    continue;
                };
                let remote = &remotes[accepted % remotes.len()];
                accepted += 1;
                remote.spawn(move |reactor| Box::pin(Connection::new(socket, reactor, permit)));
            };
            let Some(error) = refused else { continue };
            full |= is_full(&error);
            if !was_full {
                shared.log(&format!("a client was not accepted: {error}"));
            }
        }
    }
}

/// A client, as the log calls it. One process may be several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    number: u64,
    peer: Peer,
}

impl Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} ({})", self.number, self.peer)
    }
}

/// A client is let in, and counted from now on until this is dropped.
pub(crate) struct ClientPermit {
    pub(crate) shared: Arc<Shared>,
    pub(crate) who: Who,
}

impl ClientPermit {
    /// None if there are so many clients. Only one thread lets clients in.
    fn take(shared: &Arc<Shared>, most: u64, who: Who) -> Option<Self> {
        if shared.clients.load(Ordering::Relaxed) >= most {
            return None;
        }
        shared.clients.fetch_add(1, Ordering::Relaxed);
        let shared = shared.clone();
        Some(Self { shared, who })
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        self.shared.clients.fetch_sub(1, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_done_and_the_first_error_told() {
        let mut done = 0;
        let steps = [Ok(()), Err("one"), Ok(()), Err("other"), Ok(())];
        let steps = steps.into_iter().inspect(|_| done += 1);
        let ended = all_of(steps.map(|step| step.map_err(anyhow::Error::msg)));
        assert_eq!(ended.unwrap_err().to_string(), "one");
        assert_eq!(done, 5);
    }
}
