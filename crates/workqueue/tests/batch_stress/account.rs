//! What has become of the works, and who is inside.

use inflight_sync::Mutex;
use inflight_sync::atomic::{AtomicUsize, Ordering};

/// What the items of one queue did, and may do.
pub(crate) struct Account {
    /// At once, by CPU or in all.
    pub(crate) inside: Vec<AtomicUsize>,
    /// How many may be.
    pub(crate) most: usize,
    /// One after the other, in the order in which they were queued.
    pub(crate) in_order: bool,
    /// May wait for others of the same queue without saying so.
    pub(crate) is_wide: bool,
    pub(crate) ran: AtomicUsize,
    pub(crate) accepted: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
    pub(crate) panicked: AtomicUsize,
    /// By CPU and submitter: the number of its item that ran last.
    pub(crate) last: Vec<AtomicUsize>,
    pub(crate) breaches: Mutex<Vec<String>>,
}

/// Relaxed, here and below: slots are handed over by the queue, which orders what their holders
/// do, and the rest is looked at when all have ended.
pub(crate) fn add(count: &AtomicUsize) -> usize {
    count.fetch_add(1, Ordering::Relaxed) + 1
}

pub(crate) fn of(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}

impl Account {
    pub(crate) fn breach(&self, what: String) {
        self.breaches.lock().push(what);
    }

    pub(crate) fn enter(&self, at: usize) {
        let now = add(&self.inside[at]);
        if now > self.most {
            self.breach(format!("{now} active of {}, at {at}", self.most));
        }
    }

    pub(crate) fn leave(&self, at: usize) {
        self.inside[at].fetch_sub(1, Ordering::Relaxed);
        add(&self.ran);
    }
}

/// Inside an item, also when it panics.
pub(crate) struct Inside<'a>(&'a Account, usize);

impl<'a> Inside<'a> {
    pub(crate) fn enter(account: &'a Account, at: usize) -> Self {
        account.enter(at);
        Self(account, at)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}
