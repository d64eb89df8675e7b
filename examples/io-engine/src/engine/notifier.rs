//! Ends the wait of a ring's thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Wake;

use nix::sys::eventfd::{EfdFlags, EventFd};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const NOTIFIED: u8 = 2;

/// Ends a ring's wait from another thread, with a system call only if the ring's thread sleeps.
#[derive(Debug)]
pub(super) struct Notifier {
    /// AWAKE, ASLEEP or NOTIFIED.
    state: AtomicU8,
    pub(super) event: EventFd,
}

impl Notifier {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            state: AtomicU8::new(AWAKE),
            event: EventFd::from_flags(flags)?,
        })
    }

    /// Whether the thread may sleep; it may not if it was notified while awake.
    pub(super) fn fall_asleep(&self) -> bool {
        // Ordering: Relaxed is enough, the state alone decides; `reset` orders the look at work.
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Spares whoever notifies from now on the system call. Keeps NOTIFIED.
    pub(super) fn get_up(&self) {
        // Ordering: Relaxed, the thread looks at nothing because of it.
        let _ = self
            .state
            .compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it was notified since `reset`.
    pub(super) fn is_notified(&self) -> bool {
        // Ordering: Relaxed, `reset` orders the look at what it was notified of.
        self.state.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Forgets that it was notified.
    pub(super) fn reset(&self) {
        // Ordering: pairs with the swap in `wake_by_ref`: the look at the work comes after, and
        // sees what it was notified of.
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Takes back the event that ended the sleep.
    pub(super) fn drain(&self) {
        // Why ignored: EAGAIN says that there was no event, which is as well.
        let _ = self.event.read();
    }
}

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: pairs with `reset`: the thread sees what we did before we notified it.
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            // Why ignored: the counter can only be full if it already wakes the ring.
            let _ = self.event.write(1);
        }
    }
}
