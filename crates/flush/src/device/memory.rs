//! A disk in memory with a volatile cache and configurable faults.
//!
//! It writes sector by sector. Each sector is a step; so are the start and the end of a flush. The
//! [`Power`] can be cut at any step. Afterwards each sector has, independently of the others,
//! either its content at its last flush or that of any write since then.

use super::{Device, Flusher};
use crate::machine::Caps;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, Parker};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// The unit that is written as a whole or not at all.
const SECTOR: usize = 512;

/// The power of one or several [`MemoryDevice`]s. It counts their steps, and can be cut at one of
/// them.
///
/// ```
/// use inflight_flush::{Device, Flusher, MemoryDevice, Power};
/// let power = Power::new();
/// let device = MemoryDevice::on(&power, 4096);
/// device.write_at(&[1; 512], 0)?;
/// device.flush()?;
/// power.cut_at(power.steps()); // at the next step
/// assert!(device.write_at(&[2; 1024], 0).is_err());
/// let after = device.restart(&Power::new(), 7); // 7 decides what each sector has kept
/// let mut bytes = [0; 512];
/// after.read_at(&mut bytes, 0)?;
/// assert_eq!(bytes, [1; 512]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Power(Arc<Mutex<Supply>>);

#[derive(Debug, Default)]
struct Supply {
    steps: u64,
    cut_at: Option<u64>,
}

impl Power {
    /// Power that is never cut.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the power after `step` steps: the next step fails, and so do all later ones.
    pub fn cut_at(&self, step: u64) {
        self.0.lock().cut_at = Some(step);
    }

    /// How many steps were made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.0.lock().steps
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let supply = self.0.lock();
        supply.cut_at.is_some_and(|at| supply.steps >= at)
    }

    pub(crate) fn step(&self) -> io::Result<()> {
        let mut supply = self.0.lock();
        if supply.cut_at.is_some_and(|at| supply.steps >= at) {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the power is cut",
            ));
        }
        supply.steps += 1;
        Ok(())
    }
}

/// A disk in memory with a volatile cache. A clone is the same disk.
///
/// ```
/// use inflight_flush::{Caps, Device, FlushDomain, MemoryDevice};
/// use std::time::Duration;
/// let disk = MemoryDevice::new(1 << 20)
///     .with_caps(Caps::volatile_with_fua())
///     .with_flush_time(Duration::from_micros(100));
/// let domain = FlushDomain::new(disk.clone());
/// disk.write_at(b"plain", 0)?;
/// domain.flush_blocking()?;
/// assert_eq!((disk.writes(), disk.flushes(), disk.fua_writes()), (1, 1, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryDevice {
    power: Power,
    caps: Caps,
    flush_time: Duration,
    /// Whether writes that a failed flush has dropped can be read until the power is cut.
    lost_is_readable: bool,
    disk: Arc<Mutex<Disk>>,
    /// Held by the flush in progress: a disk does one at a time.
    flushing: Arc<Mutex<()>>,
}

/// The number of a write, and the sector after it.
type Version = (u64, Box<[u8; SECTOR]>);

#[derive(Default)]
struct Disk {
    durable: Vec<u8>,
    /// The writes to each sector since its last flush, oldest first, each with its number.
    cache: BTreeMap<usize, Vec<Version>>,
    /// Sectors that a failed flush has dropped: they can be read, and no flush writes them.
    lost: BTreeMap<usize, Box<[u8; SECTOR]>>,
    last_write: u64,
    writes: u64,
    fua_writes: u64,
    flushes: u64,
    failing_flushes: u32,
    failing_writes: u32,
    /// Whether a loss has not been reported yet by a flush or a durable write.
    untold: bool,
}

impl MemoryDevice {
    /// A disk of zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::on(&Power::new(), len)
    }

    /// A disk of zeros on a power supply.
    #[must_use]
    pub fn on(power: &Power, len: usize) -> Self {
        Self {
            power: power.clone(),
            caps: Caps::volatile(),
            flush_time: Duration::ZERO,
            lost_is_readable: false,
            disk: Arc::new(Mutex::new(Disk {
                durable: vec![0; len],
                ..Disk::default()
            })),
            flushing: Arc::default(),
        }
    }

    /// Sets the capabilities. The cache is volatile, unless the capabilities say that there is
    /// none: then every write is durable.
    #[must_use]
    pub const fn with_caps(mut self, caps: Caps) -> Self {
        self.caps = caps;
        self
    }

    /// Makes each flush take this long. Flushes run one after the other; writes continue meanwhile.
    /// Durable writes take as long if they go through a system's cache.
    #[must_use]
    pub const fn with_flush_time(mut self, time: Duration) -> Self {
        self.flush_time = time;
        self
    }

    /// Simulates a system's cache that keeps the data of a failed flush and counts it as clean. The
    /// data can be read, but no later flush writes it, and it is lost with the power. A new write
    /// to the sector is flushed as usual. Without this setting a failed flush drops the data at
    /// once. Durable writes go through that cache, too: each writes, and then makes its sectors
    /// durable, as `RWF_DSYNC` does with a file.
    ///
    /// ```
    /// use inflight_flush::{Device, Flusher, MemoryDevice, Power};
    /// let device = MemoryDevice::new(4096).with_lost_writes_readable();
    /// device.write_at(&[1; 512], 0)?;
    /// device.fail_flushes(1);
    /// assert!(device.flush().is_err());
    /// device.flush()?; // it has nothing to do
    /// let mut bytes = [0; 512];
    /// device.read_at(&mut bytes, 0)?;
    /// assert_eq!(bytes, [1; 512]);
    /// device.restart(&Power::new(), 7).read_at(&mut bytes, 0)?;
    /// assert_eq!(bytes, [0; 512]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn with_lost_writes_readable(mut self) -> Self {
        self.lost_is_readable = true;
        self
    }

    /// The next `count` flushes fail.
    pub fn fail_flushes(&self, count: u32) {
        self.disk.lock().failing_flushes = count;
    }

    /// The next `count` writes fail, as on a full disk.
    pub fn fail_writes(&self, count: u32) {
        self.disk.lock().failing_writes = count;
    }

    /// Loses the content of the cache, as if the system had failed to write it in the background.
    /// The next flush reports the loss, and no other one. If durable writes go through the cache
    /// ([`with_lost_writes_readable`](MemoryDevice::with_lost_writes_readable)), the next durable
    /// write reports it if it comes first.
    ///
    /// ```
    /// use inflight_flush::{Device, Flusher, MemoryDevice};
    /// let device = MemoryDevice::new(4096).with_lost_writes_readable();
    /// device.write_at(&[1; 512], 0)?;
    /// device.lose_cache();
    /// assert!(device.write_fua_at(&[2; 512], 512).is_err()); // reports the first loss
    /// device.flush()?; // reports nothing
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lose_cache(&self) {
        let mut disk = self.disk.lock();
        disk.untold |= !disk.cache.is_empty();
        disk.drop_cache(self.lost_is_readable);
    }

    /// How many flushes were started.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.disk.lock().flushes
    }

    /// How many writes were made, including durable ones.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.disk.lock().writes
    }

    /// How many durable writes were made.
    #[must_use]
    pub fn fua_writes(&self) -> u64 {
        self.disk.lock().fua_writes
    }

    /// The disk after the power was cut and came back, as a new disk. `seed` decides what each
    /// sector that was not flushed has kept.
    #[must_use]
    pub fn restart(&self, power: &Power, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = self.disk.lock();
        let mut durable = disk.durable.clone();
        for (&sector, versions) in &disk.cache {
            // One more than there are versions: the durable content may remain, too.
            let kept = rng.usize(0..=versions.len());
            if let Some((_, bytes)) = kept.checked_sub(1).map(|at| &versions[at]) {
                put(&mut durable, sector, bytes);
            }
        }
        drop(disk);
        let restarted = Self::on(power, 0)
            .with_caps(self.caps)
            .with_flush_time(self.flush_time);
        restarted.disk.lock().durable = durable;
        Self {
            lost_is_readable: self.lost_is_readable,
            ..restarted
        }
    }

    fn take_flush_time(&self) {
        if !self.flush_time.is_zero() {
            let clock = Clock::system();
            let end = clock.now() + self.flush_time;
            let parker = Parker::current();
            while parker.park_until(&clock, end) {}
        }
    }

    fn write(&self, bytes: &[u8], offset: u64, fua: bool) -> io::Result<()> {
        let Range { start, end } = positions(offset, bytes.len())?;
        {
            let mut disk = self.disk.lock();
            if end > disk.durable.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if disk.failing_writes > 0 {
                disk.failing_writes -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.writes += 1;
            disk.fua_writes += u64::from(fua);
        }
        let through_cache = fua && self.lost_is_readable && self.caps.volatile_cache;
        let durable = fua && !through_cache || !self.caps.volatile_cache;
        let mut at = start;
        while at < end {
            let sector = at / SECTOR;
            let upto = end.min((sector + 1) * SECTOR);
            self.power.step()?;
            let mut disk = self.disk.lock();
            let mut image = Box::new(disk.sector(sector));
            image[at % SECTOR..][..upto - at].copy_from_slice(&bytes[at - start..upto - start]);
            disk.last_write += 1;
            disk.lost.remove(&sector);
            if durable {
                put(&mut disk.durable, sector, &image);
                disk.cache.remove(&sector);
            } else {
                let number = disk.last_write;
                disk.cache.entry(sector).or_default().push((number, image));
            }
            drop(disk);
            at = upto;
        }
        if through_cache {
            self.take_flush_time();
            self.power.step()?;
            let mut disk = self.disk.lock();
            for sector in start / SECTOR..end.div_ceil(SECTOR) {
                disk.make_durable(sector, u64::MAX);
            }
            disk.tell()?;
        }
        Ok(())
    }
}

impl Disk {
    /// Makes the sector durable with the writes up to number `covered`.
    fn make_durable(&mut self, sector: usize, covered: u64) {
        let Some(versions) = self.cache.get_mut(&sector) else {
            return;
        };
        let flushed = versions.partition_point(|&(number, _)| number <= covered);
        if let Some((_, bytes)) = versions.drain(..flushed).next_back() {
            put(&mut self.durable, sector, &bytes);
        }
        if versions.is_empty() {
            self.cache.remove(&sector);
        }
    }

    /// Drops what was to be flushed and counts it as clean, as systems do.
    fn drop_cache(&mut self, readable: bool) {
        let dropped = std::mem::take(&mut self.cache);
        if readable {
            let newest = dropped.into_iter().filter_map(|(sector, mut versions)| {
                let (_, bytes) = versions.pop()?;
                Some((sector, bytes))
            });
            self.lost.extend(newest);
        }
    }

    /// Reports a loss, once.
    fn tell(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.untold) {
            return Err(io::Error::other("an injected fault"));
        }
        Ok(())
    }

    /// The content that a reader sees.
    fn sector(&self, sector: usize) -> [u8; SECTOR] {
        if let Some((_, newest)) = self.cache.get(&sector).and_then(|versions| versions.last()) {
            return **newest;
        }
        if let Some(lost) = self.lost.get(&sector) {
            return **lost;
        }
        let mut bytes = [0; SECTOR];
        let start = sector * SECTOR;
        let len = SECTOR.min(self.durable.len().saturating_sub(start));
        bytes[..len].copy_from_slice(&self.durable[start..start + len]);
        bytes
    }
}

fn put(durable: &mut [u8], sector: usize, bytes: &[u8; SECTOR]) {
    let start = sector * SECTOR;
    let len = SECTOR.min(durable.len() - start);
    durable[start..start + len].copy_from_slice(&bytes[..len]);
}

fn positions(offset: u64, len: usize) -> io::Result<Range<usize>> {
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(len)?));
    range.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Flusher for MemoryDevice {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn flush(&self) -> io::Result<()> {
        let _flushing = self.flushing.lock();
        self.power.step()?;
        let (covered, fails) = {
            let mut disk = self.disk.lock();
            disk.flushes += 1;
            let fails = disk.failing_flushes > 0;
            disk.failing_flushes = disk.failing_flushes.saturating_sub(1);
            (disk.last_write, fails)
        };
        self.take_flush_time();
        self.power.step()?;
        let mut disk = self.disk.lock();
        if fails {
            disk.untold = true;
            disk.drop_cache(self.lost_is_readable);
        }
        let sectors: Vec<usize> = disk.cache.keys().copied().collect();
        for sector in sectors {
            disk.make_durable(sector, covered);
        }
        disk.tell()
    }
}

impl Device for MemoryDevice {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().durable.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let Range { start, end } = positions(offset, bytes.len())?;
        let disk = self.disk.lock();
        if end > disk.durable.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = start;
        while at < end {
            let sector = at / SECTOR;
            let upto = end.min((sector + 1) * SECTOR);
            let image = disk.sector(sector);
            bytes[at - start..upto - start].copy_from_slice(&image[at % SECTOR..][..upto - at]);
            at = upto;
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write(bytes, offset, false)
    }

    fn write_fua_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.caps.volatile_cache && !self.caps.native_fua {
            self.write(bytes, offset, false)?;
            return self.flush();
        }
        self.write(bytes, offset, true)
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, sectors, flushes) = {
            let disk = self.disk.lock();
            (disk.durable.len(), disk.cache.len(), disk.flushes)
        };
        f.debug_struct("MemoryDevice")
            .field("len", &len)
            .field("sectors_in_cache", &sectors)
            .field("flushes", &flushes)
            .finish_non_exhaustive()
    }
}
