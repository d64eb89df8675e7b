//! Pages of a file in memory on their way to a socket: they are passed on, not copied.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// The most for each thread: each takes two descriptors, and four threads take half of the pages
/// that a user's pipes may have.
const MOST: usize = 16;

/// Has pages of a file until they are sent.
#[derive(Debug)]
pub(super) struct Pipe {
    from: OwnedFd,
    into: OwnedFd,
    /// Bytes in it.
    filled: usize,
}

/// A thread's pipes that are empty.
#[derive(Debug, Default)]
pub(super) struct Pipes(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    free: Vec<Pipe>,
    made: usize,
    /// The system gives none, or smaller ones.
    refused: bool,
}

impl Pipes {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that takes `longest` bytes, wherever in a page they begin. None if all are in use.
    pub(super) fn take(&self, longest: usize) -> Option<Pipe> {
        let mut inner = self.lock();
        if let Some(pipe) = inner.free.pop() {
            return Some(pipe);
        }
        if inner.refused || inner.made == MOST {
            return None;
        }
        let page = rustix::param::page_size();
        match Pipe::new(longest.next_multiple_of(page) + page) {
            Ok(pipe) => {
                inner.made += 1;
                Some(pipe)
            }
            Err(error) => {
                // Descriptors come back when clients leave.
                let for_now = [Some(libc::EMFILE), Some(libc::ENFILE)];
                inner.refused = !for_now.contains(&error.raw_os_error());
                None
            }
        }
    }

    /// One that still has something in it is of no use.
    pub(super) fn give_back(self: &Arc<Self>, pipe: Pipe) {
        let mut inner = self.lock();
        if pipe.filled == 0 {
            inner.free.push(pipe);
        } else {
            inner.made -= 1;
        }
    }
}

impl Pipe {
    fn new(room: usize) -> io::Result<Self> {
        let (from, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if fcntl_setpipe_size(&into, room)? < room {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Self {
            from,
            into,
            filled: 0,
        })
    }

    /// Takes `len` bytes of a file, or what there is.
    pub(super) fn fill(&mut self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        let mut at = offset;
        while self.filled < len {
            let rest = len - self.filled;
            let flags = SpliceFlags::NONBLOCK;
            match splice(file, Some(&mut at), &self.into, None, rest, flags) {
                Ok(0) => break,
                Ok(moved) => self.filled += moved,
                Err(rustix::io::Errno::INTR) => {}
                // There is room: this is no refusal for now.
                Err(rustix::io::Errno::AGAIN) => return Err(rustix::io::Errno::IO.into()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.filled)
    }

    /// Sends what the socket takes: how much that was, and whether it was all. Unless there is more
    /// behind it, TCP sends the last of it at once.
    pub(super) fn send(
        &mut self,
        socket: impl AsFd,
        more: bool,
    ) -> rustix::io::Result<(usize, bool)> {
        let mut flags = SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        let moved = splice(&self.from, None, socket, None, self.filled, flags)?;
        self.filled -= moved;
        Ok((moved, self.filled == 0))
    }
}
