//! Files: `fdatasync`, and on Linux writes with `RWF_DSYNC`.

use super::{Device, Flusher};
use crate::machine::Caps;
use std::fs::File;
use std::io;

/// A file is flushed by `fdatasync`: its data, and the metadata needed to find the data.
///
/// A file that was just created also needs a flush of its folder before its name is durable.
impl Flusher for File {
    fn flush(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A file whose durable writes are single calls, if the system has them (`RWF_DSYNC`).
///
/// For the system such a write is a write and a flush in one call, and it shares no other caller's
/// flush. It is faster for one writer, not for many.
///
/// ```
/// use inflight_flush::{Device, FileDevice, FlushDomain};
/// let device = FileDevice::new(tempfile::tempfile()?);
/// device.write_fua_at(b"durable", 0)?;
/// let domain = FlushDomain::new(device);
/// domain.flush_blocking()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FileDevice {
    file: File,
}

impl FileDevice {
    /// Makes the device of a file that is open for reading and writing.
    #[must_use]
    pub const fn new(file: File) -> Self {
        Self { file }
    }

    /// Returns the file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl Flusher for FileDevice {
    fn caps(&self) -> Caps {
        if cfg!(target_os = "linux") {
            Caps::volatile_with_fua()
        } else {
            Caps::volatile()
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Device for FileDevice {
    fn len(&self) -> io::Result<u64> {
        super::len_of(&self.file)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        super::check_range(offset, bytes.len())?;
        positioned::read_exact_at(&self.file, bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        super::check_range(offset, bytes.len())?;
        positioned::write_all_at(&self.file, bytes, offset)
    }

    #[cfg(target_os = "linux")]
    fn write_fua_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        use rustix::io::{Errno, ReadWriteFlags, pwritev2};
        super::check_range(offset, bytes.len())?;
        while !bytes.is_empty() {
            let slices = [io::IoSlice::new(bytes)];
            match pwritev2(&self.file, &slices, offset, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(Errno::INTR) => {}
                // A file system without such writes, or a kernel before them.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.write_at(bytes, offset)?;
                    return self.flush();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
mod positioned {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt as _;

    pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(bytes, offset)
    }

    pub(super) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }
}

#[cfg(windows)]
mod positioned {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::FileExt as _;

    pub(super) fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match file.seek_read(bytes, at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    bytes = &mut bytes[read..];
                    at += read as u64;
                }
            }
        }
        Ok(())
    }

    pub(super) fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match file.seek_write(bytes, at)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    bytes = &bytes[written..];
                    at += written as u64;
                }
            }
        }
        Ok(())
    }
}
