//! The options of a log.

use super::flush_shared::flush_shared;
use super::frame::{FRAME_HEADER, MOST_BYTES, SEGMENT_HEADER, SegmentHeader};
use super::recovery::{self, RecoveredRecord, Recovery};
use super::segments::Segments;
use super::writer::{Position, Writer};
use super::{Log, OpenError, OptionsError, Storage};
use crate::device::Device;
use crate::domain::FlushDomain;
use inflight_sync::Arc;
use inflight_sync::time::Clock;
use std::io;
use std::time::Duration;

/// Whether commits share flushes.
///
/// ```
/// use inflight_flush::log::GroupMode;
/// assert_eq!(GroupMode::default(), GroupMode::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GroupMode {
    /// Each commit writes and flushes, one after the other, unless another one has made its record
    /// durable meanwhile.
    Off,
    /// One commit writes and flushes for all waiting commits.
    Leader,
    /// `Leader` while it is faster, else `Off`. It is faster if a flush serves 1.2 commits or more,
    /// and the flushes that it saves, one for each commit but the first, take at least twice as
    /// long as the wake of the next leader. Until that is measured, a commit groups whenever
    /// another one is under way.
    #[default]
    Auto,
}

/// Options of a [`Log`].
///
/// ```
/// use inflight_flush::log::{DirStorage, GroupMode, LogOptions};
/// let folder = tempfile::tempdir()?;
/// let (log, recovery) = LogOptions::new()
///     .segment_size(1 << 20)
///     .group_mode(GroupMode::Leader)
///     .open(DirStorage::new(folder.path())?)?;
/// assert!(recovery.records.is_empty());
/// # drop(log);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `open`"]
pub struct LogOptions {
    pub(super) segment_size: u64,
    pub(super) buffer_size: usize,
    pub(super) max_buffered: usize,
    pub(super) max_group: usize,
    pub(super) max_members: usize,
    pub(super) mode: GroupMode,
    pub(super) max_delay: Duration,
    pub(super) min_siblings: usize,
    pub(super) log_domain: Option<FlushDomain>,
    pub(super) data_domain: Option<FlushDomain>,
    pub(super) clock: Clock,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LogOptions {
    /// Returns the defaults: segments of 16 MiB, buffers of 32 KiB, groups of up to 1 MiB and any
    /// number of members, up to 4 MiB that are not written yet, [`GroupMode::Auto`], and no delay.
    pub fn new() -> Self {
        Self {
            segment_size: 16 << 20,
            buffer_size: 32 << 10,
            max_buffered: 4 << 20,
            max_group: 1 << 20,
            max_members: usize::MAX,
            mode: GroupMode::default(),
            max_delay: Duration::ZERO,
            min_siblings: 5,
            log_domain: None,
            data_domain: None,
            clock: Clock::system(),
        }
    }

    /// Sets the length of a segment, in bytes: room for one buffer at least, and at most 1 GiB,
    /// because [`open`](LogOptions::open) has a whole segment in memory. A record that is longer
    /// than a segment gets one of its own length.
    pub fn segment_size(mut self, bytes: u64) -> Self {
        self.segment_size = bytes;
        self
    }

    /// Sets how many bytes of records are written as one buffer; a longer record is a buffer alone.
    /// At least 64, and not more than [`max_buffered`](LogOptions::max_buffered) and
    /// [`max_group`](LogOptions::max_group).
    pub fn buffer_size(mut self, bytes: usize) -> Self {
        self.buffer_size = bytes;
        self
    }

    /// Sets how many bytes of records may be appended and not written yet: at most 1 GiB.
    pub fn max_buffered(mut self, bytes: usize) -> Self {
        self.max_buffered = bytes;
        self
    }

    /// Sets about how many bytes one commit writes for others.
    pub fn max_group(mut self, bytes: usize) -> Self {
        self.max_group = bytes;
        self
    }

    /// Sets the number of waiting commits for which one leader writes and flushes: those with the
    /// first positions. A leader with a later position leads until its own is reached. A commit of
    /// an earlier position that comes meanwhile is served, too. Default: no limit, because a flush
    /// takes no longer for many; [`max_group`](LogOptions::max_group) bounds the bytes written.
    pub fn max_members(mut self, count: usize) -> Self {
        self.max_members = count;
        self
    }

    /// Sets whether commits share flushes.
    pub fn group_mode(mut self, mode: GroupMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how long a leading commit waits at most for the commits that the last flush has
    /// released. It continues when all are back, and after half of a flush in any case. It waits
    /// only if at least [`min_siblings`](LogOptions::min_siblings) other commits are under way, and
    /// if they come back sooner than a flush takes. The delay helps if the flush is long and the
    /// pause short, and costs otherwise. Default: zero.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Sets how many other commits must be under way; see [`max_delay`](LogOptions::max_delay).
    /// Default: 5.
    pub fn min_siblings(mut self, count: usize) -> Self {
        self.min_siblings = count;
        self
    }

    /// Sets the domain of the log's device, if others share it: its flushes are then shared with
    /// theirs, and it makes no durable writes. A failed flush of theirs fails the log.
    ///
    /// Each flush of each user has to cover all segments, and the writes of the others: for
    /// example, all are on one block device, and all flush that. The domain is not for the files of
    /// [`DirStorage`](super::DirStorage), because a flush of one file covers no other: a commit
    /// that shares a flush of another file would succeed, and its record would not be durable.
    ///
    /// It must not be [exclusive](crate::FlushDomainBuilder::exclusive). [`open`](LogOptions::open)
    /// and commits wait for a flush that another user has begun: that user must not be a task of
    /// the same thread. The log may wake its other
    /// users while it holds its own locks: a waker must not wait for this log, and one that panics
    /// fails it.
    pub fn log_domain(mut self, domain: &FlushDomain) -> Self {
        self.log_domain = Some(domain.clone());
        self
    }

    /// Sets the domain of what the log's records describe, if a flush of the log's device does not
    /// cover it: another device, or another file than those of [`DirStorage`](super::DirStorage). A
    /// buffer that is to be written after a flush waits for a flush of that one, and a failed flush
    /// of any of its users fails the log.
    ///
    /// It must have a device. A commit waits in its poll for the flush, perhaps for one that
    /// another user has begun: that user must not be a task of the same thread. What
    /// [`log_domain`](LogOptions::log_domain) says of wakers holds here too.
    pub fn data_domain(mut self, domain: &FlushDomain) -> Self {
        self.data_domain = Some(domain.clone());
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    /// Opens the log of a storage, or makes one. Returns the log and the records that were found.
    ///
    /// # Errors
    ///
    /// If an option makes no sense, if a record that was durable cannot be read, if a segment has
    /// another version of the format, or the system's error. With a `log_domain` also if a flush of
    /// another of its users fails meanwhile.
    pub fn open(self, storage: impl Storage) -> Result<(Log, Recovery), OpenError> {
        let mut records = Vec::new();
        let (log, mut recovery) = self.open_with(storage, |record| records.push(record))?;
        records.retain(|record| record.lsn > recovery.tail);
        recovery.records = records;
        Ok((log, recovery))
    }

    /// Opens a log that is larger than memory: calls `visit` with each record, in order. Records
    /// up to [`Recovery::tail`] may be among them, because the tail is known only at the end.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](LogOptions::open).
    pub fn open_with(
        self,
        storage: impl Storage,
        mut visit: impl FnMut(RecoveredRecord),
    ) -> Result<(Log, Recovery), OpenError> {
        self.check()?;
        let storage: Arc<dyn Storage> = Arc::new(storage);
        // The system may report a loss of what is written below to another user of the domain.
        let shared = self.log_domain.as_ref();
        let failed_before = shared.map_or(0, FlushDomain::failed_flushes);
        let flush = |device: &dyn Device| match shared {
            Some(domain) => flush_shared(domain, failed_before, device).map_err(io::Error::from),
            None => device.flush(),
        };
        let mut found = recovery::read(&*storage, self.segment_size, &mut visit, &flush)?;
        let log = found.log.unwrap_or_else(|| fastrand::u64(..));
        let number = found.segments.back().map_or(0, |&(number, _)| number + 1);
        let segments = Segments::new(storage, self.segment_size, number, found.next.take());
        let position = match found.position.take() {
            Some(position) => position,
            None => {
                let (number, segment) = segments.take(self.segment_size)?;
                let header = SegmentHeader {
                    log,
                    number,
                    base: found.recovery.end.0,
                    tail: found.recovery.tail.0,
                };
                // The head of the first segment identifies the log, so it is made durable at once.
                segment.write_at(&header.encode(), 0)?;
                flush(&*segment)?;
                found.segments.push_back((number, found.recovery.end.0));
                Position {
                    segment,
                    offset: SEGMENT_HEADER as u64,
                }
            }
        };
        let writer = Writer::new(log, self.buffer_size, position)?;
        let recovery = found.recovery.clone();
        let log = Log::new(self, writer, segments, found, failed_before);
        Ok((log, recovery))
    }

    fn check(&self) -> Result<(), OptionsError> {
        let buffer = self.buffer_size;
        if buffer < 64 {
            return Err(OptionsError::BufferTooSmall(buffer));
        }
        if self.max_members == 0 {
            return Err(OptionsError::NoMembers);
        }
        if self
            .log_domain
            .as_ref()
            .is_some_and(FlushDomain::is_exclusive)
        {
            return Err(OptionsError::ExclusiveLogDomain);
        }
        if self
            .data_domain
            .as_ref()
            .is_some_and(|data| !data.has_device())
        {
            return Err(OptionsError::DataDomainWithoutDevice);
        }
        if self.max_buffered > MOST_BYTES {
            return Err(OptionsError::LimitTooLarge(self.max_buffered));
        }
        if self.segment_size > MOST_BYTES as u64 {
            return Err(OptionsError::SegmentTooLarge(self.segment_size));
        }
        for (name, limit) in [
            ("max_buffered", self.max_buffered),
            ("max_group", self.max_group),
        ] {
            if limit < buffer {
                return Err(OptionsError::LimitBelowBuffer(name, limit, buffer));
            }
        }
        // No overflow: the buffer is not larger than `max_buffered`.
        let least = (SEGMENT_HEADER + FRAME_HEADER) as u64 + buffer as u64;
        if self.segment_size < least {
            return Err(OptionsError::SegmentTooSmall(self.segment_size, least));
        }
        Ok(())
    }
}
