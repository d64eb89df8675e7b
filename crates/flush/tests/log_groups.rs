//! Who shares a flush of the log with whom, on real threads.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/calling_waker.rs"]
mod calling_waker;

use calling_waker::{calling, ends};
use inflight_flush::log::{
    Durability, GroupMode, Log, LogError, LogOptions, Lsn, MemoryStorage, OpenError, OptionsError,
    Storage,
};
use inflight_flush::{Caps, Device, FlushDomain, Flusher, MemoryDevice, Power};
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Condvar, Mutex, thread};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Asks the test in each flush and durable write.
type Hook = Arc<dyn Fn() + Send + Sync>;

struct Hooked(MemoryStorage, Hook);

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

struct Segment(Arc<dyn Device>, Hook);

impl Flusher for Segment {
    fn flush(&self) -> io::Result<()> {
        (self.1)();
        self.0.flush()
    }

    fn caps(&self) -> Caps {
        self.0.caps()
    }
}

impl Device for Segment {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }

    fn write_fua_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        (self.1)();
        self.0.write_fua_at(bytes, offset)
    }
}

impl Storage for Hooked {
    fn segments(&self) -> io::Result<Vec<u64>> {
        self.0.segments()
    }

    fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>> {
        let segment = self.0.create(number, len)?;
        Ok(Arc::new(Segment(segment, self.1.clone())))
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn Device>> {
        self.0.open(number)
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.0.remove(number)
    }
}

fn storage() -> MemoryStorage {
    MemoryStorage::new(&Power::new())
}

fn append_and_commit(log: &Log, record: &[u8]) -> Lsn {
    let lsn = log.append_blocking(record).unwrap();
    log.commit_blocking(lsn, Durability::Flushed).unwrap();
    assert!(log.durable() >= lsn);
    lsn
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

const COMMITTERS: u64 = 8;
const COMMITS: u64 = 50;

/// Eight committers; each record is found once after a loss of power.
fn eight_commit(log: &Log, storage: &MemoryStorage, done: &Arc<AtomicU64>) {
    let threads: Vec<_> = (0..COMMITTERS as u8)
        .map(|id| {
            let (log, done) = (log.clone(), done.clone());
            thread::spawn(move || {
                for n in 0..COMMITS as u8 {
                    append_and_commit(&log, &[id, n]);
                }
                done.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let restarted = storage.restart(&Power::new(), 5);
    let (_, found) = LogOptions::new().open(restarted).unwrap();
    let mut payloads: Vec<_> = found.records.into_iter().map(|r| r.payload).collect();
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len() as u64, COMMITTERS * COMMITS);
}

#[test]
fn eight_committers_lose_nothing() {
    for mode in [GroupMode::Off, GroupMode::Leader, GroupMode::Auto] {
        let storage = storage().with_flush_time(MS / 5);
        let options = LogOptions::new().group_mode(mode);
        let (log, _) = options.open(storage.clone()).unwrap();
        let before = storage.flushes();
        eight_commit(&log, &storage, &Arc::default());
        let flushes = storage.flushes() - before;
        assert!(flushes <= COMMITTERS * COMMITS, "{mode:?}: {flushes}");
        let counters = log.counters();
        assert_eq!(counters.flushes + counters.flushes_alone, flushes);
    }
}

/// A flush takes so long that all who can come have come, as one of 1 ms does: fewer than 0.35
/// flushes for each commit.
#[test]
fn eight_committers_share_long_flushes() {
    let storage = storage();
    let log: Arc<Mutex<Option<Log>>> = Arc::default();
    let done: Arc<AtomicU64> = Arc::default();
    let hook = {
        let (log, done) = (log.clone(), done.clone());
        let served_before = AtomicU64::new(0);
        Arc::new(move || {
            let Some(log) = &*log.lock() else { return };
            // All who are not done wait: for this flush, or for the next one.
            let before = served_before.swap(log.counters().grouped, Ordering::Relaxed);
            wait_until(|| {
                let still_at_it = COMMITTERS - done.load(Ordering::Relaxed);
                log.counters().commits - before >= still_at_it
            });
        })
    };
    let options = LogOptions::new().group_mode(GroupMode::Leader);
    let opened = options.open(Hooked(storage.clone(), hook)).unwrap();
    *log.lock() = Some(opened.0.clone());
    eight_commit(&opened.0, &storage, &done);
    let counters = log.lock().take().unwrap().counters();
    let commits = COMMITTERS * COMMITS;
    assert!(counters.flushes * 100 < commits * 35, "{counters:?}");
    // A commit that finds its record flushed belongs to no group.
    assert!(counters.grouped <= commits, "{counters:?}");
    assert_eq!(counters.group_sizes.iter().sum::<u64>(), counters.flushes);
}

/// A group is one whether its leader flushed or took a durable write.
#[test]
fn groups_of_durable_writes_are_counted() {
    let storage = storage().with_caps(Caps::volatile_with_fua());
    let options = LogOptions::new().group_mode(GroupMode::Leader);
    let (log, _) = options.open(storage).unwrap();
    for _ in 0..5 {
        append_and_commit(&log, &[1; 100]);
    }
    let counters = log.counters();
    assert_eq!((counters.fua_writes, counters.leaders), (5, 5));
    assert_eq!((counters.grouped, counters.max_group), (5, 1));
    assert_eq!(counters.group_sizes[0], 5);
}

/// Where a flush takes no time nobody waits for a leader.
#[test]
fn auto_does_not_group_where_flushes_are_cheap() {
    let storage = storage();
    let options = LogOptions::new().clock(&Clock::manual()); // stands still
    let (log, _) = options.open(storage.clone()).unwrap();
    append_and_commit(&log, &[0, 0]); // measures a flush
    eight_commit(&log, &storage, &Arc::default());
    let counters = log.counters();
    assert_eq!((counters.leaders, counters.grouped), (0, 0));
    assert!(counters.flushes_alone > 0 && counters.flushes == 0);
}

/// A log whose flushes take 1 ms of its own clock, and wait at a gate if it is shut.
struct Delayed {
    log: Log,
    clock: Clock,
    flushes: Arc<AtomicU64>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Delayed {
    fn new(min_siblings: usize) -> Self {
        let options = LogOptions::new().max_delay(5 * MS);
        Self::with(options.min_siblings(min_siblings))
    }

    fn with(options: LogOptions) -> Self {
        Self::on(storage(), options)
    }

    fn on(storage: MemoryStorage, options: LogOptions) -> Self {
        let clock = Clock::manual();
        let flushes: Arc<AtomicU64> = Arc::default();
        let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let hook = {
            let (clock, flushes, gate) = (clock.clone(), flushes.clone(), gate.clone());
            Arc::new(move || {
                flushes.fetch_add(1, Ordering::Relaxed);
                let mut shut = gate.0.lock();
                while *shut {
                    gate.1.wait(&mut shut);
                }
                clock.advance(MS);
            })
        };
        let options = options.group_mode(GroupMode::Leader).clock(&clock);
        let (log, _) = options.open(Hooked(storage, hook)).unwrap();
        append_and_commit(&log, b"it learns what a flush takes");
        Self {
            log,
            clock,
            flushes,
            gate,
        }
    }

    fn shut(&self, shut: bool) {
        *self.gate.0.lock() = shut;
        self.gate.1.notify_all();
    }

    fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// One more commits, and waits in the group.
    fn commits(&self) -> thread::JoinHandle<Lsn> {
        let before = self.log.counters().commits;
        let log = self.log.clone();
        let thread = thread::spawn(move || append_and_commit(&log, b"record"));
        wait_until(|| self.log.counters().commits > before);
        thread
    }
}

#[test]
fn a_leader_that_was_told_to_waits_until_the_others_are_back() {
    let delayed = Delayed::new(1);
    let before = delayed.flushes();
    delayed.shut(true);
    // Nobody else is at it, so it does not wait.
    let first = delayed.commits();
    wait_until(|| delayed.flushes() == before + 1);
    let mut others = vec![delayed.commits(), delayed.commits()];
    delayed.shut(false);
    first.join().unwrap();
    // One of the two leads, and waits.
    wait_until(|| delayed.clock.sleepers() == 1);
    assert_eq!(delayed.flushes(), before + 1);
    // The clock stands still: the one that comes back ends the wait.
    others.push(delayed.commits());
    for other in others {
        other.join().unwrap();
    }
    let counters = delayed.log.counters();
    assert_eq!((delayed.flushes(), counters.delays), (before + 2, 1));
    assert_eq!(counters.max_group, 3, "the late one, too");
}

#[test]
fn a_leader_goes_on_after_half_a_flush_without_those_who_do_not_come() {
    let delayed = Delayed::new(1);
    let before = delayed.flushes();
    delayed.shut(true);
    let first = delayed.commits();
    wait_until(|| delayed.flushes() == before + 1);
    let others = [delayed.commits(), delayed.commits()];
    delayed.shut(false);
    first.join().unwrap();
    wait_until(|| delayed.clock.sleepers() == 1);
    delayed.clock.advance(MS / 2 - Duration::from_nanos(1));
    assert_eq!(delayed.clock.sleepers(), 1, "not yet");
    delayed.clock.advance(Duration::from_nanos(1));
    for other in others {
        other.join().unwrap();
    }
    let counters = delayed.log.counters();
    assert_eq!((delayed.flushes(), counters.delays), (before + 2, 1));
}

#[test]
fn a_leader_does_not_wait_for_fewer_others_than_it_was_told() {
    let delayed = Delayed::new(3);
    let before = delayed.flushes();
    delayed.shut(true);
    let first = delayed.commits();
    wait_until(|| delayed.flushes() == before + 1);
    let others = [delayed.commits(), delayed.commits()];
    delayed.shut(false);
    // The clock stands still: a leader that waited would wait for ever.
    first.join().unwrap();
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(delayed.log.counters().delays, 0);
}

/// A durable write serves all who came behind the one before.
#[test]
fn the_group_of_a_durable_write_is_all_whom_it_serves() {
    let storage = storage().with_caps(Caps::volatile_with_fua());
    let delayed = Delayed::on(storage, LogOptions::new());
    let before = delayed.flushes();
    delayed.shut(true);
    let first = delayed.commits();
    wait_until(|| delayed.flushes() == before + 1);
    let others: Vec<_> = (0..8).map(|_| delayed.commits()).collect();
    delayed.shut(false);
    for thread in others.into_iter().chain([first]) {
        thread.join().unwrap();
    }
    let counters = delayed.log.counters();
    assert_eq!((counters.fua_writes, counters.flushes), (3, 0));
    assert_eq!((counters.grouped, counters.max_group), (10, 8));
    // The one when the log was new, the one that was held, and the eight.
    assert_eq!(counters.group_sizes[..4], [2, 0, 0, 1]);
}

#[test]
fn a_group_has_so_many_members() {
    let delayed = Delayed::with(LogOptions::new().max_members(2));
    let before = delayed.flushes();
    delayed.shut(true);
    let first = delayed.commits();
    wait_until(|| delayed.flushes() == before + 1);
    let others: Vec<_> = (0..6).map(|_| delayed.commits()).collect();
    delayed.shut(false);
    first.join().unwrap();
    for other in others {
        other.join().unwrap();
    }
    let counters = delayed.log.counters();
    assert_eq!(counters.max_group, 2, "{counters:?}");
    assert_eq!(delayed.flushes(), before + 4, "{counters:?}");
    let refused = LogOptions::new().max_members(0).open(storage());
    let error = refused.unwrap_err();
    assert!(matches!(error, OpenError::Options(OptionsError::NoMembers)));
    assert!(error.to_string().contains("max_members"), "{error}");
}

/// A commit does not write for others without an end: three records of 516 bytes here.
#[test]
fn a_group_has_so_many_bytes() {
    let options = LogOptions::new()
        .buffer_size(1 << 10)
        .max_group(2 << 10)
        .group_mode(GroupMode::Leader);
    let (log, _) = options.open(storage()).unwrap();
    let ends: Vec<Lsn> = (0..10)
        .map(|_| log.try_append(&[1; 500]).unwrap())
        .collect();
    log.commit_blocking(ends[0], Durability::Flushed).unwrap();
    assert!(log.durable() >= ends[0] && log.durable() < ends[3]);
    log.commit_blocking(ends[9], Durability::Flushed).unwrap();
    assert_eq!(log.durable(), ends[9]);
    assert_eq!(log.counters().flushes, 2, "no flush that nobody waits for");
}

/// A clone of a waker may run anything, and so may its drop: no lock is held.
#[test]
fn a_waker_may_call_the_log_when_it_is_cloned_and_dropped() {
    type Commit = Pin<Box<dyn Future<Output = Result<(), LogError>> + Send>>;

    fn poll(commit: &mut Commit, log: &Log) -> Poll<Result<(), LogError>> {
        let log = log.clone();
        let waker = calling(move || {
            let _ = log.counters();
        });
        commit.as_mut().poll(&mut Context::from_waker(&waker))
    }

    ends(|| {
        // A commit that comes while the first one flushes.
        let second: Arc<Mutex<Option<(Commit, Log)>>> = Arc::default();
        let during = second.clone();
        let hook = move || {
            if let Some((commit, log)) = &mut *during.lock() {
                assert!(poll(commit, log).is_pending(), "the waker is cloned");
                assert!(poll(commit, log).is_pending(), "and its clone is replaced");
            }
        };
        let options = LogOptions::new().group_mode(GroupMode::Leader);
        let (log, _) = options.open(Hooked(storage(), Arc::new(hook))).unwrap();
        let lsn = log.append_blocking(b"record").unwrap();
        let commit = log.commit(lsn, Durability::Flushed);
        *second.lock() = Some((Box::pin(commit), log.clone()));
        log.commit_blocking(lsn, Durability::Flushed).unwrap();
        let (mut commit, log) = second.lock().take().unwrap();
        assert_eq!(poll(&mut commit, &log), Poll::Ready(Ok(())));
    });
}

/// Its last record was appended when the commit was given up, so it may count: but then whole.
#[test]
fn a_checkpoint_whose_commit_is_given_up_is_not_found_in_part() {
    type Step = Box<dyn FnOnce() + Send>;
    let amid_a_flush: Arc<Mutex<Option<Step>>> = Arc::default();
    let storage = storage();
    let step = amid_a_flush.clone();
    let hooked = Hooked(
        storage.clone(),
        Arc::new(move || {
            let step = step.lock().take();
            step.into_iter().for_each(|step| step());
        }),
    );
    let options = LogOptions::new().group_mode(GroupMode::Leader);
    let (log, _) = options.open(hooked).unwrap();
    let mut checkpoint = log.checkpoint();
    checkpoint.try_append(b"one").unwrap();
    let other = log.try_append(b"of another").unwrap();
    checkpoint.try_append(b"two").unwrap();
    let user = log.clone();
    *amid_a_flush.lock() = Some(Box::new(move || {
        let mut commit = Box::pin(checkpoint.commit());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(commit.as_mut().poll(&mut cx).is_pending());
        drop(commit);
        user.set_tail(other);
    }));
    log.commit_blocking(other, Durability::Flushed).unwrap();
    let last = append_and_commit(&log, b"last");
    let found = |seed| {
        let restarted = storage.restart(&Power::new(), seed);
        LogOptions::new().open(restarted).unwrap().1
    };
    let payloads: Vec<_> = found(1).records.into_iter().map(|r| r.payload).collect();
    let has = |name: &[u8]| payloads.iter().any(|payload| payload == name);
    assert_eq!((has(b"one"), has(b"two")), (true, true), "{payloads:?}");
    log.set_tail(last); // it is durable now
    append_and_commit(&log, b"behind the tail");
    assert_eq!(found(2).tail, last);
}

/// A formatter may use what it prints.
#[test]
fn nothing_is_printed_under_its_lock() {
    struct Calling<F>(F);
    impl<F: FnMut()> fmt::Write for Calling<F> {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            (self.0)();
            Ok(())
        }
    }
    fn print(value: &impl fmt::Debug, call: impl FnMut()) {
        fmt::write(&mut Calling(call), format_args!("{value:?}")).unwrap();
    }
    ends(|| {
        let device = MemoryDevice::new(4096);
        print(&device, || device.flush().unwrap());
        let domain = FlushDomain::new(device.clone());
        print(&domain, || domain.flush_blocking().unwrap());
        let (log, _) = LogOptions::new().open(storage()).unwrap();
        print(&log, || assert!(log.try_append(b"printed").is_ok()));
    });
}

/// A commit flushes in its poll, so the next task is polled when that flush has ended. One task
/// that appends for all needs one flush.
#[test]
fn commits_of_tasks_on_one_thread_do_not_group() {
    let storage = MemoryStorage::new(&Power::new());
    let options = LogOptions::new().group_mode(GroupMode::Leader);
    let log = options.max_delay(MS).open(storage).unwrap().0;
    let (mut tasks, mut appended) = (Vec::new(), Lsn::default());
    for _ in 0..32 {
        let log = log.clone();
        tasks.push(Box::pin(async move {
            let lsn = log.append(b"record").await?;
            log.commit(lsn, Durability::Flushed).await
        }));
    }
    let mut cx = Context::from_waker(std::task::Waker::noop());
    for task in &mut tasks {
        assert_eq!(task.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
    }
    assert_eq!(log.counters().flushes, 32);
    for _ in 0..32 {
        appended = log.try_append(b"record").unwrap();
    }
    log.commit_blocking(appended, Durability::Flushed).unwrap();
    assert_eq!(log.counters().flushes, 33);
}
