//! The two ways a request takes into the kernel.

mod psync;
mod uring;

use std::io;
use std::task::Waker;

use inflight::tags::Tag;

pub(crate) use psync::Psync;
pub(crate) use uring::{Ring, Uring};

use crate::slot::Slot;

/// A request that came back.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) tag: Tag<Slot>,
    /// Bytes moved, or why not.
    pub(crate) result: io::Result<usize>,
}

/// Carries the requests of one job, which calls it from one thread.
pub(crate) trait Engine {
    /// Takes a request over. It comes back through `wait`, whatever happens.
    fn start(&mut self, tag: Tag<Slot>);

    /// Forgets the waker's calls up to now; the caller looks at what they were about next.
    fn heed(&mut self);

    /// Hands what was started to the kernel, sleeps until something comes back or the waker is
    /// called, and appends what came back. Does not sleep if the waker was called since `heed`.
    ///
    /// # Errors
    /// The engine itself broke; nothing more will come back.
    fn wait(&mut self, finished: &mut Vec<Finished>) -> io::Result<()>;

    /// Ends `wait`, from any thread.
    fn waker(&self) -> Waker;
}
