//! Disks: which files lie on the same one, and what bounds the requests at it. What happens at one
//! has nothing to do with another.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::Arc;

use anyhow::Result;
use inflight::tags::Steering;

use crate::adapter::{Completer, Files, Tags, Workers};
use crate::memory::Memory;

/// A file system, or a block device.
pub(crate) struct Disk {
    /// The system's number of it.
    number: u64,
    pub(crate) tags: Tags,
    pub(crate) files: Files,
    pub(crate) memory: Arc<Memory>,
}

/// All those that exports lie on.
pub(crate) struct Disks {
    depth: usize,
    steering: Steering,
    /// Bytes for the data of requests of each one.
    memory: usize,
    workers: Arc<Workers>,
    all: Vec<Arc<Disk>>,
}

impl Disks {
    pub(crate) const fn new(
        depth: usize,
        steering: Steering,
        memory: usize,
        workers: Arc<Workers>,
    ) -> Self {
        Self {
            depth,
            steering,
            memory,
            workers,
            all: Vec::new(),
        }
    }

    /// The one that a file lies on.
    pub(crate) fn of(&mut self, file: &File) -> Result<Arc<Disk>> {
        let found = file.metadata()?;
        let is_device = found.file_type().is_block_device();
        let number = if is_device { found.rdev() } else { found.dev() };
        if let Some(disk) = self.all.iter().find(|disk| disk.number == number) {
            return Ok(disk.clone());
        }
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let name = format!("{major}:{minor}");
        let of_all = (self.depth, self.steering);
        let disk = Arc::new(Disk {
            number,
            tags: Tags::new((self.all.len(), &name), of_all, &self.workers)?,
            files: self.workers.files(&name, self.depth)?,
            memory: Memory::new(self.memory)?,
        });
        self.all.push(disk.clone());
        Ok(disk)
    }

    pub(crate) fn all(&self) -> &[Arc<Disk>] {
        &self.all
    }

    pub(crate) fn completer(&self) -> Completer {
        Completer::new(&self.all)
    }
}
