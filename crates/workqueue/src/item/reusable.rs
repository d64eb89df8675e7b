//! Items that can be queued again and again.

use super::extra::{Extra, State};
use super::word::*;
use super::{Header, ItemPtr, NotRun, OwnHandle, Parked, RunScope, VTable};
use crate::error::{DisableError, NotDisabled};
use crate::panics::{caught, dispose, message, notify_all};
use crate::trace::TraceStep;
use inflight_sync::atomic::{AtomicU32, Ordering};
use inflight_sync::{MutexGuard, thread};
use std::ops::ControlFlow;
use std::ptr::NonNull;

pub(crate) trait Run: Send + Sync {
    /// Whether it may want to run again.
    const REPEATS: bool = false;
    /// Which handle its function may have on it.
    const HANDLE: OwnHandle = OwnHandle::None;

    /// The name that its user has given it.
    fn own_name(&self) -> Option<&str> {
        None
    }

    fn name(&self) -> &str {
        self.own_name().unwrap_or(Self::function())
    }

    /// The type of the user's function.
    fn function() -> &'static str;

    /// `Continue` if it wants to run again.
    fn run(&self) -> ControlFlow<()>;
}

#[repr(C)]
struct Reusable<R> {
    head: Head,
    run: R,
}

#[repr(C)]
struct Head {
    header: Header,
    /// The queueing that runs or ran last.
    running: AtomicU32,
}

pub(crate) struct ReusableRef(ItemPtr);

// SAFETY: what it runs is `Send` and `Sync`; the head is made of atomics.
unsafe impl Send for ReusableRef {}
// SAFETY: as above.
unsafe impl Sync for ReusableRef {}

impl<R: Run> Reusable<R> {
    const VTABLE: VTable = VTable {
        run: Self::run,
        free: Self::free,
        name: |item| {
            // SAFETY: the item is of this type and lives.
            NonNull::from(unsafe { item.0.cast::<Self>().as_ref() }.run.name())
        },
        function_name: R::function,
        own_handle: R::HANDLE,
        take: |_, _| unreachable!("only tasks have a result"),
        discard: |_, _| unreachable!("only tasks have a result"),
    };

    unsafe fn free(item: ItemPtr) {
        // SAFETY: it is from `ReusableRef::new`, and nothing uses it any more.
        let mut item = unsafe { Box::from_raw(item.0.cast::<Self>().as_ptr()) };
        item.head.header.drop_extra();
    }

    unsafe fn run(item: ItemPtr, seq: Seq, scope: &RunScope<'_>) -> Result<(), NotRun> {
        // SAFETY: the entry keeps the item alive, by PENDING or by `refs`; then RUNNING does.
        let this = unsafe { item.0.cast::<Self>().as_ref() };
        let header = &this.head.header;
        // SAFETY: the caller has the entry.
        unsafe { item.claim(seq) }?;
        scope.runs.set(true);
        // Ordering: Release, pairs with the load in `holds`, which may have found RUNNING of the
        // run before: a thread that reads this number sees what that run did. A thread that reads
        // an older one waits for this run too.
        this.head.running.store(seq, Ordering::Release);
        if let Some(name) = this.run.own_name() {
            scope.runner.tell_name(name);
        }
        scope.tell(item, TraceStep::Started);
        let mut again = 0;
        let step = loop {
            match caught(|| this.run.run()) {
                Ok(ControlFlow::Break(())) => break TraceStep::Ended,
                Ok(ControlFlow::Continue(())) => {
                    let row = R::REPEATS && this.head.is_left_alone();
                    if row && scope.runner.may_rerun(again + 1) {
                        again += 1;
                        continue;
                    }
                    // While it runs, so that a thread that stops it always sees it.
                    scope.runner.requeue(item);
                    break TraceStep::Ended;
                }
                Err(payload) => {
                    let message = message(&payload);
                    dispose(payload);
                    scope.runner.panicked(this.run.name(), message.as_deref());
                    break TraceStep::Panicked;
                }
            }
        };
        if again > 0 {
            scope.runner.has_rerun(again);
        }
        scope.tell(item, step);
        scope.runs.set(false);
        // SAFETY: claimed above.
        let (old, tells) = unsafe { item.end() };
        let parked = Parked::of(old);
        if tells {
            notify_all(&header.extra().ended);
            // SAFETY: `end` has taken a reference for this.
            unsafe { item.release() };
        } else {
            // SAFETY: the item is not used after this unless it is PENDING, as a parked one is.
            unsafe { item.free_after(old) };
        }
        if let Some(parked) = parked {
            scope.runner.put_back(item, parked);
        }
        Ok(())
    }
}

impl Head {
    /// Whether nobody wants anything of it. A hint: it only makes a row shorter.
    fn is_left_alone(&self) -> bool {
        // Relaxed: a hint.
        self.header.word.load(Ordering::Relaxed) & (PENDING | AWAITED | REFUSING) == 0
    }
}

impl ReusableRef {
    pub(crate) fn new<R: Run + 'static>(run: R) -> Self {
        let head = Head {
            header: Header::new(&Reusable::<R>::VTABLE, HANDLES),
            running: AtomicU32::new(0),
        };
        let item = Box::into_raw(Box::new(Reusable { head, run }));
        // SAFETY: a box is not null.
        Self(ItemPtr(unsafe { NonNull::new_unchecked(item) }.cast()))
    }

    /// A handle on the item that the calling thread runs.
    ///
    /// # Safety
    ///
    /// The item is a reusable one, and the calling thread runs it.
    pub(crate) unsafe fn of_running(item: ItemPtr) -> Self {
        // SAFETY: it runs, so it lives.
        let header = unsafe { item.header() };
        // *keep*.
        if header.add_ref() == 0 {
            // HANDLES may still be set: the thread that dropped the last handle is about to clear
            // it. Relaxed, here and below: RUNNING keeps the item alive, and nothing is published.
            while header.word.load(Ordering::Relaxed) & HANDLES != 0 {
                thread::yield_now();
            }
            // No other thread makes a first handle.
            header.word.fetch_or(HANDLES, Ordering::Relaxed);
        }
        Self(item)
    }

    fn head(&self) -> &Head {
        // SAFETY: the handle keeps the item alive, and every reusable item begins with a head.
        unsafe { self.0.0.cast::<Head>().as_ref() }
    }

    pub(crate) fn ptr(&self) -> ItemPtr {
        self.0
    }

    pub(crate) fn header(&self) -> &Header {
        &self.head().header
    }

    pub(crate) fn extra(&self) -> &Extra {
        self.header().extra()
    }

    pub(crate) fn name(&self) -> &str {
        // SAFETY: the handle keeps the item alive.
        unsafe { self.0.name() }
    }

    /// Whether it is pending, and whether it runs.
    pub(crate) fn activity(&self) -> (bool, bool) {
        let seen = self.header().load();
        (seen & PENDING != 0, seen & RUNNING != 0)
    }

    /// The queueing that a flush waits for: the last one, if not all have ended. One that waits for
    /// its delay, and was not `expedited` for the flush, came after it.
    pub(crate) fn unended(&self, expedited: Option<Seq>) -> Option<Seq> {
        let seen = self.header().load();
        let last = seq(seen);
        if seen & PENDING != 0 && (seen & TIMER == 0 || expedited == Some(last)) {
            return Some(last);
        }
        let came_later = u32::from(seen & PENDING != 0);
        (seen & RUNNING != 0).then(|| last.wrapping_sub(came_later))
    }

    /// Whether a queueing up to `last` is pending or runs; its end notifies [`Extra::ended`].
    pub(crate) fn holds(&self, last: Seq) -> bool {
        let holds = |seen: u64| {
            // Ordering: Acquire, pairs with the Release in `run`.
            let running = || is_up_to(self.head().running.load(Ordering::Acquire), last);
            let pending = seen & PENDING != 0 && is_up_to(seq(seen), last);
            pending || (seen & RUNNING != 0 && running())
        };
        holds(self.header().load()) && holds(self.header().await_end())
    }

    /// Lets waiters look again: after a *redirect* they may wait for their own slot.
    pub(crate) fn tell_waiters(&self, old: u64) {
        if old & AWAITED != 0 {
            notify_all(&self.extra().ended);
        }
    }

    /// Forbids queueing until the result is dropped.
    pub(crate) fn begin_cancel(&self) -> Cancelling<'_> {
        let mut state = self.extra().state.lock();
        state.cancels += 1;
        self.header().set_blocked(CANCELLING, true);
        Cancelling(self)
    }

    pub(crate) fn disable(&self) -> Result<(), DisableError> {
        let mut state = self.extra().state.lock();
        let depth = state.depth.checked_add(1);
        state.depth = depth.ok_or(DisableError::DepthOverflow)?;
        self.header().set_blocked(DISABLED, true);
        Ok(())
    }

    /// Removes one level; returns whether it was the last.
    pub(crate) fn enable(&self) -> Result<bool, NotDisabled> {
        let mut state = self.extra().state.lock();
        state.depth = state.depth.checked_sub(1).ok_or(NotDisabled)?;
        if state.depth == 0 {
            self.header().set_blocked(DISABLED, false);
        }
        Ok(state.depth == 0)
    }

    /// The state under the lock of [`Extra`], if there is an `Extra`.
    pub(crate) fn known_state(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.header().known_extra()?.state.lock())
    }

    /// Drops the handle unless it is the last one, which is returned.
    pub(crate) fn drop_unless_last(self) -> Option<Self> {
        let others = |refs: u32| (refs > 1).then(|| refs - 1);
        let refs = &self.header().refs;
        // Ordering: Release, as in `drop_ref`: the uses of each handle come before the item is
        // freed.
        let dropped = refs.fetch_update(Ordering::Release, Ordering::Relaxed, others);
        if dropped.is_err() {
            return Some(self);
        }
        std::mem::forget(self);
        None
    }
}

pub(crate) struct Cancelling<'a>(&'a ReusableRef);

impl Drop for Cancelling<'_> {
    fn drop(&mut self) {
        let mut state = self.0.extra().state.lock();
        state.cancels -= 1;
        if state.cancels == 0 {
            self.0.header().set_blocked(CANCELLING, false);
        }
    }
}

impl Clone for ReusableRef {
    fn clone(&self) -> Self {
        self.header().add_ref();
        Self(self.0)
    }
}

impl Drop for ReusableRef {
    fn drop(&mut self) {
        // SAFETY: the handle is not used after this.
        unsafe { self.0.drop_ref() };
    }
}
