//! The ring: files by io_uring, sockets by polls in the same ring.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};

use super::buffer::Fixed;
use super::{FileOp, Finished, Ready};

/// User data that is no operation's: the notifier's poll, and answers nobody waits for.
const NOTIFIER: u64 = u64::MAX;
const NOBODY: u64 = u64::MAX - 1;

const ENTRIES: u32 = 256;
/// While other threads are at work for this one, their answers are taken several at a time: a
/// quarter of them and up to so many, or after so long if there are fewer. Waking this thread for
/// each costs more than a short write or an encryption.
const TOGETHER: usize = 16;
const TOGETHER_US: u32 = 50;
const PUNCH_HOLE: i32 = 0x02;
const KEEP_SIZE: i32 = 0x01;
const ZERO_RANGE: i32 = 0x10;

pub(super) struct Uring {
    ring: IoUring,
    notifier: RawFd,
    /// What the submission queue had no room for.
    backlog: VecDeque<squeue::Entry>,
    /// Files of operations under way stay open: by key. And whether it is a write.
    files: Vec<Option<(Arc<File>, bool)>>,
    /// Writes under way, which a thread of the kernel carries out.
    writes: usize,
    /// Where the buffers are that the kernel knows.
    registered: Range<usize>,
    /// Reads and writes through them.
    with_registered: Arc<AtomicU64>,
}

impl Uring {
    pub(super) fn probe() -> io::Result<()> {
        let ring = IoUring::new(2)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
            opcode::Fadvise::CODE,
            opcode::PollAdd::CODE,
        ];
        if needed.into_iter().all(|code| probe.is_supported(code))
            && ring.params().is_feature_ext_arg()
        {
            Ok(())
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    pub(super) fn new(notifier: RawFd, with_registered: Arc<AtomicU64>) -> io::Result<Self> {
        // Completions that run when we ask for them spare interrupts; old kernels know no such
        // ring.
        let mut modern = IoUring::builder();
        modern.setup_single_issuer().setup_defer_taskrun();
        let ring = modern.build(ENTRIES).or_else(|_| IoUring::new(ENTRIES))?;
        let mut uring = Self {
            ring,
            notifier,
            backlog: VecDeque::new(),
            files: Vec::new(),
            writes: 0,
            registered: 0..0,
            with_registered,
        };
        uring.arm_notifier();
        Ok(uring)
    }

    /// Lets so many operations on files block at once. The system's own limit is a few for each
    /// CPU, and holds for old kernels in any case.
    pub(super) fn let_block(&self, operations: u32) {
        let mut limits = [0, 0];
        let submitter = self.ring.submitter();
        let known = submitter.register_iowq_max_workers(&mut limits).is_ok();
        if known && limits[0] < operations {
            let _ = submitter.register_iowq_max_workers(&mut [operations, 0]);
        }
    }

    /// Makes buffers and tells the kernel of them, which spares it looking for their pages each
    /// time. Old kernels, and limits on locked memory, refuse that.
    pub(super) fn register(&mut self, bytes: usize, longest: usize) -> io::Result<Fixed> {
        let fixed = Fixed::new(bytes, longest);
        let addresses = fixed.addresses();
        let whole = libc::iovec {
            iov_base: addresses.start as *mut libc::c_void,
            iov_len: bytes,
        };
        // SAFETY: the memory is never freed.
        unsafe { self.ring.submitter().register_buffers(&[whole]) }?;
        self.registered = addresses;
        Ok(fixed)
    }

    fn arm_notifier(&mut self) {
        let poll = opcode::PollAdd::new(Fd(self.notifier), libc_pollin());
        self.push(poll.build().user_data(NOTIFIER));
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: buffers belong to the operation's entry, which keeps them until the completion,
        // or for ever: `Reactor::drop` forgets those that are under way. So do files, here; sockets
        // are not touched, only polled.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.backlog.push_back(entry);
        }
    }

    pub(super) fn file(&mut self, file: &Arc<File>, op: &FileOp, buffer: &mut [u8], key: usize) {
        let fd = Fd(file.as_raw_fd());
        let len = buffer.len() as u32;
        let registered = self.registered.contains(&(buffer.as_ptr() as usize));
        if registered {
            self.with_registered.fetch_add(1, Ordering::Relaxed);
        }
        let entry = match *op {
            FileOp::Read { offset } if registered => {
                opcode::ReadFixed::new(fd, buffer.as_mut_ptr(), len, 0)
                    .offset(offset)
                    .build()
            }
            FileOp::Write { offset } if registered => {
                opcode::WriteFixed::new(fd, buffer.as_ptr(), len, 0)
                    .offset(offset)
                    .build()
            }
            FileOp::Read { offset } => opcode::Read::new(fd, buffer.as_mut_ptr(), len)
                .offset(offset)
                .build(),
            FileOp::Write { offset } => opcode::Write::new(fd, buffer.as_ptr(), len)
                .offset(offset)
                .build(),
            FileOp::Flush => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            FileOp::PunchHole { offset, len } => opcode::Fallocate::new(fd, len)
                .offset(offset)
                .mode(PUNCH_HOLE | KEEP_SIZE)
                .build(),
            FileOp::ZeroRange { offset, len } => opcode::Fallocate::new(fd, len)
                .offset(offset)
                .mode(ZERO_RANGE | KEEP_SIZE)
                .build(),
            FileOp::ReadAhead { offset, len } => {
                opcode::Fadvise::new(fd, len as libc::off_t, libc::POSIX_FADV_WILLNEED)
                    .offset(offset)
                    .build()
            }
        };
        if self.files.len() <= key {
            self.files.resize(key + 1, None);
        }
        let is_write = matches!(op, FileOp::Write { .. });
        self.writes += usize::from(is_write);
        self.files[key] = Some((file.clone(), is_write));
        self.push(entry.user_data(key as u64));
    }

    pub(super) fn poll(&mut self, socket: RawFd, ready: Ready, key: usize) {
        let events = match ready {
            Ready::Read => libc_pollin(),
            Ready::Write => libc_pollout(),
        };
        let poll = opcode::PollAdd::new(Fd(socket), events);
        self.push(poll.build().user_data(key as u64));
    }

    /// Ends a poll; its answer comes all the same.
    pub(super) fn cancel(&mut self, key: usize) {
        self.push(
            opcode::AsyncCancel::new(key as u64)
                .build()
                .user_data(NOBODY),
        );
    }

    /// Submits, waits if there is a limit and nothing is there, and takes what has completed.
    /// Workers compute something for so many tasks.
    pub(super) fn wait(
        &mut self,
        limit: Option<Duration>,
        computing: usize,
        completed: &mut Vec<Finished>,
    ) -> io::Result<()> {
        // What has had no room waits for no answer: it goes with the next call.
        let limit = limit.filter(|_| self.backlog.is_empty());
        // Deferred work runs only for those who wait, so one who does not want to waits for no
        // time.
        let timespec = Timespec::from(limit.unwrap_or_default());
        let mut args = SubmitArgs::new().timespec(&timespec);
        let mut want = 1;
        if limit.is_some() && self.ring.params().is_feature_min_timeout() {
            want = ((self.writes + computing) / 4).clamp(1, TOGETHER);
            if want > 1 {
                args = args.min_wait_usec(TOGETHER_US);
            }
        }
        let entered = self.ring.submitter().submit_with_args(want, &args);
        if let Err(error) = entered {
            let again = [
                rustix::io::Errno::TIME,
                rustix::io::Errno::INTR,
                rustix::io::Errno::BUSY,
                rustix::io::Errno::AGAIN,
            ];
            let errno = error
                .raw_os_error()
                .map(rustix::io::Errno::from_raw_os_error);
            if !errno.is_some_and(|errno| again.contains(&errno)) {
                return Err(error);
            }
        }
        let mut notified = false;
        for entry in self.ring.completion() {
            match entry.user_data() {
                NOTIFIER => notified = true,
                NOBODY => {}
                key => {
                    let key = key as usize;
                    let file = self.files.get_mut(key).and_then(Option::take);
                    self.writes -= usize::from(file.is_some_and(|(_, is_write)| is_write));
                    completed.push((key, entry.result()));
                }
            }
        }
        if notified {
            let mut count = [0; 8];
            // SAFETY: the notifier's descriptor lives as long as the reactor that has this ring.
            let notifier = unsafe { std::os::fd::BorrowedFd::borrow_raw(self.notifier) };
            let _ = rustix::io::read(notifier, &mut count);
            self.arm_notifier();
        }
        while !self.backlog.is_empty() && !self.ring.submission().is_full() {
            if let Some(entry) = self.backlog.pop_front() {
                self.push(entry);
            }
        }
        Ok(())
    }
}

fn libc_pollin() -> u32 {
    u32::from(rustix::event::PollFlags::IN.bits())
}

fn libc_pollout() -> u32 {
    u32::from(rustix::event::PollFlags::OUT.bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::Notifier;
    use std::os::unix::net::UnixStream;

    /// More wait for a quiet client than the ring takes at once. A socket for which there was no
    /// room is waited for all the same. A sandbox may have no rings.
    #[test]
    fn what_had_no_room_does_not_wait_for_those_that_had() {
        let notifier = Arc::new(Notifier::new().unwrap());
        let Ok(mut uring) = Uring::new(notifier.fd.as_raw_fd(), Arc::default()) else {
            return;
        };
        let (quiet, _client) = UnixStream::pair().unwrap();
        let all = ENTRIES as usize;
        (0..all).for_each(|key| uring.poll(quiet.as_raw_fd(), Ready::Read, key));
        uring.poll(quiet.as_raw_fd(), Ready::Write, all);
        let mut completed = Vec::new();
        while completed.is_empty() {
            uring
                .wait(Some(Duration::from_secs(3600)), 0, &mut completed)
                .unwrap();
        }
        assert_eq!(completed[0].0, all);
    }
}
