//! A log with group commit: records are appended, and made durable together.
//!
//! ```
//! use inflight_flush::log::{DirStorage, Durability, LogOptions};
//!
//! let folder = tempfile::tempdir()?;
//! let (log, _) = LogOptions::new().open(DirStorage::new(folder.path())?)?;
//! let lsn = log.try_append(b"debit 7, credit 9")?;
//! log.commit_blocking(lsn, Durability::Flushed)?; // shares its flush with others at the same time
//! drop(log);
//!
//! let (_, found) = LogOptions::new().open(DirStorage::new(folder.path())?)?;
//! assert_eq!(found.records[0].payload, b"debit 7, credit 9");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The flush for a buffer is decided when the buffer is written, never before. The first buffer of
//! a [checkpoint](Log::checkpoint), and the first one after a move of the [tail](Log::set_tail), is
//! written after a flush, which is to cover the data that makes older records obsolete. After a
//! commit that is to be durable comes one flush, unless it is one durable write. Buffers in between
//! are not flushed.

mod checkpoint;
mod commit;
mod error;
mod flush_shared;
mod frame;
mod group;
mod options;
mod pace;
mod recovery;
mod segments;
mod storage;
mod upkeep;
mod writer;

#[cfg(all(test, not(any(loom, shuttle))))]
mod closed_loop;

use crate::counters::Histogram;
use crate::device::Device;
use crate::domain::FlushDomain;
use crate::machine::Deferral;
use frame::{Kind, RECORD_HEADER, encode_record, fitting};
use group::Group;
use inflight_sync::atomic::{AtomicBool, AtomicU64};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, Unparker};
use pace::Pace;
use recovery::Found;
use segments::Segments;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use writer::{Batch, Writer};

pub use checkpoint::Checkpoint;
pub use error::{LogError, OpenError, OptionsError};
pub use group::Durability;
pub use options::{GroupMode, LogOptions};
pub use recovery::{RecoveredRecord, Recovery};
pub use storage::{DirStorage, MemoryStorage, Storage};

/// A bit of the word `durable`: the log has failed.
const POISONED: u64 = 1 << 63;

/// A position in a log, which rises with each record.
///
/// Until the record is [durable](Log::durable) the position is not for good: after a loss of power
/// another record may have it. Do not store a position elsewhere, with a snapshot for example,
/// before it is durable.
///
/// ```
/// use inflight_flush::log::Lsn;
/// assert!(Lsn::from(5) < Lsn::from(9));
/// assert_eq!(u64::from(Lsn::from(5)), 5);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl From<u64> for Lsn {
    fn from(position: u64) -> Self {
        Self(position)
    }
}

impl From<Lsn> for u64 {
    fn from(lsn: Lsn) -> Self {
        lsn.0
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The counters of a log since it was opened.
///
/// Each flush and each durable write of a leader counts as a group with the commits that it serves;
/// a flush after a durable write is a group of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogCounters {
    /// Records appended.
    pub records: u64,
    /// Bytes appended, without the log's own.
    pub bytes: u64,
    /// Commits that did not find their record durable already.
    pub commits: u64,
    /// Buffers written.
    pub buffers: u64,
    /// Flushes that a leader made for its group.
    pub flushes: u64,
    /// Flushes that commits made without a leader.
    pub flushes_alone: u64,
    /// Commits, or groups, that took one durable write and no flush.
    pub fua_writes: u64,
    /// Flushes before a buffer, of the log's device or of the data's.
    pub flushes_before: u64,
    /// Flushes of segments that were full.
    pub flushes_of_full_segments: u64,
    /// Attempts to make a segment that have failed, as on a full disk. The first one fails no
    /// commit yet: it comes when half of the last segment is full. [`Log::set_tail`] says what to
    /// do then.
    pub failed_creations: u64,
    /// Attempts to remove a segment that have failed. Commits try again.
    pub failed_removals: u64,
    /// The number of commits that groups served, whose leaders flushed or made a durable write.
    pub grouped: u64,
    /// The largest number of commits in one group.
    pub max_group: u64,
    /// Groups of 1, 2 to 3, 4 to 7 and so on.
    pub group_sizes: [u64; 12],
    /// How often a commit was the leader.
    pub leaders: u64,
    /// How often a leader waited for others.
    pub delays: u64,
    /// The durations of flushes of the log's device and of durable writes, for any purpose; with a
    /// domain that others share, the times that the log waited for them.
    pub flush_time: Histogram,
    /// The durations of commits.
    pub wait_time: Histogram,
}

impl LogCounters {
    fn group(&mut self, members: u64) {
        self.grouped += members;
        self.max_group = self.max_group.max(members);
        let size = (members.max(1).ilog2() as usize).min(self.group_sizes.len() - 1);
        self.group_sizes[size] += 1;
    }
}

/// An open log. A clone is a handle to the same log.
///
/// Any number of threads and tasks append and commit. [`LogOptions`] makes a log; the
/// [module](self) has an example.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Held while something is written; not during flushes. The first in the order of locks.
    writer: Mutex<Writer>,
    /// Held while the device makes something durable. The second in the order of locks; that of
    /// `state` is the last.
    flushing: Mutex<()>,
    segments: Segments,
    /// A segment is to be made or removed.
    upkeep_due: AtomicBool,
    /// Up to where the log is durable, for commits that need no lock; `u64::MAX` if it has failed.
    durable: AtomicU64,
    domain: FlushDomain,
    /// How many flushes of the domain had failed before the log was opened.
    failed_before: u64,
    options: LogOptions,
    clock: Clock,
}

struct State {
    group: Group,
    /// The segment that was written last.
    segment: Arc<dyn Device>,
    /// The segments that were begun: the number of each, and where in the log it begins.
    segments: VecDeque<(u64, u64)>,
    /// Records that are not being written yet, and where the first one begins.
    open: Vec<u8>,
    open_start: u64,
    /// The next buffer is written after a flush.
    flush_before: bool,
    tail: u64,
    tails: TailFrames,
    /// The next segment is to be made.
    wants_next: bool,
    last_checkpoint: u32,
    /// The checkpoints that are not durable yet.
    checkpoints: BTreeMap<u32, CheckpointRange>,
    counters: LogCounters,
    pace: Pace,
    /// The leader, while it waits for other commits.
    gathering: Option<Unparker>,
}

/// Where a checkpoint begins, and where it ends if its last record was appended.
#[derive(Debug)]
struct CheckpointRange {
    begin: u64,
    end: Option<u64>,
}

impl State {
    fn end(&self) -> u64 {
        self.open_start + self.open.len() as u64
    }

    /// Until a checkpoint that has its last record is durable, the tail does not pass its begin: a
    /// recovery could find the last record, and not the first ones.
    fn forget_durable_checkpoints(&mut self) {
        let durable = self.group.durable;
        let waits = |range: &CheckpointRange| range.end.is_none_or(|end| end > durable);
        self.checkpoints.retain(|_, range| waits(range));
    }

    /// A flush or a durable write serves the group up to `cover`.
    fn count_group(&mut self, cover: u64) {
        let served = self.group.count_served(cover);
        self.counters.group(served);
    }

    /// The oldest segment, if all of it is before the tail, and the tail and the head of the next
    /// segment are durable. Until then it is needed: without it a recovery could begin inside a
    /// checkpoint, or find no head. The head of a segment is durable with its first frame.
    fn obsolete_segment(&self) -> Option<u64> {
        let (&(oldest, _), &(_, next)) = (self.segments.front()?, self.segments.get(1)?);
        let is_obsolete = next <= self.tails.durable && next < self.group.durable;
        is_obsolete.then_some(oldest)
    }

    /// Takes records to be written: about `limit` bytes, up to about the position `end`. Their
    /// tail, and whether they are written after a flush, are decided in the same step, so a tail
    /// that moves later comes with a flush of its own.
    fn take(&mut self, limit: usize, end: u64) -> Batch {
        let before_end = end.saturating_sub(self.open_start);
        let limit = limit.min(usize::try_from(before_end).unwrap_or(usize::MAX));
        let len = match limit {
            0 => 0,
            limit => fitting(&self.open, limit),
        };
        let rest = self.open.split_off(len);
        let batch = Batch {
            bytes: std::mem::replace(&mut self.open, rest),
            first: self.open_start,
            durable: self.group.durable,
            tail: self.tail,
            flush_before: len > 0 && self.flush_before,
        };
        self.open_start += len as u64;
        self.flush_before &= len == 0;
        batch
    }
}

/// Which tail is durable: that of the last durable frame.
#[derive(Debug)]
struct TailFrames {
    durable: u64,
    /// Where the first frame with each later tail ends, and that tail.
    written: VecDeque<(u64, u64)>,
}

impl TailFrames {
    fn new(durable: u64) -> Self {
        Self {
            durable,
            written: VecDeque::new(),
        }
    }

    /// Frames up to `end` of the log were written.
    fn wrote(&mut self, end: u64, tail: u64) {
        let last = self.written.back().map_or(self.durable, |&(_, tail)| tail);
        if tail > last {
            self.written.push_back((end, tail));
        }
    }

    /// Frames up to `end` of the log are durable.
    fn flushed(&mut self, end: u64) {
        let count = self.written.partition_point(|&(at, _)| at <= end);
        if let Some((_, tail)) = self.written.drain(..count).next_back() {
            self.durable = tail;
        }
    }
}

impl Log {
    fn new(
        options: LogOptions,
        writer: Writer,
        segments: Segments,
        found: Found,
        failed_before: u64,
    ) -> Self {
        let domain = options.log_domain.clone().unwrap_or_else(|| {
            let caps = writer.segment().caps();
            let builder = FlushDomain::builder().caps(caps).deferral(Deferral::Off);
            builder.clock(&options.clock).build()
        });
        let (Lsn(end), Lsn(tail)) = (found.recovery.end, found.recovery.tail);
        let state = State {
            group: Group::new(end),
            segment: writer.segment(),
            segments: found.segments,
            open: Vec::new(),
            open_start: end,
            flush_before: false,
            tail,
            tails: TailFrames::new(tail),
            wants_next: false,
            last_checkpoint: found.last_checkpoint,
            checkpoints: BTreeMap::new(),
            counters: LogCounters::default(),
            pace: Pace::default(),
            gathering: None,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                writer: Mutex::new(writer),
                flushing: Mutex::new(()),
                segments,
                upkeep_due: AtomicBool::new(false),
                durable: AtomicU64::new(end),
                failed_before,
                domain,
                clock: options.clock.clone(),
                options,
            }),
        }
    }

    /// Appends a record, which may be empty. It is only in memory until a commit.
    ///
    /// # Errors
    ///
    /// [`LogError::Full`] if too many records wait to be written.
    ///
    /// ```
    /// # use inflight_flush::{Power, log::{LogOptions, MemoryStorage}};
    /// let (log, _) = LogOptions::new().open(MemoryStorage::new(&Power::new()))?;
    /// let first = log.try_append(b"first")?;
    /// assert!(log.try_append(b"second")? > first);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_append(&self, record: &[u8]) -> Result<Lsn, LogError> {
        self.append_kind(Kind::Data, 0, record, false)
    }

    /// Appends a record, and waits for room: writes the waiting records, without a flush.
    ///
    /// # Errors
    ///
    /// If a write fails or has failed before, or the record is too long.
    pub fn append(&self, record: &[u8]) -> impl Future<Output = Result<Lsn, LogError>> + Send {
        self.append_when_there_is_room(Kind::Data, 0, record, false)
    }

    /// Appends as [`append`](Log::append); the thread sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `append`.
    pub fn append_blocking(&self, record: &[u8]) -> Result<Lsn, LogError> {
        let ended = self.wait(None, self.append(record));
        ended.expect("a wait without deadline ends with its future")
    }

    /// Appends as [`append`](Log::append); the thread sleeps at most `limit`.
    ///
    /// # Errors
    ///
    /// The errors of `append`, and [`LogError::TimedOut`].
    pub fn append_timeout(&self, record: &[u8], limit: Duration) -> Result<Lsn, LogError> {
        let ended = self.wait(Some(limit), self.append(record));
        ended.unwrap_or(Err(LogError::TimedOut))
    }

    async fn append_when_there_is_room(
        &self,
        kind: Kind,
        checkpoint: u32,
        record: &[u8],
        first: bool,
    ) -> Result<Lsn, LogError> {
        loop {
            match self.append_kind(kind, checkpoint, record, first) {
                Err(LogError::Full) => self.commit(self.end(), Durability::Buffered).await?,
                appended => return appended,
            }
        }
    }

    /// Appends a record if there is room. `first`: it is the first one of a checkpoint.
    fn append_kind(
        &self,
        kind: Kind,
        checkpoint: u32,
        record: &[u8],
        first: bool,
    ) -> Result<Lsn, LogError> {
        let max = self.inner.options.max_buffered - RECORD_HEADER;
        if record.len() > max {
            let len = record.len();
            return Err(LogError::TooLong { len, max });
        }
        let mut state = self.inner.state.lock();
        if let Some(error) = state.group.failed() {
            return Err(LogError::Poisoned(error));
        }
        let len = state.open.len() + RECORD_HEADER + record.len();
        if len > self.inner.options.max_buffered {
            return Err(LogError::Full);
        }
        let start = state.end();
        encode_record(&mut state.open, start, kind, checkpoint, record);
        if checkpoint != 0 {
            let end = (kind == Kind::Commit).then(|| state.end());
            let range = CheckpointRange {
                begin: start,
                end: None,
            };
            state.checkpoints.entry(checkpoint).or_insert(range).end = end;
        }
        state.flush_before |= first;
        state.counters.records += 1;
        state.counters.bytes += record.len() as u64;
        Ok(Lsn(state.end()))
    }

    /// Sets the tail: records up to `tail`, that of this position included, are no longer needed,
    /// because their content was written in place. The next buffer is written after a flush; when
    /// that buffer is durable, segments that end before the tail are removed.
    ///
    /// A tail before the last one counts as the last one, and one beyond the end as the end. One
    /// after the begin of a checkpoint that is not durable yet counts as that begin.
    ///
    /// The flush is one of [`data_domain`](LogOptions::data_domain), if there is one. Otherwise it
    /// is one of the log's device, and covers the data only if that is on the same device, and one
    /// flush covers all of it. A file of [`DirStorage`] covers no other file: then give a
    /// `data_domain`, or make the data durable before this call.
    ///
    /// The new tail becomes durable with the next record. If that has no room in the last segment,
    /// it needs a new one, before the old ones are removed. So on a full disk move the tail while
    /// the last segment has room: when [`LogCounters::failed_creations`] rises, half of it is left.
    /// If it is full, the commit fails and the tail stays as it was, also after the log is opened
    /// again. Then free room on the disk, or open the log with a smaller
    /// [`segment_size`](LogOptions::segment_size) until the old segments are gone.
    ///
    /// ```
    /// # use inflight_flush::{Power, log::{Durability, LogOptions, MemoryStorage}};
    /// let storage = MemoryStorage::new(&Power::new());
    /// let (log, _) = LogOptions::new().open(storage.clone())?;
    /// let old = log.try_append(b"old")?;
    /// log.set_tail(old); // what "old" says was done
    /// let new = log.try_append(b"new")?;
    /// log.commit_blocking(new, Durability::Flushed)?;
    /// let (_, found) = LogOptions::new().open(storage.restart(&Power::new(), 0))?;
    /// assert_eq!(found.records.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_tail(&self, tail: Lsn) {
        let mut state = self.inner.state.lock();
        state.forget_durable_checkpoints();
        let begun = state.checkpoints.values().map(|range| range.begin).min();
        let tail = tail.0.min(state.end()).min(begun.unwrap_or(u64::MAX));
        if tail > state.tail {
            state.tail = tail;
            state.flush_before = true;
        }
    }

    /// Returns the end of the log: the position of the last record that was appended.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn(self.inner.state.lock().end())
    }

    /// Returns the position up to which the log is durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        Lsn(self.inner.state.lock().group.durable)
    }

    /// Returns whether a write or a flush has failed. The log is then to be opened again.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.inner.state.lock().group.failed().is_some()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        self.inner.state.lock().counters
    }

    /// Returns how many segments hold records.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.inner.state.lock().segments.len()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The formatter may run anything, so not under the lock.
        let (end, written, durable, failed) = {
            let state = self.inner.state.lock();
            let group = &state.group;
            (state.end(), group.written, group.durable, group.failed())
        };
        f.debug_struct("Log")
            .field("end", &end)
            .field("written", &written)
            .field("durable", &durable)
            .field("failed", &failed)
            .finish_non_exhaustive()
    }
}
