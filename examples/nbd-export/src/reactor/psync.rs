//! Without rings: files by calls that block, on a workqueue; sockets by epoll.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use inflight::workqueue::blocking;
use rustix::event::{Timespec, epoll};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};

use super::arrivals::Ended;
use super::{Buffer, FileOp, Finished, Notifier, Ready, answer};
use crate::adapter::{Completer, Held};
use crate::export::Export;

/// Event data of the notifier.
const NOTIFIER: u64 = u64::MAX;

pub(super) struct Psync {
    epoll: OwnedFd,
    notifier: Arc<Notifier>,
    /// Sockets that cannot be waited for: let their owners find out by asking.
    at_once: Vec<Finished>,
    /// Sockets that are waited for. One has one entry in the epoll set, for all that is waited for.
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
    pub(super) fn new(notifier: &Arc<Notifier>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(NOTIFIER);
        epoll::add(&epoll, &notifier.fd, data, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            notifier: notifier.clone(),
            at_once: Vec::new(),
            sockets: HashMap::new(),
        })
    }

    /// An operation on so much of a buffer.
    pub(super) fn file(
        &self,
        export: &Export,
        op: FileOp,
        (mut buffer, len): (Buffer, usize),
        mut report: Report,
    ) {
        let file = export.file.clone();
        let work = move || {
            // The whole of it, so that it is dropped here.
            let report = &mut report;
            let done = blocking(|| perform(&file, &op, &mut buffer[..len]));
            report.answer(answer(done), buffer);
        };
        // Dropping the handle detaches; the report is made whatever happens.
        drop(export.disk.files.0.spawn(work));
    }

    pub(super) fn poll(&mut self, socket: RawFd, ready: Ready, key: usize) {
        let interest = self.sockets.entry(socket).or_default();
        match ready {
            Ready::Read => interest.read = Some(key),
            Ready::Write => interest.write = Some(key),
        }
        let interest = *interest;
        if self.arm(socket, interest).is_err() {
            self.forget(key);
            self.at_once.push((key, 0));
            self.notifier.notify();
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

    /// Nobody waits for this any more.
    pub(super) fn forget(&mut self, key: usize) {
        self.at_once.retain(|(other, _)| *other != key);
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
            if data == NOTIFIER {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.notifier.fd, &mut count);
                continue;
            }
            let socket = data as RawFd;
            let Some(mut interest) = self.sockets.remove(&socket) else {
                continue;
            };
            let flags = event.flags;
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if flags.intersects(epoll::EventFlags::IN | gone) {
                completed.extend(interest.read.take().map(|key| (key, 0)));
            }
            if flags.intersects(epoll::EventFlags::OUT | gone) {
                completed.extend(interest.write.take().map(|key| (key, 0)));
            }
            if !interest.is_none() {
                self.sockets.insert(socket, interest);
                self.arm(socket, interest)?;
            }
        }
        completed.append(&mut self.at_once);
        Ok(())
    }
}

/// Tells how an operation ended when it is dropped, so also if the worker panics or refuses it.
pub(super) struct Report {
    told: Option<(Ended, Option<Held>)>,
    completer: Completer,
}

impl Report {
    /// `ended` is told unless there is an answer.
    pub(super) fn new(ended: Ended, tag: Option<Held>, completer: &Completer) -> Self {
        if let Some(tag) = &tag {
            tag.submit_here();
        }
        Self {
            told: Some((ended, tag)),
            completer: completer.clone(),
        }
    }

    fn answer(&mut self, result: i32, buffer: Buffer) {
        if let Some((ended, _)) = &mut self.told {
            (ended.arrival.result, ended.arrival.buffer) = (result, Some(buffer));
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        match self.told.take() {
            Some((ended, Some(tag))) => self.completer.complete(tag, ended),
            Some((ended, None)) => ended.arrivals.push(ended.arrival),
            None => {}
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
        FileOp::ReadAhead { offset, len } => {
            fadvise(file, offset, NonZeroU64::new(len), Advice::WillNeed)?;
            Ok(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    /// A file cannot be waited for, so who asks is to find out at once. One of them has gone by
    /// then, and its key may be another operation's.
    #[test]
    fn who_has_gone_gets_no_answer() {
        let notifier = Arc::new(Notifier::new().unwrap());
        let mut psync = Psync::new(&notifier).unwrap();
        let file = tempfile::tempfile().unwrap();
        psync.poll(file.as_raw_fd(), Ready::Read, 7);
        psync.forget(7);
        psync.poll(file.as_raw_fd(), Ready::Read, 8);
        let mut completed = Vec::new();
        psync.wait(None, &mut completed).unwrap();
        assert_eq!(completed, [(8, 0)]);
    }
}
