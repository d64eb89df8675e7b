//! Devices that can be flushed and written.

mod file;
mod memory;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
mod uring;

pub use file::FileDevice;
pub use memory::{MemoryDevice, Power};
#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub use uring::UringDevice;

use crate::machine::Caps;
use inflight_sync::Arc;
use std::fs::File;
use std::io;

/// A device that can make durable what was written to it.
///
/// ```
/// use inflight_flush::{FlushDomain, Flusher};
/// struct Journal(std::fs::File);
/// impl Flusher for Journal {
///     fn flush(&self) -> std::io::Result<()> {
///         self.0.sync_all()
///     }
/// }
/// let domain = FlushDomain::new(Journal(tempfile::tempfile()?));
/// domain.flush_blocking()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Flusher: Send + Sync + 'static {
    /// Returns what the device can do. Default: a volatile cache, and no durable writes.
    fn caps(&self) -> Caps {
        Caps::volatile()
    }

    /// Makes durable every write that was completed before the call. Blocks.
    ///
    /// # Errors
    ///
    /// The system's error; earlier writes may be lost then.
    fn flush(&self) -> io::Result<()>;
}

/// A device with bytes, for users that write by themselves: the [log](crate::log).
///
/// ```
/// use inflight_flush::{Device, MemoryDevice};
/// let device = MemoryDevice::new(4096);
/// device.write_at(b"inflight", 100)?;
/// let mut bytes = [0; 8];
/// device.read_at(&mut bytes, 100)?;
/// assert_eq!(&bytes, b"inflight");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Device: Flusher {
    /// Returns its length in bytes.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether it has no bytes.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// The system's error, or `UnexpectedEof` beyond the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. Durable after the next flush.
    ///
    /// # Errors
    ///
    /// The system's error; some of the bytes may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. Durable when the call returns.
    ///
    /// # Errors
    ///
    /// The errors of [`write_at`](Device::write_at).
    fn write_fua_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)?;
        self.flush()
    }
}

impl<F: Flusher + ?Sized> Flusher for Arc<F> {
    fn caps(&self) -> Caps {
        (**self).caps()
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}

impl<F: Flusher + ?Sized> Flusher for Box<F> {
    fn caps(&self) -> Caps {
        (**self).caps()
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}

/// Checks that a file can have these bytes. Systems take an offset of -1 for the file's cursor, or
/// for its end.
fn check_range(offset: u64, len: usize) -> io::Result<()> {
    let end = offset.checked_add(len as u64);
    match end.is_some_and(|end| i64::try_from(end).is_ok()) {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// The length of a file, or of a block device, whose metadata has none.
fn len_of(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type()) {
        let mut cursor = file;
        return io::Seek::seek(&mut cursor, io::SeekFrom::End(0));
    }
    Ok(metadata.len())
}
