//! io_uring: one ring per job, the tag's token as user data.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use inflight::tags::steering::Steered;
use inflight::tags::{Completions, Tag};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode, squeue};

use super::notifier::Notifier;
use super::{Engine, Inbox};
use crate::slot::{Op, Slot};
use crate::stats::Reaping;

/// The user data of the notifier's poll. No token is 0.
const NOTIFIER: u64 = 0;

/// The most entries the kernel grants a ring.
const MAX_ENTRIES: usize = 32_768;

/// A ring nobody uses yet. All of a run's rings are made before it starts, by one thread; each is
/// then given to the thread of its job.
pub(crate) struct Ring {
    ring: IoUring,
    notifier: Notifier,
    /// Made disabled, so that it can become the property of another thread than its maker.
    disabled: bool,
    /// Whether its job looks for completions and does not wait for them.
    polls: bool,
}

impl Ring {
    /// A ring for about `depth` requests at once; more are possible. One that is polled shows its
    /// completions without being asked.
    ///
    /// # Errors
    /// The kernel refuses another ring.
    pub(crate) fn new(depth: usize, polls: bool) -> io::Result<Self> {
        let entries = (depth + 1).next_power_of_two().min(MAX_ENTRIES) as u32;
        // Completions that run in our own thread when we ask for them spare an interrupt each;
        // kernels before 6.1 do not know the flags. A job that polls does not ask. The ring shows
        // when there is something to ask for: a submission that waits for nothing asks then, too.
        let mut modern = IoUring::builder();
        modern.setup_single_issuer().setup_r_disabled();
        if !polls {
            modern.setup_defer_taskrun().setup_taskrun_flag();
        }
        let (ring, disabled) = match modern.build(entries) {
            Ok(ring) => (ring, true),
            Err(_) => (IoUring::new(entries)?, false),
        };
        Ok(Self {
            ring,
            notifier: Notifier::new()?,
            disabled,
            polls,
        })
    }
}

/// One job's ring.
pub(crate) struct Uring {
    ring: IoUring,
    /// How the ring calls the file, which lives as long.
    fd: Fd,
    flags: squeue::Flags,
    file: Arc<File>,
    completions: Completions<Slot>,
    inboxes: Arc<[Inbox]>,
    job: usize,
    notifier: Arc<Notifier>,
    /// What the submission queue had no room for.
    backlog: VecDeque<squeue::Entry>,
    /// Requests the kernel has or will get, the notifier's poll not among them.
    under_way: usize,
    /// A request to the page cache while nothing is under way. If it is still alone when we wait,
    /// it is done without the ring.
    lone: Option<Tag<Slot>>,
    /// Whether the file can be read only if that needs no wait.
    reads_cached: bool,
    /// Requests whose completion was sent to another CPU and will come back through the inbox.
    sent: usize,
    /// Whether the device works while we prepare more for it: not with the page cache, whose work
    /// is done inside the system call.
    overlaps: bool,
    polls: bool,
    reaping: Reaping,
}

impl Uring {
    /// Whether this kernel has io_uring, lets us use it, and knows the operations we need. Sends
    /// a request that does nothing, because a sandbox may allow the ring and then forbid its use.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) fn probe() -> io::Result<()> {
        let mut ring = IoUring::new(2)?;
        // SAFETY: the request has no buffer.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
        while ring.completion().next().is_none() {
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        if needed.into_iter().all(|code| probe.is_supported(code)) {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel is too old",
            ))
        }
    }

    /// Makes a ring the calling thread's; from now on only this thread may use it. `overlaps`: the
    /// device works on requests while more are prepared.
    ///
    /// # Errors
    /// The kernel does not let it.
    pub(crate) fn new(
        ring: Ring,
        file: Arc<File>,
        completions: Completions<Slot>,
        inboxes: Arc<[Inbox]>,
        job: usize,
        overlaps: bool,
    ) -> io::Result<Self> {
        if ring.disabled {
            ring.ring.submitter().register_enable_rings()?;
        }
        // A registered file is not looked up again for each request.
        let fd = file.as_fd().as_raw_fd();
        let (fd, flags) = match ring.ring.submitter().register_files(&[fd]) {
            Ok(()) => (Fd(0), squeue::Flags::FIXED_FILE),
            Err(_) => (Fd(fd), squeue::Flags::empty()),
        };
        let mut uring = Self {
            ring: ring.ring,
            fd,
            flags,
            file,
            completions,
            inboxes,
            job,
            notifier: Arc::new(ring.notifier),
            backlog: VecDeque::new(),
            under_way: 0,
            lone: None,
            reads_cached: true,
            sent: 0,
            overlaps,
            polls: ring.polls,
            reaping: Reaping::default(),
        };
        uring.inbox().attach(uring.waker());
        uring.arm_notifier();
        Ok(uring)
    }

    fn inbox(&self) -> &Inbox {
        &self.inboxes[self.job]
    }

    /// Has the ring tell us of the next notification. A poll, not a read: it has no buffer
    /// that would have to outlive the ring.
    fn arm_notifier(&mut self) {
        let fd = Fd(self.notifier.event.as_fd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .build()
            .user_data(NOTIFIER);
        self.push(poll);
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: an entry's buffer lies in the slot of a tag in flight, which only `redeem`
        // makes accessible again, after the kernel's completion; the slot lives as long as the
        // set, and `drop` keeps the set until everything has come back. The notifier's poll has
        // no buffer.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.backlog.push_back(entry);
        }
    }

    /// Moves what was left over into the submission queue, as far as there is room.
    fn push_backlog(&mut self) {
        while !self.backlog.is_empty() && !self.ring.submission().is_full() {
            if let Some(entry) = self.backlog.pop_front() {
                self.push(entry);
            }
        }
    }

    /// Submits, and waits for `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(want) {
            Ok(_) => Ok(()),
            // Interrupted, or the kernel wants its completions reaped before it takes more.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Submits to the page cache, which as a rule is done when the call returns. Returns whether
    /// something is on the ring.
    fn is_done_inside_enter(&mut self) -> io::Result<bool> {
        if self.overlaps || self.ring.submission().is_empty() {
            return Ok(false);
        }
        self.enter(0)?;
        Ok(!self.ring.completion().is_empty())
    }

    /// Looks until something is on the ring or another thread has notified this one. Gives way
    /// between the looks, so that whoever is to make it happen gets this CPU if there is no other.
    fn poll(&mut self) -> io::Result<()> {
        self.enter(0)?;
        while self.ring.completion().is_empty() && !self.notifier.is_notified() {
            thread::yield_now();
        }
        Ok(())
    }

    /// Takes what came back off the ring.
    fn reap(&mut self, finished: &mut Vec<Tag<Slot>>) -> io::Result<()> {
        let mut notified = false;
        let before = self.under_way;
        for completion in self.ring.completion() {
            if completion.user_data() == NOTIFIER {
                notified = true;
                continue;
            }
            self.under_way -= 1;
            let result = match completion.result() {
                error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
                bytes => Ok(bytes as usize),
            };
            let token = completion.user_data();
            let sent = complete(&self.completions, token, result, finished)?;
            self.sent += usize::from(sent);
        }
        if notified {
            self.notifier.drain();
            self.arm_notifier();
        }
        self.reaping.reaped += (before - self.under_way) as u64;
        Ok(())
    }

    /// Does a request that is alone, with one system call and without the ring's overhead: a write
    /// always, because many file systems make the ring hand it to a thread of the kernel; of a read
    /// what is cached at its begin. Otherwise puts it on the ring and returns `false`.
    fn is_done_alone(
        &mut self,
        mut tag: Tag<Slot>,
        finished: &mut Vec<Tag<Slot>>,
    ) -> io::Result<bool> {
        let offset = tag.next_offset();
        let result = match tag.op {
            Op::Write => self.file.write_at(tag.rest_mut(), offset),
            _ => match read_cached(&self.file, tag.rest_mut(), offset) {
                Ok(bytes) => Ok(bytes),
                Err(error) => {
                    self.reads_cached = error.kind() == io::ErrorKind::WouldBlock;
                    self.put_on_ring(tag);
                    return Ok(false);
                }
            },
        };
        self.reaping.reaped += 1;
        let sent = complete(&self.completions, tag.into_token(), result, finished)?;
        self.sent += usize::from(sent);
        Ok(true)
    }

    /// Puts a request on the ring.
    fn put_on_ring(&mut self, mut tag: Tag<Slot>) {
        let fd = self.fd;
        let offset = tag.next_offset();
        let rest = tag.rest_mut();
        let (address, len) = (rest.as_mut_ptr(), rest.len() as u32);
        let entry = match tag.op {
            Op::Read => opcode::Read::new(fd, address, len).offset(offset).build(),
            Op::Write => opcode::Write::new(fd, address, len).offset(offset).build(),
            Op::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        };
        self.under_way += 1;
        let token = if self.polls {
            tag.into_polled_token()
        } else {
            tag.into_token()
        };
        self.push(entry.flags(self.flags).user_data(token));
        // The device begins at once. A request that is alone goes with the wait.
        if self.overlaps && self.under_way > 1 {
            // Why ignored: an error that stays is that of `wait`, too.
            let _ = self.enter(0);
        }
    }
}

impl Engine for Uring {
    fn start(&mut self, tag: Tag<Slot>) {
        if let Some(first) = self.lone.take() {
            self.put_on_ring(first);
        }
        let is_alone = self.under_way == 0 && !self.overlaps && !self.polls;
        if is_alone && (tag.op == Op::Write || tag.op == Op::Read && self.reads_cached) {
            self.lone = Some(tag);
        } else {
            self.put_on_ring(tag);
        }
    }

    fn heed(&mut self) {
        self.notifier.reset();
    }

    fn wait(&mut self, finished: &mut Vec<Tag<Slot>>) -> io::Result<()> {
        self.push_backlog();
        let (mut slept, reaped) = (false, self.reaping.reaped);
        let is_done = match self.lone.take() {
            Some(tag) => self.is_done_alone(tag, finished)?,
            None => false,
        };
        if is_done {
            // Nothing else is under way.
        } else if self.polls && self.under_way > 0 {
            self.poll()?;
        } else if !self.is_done_inside_enter()? {
            let arrived = self.sent > 0 && !self.inbox().is_empty();
            let sleep = self.backlog.is_empty() && !arrived && self.notifier.fall_asleep();
            self.reaping.sleeps += u64::from(sleep);
            slept = sleep;
            let entered = self.enter(usize::from(sleep));
            self.notifier.get_up();
            entered?;
        }
        self.reap(finished)?;
        if !slept {
            self.reaping.reaped_awake += self.reaping.reaped - reaped;
        }
        if self.sent > 0 {
            let reaped = finished.len();
            self.inbox().empty_into(finished);
            self.sent -= finished.len() - reaped;
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.notifier).into()
    }

    fn reaping(&self) -> Reaping {
        self.reaping
    }
}

/// Reads what is in the page cache.
///
/// # Errors
/// `WouldBlock` if nothing is, or the file is at its end: Linux 5.9 and 5.10 may say the one for
/// the other. Others if the file cannot be asked.
fn read_cached(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let into = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let offset = offset.try_into().map_err(io::Error::other)?;
    // SAFETY: the one vector is the buffer, which is borrowed exclusively.
    let read = unsafe {
        libc::preadv2(
            file.as_raw_fd(),
            &raw const into,
            1,
            offset,
            libc::RWF_NOWAIT,
        )
    };
    match usize::try_from(read) {
        Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// A request is back. Its completion belongs here, as a rule; if this thread has moved since it
/// submitted, the policy may send it where the request is from. Returns whether it did.
fn complete(
    completions: &Completions<Slot>,
    token: u64,
    result: io::Result<usize>,
    finished: &mut Vec<Tag<Slot>>,
) -> io::Result<bool> {
    let steered = completions
        .steer(token, |slot| slot.result = Some(result))
        .map_err(io::Error::other)?;
    Ok(match steered {
        Steered::Here(tag, _) => {
            finished.push(tag);
            false
        }
        Steered::Sent { .. } => true,
    })
}

impl Drop for Uring {
    /// Waits for everything that is still under way: the kernel must not write into a slot that
    /// no longer exists.
    fn drop(&mut self) {
        let mut finished = Vec::new();
        while self.under_way > 0 {
            self.push_backlog();
            if self
                .enter(1)
                .and_then(|()| self.reap(&mut finished))
                .is_err()
            {
                // The ring is broken and we cannot know what the kernel still holds.
                std::mem::forget(self.completions.set().clone());
                return;
            }
        }
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("under_way", &self.under_way)
            .field("backlog", &self.backlog.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::AlignedBuf;
    use crate::engine::deliver;
    use crate::slot::{Owner, Progress};
    use inflight::tags::TagSet;
    use inflight::topology::Topology;
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

    /// A job on a file of 8 KiB, which writes through the page cache.
    fn buffered_job() -> Option<(TagSet<Slot>, Uring)> {
        if let Err(error) = Uring::probe() {
            println!("skipped: no io_uring: {error}");
            return None;
        }
        let set = TagSet::builder().depth(2).build(|_, _| Slot::default());
        let set = set.unwrap();
        let inboxes: Arc<[Inbox]> = Arc::new([Inbox::default()]);
        let completions = set.completions(&Topology::synthetic("core:1").unwrap());
        let completions = completions.build({
            let inboxes = Arc::clone(&inboxes);
            move |tag| deliver(&inboxes, tag)
        });
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let ring = Ring::new(2, false).unwrap();
        let uring = Uring::new(ring, Arc::new(file), completions, inboxes, 0, false);
        Some((set, uring.unwrap()))
    }

    /// Starts a transfer for each offset, and returns how many are on the ring, and what came back.
    fn transfer(set: &TagSet<Slot>, uring: &mut Uring, op: Op, offsets: &[u64]) -> (usize, usize) {
        let tenant = set.add_tenant("job").unwrap();
        for &offset in offsets {
            let mut tag = tenant.try_alloc().unwrap();
            let mut buf = AlignedBuf::zeroed(4096).unwrap();
            if op == Op::Write {
                buf.fill(7);
            }
            tag.set(op, Owner::default(), offset, buf);
            uring.start(tag);
        }
        let (on_ring, mut finished) = (uring.under_way, Vec::new());
        while finished.len() < offsets.len() {
            uring.wait(&mut finished).unwrap();
        }
        for tag in &mut finished {
            assert!(matches!(tag.advance(), Progress::Finished(Ok(()))));
            assert_eq!(*tag.buf, [7; 4096]);
        }
        (on_ring, finished.len())
    }

    #[test]
    fn a_request_to_the_page_cache_is_on_the_ring_unless_it_is_alone() {
        let Some((set, mut uring)) = buffered_job() else {
            return;
        };
        let mut transfer = |op, offsets: &[u64]| transfer(&set, &mut uring, op, offsets);
        assert_eq!(transfer(Op::Write, &[4096]), (0, 1));
        assert_eq!(transfer(Op::Write, &[0, 4096]), (2, 2));
        assert_eq!(transfer(Op::Read, &[4096]), (0, 1));
        assert_eq!(transfer(Op::Read, &[0, 4096]), (2, 2));
        assert_eq!(transfer(Op::Write, &[0]), (0, 1));
    }

    /// The first is on the ring in any case; the second if the file lies on a disk.
    #[test]
    fn a_lone_read_comes_back_if_it_is_not_in_the_page_cache() {
        let Some((set, mut uring)) = buffered_job() else {
            return;
        };
        let at_end = read_cached(&uring.file, &mut [0; 1], 8192).unwrap_err();
        let mut tag = set.add_tenant("end").unwrap().try_alloc().unwrap();
        let buf = AlignedBuf::zeroed(4096).unwrap();
        tag.set(Op::Read, Owner::default(), 8192, buf);
        uring.start(tag);
        let mut finished = Vec::new();
        while finished.is_empty() {
            uring.wait(&mut finished).unwrap();
        }
        assert!(matches!(finished[0].advance(), Progress::Finished(Err(_))));
        drop(finished);
        assert_eq!(transfer(&set, &mut uring, Op::Write, &[0]), (0, 1));
        uring.file.sync_all().unwrap();
        let forget = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        posix_fadvise(&uring.file, 0, 0, forget).unwrap();
        assert_eq!(transfer(&set, &mut uring, Op::Read, &[0]), (0, 1));
        // Some file systems cannot be asked.
        assert_eq!(
            uring.reads_cached,
            at_end.kind() == io::ErrorKind::WouldBlock
        );
    }

    /// What the kernel could not do at once comes back although each submission brings something
    /// that it could: nobody waits for the rest before all is under way.
    #[test]
    fn a_submission_that_waits_for_nothing_brings_what_was_late() {
        if let Err(error) = Uring::probe() {
            println!("skipped: no io_uring: {error}");
            return;
        }
        let mut ring = Ring::new(4, false).unwrap();
        if ring.disabled {
            ring.ring.submitter().register_enable_rings().unwrap();
        }
        let fd = Fd(ring.notifier.event.as_fd().as_raw_fd());
        let late = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
        let at_once = opcode::Nop::new().build();
        let mut submit = |entry: squeue::Entry, name| -> Vec<u64> {
            // SAFETY: the request has no buffer.
            unsafe { ring.ring.submission().push(&entry.user_data(name)) }.unwrap();
            ring.ring.submit_and_wait(0).unwrap();
            let done = ring.ring.completion();
            done.map(|entry| entry.user_data()).collect()
        };
        assert!(submit(late, 1).is_empty());
        assert_eq!(submit(at_once.clone(), 2), [2]);
        ring.notifier.event.write(1).unwrap();
        let mut done = submit(at_once, 3);
        done.sort_unstable();
        assert_eq!(done, [1, 3]);
    }
}
