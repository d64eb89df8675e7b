//! A file through io_uring. A write and the flush after it are one submission.
//!
//! Requests of one submission are not ordered by themselves, so they are linked. A link that breaks
//! cancels the later requests: a flush that was cancelled has not flushed.

use super::{Device, Flusher, check_range, len_of};
use crate::machine::Caps;
use inflight_sync::Mutex;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

/// The longest write of one request; the kernel shortens longer ones.
const LONGEST: usize = 1 << 30;

/// A file whose writes and flushes use two rings: one for reads and writes, one for flushes and
/// writes with a flush. So a flush delays no write. Each ring serves one caller at a time.
///
/// If the system does not let a ring be entered any more, for example by a filter of system calls,
/// the process is aborted with a message: the kernel may still write into the caller's buffers.
///
/// ```
/// use inflight_flush::{Device, UringDevice};
/// # let Ok(device) = UringDevice::new(tempfile::tempfile()?) else { return Ok(()) };
/// device.write_fua_at(b"durable", 0)?; // a write and a linked fdatasync, one call
/// let mut bytes = [0; 7];
/// device.read_at(&mut bytes, 0)?;
/// assert_eq!(&bytes, b"durable");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UringDevice {
    file: File,
    /// Reads and writes.
    ring: Mutex<IoUring>,
    /// Flushes, and writes with a flush after them.
    flushes: Mutex<IoUring>,
    longest: usize,
}

impl UringDevice {
    /// Makes the device of a file that is open for reading and writing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the rings.
    pub fn new(file: File) -> io::Result<Self> {
        Ok(Self {
            file,
            ring: Mutex::new(IoUring::new(4)?),
            flushes: Mutex::new(IoUring::new(4)?),
            longest: LONGEST,
        })
    }

    fn fsync(&self) -> squeue::Entry {
        opcode::Fsync::new(Fd(self.file.as_raw_fd()))
            .flags(FsyncFlags::DATASYNC)
            .build()
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> squeue::Entry {
        let len = bytes.len().min(self.longest);
        let fd = Fd(self.file.as_raw_fd());
        opcode::Read::new(fd, bytes.as_mut_ptr(), len as u32)
            .offset(offset)
            .build()
    }

    fn write(&self, bytes: &[u8], offset: u64) -> squeue::Entry {
        let len = bytes.len().min(self.longest);
        let fd = Fd(self.file.as_raw_fd());
        opcode::Write::new(fd, bytes.as_ptr(), len as u32)
            .offset(offset)
            .build()
    }

    /// Carries out the entries, and returns their results in order, and whether the kernel took all
    /// at once. It takes fewer if it is short of memory, and the rest is not linked to them then.
    fn run<const N: usize>(ring: &Mutex<IoUring>, entries: [squeue::Entry; N]) -> ([i32; N], bool) {
        let mut ring = ring.lock();
        for (number, entry) in entries.into_iter().enumerate() {
            let entry = entry.user_data(number as u64);
            // SAFETY: buffers and the file outlive the request, because this function returns when
            // all have completed, and the callers borrow both until then. An error to enter the
            // ring ends the process below rather than this function.
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.expect("the ring is empty and has room for a write and a flush");
        }
        let mut results = [0; N];
        let (mut missing, mut at_once) = (N, None);
        while missing > 0 {
            match ring.submit_and_wait(missing) {
                Ok(0) => {}
                Ok(taken) => at_once = at_once.or(Some(taken == N)),
                Err(error) if again(&error) => {}
                // The kernel may still use the buffers, so this function must not return.
                Err(error) => {
                    // Not `eprintln`, which panics if it cannot write.
                    let text = "inflight-flush: a ring cannot be entered any more";
                    let _ = writeln!(io::stderr(), "{text}: {error}");
                    std::process::abort()
                }
            }
            for entry in ring.completion() {
                results[entry.user_data() as usize] = entry.result();
                missing -= 1;
            }
        }
        (results, at_once == Some(true))
    }
}

/// Returns whether a call is to be made again: it was interrupted, or the ring was busy.
fn again(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

/// Returns whether a linked flush was carried out. A cancelled one has done nothing, and another
/// one serves. A failed one may have lost data, and another one would not report the loss.
fn has_flushed(result: i32) -> io::Result<bool> {
    if result == -rustix::io::Errno::CANCELED.raw_os_error() {
        return Ok(false);
    }
    outcome(result).map(|_| true)
}

/// The result of a write of `len` bytes with a linked flush: all is durable, or else the rest has
/// to be written, and flushed after it.
enum Linked {
    Durable,
    /// This many bytes are written.
    Flush(usize),
}

fn linked(([written, flushed], at_once): ([i32; 2], bool), len: usize) -> io::Result<Linked> {
    let done = outcome(written)?;
    let has_flushed = has_flushed(flushed)? && at_once;
    // A short write breaks the link, and one that is cut into parts is flushed in part.
    Ok(if done == len && has_flushed {
        Linked::Durable
    } else {
        Linked::Flush(done)
    })
}

/// Returns the number of bytes, or the error.
fn outcome(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

impl Flusher for UringDevice {
    fn caps(&self) -> Caps {
        Caps::volatile_with_fua()
    }

    fn flush(&self) -> io::Result<()> {
        let ([result], _) = Self::run(&self.flushes, [self.fsync()]);
        outcome(result).map(drop)
    }
}

impl Device for UringDevice {
    fn len(&self) -> io::Result<u64> {
        len_of(&self.file)
    }

    fn read_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        check_range(offset, bytes.len())?;
        while !bytes.is_empty() {
            let ([result], _) = Self::run(&self.ring, [self.read(bytes, offset)]);
            match outcome(result)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                done => {
                    bytes = &mut bytes[done..];
                    offset += done as u64;
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        check_range(offset, bytes.len())?;
        while !bytes.is_empty() {
            let ([result], _) = Self::run(&self.ring, [self.write(bytes, offset)]);
            match outcome(result)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                done => {
                    bytes = &bytes[done..];
                    offset += done as u64;
                }
            }
        }
        Ok(())
    }

    fn write_fua_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        check_range(offset, bytes.len())?;
        let write = self.write(bytes, offset).flags(squeue::Flags::IO_LINK);
        let results = Self::run(&self.flushes, [write, self.fsync()]);
        match linked(results, bytes.len())? {
            Linked::Durable => Ok(()),
            Linked::Flush(done) => {
                self.write_at(&bytes[done..], offset + done as u64)?;
                self.flush()
            }
        }
    }
}

impl fmt::Debug for UringDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringDevice")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sandbox may have no rings.
    fn device() -> Option<UringDevice> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        UringDevice::new(file).ok()
    }

    #[test]
    fn reads_and_writes_go_on_during_a_flush() {
        let Some(device) = device() else { return };
        let flush_in_flight = device.flushes.lock();
        device.write_at(&[7; 512], 512).unwrap();
        let mut bytes = [0; 512];
        device.read_at(&mut bytes, 512).unwrap();
        assert_eq!(bytes, [7; 512]);
        drop(flush_in_flight);
    }

    #[test]
    fn what_a_write_and_a_linked_flush_have_come_to() {
        let (cancelled, failed) = (-libc::ECANCELED, -libc::EIO);
        let behind = |results, at_once| match linked((results, at_once), 8).unwrap() {
            Linked::Durable => None,
            Linked::Flush(done) => Some(done),
        };
        let flush_behind = |written, flushed| behind([written, flushed], true);
        assert_eq!(flush_behind(8, 0), None);
        assert_eq!(
            behind([8, 0], false),
            Some(8),
            "the flush may have ended first"
        );
        assert_eq!(flush_behind(8, cancelled), Some(8));
        assert_eq!(flush_behind(3, cancelled), Some(3));
        assert_eq!(flush_behind(3, 0), Some(3), "it has flushed a part");
        // A flush that has failed is not made again, also behind a short write.
        for (written, flushed) in [(8, failed), (3, failed), (failed, cancelled), (failed, 0)] {
            let error = linked(([written, flushed], true), 8).err().unwrap();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{written} {flushed}");
        }
    }

    #[test]
    fn a_write_and_its_flush_are_taken_at_once() {
        let Some(device) = device() else { return };
        let write = device.write(&[7; 512], 512).flags(squeue::Flags::IO_LINK);
        let results = UringDevice::run(&device.flushes, [write, device.fsync()]);
        assert_eq!(results, ([512, 0], true));
    }

    /// The flush that is linked to the first part of a long write covers that part only.
    #[test]
    fn a_write_in_parts_is_flushed_behind_the_last() {
        let Some(mut device) = device() else { return };
        device.longest = 1000;
        let long: Vec<u8> = (0..2500_u32).map(|n| (n % 251) as u8).collect();
        device.write_fua_at(&long, 100).unwrap();
        let mut bytes = vec![0; long.len()];
        device.read_at(&mut bytes, 100).unwrap();
        assert_eq!(bytes, long);
    }
}
