//! *cancel*: taking a queueing back before its run, wherever its entry is.
//!
//! An entry in the FIFO of its pwq is removed. An entry elsewhere, in a worker's batch or on
//! its way, stays there with a reference; the thread that has it sees that the queueing was
//! cancelled. So a cancel takes constant time, and only the lock of one pool.

use crate::batch::Entry;
use crate::completion::wait_unless;
use crate::error::{DisableError, WaitError};
use crate::item::word::{self, PARKED, PENDING, RUNNING, Seq, TIMER};
use crate::item::{Header, ItemPtr, ReusableRef, TaskHandle, timer};
use crate::pwq::{self, Pwq};
use crate::trace::TraceStep;
use crate::{current, error::JoinError};
use inflight_sync::{Arc, hint};

pub(crate) struct Taken {
    pub(crate) old: u64,
    /// Where it was queued; `None` if it waited for its delay.
    pwq: Option<Arc<Pwq>>,
}

/// Takes a pending queueing back with `take`. The error is the word, if nothing is pending.
fn take_back(
    item: ItemPtr,
    header: &Header,
    take: impl Fn(u64) -> Option<u64>,
) -> Result<Taken, u64> {
    loop {
        let seen = header.load();
        if seen & PENDING == 0 {
            if header.confirm(seen) {
                return Err(seen);
            }
            continue;
        }
        if seen & TIMER != 0 {
            if let Some(old) = take(seen) {
                return Ok(Taken { old, pwq: None });
            }
            continue;
        }
        let Some(pwq) = pwq::by_id(word::pwq(seen)) else {
            // It was run or cancelled meanwhile, and the pwq no longer exists.
            hint::spin_loop();
            continue;
        };
        if let Some(old) = take_from(&pwq, item, header, &take) {
            return Ok(Taken {
                old,
                pwq: Some(pwq),
            });
        }
    }
}

/// The same, from a pwq. `None` if it is no longer there.
fn take_from(
    pwq: &Pwq,
    item: ItemPtr,
    header: &Header,
    take: impl Fn(u64) -> Option<u64>,
) -> Option<u64> {
    let mut state = pwq.lock();
    let seen = header.load();
    if seen & (PENDING | TIMER) != PENDING || word::pwq(seen) != pwq.id {
        return None;
    }
    if seen & PARKED != 0 {
        // The thread that clears PARKED owns the slot and the colour that the word names.
        let old = take(seen)?;
        state.core.cancelled(pwq.index, word::colour(seen));
        state.core.release_slot(pwq.index);
        pwq.pool.unlock(state, false);
        return Some(old);
    }
    let is_it = |entry: &Entry| entry.item == item && entry.seq() == word::seq(seen);
    // Read before `take`: then the item may be queued elsewhere, at another position.
    let position = header.position();
    if state.core.is_at(pwq.index, position, is_it) {
        let old = take(seen)?;
        state.core.remove(pwq.index, position);
        pwq.pool.unlock(state, false);
        return Some(old);
    }
    // For the entry, which stays where it is.
    header.add_ref();
    let old = take(seen);
    match old {
        Some(_) => state.core.pwq_mut(pwq.index).count_cancelled(),
        // SAFETY: the reference has just been taken, and the caller has another one.
        None => unsafe { item.drop_ref() },
    }
    old
}

impl Taken {
    fn trace(&self, item: &str) {
        let Some(pwq) = &self.pwq else { return };
        let shared = &pwq.wq.shared;
        if shared.tracing.is_on() {
            shared.trace(&pwq.wq.name, item, TraceStep::Cancelled);
        }
    }
}

pub(crate) fn cancel(item: &ReusableRef) -> bool {
    cancel_last(item).0
}

/// The same, and the number of the last queueing. The number is read once nothing is pending: until
/// then `mod_delayed` may give a pending queueing a new number, which may run.
fn cancel_last(item: &ReusableRef) -> (bool, Seq) {
    let header = item.header();
    match take_back(item.ptr(), header, |seen| header.take_pending(seen, 0)) {
        Ok(taken) => {
            finish(item, &taken);
            (true, word::seq(taken.old))
        }
        Err(seen) => (false, word::seq(seen)),
    }
}

fn finish(item: &ReusableRef, taken: &Taken) {
    if taken.old & TIMER != 0 {
        drop(timer::disarm(item, word::seq(taken.old)));
    }
    taken.trace(item.name());
    item.tell_waiters(taken.old);
}

/// The same for another time: the item stays pending, with the new number that is returned.
pub(crate) fn take_for_later(item: &ReusableRef) -> Option<Seq> {
    let header = item.header();
    let seq = std::cell::Cell::new(0);
    let taken = take_back(item.ptr(), header, |seen| {
        let (old, new) = header.move_pending(seen)?;
        seq.set(new);
        Some(old)
    });
    let taken = taken.ok()?;
    finish(item, &taken);
    Some(seq.get())
}

/// Cancels a function that has not begun, and resolves its handle. Returns whether it was pending.
pub(crate) fn cancel_task<T>(task: &TaskHandle<T>) -> bool {
    let header = task.header();
    let taken = take_back(task.ptr(), header, |seen| {
        header.take_pending(seen, RUNNING)
    });
    let Ok(taken) = taken else {
        return false;
    };
    // SAFETY: the function has not been taken; only this call can take it now.
    taken.trace(unsafe { task.ptr().name() });
    task.discard(JoinError::Cancelled);
    true
}

impl ReusableRef {
    pub(crate) fn refuse_own(&self) -> Result<(), WaitError> {
        current::refuse_wait(current::runs_item(self.ptr()))
    }

    /// Waits until no queueing up to `last` is pending or runs.
    async fn ended(&self, last: Seq) -> Result<(), WaitError> {
        let ended = &self.extra().ended;
        wait_unless(ended, || self.holds(last), || self.refuse_own()).await
    }

    pub(crate) async fn cancel_sync(&self) -> Result<bool, WaitError> {
        self.refuse_own()?;
        let _cancelling = self.begin_cancel();
        let (was_pending, last) = cancel_last(self);
        self.ended(last).await?;
        Ok(was_pending)
    }

    pub(crate) fn disable_now(&self) -> Result<(bool, Seq), DisableError> {
        self.disable()?;
        Ok(cancel_last(self))
    }

    pub(crate) async fn disable_sync(&self) -> Result<bool, DisableError> {
        self.refuse_own()?;
        let (was_pending, last) = self.disable_now()?;
        self.ended(last).await?;
        Ok(was_pending)
    }
}
