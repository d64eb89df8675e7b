//! Threads that each write blocks of a file, each of which is to be durable before the next.
//!
//! A run checks that it did what it counts: each block that was acknowledged is read back, the disk
//! was given as many sectors, and no flush served more writes than there are threads.

use crate::disk::{Counts, Disk};
use crate::rounds::Span;
use anyhow::{Context as _, Result, ensure};
use inflight_flush::{Device as _, FileDevice, FlushDomain};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a thread writes at once.
pub const BLOCK: usize = 4096;
/// How many blocks the file has. Each thread has its own, one after the other, again and again.
const BLOCKS: u64 = 1024;
const SECTOR: usize = 512;

/// One way to make a write durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A write and an `fdatasync` for each block: the baseline.
    FlushEach,
    /// A write to a file that was opened with `O_DSYNC`.
    SyncEach,
    /// `write_fua` of a domain whose device has no durable writes: threads share flushes.
    SharedFlushes,
    /// `write_fua` of a domain whose device has them: `RWF_DSYNC`, and no flush.
    DurableWrites,
}

impl Way {
    /// All of them, the baseline first.
    pub const ALL: [Self; 4] = [
        Self::FlushEach,
        Self::SyncEach,
        Self::SharedFlushes,
        Self::DurableWrites,
    ];

    /// As the table calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlushEach => "fdatasync each",
            Self::SyncEach => "O_DSYNC each",
            Self::SharedFlushes => "domain, flushes",
            Self::DurableWrites => "domain, RWF_DSYNC",
        }
    }
}

/// A file that is written to in one way.
#[derive(Debug)]
pub struct Writer {
    file: File,
    disk: Disk,
    write: Write,
    runs: AtomicU64,
}

#[derive(Debug)]
enum Write {
    FlushEach,
    SyncEach,
    SharedFlushes(FlushDomain),
    DurableWrites(FlushDomain, FileDevice),
}

/// What a run has done.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Writes that were acknowledged.
    pub per_second: f64,
    /// Flushes and durable writes that the system was asked for.
    pub asked_per_write: f64,
    /// Flushes that the disk has seen, of all programs.
    pub disk_per_write: f64,
}

/// Why a folder cannot be measured: nothing counts what reaches the disk, or the file system
/// refuses such writes. `None` if it can. A system that counts flushes has `RWF_DSYNC`.
#[must_use]
pub fn refusal(folder: &Path) -> Option<String> {
    if Disk::of(folder).is_none() {
        return Some("no disk below it counts its writes and flushes".to_owned());
    }
    Way::ALL.into_iter().find_map(|way| {
        let writer = Writer::new(way, folder);
        let tried = writer.and_then(|writer| Ok(writer.write(&[0; BLOCK], 0)?));
        Some(format!("{}: {:#}", way.name(), tried.err()?))
    })
}

impl Writer {
    /// Fills a file of its own in the folder.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn new(way: Way, folder: &Path) -> Result<Self> {
        let path = folder.join(way.name());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = options.open(&path)?;
        // In blocks: in a file that was filled in long pieces ext4 makes short writes dear.
        for block in 0..BLOCKS {
            file.write_all_at(&[0; BLOCK], block * BLOCK as u64)?;
        }
        file.sync_all()?;
        let device = FileDevice::new(file.try_clone()?);
        let (file, write) = match way {
            Way::FlushEach => (file, Write::FlushEach),
            Way::SyncEach => {
                let file = options.custom_flags(libc::O_DSYNC).open(&path)?;
                (file, Write::SyncEach)
            }
            Way::SharedFlushes => {
                let domain = FlushDomain::new(file.try_clone()?);
                (file, Write::SharedFlushes(domain))
            }
            Way::DurableWrites => {
                let domain = FlushDomain::new(FileDevice::new(file.try_clone()?));
                (file, Write::DurableWrites(domain, device))
            }
        };
        Ok(Self {
            file,
            disk: Disk::of(folder).context("no disk below the folder")?,
            write,
            runs: AtomicU64::new(0),
        })
    }

    /// Returns when the block is durable.
    fn write(&self, block: &[u8], offset: u64) -> std::io::Result<()> {
        let plain = || self.file.write_all_at(block, offset);
        match &self.write {
            Write::FlushEach => {
                plain()?;
                self.file.sync_data()
            }
            Write::SyncEach => plain(),
            Write::SharedFlushes(domain) => Ok(domain.write_fua_blocking(plain)?),
            Write::DurableWrites(domain, device) => {
                Ok(domain.write_fua_blocking(|| device.write_fua_at(block, offset))?)
            }
        }
    }

    /// How many flushes the domain has carried out, if there is one.
    fn flushes(&self) -> u64 {
        match &self.write {
            Write::FlushEach | Write::SyncEach => 0,
            Write::SharedFlushes(domain) | Write::DurableWrites(domain, _) => {
                let counters = domain.counters();
                counters.issued - counters.withdrawn
            }
        }
    }

    /// Lets this many threads write for a while, and checks that all of it has arrived.
    ///
    /// # Errors
    ///
    /// If a write fails, or something that was acknowledged has not reached the disk.
    ///
    /// # Panics
    ///
    /// If a thread does.
    pub fn run(&self, threads: usize, window: Duration) -> Result<Outcome> {
        // Relaxed: a number, nothing is handed over.
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let (flushes, disk) = (self.flushes(), self.seen()?);
        let barrier = Barrier::new(threads);
        let (acknowledged, span) = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads)
                .map(|thread| {
                    let region = Region {
                        run,
                        thread,
                        threads,
                    };
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        self.fill(region, window)
                    })
                })
                .collect();
            let mut acknowledged = Vec::new();
            let mut span: Option<Span> = None;
            for thread in all {
                let (count, other) = thread.join().expect("no panic")?;
                acknowledged.push(count);
                span = Some(span.map_or(other, |span| span.with(other)));
            }
            Ok::<_, anyhow::Error>((acknowledged, span.context("no threads")?))
        })?;
        let (flushes, after) = (self.flushes() - flushes, self.seen()?);
        let seen = Counts {
            sectors: after.sectors - disk.sectors,
            flushes: after.flushes - disk.flushes,
        };
        let count: u64 = acknowledged.iter().sum();
        let asked = match &self.write {
            Write::SharedFlushes(_) => flushes,
            _ => count + flushes,
        };
        enough(count, threads, asked, seen, self.disk.shows_each_flush())?;
        for (thread, acknowledged) in acknowledged.into_iter().enumerate() {
            let region = Region {
                run,
                thread,
                threads,
            };
            self.read_back(region, acknowledged)?;
        }
        Ok(Outcome {
            per_second: count as f64 / span.seconds(),
            asked_per_write: asked as f64 / count as f64,
            disk_per_write: seen.flushes as f64 / count as f64,
        })
    }

    /// Writes the region's blocks for a while. How many were acknowledged, and when.
    fn fill(&self, region: Region, window: Duration) -> std::io::Result<(u64, Span)> {
        let mut block = [0; BLOCK];
        let begin = Instant::now();
        let mut count = 0;
        while begin.elapsed() < window {
            region.stamp(count + 1, &mut block);
            self.write(&block, region.offset(count))?;
            count += 1;
        }
        Ok((count, Span::since(begin)))
    }

    /// Reads the region from the disk: each block is that of the last write that was acknowledged.
    fn read_back(&self, region: Region, acknowledged: u64) -> Result<()> {
        drop_from_cache(&self.file);
        let last = acknowledged.min(region.blocks());
        let (mut read, mut wanted) = ([0; BLOCK], [0; BLOCK]);
        for number in acknowledged - last..acknowledged {
            self.file.read_exact_at(&mut read, region.offset(number))?;
            region.stamp(number + 1, &mut wanted);
            ensure!(
                read == wanted,
                "write {number} of {region:?} was acknowledged and is not there"
            );
        }
        Ok(())
    }

    fn seen(&self) -> Result<Counts> {
        self.disk.counts().context("the disk counts no more")
    }
}

/// The blocks that one thread writes in one run.
#[derive(Clone, Copy, Debug)]
struct Region {
    run: u64,
    thread: usize,
    threads: usize,
}

impl Region {
    const fn blocks(self) -> u64 {
        BLOCKS / self.threads as u64
    }

    const fn offset(self, number: u64) -> u64 {
        let first = self.thread as u64 * self.blocks();
        (first + number % self.blocks()) * BLOCK as u64
    }

    /// Each sector says which write it is of.
    fn stamp(self, number: u64, block: &mut [u8; BLOCK]) {
        for sector in block.chunks_exact_mut(SECTOR) {
            let stamp = [self.run, self.thread as u64, number];
            for (bytes, value) in sector.chunks_exact_mut(8).zip(stamp) {
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}

/// Whether the disk and the system have done at least what this many durable writes need. A thread
/// has one write under way, so a flush can serve one write of each thread.
fn enough(count: u64, threads: usize, asked: u64, seen: Counts, flushes_show: bool) -> Result<()> {
    ensure!(count > 0, "nothing was written");
    let sectors = count * (BLOCK / SECTOR) as u64;
    ensure!(
        seen.sectors >= sectors,
        "{count} writes were acknowledged, and the disk was given {} sectors of {sectors}",
        seen.sectors
    );
    let flushes = count.div_ceil(threads as u64);
    ensure!(
        asked >= flushes && (seen.flushes >= flushes || !flushes_show),
        "{count} writes of {threads} threads need {flushes} flushes: asked for {asked}, the disk \
         has seen {}",
        seen.flushes
    );
    Ok(())
}

/// What is read next comes from the disk, as far as the system does as it is told.
fn drop_from_cache(file: &File) {
    // SAFETY: no memory is passed, and the descriptor is open.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIGHT: Counts = Counts {
        sectors: 64,
        flushes: 8,
    };

    /// A folder beside the test, which is on a disk more often than the one for temporary files.
    fn folder() -> Option<tempfile::TempDir> {
        let test = std::env::current_exe().expect("a path");
        let folder = tempfile::tempdir_in(test.parent().expect("a folder")).expect("a folder");
        match refusal(folder.path()) {
            None => Some(folder),
            Some(reason) => {
                println!("skipped: {reason}");
                None
            }
        }
    }

    #[test]
    fn what_the_disk_has_not_seen_is_noticed() {
        enough(8, 1, 8, EIGHT, true).expect("enough");
        enough(9, 1, 9, EIGHT, true).expect_err("a block too few");
        let seven = Counts {
            flushes: 7,
            ..EIGHT
        };
        enough(8, 1, 8, seven, true).expect_err("a flush too few");
        enough(8, 1, 8, seven, false).expect("this disk has other ways");
        enough(8, 1, 7, EIGHT, true).expect_err("one was not asked for");
        enough(8, 2, 4, EIGHT, true).expect("two share each");
        enough(8, 2, 3, EIGHT, true).expect_err("three cannot share one");
        enough(0, 1, 0, EIGHT, true).expect_err("nothing");
    }

    #[test]
    fn a_file_system_without_a_disk_is_refused() {
        let reason = refusal(Path::new("/proc")).expect("nothing is durable there");
        assert!(reason.contains("no disk"), "{reason}");
    }

    #[test]
    fn a_block_that_is_not_the_last_one_written_is_noticed() {
        let Some(folder) = folder() else { return };
        let writer = Writer::new(Way::FlushEach, folder.path()).expect("a file");
        let region = Region {
            run: 1,
            thread: 1,
            threads: 3,
        };
        let mut block = [0; BLOCK];
        // One more than there is room for: the first block is written twice.
        let count = region.blocks() + 1;
        for number in 0..count {
            region.stamp(number + 1, &mut block);
            writer
                .write(&block, region.offset(number))
                .expect("written");
        }
        writer.read_back(region, count).expect("all is there");
        writer.read_back(region, count + 1).expect_err("one more");
        let last_sector = region.offset(5) + (BLOCK - SECTOR) as u64;
        writer.write(&[0; 8], last_sector).expect("written");
        writer.read_back(region, count).expect_err("one is torn");
    }

    #[test]
    fn each_way_puts_on_the_disk_what_it_counts() {
        let Some(folder) = folder() else { return };
        for way in Way::ALL {
            let writer = Writer::new(way, folder.path()).expect("a file");
            for threads in [1, 3] {
                let outcome = writer.run(threads, Duration::from_millis(5));
                let outcome = outcome.unwrap_or_else(|e| panic!("{}: {e:#}", way.name()));
                assert!(outcome.asked_per_write <= 1.0, "{way:?}: {outcome:?}");
            }
        }
    }
}
