//! Items: what a workqueue runs.
//!
//! Every item begins with a [`Header`]; behind it lies a function, what it captures, or a result.
//! Entries of queues name items by plain pointers. What keeps an item alive is its
//! [word](word): PENDING, RUNNING or HANDLES. Who clears the last of them frees it. A handle, and
//! an entry that a cancel has left behind, count in `refs`; HANDLES is there while `refs` is not 0.
//!
//! The events on the word, and why none is lost, are in `PROTOCOL.md`, part *item*.

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
use std::ptr::NonNull;
use word::Seq;

/// So many handles an item may have, with a margin for threads that pass it at once.
const MAX_REFS: u32 = u32::MAX / 2;

/// What every item begins with: 32 bytes, so that a closure of 32 bytes makes it one cache line.
pub(crate) struct Header {
    vtable: &'static VTable,
    word: AtomicU64,
    /// Handles, and entries that cancels have left behind.
    refs: AtomicU32,
    /// Where its entry is in the queue of its pwq. A hint, checked under the pool's lock.
    position: AtomicU32,
    /// Of a closure: who waits for its end. Of a reusable item: an [`Extra`].
    extra: AtomicPtr<()>,
}

/// What differs from item to item.
pub(crate) struct VTable {
    /// Claims the item for the queueing with that number, runs and ends it.
    ///
    /// # Safety
    ///
    /// The item is of this table's type; the caller has the entry of that queueing.
    run: unsafe fn(ItemPtr, Seq, &RunScope<'_>) -> Result<(), NotRun>,
    /// # Safety
    ///
    /// The item is of this table's type, and nobody uses it any more.
    free: unsafe fn(ItemPtr),
    /// # Safety
    ///
    /// The item is of this table's type, and lives while the name is used.
    name: unsafe fn(ItemPtr) -> NonNull<str>,
    /// The type of its function.
    function_name: fn() -> &'static str,
    /// It is a work that its function may queue.
    is_work: bool,
    /// Of a task: moves the result out.
    ///
    /// # Safety
    ///
    /// The end has been seen, the result was not taken, and there is room for it at the pointer.
    take: unsafe fn(ItemPtr, *mut ()),
    /// Of a task: drops the function and ends the task with an error.
    ///
    /// # Safety
    ///
    /// The caller has cleared PENDING and set RUNNING.
    discard: unsafe fn(ItemPtr, JoinError),
}

/// Names a function that items run.
#[derive(Clone, Copy)]
pub(crate) struct Function(&'static VTable);

impl Function {
    pub(crate) fn key(self) -> usize {
        std::ptr::from_ref(self.0).addr()
    }

    pub(crate) fn name(self) -> &'static str {
        (self.0.function_name)()
    }

    pub(crate) fn is_work(self) -> bool {
        self.0.is_work
    }
}

/// Some function.
const UNKNOWN: *mut VTable = std::ptr::without_provenance_mut(1);

/// A function, or none, that others may look at.
pub(crate) struct FunctionCell(AtomicPtr<VTable>);

impl FunctionCell {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn set(&self, function: Function) {
        // Relaxed, here and below: a hint; what it points to has always been there.
        let function = std::ptr::from_ref(function.0);
        self.0.store(function.cast_mut(), Ordering::Relaxed);
    }

    /// Something is about to run, and which function is not known yet.
    #[inline]
    pub(crate) fn set_unknown(&self) {
        // Relaxed: the *start* that follows publishes it.
        self.0.store(UNKNOWN, Ordering::Relaxed);
    }

    /// What ran has ended.
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
        // SAFETY: but for the mark only tables that live for ever are stored.
        unsafe { function.as_ref() }.map(Function)
    }

    /// Whether something runs. Who is told that it has ended sees what it did.
    pub(crate) fn is_some(&self) -> bool {
        // Ordering: Acquire, pairs with the Release in `clear`.
        !self.0.load(Ordering::Acquire).is_null()
    }
}

/// A pointer to an item. Who has one says why the item lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ItemPtr(NonNull<Header>);

// SAFETY: what items hold is `Send`, and their headers are made of atomics.
unsafe impl Send for ItemPtr {}

/// Why an entry was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRun {
    /// The queueing was cancelled.
    Stale,
    /// The item runs elsewhere: the entry is to be parked.
    Elsewhere,
}

/// Is told of the steps of a run, by the item's name.
pub(crate) type Trace<'a> = dyn Fn(&str, TraceStep) + 'a;

/// What a run asks its worker, and tells it.
pub(crate) trait Runner {
    /// Whether an item that wants to run again may do so at once, after so many runs.
    fn may_rerun(&self, runs: u32) -> bool;

    /// It has run so many times more than once.
    fn has_rerun(&self, times: u32);

    /// The item has a name of its own.
    fn tell_name(&self, name: &str);

    /// Queues an item that wants to run again, and runs at the moment.
    fn requeue(&self, item: ItemPtr);

    /// The run has ended by a panic, with this message if there was a text.
    fn panicked(&self, item: &str, message: Option<&str>);

    /// *put back*: the item's entry was parked meanwhile, and *end* has cleared PARKED.
    fn put_back(&self, item: ItemPtr, parked: Parked);
}

/// Where a run takes place.
pub(crate) struct RunScope<'a> {
    /// Who is told that it begins and ends, if somebody wants to know.
    pub(crate) trace: Option<&'a Trace<'a>>,
    pub(crate) runner: &'a dyn Runner,
}

impl RunScope<'_> {
    fn tell(&self, item: ItemPtr, step: TraceStep) {
        if let Some(trace) = self.trace {
            // SAFETY: the item runs, so it lives.
            trace(unsafe { item.name() }, step);
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

    /// Where its entry is in the queue of its pwq, as far as is known.
    pub(crate) fn position(&self) -> u32 {
        // Relaxed: written and checked under the pool's lock.
        self.position.load(Ordering::Relaxed)
    }

    pub(crate) fn set_position(&self, position: u32) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// One more handle or entry. The caller has one, or runs the item. Returns how many there were.
    pub(crate) fn add_ref(&self) -> u32 {
        // Relaxed: the caller's own keeps the item alive; nothing is published.
        let before = self.refs.fetch_add(1, Ordering::Relaxed);
        if before >= MAX_REFS {
            // Who catches the panic again and again does not bring the count to 0.
            self.refs.fetch_sub(1, Ordering::Relaxed);
            panic!("more than {MAX_REFS} handles of one work");
        }
        before
    }

    /// One more, if there is any. The caller runs the item.
    fn add_to_refs(&self) -> bool {
        let one_more = |refs: u32| (refs > 0).then_some(refs + 1);
        // Relaxed: RUNNING keeps the item alive; nothing is published.
        self.refs
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }
}

impl ItemPtr {
    /// For a model, or a test, of what does not look at items.
    #[cfg(any(loom, test))]
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

    /// Asks for its first line. The item may have gone.
    #[inline]
    pub(crate) fn prefetch(self) {
        inflight_sync::prefetch_to_write(self.0.as_ptr());
    }

    /// What differs between the functions of items.
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
        // SAFETY: it lies in the item, which lives.
        unsafe { name.as_ref() }
    }

    /// Claims the item for its entry, runs it and ends it.
    ///
    /// # Safety
    ///
    /// The caller has the entry of that queueing, and gives it up unless the item is
    /// [`NotRun::Elsewhere`].
    #[inline]
    pub(crate) unsafe fn run(self, seq: Seq, scope: &RunScope<'_>) -> Result<(), NotRun> {
        // SAFETY: the entry keeps the item alive, by PENDING or by `refs`.
        let run = unsafe { self.header() }.vtable.run;
        // SAFETY: the table is the item's.
        unsafe { run(self, seq, scope) }
    }

    /// Gives a handle, or an entry that was left behind, up. Frees the item with the last one.
    ///
    /// # Safety
    ///
    /// The caller has one, and does not use it any more.
    pub(crate) unsafe fn drop_ref(self) {
        // SAFETY: what the caller has keeps the item alive.
        let header = unsafe { self.header() };
        // Ordering: AcqRel; what was done with each handle comes before the item is freed.
        if header.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: nobody has a handle.
            unsafe { self.drop_handles() };
        }
    }

    /// The same, where nobody expects the item's destructor to panic.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn release(self) {
        // SAFETY: handed on.
        let _ = contained(|| unsafe { self.drop_ref() });
    }

    /// Clears HANDLES.
    ///
    /// # Safety
    ///
    /// Nobody has a handle any more.
    unsafe fn drop_handles(self) {
        // SAFETY: HANDLES has kept the item alive until here.
        let header = unsafe { self.header() };
        // Ordering: AcqRel, pairs with the end of a run and with cancels, one of which comes last.
        let old = header.word.fetch_and(!word::HANDLES, Ordering::AcqRel);
        if old & (word::PENDING | word::RUNNING | word::TELLING) == 0 {
            // SAFETY: nothing keeps it alive.
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

    #[test]
    fn what_runs_may_be_unknown() {
        let item = ReusableRef::new(Nothing);
        // SAFETY: the handle keeps it alive.
        let function = unsafe { item.ptr().function() };
        let cell = FunctionCell::new();
        assert!(cell.get().is_none() && !cell.is_some());
        cell.set_unknown();
        assert!(cell.get().is_none() && cell.is_some());
        cell.set(function);
        assert_eq!(cell.get().map(Function::key), Some(function.key()));
        cell.clear();
        assert!(cell.get().is_none() && !cell.is_some());
    }

    /// A handle that is refused is not counted: however often that is, the item lives.
    #[test]
    fn handles_beyond_the_limit_are_refused_and_not_counted() {
        let work = ReusableRef::new(Nothing);
        let refs = &work.header().refs;
        refs.store(MAX_REFS, Ordering::Relaxed);
        assert!((0..3).all(|_| caught(|| work.clone()).is_err()));
        assert_eq!(refs.swap(1, Ordering::Relaxed), MAX_REFS);
    }
}
