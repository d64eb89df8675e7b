//! The two ways a request takes into the kernel.

mod inbox;
mod notifier;
mod psync;
mod uring;

use std::io;
use std::task::Waker;

use inflight::tags::Tag;

pub(crate) use inbox::{Inbox, deliver};
pub(crate) use psync::Psync;
pub(crate) use uring::{Ring, Uring};

use crate::slot::Slot;
use crate::stats::Reaping;

/// Carries the requests of one job, which calls it from one thread.
pub(crate) trait Engine {
    /// Takes a request over. It comes back through `wait`, whatever happens.
    fn start(&mut self, tag: Tag<Slot>);

    /// Forgets the waker's calls up to now; the caller looks at what they were about next.
    fn heed(&mut self);

    /// Hands what was started to the kernel, waits until something comes back or the waker is
    /// called, and appends what came back, each with its result in the slot. Does not wait if the
    /// waker was called since `heed`.
    ///
    /// An engine that polls looks again and again while requests are under way; it sleeps only if
    /// there is nothing to look for.
    ///
    /// # Errors
    /// The engine itself broke; nothing more will come back.
    fn wait(&mut self, finished: &mut Vec<Tag<Slot>>) -> io::Result<()>;

    /// Ends `wait`, from any thread.
    fn waker(&self) -> Waker;

    /// What it counted.
    fn reaping(&self) -> Reaping;
}
