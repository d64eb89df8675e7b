//! Items: what a workqueue runs.
//!
//! Every item begins with a [`Header`]. A function with its captures, or a result, follows. Entries
//! of queues refer to items by raw pointers. The item's [word] keeps it alive: PENDING,
//! RUNNING or HANDLES. The thread that clears the last of them frees the item. `refs` counts
//! handles and entries that a cancel has left behind; HANDLES is set while `refs` is not 0.
//!
//! `PROTOCOL.md`, part *item*, has the events on the word, and proves that none is lost.

mod extra;
mod non_reentrant;
mod reusable;
mod state;
mod task;
pub(crate) mod timer;
pub(crate) mod word;

pub(crate) use non_reentrant::Parked;
pub(crate) use reusable::{ReusableRef, Run};
pub(crate) use task::{Job, Named, NewTask, Promise, TaskHandle};

pub(crate) use crate::error::Name;

use crate::error::JoinError;
use crate::panics::contained;
use crate::trace::TraceStep;
use inflight_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::cell::Cell;
use std::ptr::NonNull;
use word::Seq;

/// The most handles of an item, with a margin for threads that exceed it at the same time.
const MAX_REFS: u32 = u32::MAX / 2;

/// The beginning of every item: 32 bytes, so that 32 more of a closure fill a cache line.
pub(crate) struct Header {
    vtable: &'static VTable,
    word: AtomicU64,
    /// Handles, and entries that cancels have left behind.
    refs: AtomicU32,
    /// The position of its entry in the FIFO of its pwq. A hint, checked under the pool's lock.
    position: AtomicU32,
    /// For a closure: the waiter for its end. For a reusable item: an `extra::Extra`.
    extra: AtomicPtr<()>,
}

pub(crate) struct VTable {
    /// Claims the item for the queueing with that number, runs it and ends the run.
    ///
    /// # Safety
    ///
    /// The item is of this table's type; the caller has the entry of that queueing.
    run: unsafe fn(ItemPtr, Seq, &RunScope<'_>) -> Result<(), NotRun>,
    /// # Safety
    ///
    /// The item is of this table's type, and nothing uses it any more.
    free: unsafe fn(ItemPtr),
    /// # Safety
    ///
    /// The item is of this table's type, and lives while the name is used.
    name: unsafe fn(ItemPtr) -> NonNull<str>,
    /// The type of its function.
    function_name: fn() -> &'static str,
    own_handle: OwnHandle,
    /// For a task: moves the result out.
    ///
    /// # Safety
    ///
    /// The end has been seen, the result is there, and so is room for it at the pointer.
    take: unsafe fn(ItemPtr, *mut ()),
    /// For a task: drops the function and ends the task with an error.
    ///
    /// # Safety
    ///
    /// The caller has cleared PENDING and set RUNNING.
    discard: unsafe fn(ItemPtr, JoinError),
}

/// Which handle on an item its function may have, to queue it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnHandle {
    None,
    Work,
    DelayedWork,
}

#[derive(Clone, Copy)]
pub(crate) struct Function(&'static VTable);

impl Function {
    pub(crate) fn key(self) -> usize {
        std::ptr::from_ref(self.0).addr()
    }

    pub(crate) fn name(self) -> &'static str {
        (self.0.function_name)()
    }

    pub(crate) fn own_handle(self) -> OwnHandle {
        self.0.own_handle
    }
}

const UNKNOWN: *mut VTable = std::ptr::without_provenance_mut(1);

/// The function that a worker runs, or none; other threads may read it.
pub(crate) struct FunctionCell(AtomicPtr<VTable>);

impl FunctionCell {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn set(&self, function: Function) {
        // Relaxed, here and below: a hint; the table is static.
        let function = std::ptr::from_ref(function.0);
        self.0.store(function.cast_mut(), Ordering::Relaxed);
    }

    /// Something is about to run, and its function is not known yet.
    #[inline]
    pub(crate) fn set_unknown(&self) {
        // Relaxed: the *start* that follows publishes it.
        self.0.store(UNKNOWN, Ordering::Relaxed);
    }

    /// The run has ended.
    #[inline]
    pub(crate) fn clear(&self) {
        // Ordering: Release, pairs with the Acquire in `is_some`.
        self.0.store(std::ptr::null_mut(), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<Function> {
        let function = self.0.load(Ordering::Relaxed);
        if function == UNKNOWN {
            return None;
        }
        // SAFETY: except for the mark, only static tables are stored.
        unsafe { function.as_ref() }.map(Function)
    }

    /// Whether something runs. If not, the caller sees what the last run did.
    pub(crate) fn is_some(&self) -> bool {
        // Ordering: Acquire, pairs with the Release in `clear`.
        !self.0.load(Ordering::Acquire).is_null()
    }
}

/// A pointer to an item. Each use must say why the item lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ItemPtr(NonNull<Header>);

// SAFETY: the contents of items are `Send`, and their headers are made of atomics.
unsafe impl Send for ItemPtr {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRun {
    /// The queueing was cancelled.
    Stale,
    /// The item runs elsewhere: the entry has to be parked.
    Elsewhere,
}

/// The worker's side of a run.
pub(crate) trait Runner {
    /// Whether an item that wants to run again may do so at once, after `runs` runs.
    fn may_rerun(&self, runs: u32) -> bool;

    fn has_rerun(&self, times: u32);

    fn tell_name(&self, name: &str);

    /// The run of that item has begun, or ended. Called only if the steps are traced.
    fn trace(&self, item: &str, step: TraceStep);

    /// Queues an item that wants to run again, and still runs.
    fn requeue(&self, item: ItemPtr);

    /// The run has panicked; `message` is the panic's text, if it has one.
    fn panicked(&self, item: &str, message: Option<&str>);

    /// *put back*: the item's entry was parked meanwhile, and *end* has cleared PARKED.
    fn put_back(&self, item: ItemPtr, parked: Parked);
}

pub(crate) struct RunScope<'a> {
    /// Whether the start and the end are traced.
    pub(crate) traced: bool,
    pub(crate) runner: &'a dyn Runner,
    /// Set from the claim until right before the end of the run: only then the run keeps the item
    /// alive.
    pub(crate) runs: &'a Cell<bool>,
}

impl RunScope<'_> {
    fn tell(&self, item: ItemPtr, step: TraceStep) {
        if self.traced {
            // SAFETY: the item runs, so it lives.
            self.runner.trace(unsafe { item.name() }, step);
        }
    }
}

impl Header {
    fn new(vtable: &'static VTable, word: u64) -> Self {
        Self {
            vtable,
            word: AtomicU64::new(word),
            refs: AtomicU32::new(1),
            position: AtomicU32::new(0),
            extra: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The position of its entry in the FIFO of its pwq, as last written.
    pub(crate) fn position(&self) -> u32 {
        // Relaxed: written and checked under the pool's lock.
        self.position.load(Ordering::Relaxed)
    }

    pub(crate) fn set_position(&self, position: u32) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Adds a reference, for who has one or runs the item. Returns the number before.
    pub(crate) fn add_ref(&self) -> u32 {
        // Relaxed: the caller's own reference keeps the item alive; nothing is published.
        let before = self.refs.fetch_add(1, Ordering::Relaxed);
        if before >= MAX_REFS {
            // A caller that catches the panic repeatedly must not make the count overflow.
            self.refs.fetch_sub(1, Ordering::Relaxed);
            panic!("more than {MAX_REFS} handles of one work");
        }
        before
    }

    /// Adds a reference, if there is one already. The caller runs the item.
    fn add_to_refs(&self) -> bool {
        let one_more = |refs: u32| (refs > 0).then_some(refs + 1);
        // Relaxed: RUNNING keeps the item alive; nothing is published.
        self.refs
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }
}

impl ItemPtr {
    /// For models and tests that do not use the item.
    #[cfg(any(test, loom))]
    pub(crate) const fn dangling() -> Self {
        Self(NonNull::dangling())
    }

    /// # Safety
    ///
    /// The item lives as long as the reference is used.
    pub(crate) unsafe fn header<'a>(self) -> &'a Header {
        // SAFETY: the caller's promise.
        unsafe { self.0.as_ref() }
    }

    /// Prefetches the item's first cache line. The item may have been freed.
    #[inline]
    pub(crate) fn prefetch(self) {
        inflight_sync::prefetch_to_write(self.0.as_ptr());
    }

    /// The function of the item.
    ///
    /// # Safety
    ///
    /// The item lives.
    #[inline]
    pub(crate) unsafe fn function(self) -> Function {
        // SAFETY: the caller's promise.
        Function(unsafe { self.header() }.vtable)
    }

    /// # Safety
    ///
    /// The item lives as long as the name is used.
    pub(crate) unsafe fn name<'a>(self) -> &'a str {
        // SAFETY: the item lives.
        let name = unsafe { self.header() }.vtable.name;
        // SAFETY: the table is the item's.
        let name = unsafe { name(self) };
        // SAFETY: the name is in the item, which lives.
        unsafe { name.as_ref() }
    }

    /// Claims the item for its entry, runs it and ends the run.
    ///
    /// # Safety
    ///
    /// The caller has the entry of that queueing, and gives it up unless the result is
    /// [`NotRun::Elsewhere`].
    #[inline]
    pub(crate) unsafe fn run(self, seq: Seq, scope: &RunScope<'_>) -> Result<(), NotRun> {
        // SAFETY: the entry keeps the item alive, by PENDING or by `refs`.
        let run = unsafe { self.header() }.vtable.run;
        // SAFETY: the table is the item's.
        unsafe { run(self, seq, scope) }
    }

    /// Drops a reference, of a handle or of an entry left behind. The last one frees the item.
    ///
    /// # Safety
    ///
    /// The caller has the reference, and does not use it any more.
    pub(crate) unsafe fn drop_ref(self) {
        // SAFETY: the caller's reference keeps the item alive.
        let header = unsafe { self.header() };
        // Ordering: AcqRel; the uses of each handle come before the item is freed.
        if header.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: there is no handle any more.
            unsafe { self.drop_handles() };
        }
    }

    /// As `drop_ref`, but contains a panic of the item's destructor.
    ///
    /// # Safety
    ///
    /// As for `drop_ref`.
    pub(crate) unsafe fn release(self) {
        // SAFETY: the caller's promise is that of `drop_ref`.
        let _ = contained(|| unsafe { self.drop_ref() });
    }

    /// Clears HANDLES.
    ///
    /// # Safety
    ///
    /// There is no handle any more.
    #[inline]
    unsafe fn drop_handles(self) {
        // SAFETY: HANDLES has kept the item alive until here.
        let header = unsafe { self.header() };
        let in_use = |word| word & (word::PENDING | word::RUNNING | word::TELLING) != 0;
        // Ordering: Acquire, pairs with the end of a run and with cancels. If none of them keeps
        // the item, no one can change its word any more.
        let mut old = header.word.load(Ordering::Acquire);
        if in_use(old) {
            // HANDLES is set, so this clears it, in one instruction that also returns the word.
            // Ordering: AcqRel, pairs with the same, one of which comes last.
            old = header.word.fetch_sub(word::HANDLES, Ordering::AcqRel);
            debug_assert_ne!(old & word::HANDLES, 0, "only this call clears it");
        }
        if !in_use(old) {
            // SAFETY: nothing keeps it alive any more.
            unsafe { (header.vtable.free)(self) };
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::panics::caught;
    use std::ops::ControlFlow;

    pub(super) struct Nothing;

    impl Run for Nothing {
        fn function() -> &'static str {
            "nothing"
        }

        fn run(&self) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }

    /// A refused handle is not counted: however many are refused, the item lives.
    #[test]
    fn handles_beyond_the_limit_are_refused_and_not_counted() {
        let work = ReusableRef::new(Nothing);
        let refs = &work.header().refs;
        refs.store(MAX_REFS, Ordering::Relaxed);
        assert!((0..3).all(|_| caught(|| work.clone()).is_err()));
        assert_eq!(refs.swap(1, Ordering::Relaxed), MAX_REFS);
    }
}
