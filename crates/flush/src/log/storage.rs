//! The storage of a log's segments.

use super::frame::{Head, SEGMENT_HEADER, SegmentHeader};
use crate::device::{Device, FileDevice, MemoryDevice, Power};
use crate::machine::Caps;
use inflight_sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The segments of a log, each a device with a number.
///
/// ```
/// use inflight_flush::log::{DirStorage, Storage};
/// let folder = tempfile::tempdir()?;
/// let storage = DirStorage::new(folder.path())?;
/// let segment = storage.create(7, 4096)?;
/// segment.write_at(b"inflight", 0)?;
/// assert_eq!(storage.segments()?, [7]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Returns the numbers of the segments there are, in rising order. Their names are durable when
    /// this returns, also that of a segment whose maker was killed.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn segments(&self) -> io::Result<Vec<u64>>;

    /// Makes a segment of `len` zeros. Its bytes and its name are durable when this returns.
    ///
    /// # Errors
    ///
    /// The system's error; `AlreadyExists` if a segment of this number has been begun: if its first
    /// 64 bytes are a whole head, which the log writes with the first records. One without a whole
    /// head has no records, whatever else is in it: an attempt that failed has left it, and it may
    /// be replaced.
    fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>>;

    /// Opens a segment that exists.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn open(&self, number: u64) -> io::Result<Arc<dyn Device>>;

    /// Removes a segment. It does not come back once this has returned. Removing one that is gone
    /// already is no error.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn remove(&self, number: u64) -> io::Result<()>;
}

/// Segments as files in a folder, which belongs to one log: on Unix it is locked.
#[derive(Debug)]
pub struct DirStorage {
    path: PathBuf,
    /// Flushed to make the names of new files durable. `None` where the system has no such flush.
    folder: Option<File>,
    _lock: File,
}

impl DirStorage {
    /// Makes the storage of a folder, and the folder if there is none; its name is durable then,
    /// too.
    ///
    /// # Errors
    ///
    /// The system's error, and `WouldBlock` if the log is open, in another process or in this one.
    /// It is open until the [`Log`](super::Log) and all its clones are dropped.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        Self::of_folder(path.to_owned()).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => error,
            kind => io::Error::new(kind, format!("{}: {error}", path.display())),
        })
    }

    fn of_folder(path: PathBuf) -> io::Result<Self> {
        make_folder(&path)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))?;
        #[cfg(unix)]
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
            |error| match error {
                rustix::io::Errno::WOULDBLOCK => io::Error::new(
                    io::ErrorKind::WouldBlock,
                    format!("the log in {} is open already", path.display()),
                ),
                error => error.into(),
            },
        )?;
        Ok(Self {
            folder: if cfg!(unix) {
                Some(File::open(&path)?)
            } else {
                None
            },
            path,
            _lock: lock,
        })
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(name_of(number))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.as_ref().map_or(Ok(()), File::sync_all)
    }
}

fn name_of(number: u64) -> String {
    format!("{number:016x}.log")
}

/// The number of the segment of that name; `None` for any other file.
fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(".log")?, 16).ok()?;
    (name_of(number) == name).then_some(number)
}

/// Makes a folder and its missing parents. The name of each is durable before anything is made in
/// it.
fn make_folder(path: &Path) -> io::Result<()> {
    let parent = path.parent().map(|parent| match parent.as_os_str() {
        name if name.is_empty() => Path::new("."),
        _ => parent,
    });
    let Some(parent) = parent else { return Ok(()) };
    let is_there = path.is_dir();
    if !is_there {
        make_folder(parent)?;
        match std::fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !path.is_dir() {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
            }
            made => made?,
        }
    }
    if !cfg!(unix) {
        return Ok(());
    }
    // Also if the folder exists: the process that made it may have been killed before this.
    let flushed = File::open(parent).and_then(|parent| parent.sync_all());
    match flushed {
        // The parent of an existing folder may be another user's and not readable.
        Err(error) if is_there && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        flushed => flushed,
    }
}

impl Storage for DirStorage {
    fn segments(&self) -> io::Result<Vec<u64>> {
        // A process that was killed may have made the last segment without flushing the folder. The
        // folder is locked, so no other process makes one meanwhile.
        self.sync_folder()?;
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            numbers.extend(entry?.file_name().to_str().and_then(number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>> {
        let path = self.file(number);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        // The folder is locked, so a file without a segment was left by a failed attempt, and can
        // be replaced.
        let mut head = Vec::new();
        (&file).take(SEGMENT_HEADER as u64).read_to_end(&mut head)?;
        if !matches!(SegmentHeader::decode(&head), Head::None) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        file.set_len(0)?;
        file.rewind()?;
        // Zeros instead of a hole: then commits change only data, and no metadata of the file
        // system.
        let zeros = vec![0; 1 << 20];
        let mut left = len;
        let mut fill = || {
            while left > 0 {
                let part = left.min(zeros.len() as u64);
                file.write_all(&zeros[..part as usize])?;
                left -= part;
            }
            file.sync_all()?;
            self.sync_folder()
        };
        if let Err(error) = fill() {
            // A half-made segment, or one whose name is not durable, would be in the way of the
            // next attempt.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(Arc::new(FileDevice::new(file)))
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn Device>> {
        let path = self.file(number);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(FileDevice::new(file)))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        match std::fs::remove_file(self.file(number)) {
            // It was removed before, but then the folder could not be flushed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        self.sync_folder()
    }
}

/// Segments in memory, on one [`Power`]: what [`MemoryDevice`] is to a file.
///
/// ```
/// use inflight_flush::Power;
/// use inflight_flush::log::{LogOptions, MemoryStorage};
/// let storage = MemoryStorage::new(&Power::new());
/// let (log, _) = LogOptions::new().open(storage.clone())?;
/// let lsn = log.append_blocking(b"record")?;
/// log.commit_blocking(lsn, inflight_flush::log::Durability::Flushed)?;
/// let after = storage.restart(&Power::new(), 1); // the power was lost
/// let (_, recovery) = LogOptions::new().open(after)?;
/// assert_eq!(recovery.records[0].payload, b"record");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryStorage {
    power: Power,
    caps: Caps,
    flush_time: Duration,
    lost_is_readable: bool,
    folder: Arc<Mutex<Folder>>,
}

#[derive(Debug, Default)]
struct Folder {
    segments: BTreeMap<u64, Segment>,
    /// Removed, and may come back.
    removed: BTreeMap<u64, MemoryDevice>,
    /// Flushes of segments that are gone.
    flushes: u64,
    fua_writes: u64,
}

#[derive(Debug)]
struct Segment {
    device: MemoryDevice,
    /// Its name survives a loss of power.
    durable: bool,
}

impl MemoryStorage {
    /// Makes a storage without segments.
    #[must_use]
    pub fn new(power: &Power) -> Self {
        Self {
            power: power.clone(),
            caps: Caps::volatile(),
            flush_time: Duration::ZERO,
            lost_is_readable: false,
            folder: Arc::default(),
        }
    }

    /// Gives the segments' devices these capabilities.
    #[must_use]
    pub const fn with_caps(mut self, caps: Caps) -> Self {
        self.caps = caps;
        self
    }

    /// Gives the segments' devices flushes of this duration.
    #[must_use]
    pub const fn with_flush_time(mut self, time: Duration) -> Self {
        self.flush_time = time;
        self
    }

    /// Gives the segments devices that keep the data that a failed flush did not write:
    /// [`MemoryDevice::with_lost_writes_readable`].
    #[must_use]
    pub const fn with_lost_writes_readable(mut self) -> Self {
        self.lost_is_readable = true;
        self
    }

    /// Returns the devices of the segments there are.
    #[must_use]
    pub fn devices(&self) -> Vec<MemoryDevice> {
        let folder = self.folder.lock();
        folder.segments.values().map(|s| s.device.clone()).collect()
    }

    /// Returns the number of flushes of the segments, those of removed ones included.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        let folder = self.folder.lock();
        let segments = folder.segments.values();
        folder.flushes + segments.map(|s| s.device.flushes()).sum::<u64>()
    }

    /// Returns the number of durable writes of the segments, those of removed ones included.
    #[must_use]
    pub fn fua_writes(&self) -> u64 {
        let folder = self.folder.lock();
        let segments = folder.segments.values();
        folder.fua_writes + segments.map(|s| s.device.fua_writes()).sum::<u64>()
    }

    /// Returns the storage as it is after a loss of power. `seed` decides which data that was not
    /// durable was kept.
    #[must_use]
    pub fn restart(&self, power: &Power, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let folder = self.folder.lock();
        let mut segments = BTreeMap::new();
        let mut keep = |number, device: &MemoryDevice| {
            let device = device.restart(power, rng.u64(..));
            segments.insert(
                number,
                Segment {
                    device,
                    durable: true,
                },
            );
        };
        let mut coin = fastrand::Rng::with_seed(seed ^ 0x5eed);
        for (&number, device) in &folder.removed {
            if coin.bool() {
                keep(number, device);
            }
        }
        for (&number, segment) in &folder.segments {
            if segment.durable || coin.bool() {
                keep(number, &segment.device);
            }
        }
        Self {
            power: power.clone(),
            caps: self.caps,
            flush_time: self.flush_time,
            lost_is_readable: self.lost_is_readable,
            folder: Arc::new(Mutex::new(Folder {
                segments,
                ..Folder::default()
            })),
        }
    }
}

impl Storage for MemoryStorage {
    fn segments(&self) -> io::Result<Vec<u64>> {
        self.power.step()?;
        let segments = &mut self.folder.lock().segments;
        segments
            .values_mut()
            .for_each(|segment| segment.durable = true);
        Ok(segments.keys().copied().collect())
    }

    fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>> {
        self.power.step()?;
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::StorageFull)?;
        let mut device = MemoryDevice::on(&self.power, len)
            .with_caps(self.caps)
            .with_flush_time(self.flush_time);
        if self.lost_is_readable {
            device = device.with_lost_writes_readable();
        }
        let made = Segment {
            device: device.clone(),
            durable: false,
        };
        match self.folder.lock().segments.entry(number) {
            Entry::Occupied(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Entry::Vacant(place) => place.insert(made),
        };
        self.power.step()?;
        if let Some(segment) = self.folder.lock().segments.get_mut(&number) {
            segment.durable = true;
        }
        Ok(Arc::new(device))
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn Device>> {
        let folder = self.folder.lock();
        let segment = folder
            .segments
            .get(&number)
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(segment.device.clone()))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.power.step()?;
        {
            let mut folder = self.folder.lock();
            if let Some(segment) = folder.segments.remove(&number) {
                folder.flushes += segment.device.flushes();
                folder.fua_writes += segment.device.fua_writes();
                folder.removed.insert(number, segment.device);
            }
        }
        self.power.step()?;
        self.folder.lock().removed.remove(&number);
        Ok(())
    }
}

#[cfg(all(test, unix, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_with_those_that_it_is_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        drop(DirStorage::new(&path).unwrap());
        DirStorage::new(&path).unwrap().create(1, 4096).unwrap();
        assert!(path.join("0000000000000001.log").exists());
        let file = path.join("0000000000000001.log");
        assert!(DirStorage::new(file.join("d")).is_err());
    }

    /// The remains of a segment that could be neither made nor removed.
    #[test]
    fn a_file_that_holds_no_segment_is_not_in_the_way_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let storage = DirStorage::new(folder.path()).unwrap();
        let path = folder.path().join("0000000000000001.log");
        for junk in [&[][..], &[7; 100], &[0; 9000], &[7; 9000]] {
            std::fs::write(&path, junk).unwrap();
            let segment = storage.create(1, 4096).unwrap();
            let mut bytes = vec![1; 4096];
            segment.read_at(&mut bytes, 0).unwrap();
            assert_eq!((segment.len().unwrap(), &bytes), (4096, &vec![0; 4096]));
        }
        let header = SegmentHeader {
            log: 1,
            number: 1,
            base: 0,
            tail: 0,
        };
        std::fs::write(&path, header.encode()).unwrap();
        let refused = storage.create(1, 4096).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), header.encode());
    }

    /// A folder that cannot be flushed, and then can.
    #[test]
    fn a_segment_whose_name_is_not_durable_is_not_in_the_way_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut storage = DirStorage::new(folder.path()).unwrap();
        let real = storage.folder.replace(File::open("/dev/null").unwrap());
        assert!(storage.create(1, 4096).is_err());
        assert!(storage.segments().is_err(), "no name is durable");
        storage.folder = real;
        assert_eq!(storage.segments().unwrap(), []);
        storage.create(1, 4096).unwrap();
        assert_eq!(storage.segments().unwrap(), [1]);
    }
}
