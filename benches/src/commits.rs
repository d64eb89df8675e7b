//! Committers that each append a small record and want it durable, again and again.

use crate::disk::Disk;
use crate::rounds::Span;
use anyhow::{Context as _, Result};
use inflight_flush::log::{
    DirStorage, Durability, GroupMode, Log, LogOptions, MemoryStorage, Storage as _,
};
use inflight_flush::{Device, Flusher as _, MemoryDevice, Power};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Records as file systems' journals have them for a small operation.
pub const RECORD: usize = 400;
/// How long the baseline's file is: it begins anew at the end.
const FILE: u64 = 16 << 20;

/// Makes one record after the other durable.
pub trait Commits: fmt::Debug + Send + Sync {
    /// Returns when the record is durable.
    fn commit(&self, record: &[u8]);
    /// How many flushes of the device it knows of.
    fn flushes(&self) -> Option<u64>;
}

/// Where the records go.
#[derive(Clone, Debug)]
pub enum Place {
    /// A folder of a real file system.
    Folder(PathBuf),
    /// A folder of a file system in memory, whose flush does nothing.
    MemoryFolder(PathBuf),
    /// A disk in memory whose flush takes this long.
    Memory(Duration),
}

/// One way to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A write and a flush for each record: the baseline.
    FlushEach,
    /// One durable write for each record.
    DurableWriteEach,
    /// Our log.
    Ours(GroupMode),
    /// Our log in mode `Leader`, whose leaders wait for those whom the last flush has released.
    OursWaits,
    /// The crate `okaywal`.
    Okaywal,
}

impl Way {
    /// All of them, the baseline first.
    pub const ALL: [Self; 7] = [
        Self::FlushEach,
        Self::DurableWriteEach,
        Self::Ours(GroupMode::Off),
        Self::Ours(GroupMode::Leader),
        Self::Ours(GroupMode::Auto),
        Self::OursWaits,
        Self::Okaywal,
    ];

    /// As the table calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlushEach => "fdatasync each",
            Self::DurableWriteEach => "RWF_DSYNC each",
            Self::Ours(GroupMode::Off) => "inflight, Off",
            Self::Ours(GroupMode::Leader) => "inflight, Leader",
            Self::Ours(GroupMode::Auto) => "inflight, Auto",
            Self::OursWaits => "inflight, waits",
            Self::Okaywal => "okaywal",
        }
    }

    /// Makes it in a fresh place; `None` if it is not for such a place.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn make(self, place: &Place) -> Result<Option<Box<dyn Commits>>> {
        let own = |folder: &Path| -> Result<PathBuf> {
            let own = folder.join(self.name());
            std::fs::create_dir_all(&own)?;
            Ok(own)
        };
        Ok(Some(match (self, place) {
            (
                Self::FlushEach | Self::DurableWriteEach,
                Place::Folder(folder) | Place::MemoryFolder(folder),
            ) => {
                // The very file that our log writes to: how it was filled matters.
                let device = DirStorage::new(own(folder)?)?.create(0, FILE)?;
                Box::new(Each {
                    device,
                    durable_writes: self == Self::DurableWriteEach,
                    next: AtomicU64::new(0),
                    flushes: AtomicU64::new(0),
                })
            }
            (Self::FlushEach, Place::Memory(flush)) => Box::new(Each {
                device: Arc::new(MemoryDevice::new(1 << 20).with_flush_time(*flush)),
                durable_writes: false,
                next: AtomicU64::new(0),
                flushes: AtomicU64::new(0),
            }),
            (Self::Ours(_) | Self::OursWaits, place) => {
                let options = LogOptions::new().segment_size(FILE);
                let options = match self {
                    Self::Ours(mode) => options.group_mode(mode),
                    _ => options
                        .group_mode(GroupMode::Leader)
                        .max_delay(Duration::MAX)
                        .min_siblings(1),
                };
                let (log, _) = match place {
                    Place::Folder(folder) | Place::MemoryFolder(folder) => {
                        options.open(DirStorage::new(own(folder)?)?)
                    }
                    Place::Memory(flush) => {
                        let storage = MemoryStorage::new(&Power::new());
                        options.open(storage.with_flush_time(*flush))
                    }
                }
                .context("opening the log")?;
                Box::new(Ours(log))
            }
            (Self::Okaywal, Place::Folder(folder) | Place::MemoryFolder(folder)) => {
                let log = okaywal::WriteAheadLog::recover(own(folder)?, okaywal::LogVoid)?;
                Box::new(Okay(log))
            }
            (Self::DurableWriteEach | Self::Okaywal, Place::Memory(_)) => return Ok(None),
        }))
    }
}

/// A write for each record, and a flush behind it or in it.
struct Each {
    device: Arc<dyn Device>,
    durable_writes: bool,
    next: AtomicU64,
    flushes: AtomicU64,
}

impl fmt::Debug for Each {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Each").finish_non_exhaustive()
    }
}

impl Commits for Each {
    fn commit(&self, record: &[u8]) {
        let len = record.len() as u64;
        let room = self.device.len().expect("a length") / len;
        let offset = self.next.fetch_add(1, Ordering::Relaxed) % room * len;
        if self.durable_writes {
            self.device.write_fua_at(record, offset).expect("written");
        } else {
            self.device.write_at(record, offset).expect("written");
            self.device.flush().expect("flushed");
        }
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    fn flushes(&self) -> Option<u64> {
        Some(self.flushes.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Ours(Log);

impl Commits for Ours {
    fn commit(&self, record: &[u8]) {
        let lsn = self.0.append_blocking(record).expect("appended");
        self.0
            .commit_blocking(lsn, Durability::Flushed)
            .expect("committed");
    }

    fn flushes(&self) -> Option<u64> {
        let counters = self.0.counters();
        Some(counters.flushes + counters.flushes_alone + counters.fua_writes)
    }
}

#[derive(Debug)]
struct Okay(okaywal::WriteAheadLog);

impl Commits for Okay {
    fn commit(&self, record: &[u8]) {
        let mut entry = self.0.begin_entry().expect("begun");
        entry.write_chunk(record).expect("written");
        entry.commit().expect("committed");
    }

    fn flushes(&self) -> Option<u64> {
        None
    }
}

/// What a run has done.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Commits.
    pub per_second: f64,
    /// Flushes that it asked the system for.
    pub asked_per_commit: Option<f64>,
    /// Flushes that the disk has seen, of all programs.
    pub disk_per_commit: Option<f64>,
}

/// Runs this many committers for a while.
///
/// # Panics
///
/// If nothing was committed, or there are no committers.
#[must_use]
pub fn run(commits: &dyn Commits, place: &Place, committers: usize, window: Duration) -> Outcome {
    let record = [7; RECORD];
    let disk = match place {
        Place::Folder(folder) => Disk::of(folder),
        Place::Memory(_) | Place::MemoryFolder(_) => None,
    };
    let disk = || Some(disk.as_ref()?.counts()?.flushes);
    let barrier = Barrier::new(committers);
    let (asked, seen) = (commits.flushes(), disk());
    let (count, span) = std::thread::scope(|scope| {
        let committer = || {
            barrier.wait();
            let begin = Instant::now();
            let mut count = 0_u64;
            while begin.elapsed() < window {
                commits.commit(&record);
                count += 1;
            }
            (count, Span::since(begin))
        };
        let threads: Vec<_> = (0..committers).map(|_| scope.spawn(committer)).collect();
        threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .reduce(|(count, span), (more, other)| (count + more, span.with(other)))
            .expect("a committer")
    });
    assert!(count > 0, "nothing was committed");
    let per_commit = |before: Option<u64>, after: Option<u64>| {
        let more = after?.checked_sub(before?)?;
        Some(more as f64 / count as f64)
    };
    Outcome {
        per_second: count as f64 / span.seconds(),
        asked_per_commit: per_commit(asked, commits.flushes()),
        disk_per_commit: per_commit(seen, disk()),
    }
}
