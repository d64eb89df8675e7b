//! What can be flushed and written.

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
use std::io;

/// Anything that can make durable what was written to it.
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
    /// What the device can do. Default: a volatile cache, and no durable writes.
    fn caps(&self) -> Caps {
        Caps::volatile()
    }

    /// Makes durable every write that was completed before the call. Blocks.
    ///
    /// # Errors
    ///
    /// What the system says; then what was written may be lost.
    fn flush(&self) -> io::Result<()>;
}

/// A device with bytes, for what writes by itself: the [log](crate::log).
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
    /// How many bytes it has.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// What the system says, or `UnexpectedEof` beyond the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. Durable after the next flush.
    ///
    /// # Errors
    ///
    /// What the system says; some of the bytes may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// The same, durable when it returns.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Device::write_at).
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
