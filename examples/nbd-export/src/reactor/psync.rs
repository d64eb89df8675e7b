//! Without rings: files by calls that block, on a workqueue; sockets by epoll.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use inflight::workqueue::{Workqueue, blocking};
use rustix::event::{Timespec, epoll};
use rustix::fs::{FallocateFlags, fallocate};

use super::{Bell, FileOp, Finished, Ready, answer};

/// Event data of the bell.
const BELL: u64 = u64::MAX;

pub(super) struct Psync {
    epoll: OwnedFd,
    bell: Arc<Bell>,
    files: Workqueue,
    finished: Arc<Mutex<Vec<Finished>>>,
    /// Sockets that are waited for. One has one entry in the epoll set, for both directions.
    sockets: HashMap<RawFd, Interest>,
}

/// The keys of those who wait for a socket.
#[derive(Clone, Copy, Debug, Default)]
struct Interest {
    read: Option<usize>,
    write: Option<usize>,
}

impl Interest {
    fn events(self) -> epoll::EventFlags {
        let mut events = epoll::EventFlags::ONESHOT;
        if self.read.is_some() {
            events |= epoll::EventFlags::IN;
        }
        if self.write.is_some() {
            events |= epoll::EventFlags::OUT;
        }
        events
    }

    const fn is_none(self) -> bool {
        self.read.is_none() && self.write.is_none()
    }
}

impl Psync {
    pub(super) fn new(bell: Arc<Bell>, files: Workqueue) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &bell.fd, data, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            bell,
            files,
            finished: Arc::default(),
            sockets: HashMap::new(),
        })
    }

    pub(super) fn file(&mut self, file: Arc<File>, op: FileOp, mut buffer: Vec<u8>, key: usize) {
        let report = Report {
            finished: self.finished.clone(),
            bell: self.bell.clone(),
            answer: Some((key, -(rustix::io::Errno::IO.raw_os_error()), None)),
        };
        let work = move || {
            // The whole of it, so that it is dropped here.
            let mut report = report;
            let done = blocking(|| perform(&file, &op, &mut buffer));
            report.answer = Some((key, answer(done), Some(buffer)));
        };
        // Dropping the handle detaches; the report is made whatever happens.
        drop(self.files.spawn(work));
    }

    pub(super) fn poll(&mut self, socket: RawFd, ready: Ready, key: usize) {
        let interest = self.sockets.entry(socket).or_default();
        match ready {
            Ready::Read => interest.read = Some(key),
            Ready::Write => interest.write = Some(key),
        }
        let interest = *interest;
        if self.arm(socket, interest).is_err() {
            // It cannot be waited for: let its owner find out by asking.
            self.forget(key);
            self.push((key, 0, None));
        }
    }

    fn arm(&self, socket: RawFd, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(socket as u64);
        // SAFETY: the connection keeps its socket open while it waits for it.
        let fd = unsafe { BorrowedFd::borrow_raw(socket) };
        if epoll::modify(&self.epoll, fd, data, interest.events()).is_err() {
            epoll::add(&self.epoll, fd, data, interest.events())?;
        }
        Ok(())
    }

    fn push(&self, finished: Finished) {
        let mut all = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(finished);
        drop(all);
        self.bell.ring();
    }

    /// Nobody waits for this any more.
    pub(super) fn forget(&mut self, key: usize) {
        self.sockets.retain(|_, interest| {
            interest.read.take_if(|own| *own == key);
            interest.write.take_if(|own| *own == key);
            !interest.is_none()
        });
    }

    pub(super) fn wait(
        &mut self,
        limit: Option<Duration>,
        completed: &mut Vec<Finished>,
    ) -> io::Result<()> {
        let limit = limit.unwrap_or_default();
        let timespec = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut events = Vec::with_capacity(64);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, room, Some(&timespec)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            let data = event.data.u64();
            if data == BELL {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.bell.fd, &mut count);
                continue;
            }
            let socket = data as RawFd;
            let Some(mut interest) = self.sockets.remove(&socket) else {
                continue;
            };
            let flags = event.flags;
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if flags.intersects(epoll::EventFlags::IN | gone) {
                completed.extend(interest.read.take().map(|key| (key, 0, None)));
            }
            if flags.intersects(epoll::EventFlags::OUT | gone) {
                completed.extend(interest.write.take().map(|key| (key, 0, None)));
            }
            if !interest.is_none() {
                self.sockets.insert(socket, interest);
                self.arm(socket, interest)?;
            }
        }
        let mut all = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        completed.append(&mut all);
        Ok(())
    }
}

/// Tells how an operation ended when it is dropped, so also if the worker panics or refuses it.
struct Report {
    finished: Arc<Mutex<Vec<Finished>>>,
    bell: Arc<Bell>,
    answer: Option<Finished>,
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            let mut all = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(answer);
            drop(all);
            self.bell.ring();
        }
    }
}

pub(super) fn perform(file: &File, op: &FileOp, buffer: &mut [u8]) -> io::Result<usize> {
    match *op {
        FileOp::Read { offset } => file.read_at(buffer, offset),
        FileOp::Write { offset } => file.write_at(buffer, offset),
        FileOp::Flush => file.sync_data().map(|()| 0),
        FileOp::PunchHole { offset, len } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, flags, offset, len)?;
            Ok(0)
        }
        FileOp::ZeroRange { offset, len } => {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            fallocate(file, flags, offset, len)?;
            Ok(0)
        }
    }
}
