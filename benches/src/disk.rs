//! The requests that the disk of a folder has seen, by the system's own counters.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The disk below a folder.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its folder in sysfs.
    folder: PathBuf,
}

/// What a disk has done since it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Sectors of 512 bytes written.
    pub sectors: u64,
    /// Flushes of its cache.
    pub flushes: u64,
}

impl Disk {
    /// The disk of a folder; none below a file system in memory, or one that spans several.
    #[must_use]
    pub fn of(folder: &Path) -> Option<Self> {
        let device = fs::metadata(folder).ok()?.dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let link = format!("/sys/dev/block/{major}:{minor}");
        let mut folder = fs::canonicalize(link).ok()?;
        // Flushes are counted for the whole disk.
        if folder.join("partition").exists() {
            folder.pop();
        }
        let disk = Self { folder };
        disk.counts()?;
        Some(disk)
    }

    /// What it has done; none if the system does not count flushes.
    #[must_use]
    pub fn counts(&self) -> Option<Counts> {
        let stat = fs::read_to_string(self.folder.join("stat")).ok()?;
        let field = |nth| stat.split_whitespace().nth(nth)?.parse().ok();
        Some(Counts {
            sectors: field(6)?,
            flushes: field(15)?,
        })
    }

    /// Whether nothing is durable here before a flush that [`Counts`] shows: the cache is volatile,
    /// and no single write passes it.
    #[must_use]
    pub fn shows_each_flush(&self) -> bool {
        let says = |name: &str, what: &str| {
            let text = fs::read_to_string(self.folder.join("queue").join(name));
            text.is_ok_and(|text| text.trim() == what)
        };
        says("write_cache", "write back") && says("fua", "0")
    }
}
