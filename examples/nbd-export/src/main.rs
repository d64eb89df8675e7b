//! Serves files as network block devices: tags bound what is at the files, flushes are shared,
//! large requests are split, encryption runs on workers.
//!
//! ```text
//! options ─▶ server: listeners ─▶ thread: reactor (uring | psync)
//!                                   └─ connection ─▶ request: tags, pieces, cipher, flush domain
//! nbd_export (library): negotiate, proto
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("nbd-export is for Linux: io_uring, epoll, fallocate");

mod adapter;
mod connection;
mod console;
mod crypto;
mod disk;
mod durable;
mod export;
mod key;
mod listener;
mod memory;
mod metrics;
mod options;
mod output;
mod reactor;
mod request;
mod server;
mod stall;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use inflight::tags::Steering;
use inflight::topology::Scope;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::adapter::{CryptOptions, Workers};
use crate::console::Console;
use crate::disk::Disks;
use crate::export::Export;
use crate::listener::Listener;
use crate::options::{Engine, Options};
use crate::reactor::{Kind, Reactor, Setup};
use crate::server::{Shared, Stop};

/// What comes within this time of the first signal is the same signal: `timeout` of GNU signals the
/// program, and then its whole group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// The exit status after a second signal.
const TOLD_TWICE: i32 = 1;

fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(options) => options,
        Err(status) => return status,
    };
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

fn serve(options: &Options) -> Result<()> {
    open_many_files();
    let kind = choose_engine(options.engine)?;
    let depth = usize::from(options.depth);
    let scope: Scope = options.scope.parse().context("--scope")?;
    let steering: Steering = options.steer.parse().context("--steer")?;
    let crypt = CryptOptions {
        scope,
        strict: options.strict,
        max_active: options.max_active.into(),
    };
    let workers = Arc::new(Workers::new(crypt)?);
    let memory = options.memory as usize * 1024 * 1024;
    let mut disks = Disks::new(depth, steering, memory, workers.clone());
    let mut exports: Vec<Arc<Export>> = Vec::new();
    for spec in &options.exports {
        exports.push(Arc::new(Export::open(spec, &mut disks)?));
    }
    if let Some(name) = &options.faults.export {
        let mut names = exports.iter().map(|export| &export.described.name);
        ensure!(
            names.any(|n| n == name),
            "--faults: no export is named {name}"
        );
    }
    // Before there is anything that stays behind if a signal ends the program.
    let stop = Stop::default();
    end_on_signals(stop.clone())?;
    let mut listeners = Vec::new();
    if let Some(path) = &options.unix {
        listeners.push(Listener::unix(path)?);
    }
    if let Some(address) = &options.listen {
        listeners.push(Listener::tcp(address)?);
        console::say(&format!(
            "warning: NBD has no authentication; whoever reaches {address} is in"
        ));
    }
    let _server = match &options.serve {
        Some(path) => Some(workers.serve(path)?),
        None => None,
    };
    let shared = Arc::new(Shared::new(
        exports,
        (disks, workers),
        options,
        Console::new().context("starting a thread")?,
        stop,
    ));
    if let Some(address) = &options.metrics {
        metrics::serve(address, &shared)?;
    }
    begin(&shared.exports)?;
    tell_addresses(&shared, &listeners);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.map_or(cpus.min(4), usize::from);
    let engine = if kind == Kind::Uring {
        "io_uring"
    } else {
        "psync"
    };
    for export in &shared.exports {
        let (name, disk) = (&export.described.name, export.disk.tags.name());
        shared.log(&format!("{name} lies on disk {disk}"));
        if let Some(key_is) = &export.key_is {
            shared.log(&format!("{name}: {key_is}"));
        }
    }
    shared.log(&format!(
        "serving by {engine}, {threads} threads, {depth} tags for each disk"
    ));
    let setup = Setup {
        kind,
        faults: options.faults.clone(),
        registered: registered(options.registered, threads, &shared),
        longest: shared.max_split,
        with_registered: shared.with_registered.clone(),
        completer: shared.disks.completer(),
        may_block: may_block(depth, &shared),
    };
    let mut status = Status::new();
    let look = || status.look(&shared);
    server::run(
        &shared,
        listeners,
        &setup,
        threads,
        options.max_connections,
        look,
    )
}

/// The first signal is a wish to end, the second one an end.
fn end_on_signals(stop: Stop) -> Result<()> {
    let mut first = None;
    let told = move || {
        stop.ask();
        if !is_another(&mut first, Instant::now()) {
            return;
        }
        // Whoever does not read standard error does not hold up the end.
        let stderr = std::io::stderr();
        let mut stderr = [PollFd::new(&stderr, PollFlags::OUT)];
        if poll(&mut stderr, Some(&Timespec::default())) == Ok(1) {
            console::say("a second signal: not everything is answered and flushed");
        }
        std::process::exit(TOLD_TWICE);
    };
    ctrlc::set_handler(told).context("installing the signal handler")
}

/// Whether a signal that comes now is another wish than the first one.
fn is_another(first: &mut Option<Instant>, now: Instant) -> bool {
    now - *first.get_or_insert(now) >= ONE_SIGNAL
}

/// Nothing else can go wrong: the files that are to be encrypted may be written to.
fn begin(exports: &[Arc<Export>]) -> Result<()> {
    for export in exports {
        let begun = export.begin();
        begun.with_context(|| export.described.name.clone())?;
    }
    Ok(())
}

fn tell_addresses(shared: &Shared, listeners: &[Listener]) {
    for export in &shared.exports {
        for listener in listeners {
            console::say(&listener.uri(&export.described.name));
        }
    }
}

/// Each thread's part of the registered buffers, in bytes. Files in memory are read and written
/// without a ring.
fn registered(mib: u32, threads: usize, shared: &Shared) -> usize {
    if shared.exports.iter().all(|export| export.in_memory) {
        return 0;
    }
    let pages = (mib as usize * 256) / threads;
    pages * 4096
}

/// Operations that may be blocked at the disks at once, if there are several: all that have tags,
/// and each export's flush.
fn may_block(depth: usize, shared: &Shared) -> Option<u32> {
    let disks = shared.disks.all().len();
    let operations = disks * depth + shared.exports.len();
    (disks > 1).then(|| u32::try_from(operations).unwrap_or(u32::MAX))
}

/// Each client is an open file. A shell's limit is meant for programs that use `select`.
fn open_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Clients beyond a limit that stays wait to be let in.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

fn choose_engine(engine: Engine) -> Result<Kind> {
    match engine {
        Engine::Psync => Ok(Kind::Psync),
        Engine::IoUring => {
            Reactor::probe().context("io_uring cannot be used here; try --engine psync")?;
            Ok(Kind::Uring)
        }
        Engine::Auto => Ok(match Reactor::probe() {
            Ok(()) => Kind::Uring,
            Err(error) => {
                console::say(&format!(
                    "io_uring cannot be used here ({error}); using psync"
                ));
                Kind::Psync
            }
        }),
    }
}

/// A line about what goes on, if somebody looks at the terminal.
struct Status {
    last: Instant,
    requests: u64,
    bytes: u64,
}

impl Status {
    fn new() -> Self {
        Self {
            last: Instant::now(),
            requests: 0,
            bytes: 0,
        }
    }

    fn look(&mut self, shared: &Shared) {
        let elapsed = self.last.elapsed();
        if !shared.console.is_terminal || elapsed < Duration::from_secs(1) {
            return;
        }
        let (mut requests, mut bytes) = (0, 0);
        for export in &shared.exports {
            let stats = &export.stats;
            for counter in [&stats.reads, &stats.writes, &stats.other] {
                requests += counter.load(Ordering::Relaxed);
            }
            for counter in [&stats.read_bytes, &stats.written_bytes] {
                bytes += counter.load(Ordering::Relaxed);
            }
        }
        let disks = shared.disks.all().iter();
        let tags: usize = disks.map(|disk| disk.tags.in_use()).sum();
        let seconds = elapsed.as_secs_f64();
        shared.console.status(format!(
            "{} clients, {} of the tags, {:.0} requests/s, {:.1} MiB/s",
            shared.clients.load(Ordering::Relaxed),
            tags,
            (requests - self.requests) as f64 / seconds,
            (bytes - self.bytes) as f64 / seconds / f64::from(1 << 20),
        ));
        (self.last, self.requests, self.bytes) = (Instant::now(), requests, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_a_tenth_of_a_second_of_the_first_are_one_wish() {
        let (mut first, begin) = (None, Instant::now());
        let mut at = |ms| is_another(&mut first, begin + Duration::from_millis(ms));
        assert_eq!(
            [0, 0, 99, 100, 150].map(&mut at),
            [false, false, false, true, true]
        );
    }
}
