//! Where the bytes of requests are: in a thread's fixed buffers, which its ring may know, on the
//! heap, or in a pipe.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::pipe::{Pipe, Pipes};

/// Most requests are no longer than this.
pub(crate) const PAGE: usize = 4096;

/// Bytes of a request. Fixed ones and pipes go back to their thread when they are dropped, wherever
/// that is. What is in a pipe cannot be looked at: as a slice it is empty.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Memory,
    /// What is used of it.
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    Fixed(&'static mut [u8], Arc<Free>),
    Pipe(Pipe, Arc<Pipes>),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

/// Fixed buffers that nobody uses: of a page, and of the longest piece.
#[derive(Debug, Default)]
struct Free {
    short: Mutex<Vec<&'static mut [u8]>>,
    long: Mutex<Vec<&'static mut [u8]>>,
}

impl Free {
    const fn of(&self, len: usize) -> &Mutex<Vec<&'static mut [u8]>> {
        if len <= PAGE { &self.short } else { &self.long }
    }
}

/// A thread's fixed buffers. If clients hold them all, the heap is used.
#[derive(Debug)]
pub(super) struct Fixed {
    free: Arc<Free>,
    longest: usize,
    addresses: Range<usize>,
}

impl Fixed {
    /// Buffers of `bytes` in all: a quarter in pages, the rest in pieces of `longest`.
    pub(super) fn new(bytes: usize, longest: usize) -> Self {
        // Why leaked: the kernel may know it until the process ends.
        let memory: &'static mut [u8] = Box::leak(vec![0; bytes + PAGE].into_boxed_slice());
        let skip = memory.as_ptr().align_offset(PAGE).min(PAGE);
        let memory = &mut memory[skip..][..bytes];
        let start = memory.as_ptr() as usize;
        let (short, long) = memory.split_at_mut(bytes / 4 / PAGE * PAGE);
        let free = Free {
            short: Mutex::new(short.chunks_exact_mut(PAGE).collect()),
            long: Mutex::new(long.chunks_exact_mut(longest.max(PAGE)).collect()),
        };
        Self {
            free: Arc::new(free),
            longest,
            addresses: start..start + bytes,
        }
    }

    /// Where they are.
    pub(super) fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    pub(super) fn take(&self, len: usize) -> Option<Buffer> {
        if len > self.longest {
            return None;
        }
        let mut free = lock(self.free.of(len));
        let bytes = free.pop()?;
        let memory = Memory::Fixed(bytes, self.free.clone());
        Some(Buffer { memory, len })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Buffer {
    /// For `len` bytes of a file in memory, which are sent and not looked at. `longest` is what any
    /// such buffer is for.
    pub(super) fn pipe(pipes: &Arc<Pipes>, len: usize, longest: usize) -> Option<Self> {
        let pipe = pipes.take(longest)?;
        let memory = Memory::Pipe(pipe, pipes.clone());
        Some(Self { memory, len })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_pipe(&self) -> bool {
        matches!(self.memory, Memory::Pipe(..))
    }

    /// The bytes, if they are the heap's.
    pub(super) fn into_heap(mut self) -> Option<Vec<u8>> {
        match &mut self.memory {
            Memory::Heap(bytes) => Some(std::mem::take(bytes)),
            Memory::Fixed(..) | Memory::Pipe(..) => None,
        }
    }

    /// Fills a pipe. None if this is none.
    pub(super) fn fill_from(&mut self, file: &File, offset: u64) -> Option<io::Result<usize>> {
        match &mut self.memory {
            Memory::Pipe(pipe, _) => Some(pipe.fill(file, offset, self.len)),
            _ => None,
        }
    }

    /// Sends what is in a pipe, behind which there is more or not: how much, and whether that was
    /// all. None if this is no pipe.
    pub(crate) fn send(
        &mut self,
        socket: impl AsFd,
        more: bool,
    ) -> Option<rustix::io::Result<(usize, bool)>> {
        match &mut self.memory {
            Memory::Pipe(pipe, _) => Some(pipe.send(socket, more)),
            _ => None,
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self {
            memory: Memory::Heap(bytes),
            len,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Fixed(bytes, _) => &bytes[..self.len],
            Memory::Pipe(..) => &[],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Fixed(bytes, _) => &mut bytes[..self.len],
            Memory::Pipe(..) => &mut [],
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match std::mem::take(&mut self.memory) {
            Memory::Heap(_) => {}
            Memory::Fixed(bytes, free) => lock(free.of(bytes.len())).push(bytes),
            Memory::Pipe(pipe, pipes) => pipes.give_back(pipe),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_buffers_come_back_and_run_out() {
        let fixed = Fixed::new(1 << 20, 256 << 10);
        let inside = |buffer: &Buffer| fixed.addresses().contains(&(buffer.as_ptr() as usize));
        let long: Vec<Buffer> = (0..3).map(|_| fixed.take(PAGE + 1).unwrap()).collect();
        assert!(long.iter().all(|b| inside(b) && b.len() == PAGE + 1));
        assert!(fixed.take(256 << 10).is_none(), "three are all");
        let mut short: Vec<Buffer> = std::iter::from_fn(|| fixed.take(PAGE)).collect();
        assert_eq!(short.len(), 64);
        short[0].fill(1);
        assert!(short[1..].iter().all(|b| b.iter().all(|&byte| byte == 0)));
        drop(short);
        std::thread::spawn(|| drop(long)).join().unwrap();
        assert!(fixed.take(256 << 10).is_some_and(|b| b.len() == 256 << 10));
        assert!(fixed.take(1).is_some_and(|b| b.len() == 1));
        assert!(fixed.take((256 << 10) + 1).is_none(), "longer than any");
    }
}
