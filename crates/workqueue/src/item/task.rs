//! A function that runs once, and the handle on its result, in one block of memory.
//!
//! The worker and the handle own the block together, and the last of them frees it. A worker that
//! finds no handle is the only owner, and needs no read-modify-write.

use super::word::*;
use super::{Header, ItemPtr, Name, NotRun, OwnHandle, RunScope, Runner, VTable};
use crate::error::{JoinError, PanicPayload};
use crate::panics::{Payload, caught, contained, dispose, message};
use crate::trace::TraceStep;
use inflight_sync::atomic::Ordering;
use inflight_sync::blocks;
use inflight_sync::cell::UnsafeCell;
use inflight_sync::wait::Notify;
use std::alloc::Layout;
use std::any::type_name;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};

/// For a task: its result has been taken.
const TAKEN: u64 = DISABLED;

/// A function that runs once, perhaps with its own name.
pub(crate) trait Job: Send + 'static {
    type Out: Send + 'static;

    /// The type of the user's function.
    fn function() -> &'static str;

    /// The name that its user has given it, or the type of the function.
    fn name(&self) -> &str {
        Self::function()
    }

    /// The result; or the name and payload of a panic. `tell` gets the user's name, if any.
    fn run(self, tell: impl FnOnce(&str)) -> Result<Self::Out, (Name, Payload)>;
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> Job for F {
    type Out = T;

    fn function() -> &'static str {
        type_name::<F>()
    }

    #[inline]
    fn run(self, _tell: impl FnOnce(&str)) -> Result<T, (Name, Payload)> {
        caught(self).map_err(|payload| (type_name::<F>().into(), payload))
    }
}

pub(crate) struct Named<F> {
    pub(crate) name: Name,
    pub(crate) f: F,
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> Job for Named<F> {
    type Out = T;

    fn function() -> &'static str {
        type_name::<F>()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn run(self, tell: impl FnOnce(&str)) -> Result<T, (Name, Payload)> {
        tell(&self.name);
        caught(self.f).map_err(|payload| (self.name, payload))
    }
}

type Outcome<T> = Result<T, Box<JoinError>>;

/// The function before the run, the result after it, at the same address.
#[repr(C)]
union Content<F: Job> {
    f: ManuallyDrop<F>,
    outcome: ManuallyDrop<Outcome<F::Out>>,
}

#[repr(C)]
struct Task<F: Job> {
    header: Header,
    /// The function belongs to the thread that cleared PENDING. The result belongs to the runner
    /// until RUNNING is cleared, then to the handle.
    content: UnsafeCell<Content<F>>,
}

/// A task that has not been queued yet, or whose queueing was refused.
pub(crate) struct NewTask<F> {
    item: ItemPtr,
    owns: PhantomData<F>,
}

/// The only handle on a task.
pub(crate) struct TaskHandle<T> {
    item: ItemPtr,
    result: PhantomData<T>,
}

// SAFETY: the function and the result are `Send`; the header is made of atomics.
unsafe impl<T: Send> Send for TaskHandle<T> {}
// SAFETY: a shared reference gives no access to the result.
unsafe impl<T: Send> Sync for TaskHandle<T> {}

impl<F: Job> Task<F> {
    const VTABLE: VTable = VTable {
        run: Self::run,
        free: Self::free,
        name: Self::name,
        function_name: F::function,
        own_handle: OwnHandle::None,
        take: |item, out| {
            // SAFETY: the caller has seen the end.
            let outcome = unsafe { Self::take(item) };
            // SAFETY: `out` has room for an outcome.
            unsafe { out.cast::<Outcome<F::Out>>().write(outcome) };
        },
        discard: Self::discard,
    };

    const LAYOUT: Layout = Layout::new::<Self>();

    #[inline]
    fn make(f: F) -> ItemPtr {
        let block = blocks::allocate(Self::LAYOUT).cast::<Self>();
        // SAFETY: the block has this layout and is not shared yet.
        unsafe {
            block.write(Self {
                header: Header::new(&Self::VTABLE, PENDING | HANDLES),
                content: UnsafeCell::new(Content {
                    f: ManuallyDrop::new(f),
                }),
            });
        }
        ItemPtr(block.cast())
    }

    /// # Safety
    ///
    /// The item is of this type and lives.
    unsafe fn of<'a>(item: ItemPtr) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { item.0.cast::<Self>().as_ref() }
    }

    /// # Safety
    ///
    /// The caller owns the function: it has cleared PENDING, or has the only pointer.
    unsafe fn take_function(&self) -> F {
        // SAFETY: the caller's promise: the function is there, and is taken once.
        self.content.with_mut(|p| unsafe { p.cast::<F>().read() })
    }

    unsafe fn name(item: ItemPtr) -> NonNull<str> {
        // SAFETY: a caller that asks for the name has the task before the run, or runs it.
        unsafe { Self::with_function(item, |f| NonNull::from(f.name())) }
    }

    /// # Safety
    ///
    /// The function is there, and is not taken meanwhile.
    unsafe fn with_function<R>(item: ItemPtr, look: impl FnOnce(&F) -> R) -> R {
        // SAFETY: so the item lives.
        let this = unsafe { Self::of(item) };
        // SAFETY: the caller's promise; the content does not change meanwhile.
        this.content.with(|p| look(unsafe { &*p.cast::<F>() }))
    }

    unsafe fn take(item: ItemPtr) -> Outcome<F::Out> {
        // SAFETY: the handle keeps the item alive.
        let this = unsafe { Self::of(item) };
        // SAFETY: the end has been seen, so the result is there and the handle's, which takes it
        // once.
        this.content
            .with_mut(|p| unsafe { p.cast::<Outcome<F::Out>>().read() })
    }

    /// Frees only the block.
    ///
    /// # Safety
    ///
    /// Nothing uses the item any more, and its payload has been taken.
    unsafe fn free_block(item: ItemPtr) {
        // SAFETY: it is from `make`, with the same pointer and layout.
        unsafe { blocks::free(item.0.cast(), Self::LAYOUT) };
    }

    /// Drops the waiter of a wait that was given up.
    ///
    /// # Safety
    ///
    /// The handle is gone, only the caller knows the item, and calls this once.
    #[inline]
    unsafe fn drop_waiter(header: &Header) {
        // Relaxed: the handle's actions came before its drop.
        let waiter = header.extra.load(Ordering::Relaxed).cast::<Notify>();
        if !waiter.is_null() {
            // SAFETY: from `Box::into_raw` in `take_or_wait`; no one else has taken it.
            contained(|| drop(unsafe { Box::from_raw(waiter) }));
        }
    }

    unsafe fn free(item: ItemPtr) {
        // SAFETY: the caller is the last user of the item.
        let header = unsafe { item.header() };
        let taken = header.word.load(Ordering::Relaxed) & TAKEN != 0;
        // SAFETY: it has ended, so the result is there unless it was taken.
        let outcome = (!taken).then(|| unsafe { Self::take(item) });
        contained(|| drop(outcome));
        // SAFETY: no one else knows the item.
        unsafe { Self::drop_waiter(header) };
        // After the user's destructors: an item that they spawn must have another address.
        // SAFETY: nothing uses the item any more.
        unsafe { Self::free_block(item) };
    }

    unsafe fn run(item: ItemPtr, seq: Seq, scope: &RunScope<'_>) -> Result<(), NotRun> {
        // SAFETY: the entry keeps the item alive, by PENDING or by `refs`.
        let this = unsafe { Self::of(item) };
        // Ordering: Acquire, pairs with the Release of the handle's drop.
        if this.header.word.load(Ordering::Acquire) & (HANDLES | PENDING) == PENDING {
            // SAFETY: there is no handle, so no other thread can clear PENDING: this is the only
            // pointer.
            return unsafe { Self::run_alone(item, scope) };
        }
        // SAFETY: the caller has the entry.
        unsafe { item.claim(seq) }?;
        scope.runs.set(true);
        let tell = Self::tracer(item, scope);
        tell(TraceStep::Started);
        // SAFETY: claimed.
        let f = unsafe { this.take_function() };
        let outcome = Self::outcome(f, scope.runner);
        tell(Self::step(&outcome));
        scope.runs.set(false);
        // SAFETY: this thread has set RUNNING, and the function has been taken.
        unsafe { Self::complete(item, outcome) };
        Ok(())
    }

    /// # Safety
    ///
    /// The caller has the only pointer to the item.
    unsafe fn run_alone(item: ItemPtr, scope: &RunScope<'_>) -> Result<(), NotRun> {
        scope.runs.set(true);
        let tell = Self::tracer(item, scope);
        // SAFETY: the caller's promise.
        let this = unsafe { Self::of(item) };
        // SAFETY: the same.
        let f = unsafe { this.take_function() };
        // SAFETY: the handle is gone, and the pointer is the only one.
        unsafe { Self::drop_waiter(&this.header) };
        tell(TraceStep::Started);
        let outcome = Self::outcome(f, scope.runner);
        let step = Self::step(&outcome);
        contained(|| drop(outcome));
        tell(step);
        scope.runs.set(false);
        // Not before: an item that the function spawns must have another address.
        // SAFETY: the function has been taken.
        unsafe { Self::free_block(item) };
        Ok(())
    }

    /// Traces the steps of a run, if tracing is on. The function has not been taken yet.
    #[inline]
    fn tracer<'a>(item: ItemPtr, scope: &RunScope<'a>) -> impl Fn(TraceStep) + use<'a, F> {
        let runner = scope.runner;
        let name = scope.traced.then(|| {
            // SAFETY: the caller is about to run the item, and no one else can.
            unsafe { Self::with_function(item, |f| f.name().to_owned()) }
        });
        move |step| {
            if let Some(name) = &name {
                runner.trace(name, step);
            }
        }
    }

    fn step(outcome: &Outcome<F::Out>) -> TraceStep {
        match outcome {
            Ok(_) => TraceStep::Ended,
            Err(_) => TraceStep::Panicked,
        }
    }

    #[inline]
    fn outcome(f: F, runner: &dyn Runner) -> Outcome<F::Out> {
        f.run(|name| runner.tell_name(name))
            .map_err(|(item, payload)| {
                runner.panicked(&item, message(&payload).as_deref());
                Box::new(JoinError::Panicked(PanicPayload::new(item, payload)))
            })
    }

    /// Publishes the result.
    ///
    /// # Safety
    ///
    /// The caller has set RUNNING, and the payload has been taken.
    unsafe fn complete(item: ItemPtr, outcome: Outcome<F::Out>) {
        // SAFETY: RUNNING keeps it alive.
        let this = unsafe { Self::of(item) };
        let outcome = ManuallyDrop::new(outcome);
        // SAFETY: no one else accesses the payload before RUNNING is cleared.
        this.content
            .with_mut(|p| unsafe { p.write(Content { outcome }) });
        let word = &this.header.word;
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let tells = seen & (AWAITED | HANDLES) == AWAITED | HANDLES;
            let new = seen & !(RUNNING | AWAITED) | if tells { TELLING } else { 0 };
            // Ordering: Release, pairs with the handle, which sees the end and takes the result;
            // Acquire, pairs with the Release of the handle's drop.
            match word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed) {
                // The handle may have freed the block already.
                Ok(_) if !tells => break,
                Ok(_) => {
                    // Ordering: Acquire, pairs with the swap in `take_or_wait`.
                    let waiter = this.header.extra.swap(ptr::null_mut(), Ordering::Acquire);
                    if !waiter.is_null() {
                        // SAFETY: from `Box::into_raw` in `take_or_wait`; the swap gave it to this
                        // thread.
                        let waiter = unsafe { Box::from_raw(waiter.cast::<Notify>()) };
                        // A waker's panic is not the function's.
                        contained(|| waiter.notify());
                    }
                    // Ordering: AcqRel, pairs with the handle's drop; one of the two comes last.
                    seen = word.fetch_and(!TELLING, Ordering::AcqRel);
                    break;
                }
                Err(now) => seen = now,
            }
        }
        if seen & HANDLES == 0 {
            // SAFETY: the handle is gone, and RUNNING or TELLING was the last.
            unsafe { Self::free(item) };
        }
    }

    unsafe fn discard(item: ItemPtr, why: JoinError) {
        // SAFETY: RUNNING, which the caller has set, keeps it alive.
        let this = unsafe { Self::of(item) };
        // SAFETY: the function was not claimed, so it is there, and with RUNNING it is the
        // caller's.
        let f = unsafe { this.take_function() };
        // The handle resolves whatever the function's destructor does.
        let dropped = caught(|| drop(f));
        // SAFETY: the caller has set RUNNING.
        unsafe { Self::complete(item, Err(Box::new(why))) };
        if let Err(payload) = dropped {
            if inflight_sync::thread::panicking() {
                dispose(payload);
            } else {
                std::panic::resume_unwind(payload);
            }
        }
    }
}

impl<F: Job> NewTask<F> {
    #[inline]
    pub(crate) fn new(f: F) -> Self {
        Self {
            item: Task::<F>::make(f),
            owns: PhantomData,
        }
    }

    pub(crate) fn ptr(&self) -> ItemPtr {
        self.item
    }

    /// The handle, once it has been queued.
    #[inline]
    pub(crate) fn into_handle(self) -> TaskHandle<F::Out> {
        TaskHandle {
            item: self.item,
            result: PhantomData,
        }
    }

    /// Its queueing was refused: the handle gives the reason.
    pub(crate) fn reject(self, why: JoinError) -> TaskHandle<F::Out> {
        let handle = self.into_running();
        handle.discard(why);
        handle
    }

    /// The handle of a task that is not queued; RUNNING is the caller's.
    fn into_running(self) -> TaskHandle<F::Out> {
        let handle = self.into_handle();
        // Relaxed: the task is not shared yet.
        let word = &handle.header().word;
        word.store(RUNNING | HANDLES, Ordering::Relaxed);
        handle
    }

    /// Its queueing was refused: returns the function.
    pub(crate) fn into_function(self) -> F {
        // SAFETY: it is of this type.
        let task = unsafe { Task::<F>::of(self.item) };
        // SAFETY: no one else knows it.
        let f = unsafe { task.take_function() };
        // SAFETY: the function has been taken.
        unsafe { Task::<F>::free_block(self.item) };
        f
    }
}

/// The sender for a task that is never queued: it counts as running until its result is set.
pub(crate) struct Promise<T> {
    item: ItemPtr,
    result: PhantomData<T>,
}

// SAFETY: the result is `Send`; the header is made of atomics.
unsafe impl<T: Send> Send for Promise<T> {}

fn promised<T>() -> T {
    unreachable!("a promise is never queued")
}

impl<T: Send + 'static> Promise<T> {
    /// A promise, and the handle on its result.
    pub(crate) fn new() -> (Self, TaskHandle<T>) {
        let handle = NewTask::<fn() -> T>::new(promised).into_running();
        let (item, result) = (handle.item, PhantomData);
        (Self { item, result }, handle)
    }

    /// Never panics.
    pub(crate) fn complete(self, result: Result<T, JoinError>) {
        let item = ManuallyDrop::new(self).item;
        // SAFETY: RUNNING is the promise's, and a plain function need not be taken.
        unsafe { Task::<fn() -> T>::complete(item, result.map_err(Box::new)) };
    }
}

impl<T> Drop for Promise<T> {
    /// A promise that is dropped cancels its task.
    fn drop(&mut self) {
        // SAFETY: RUNNING, which is the promise's, keeps it alive.
        let discard = unsafe { self.item.header() }.vtable.discard;
        // SAFETY: RUNNING is the promise's, PENDING was never set for another thread, and the
        // function has not been taken.
        unsafe { discard(self.item, JoinError::Cancelled) };
    }
}

impl<T> TaskHandle<T> {
    pub(crate) fn ptr(&self) -> ItemPtr {
        self.item
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the handle keeps the item alive.
        unsafe { self.item.header() }
    }

    /// Whether the result is there, or has been taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.header().load() & (PENDING | RUNNING) == 0
    }

    #[inline]
    pub(crate) fn try_take(&mut self) -> Option<Result<T, JoinError>> {
        // Ordering: Acquire, pairs with `complete`.
        let seen = self.header().load();
        if seen & (PENDING | RUNNING) != 0 {
            return None;
        }
        if seen & TAKEN != 0 {
            return Some(Err(JoinError::Taken));
        }
        // Relaxed, both: only the handle reads it, or the thread that frees the item after it.
        let word = &self.header().word;
        if seen & TELLING == 0 {
            // The runner has left the item: no one else writes the word.
            word.store(seen | TAKEN, Ordering::Relaxed);
        } else {
            word.fetch_or(TAKEN, Ordering::Relaxed);
        }
        let mut outcome = MaybeUninit::<Outcome<T>>::uninit();
        // SAFETY: the end has been seen, and this is the first to take it.
        unsafe { (self.header().vtable.take)(self.item, outcome.as_mut_ptr().cast()) };
        // SAFETY: `take` has written it.
        let outcome = unsafe { outcome.assume_init() };
        Some(outcome.map_err(|error| *error))
    }

    /// The result, or `notify` is called when it is there.
    pub(crate) fn take_or_wait(&mut self, notify: Notify) -> Option<Result<T, JoinError>> {
        let waiter = Box::into_raw(Box::new(notify));
        // Ordering: Release, publishes the waiter to `complete`. The old one is the handle's own.
        let old = self.header().extra.swap(waiter.cast(), Ordering::Release);
        if !old.is_null() {
            // SAFETY: from `Box::into_raw` above; the swap gave it to the handle.
            drop(unsafe { Box::from_raw(old.cast::<Notify>()) });
        }
        // Ordering: Release, pairs with the Acquire of `complete`: it sees AWAITED and takes the
        // waiter, or this sees the end, and `try_take` acquires.
        let seen = self.header().word.fetch_or(AWAITED, Ordering::Release);
        if seen & (PENDING | RUNNING) != 0 {
            return None;
        }
        self.try_take()
    }

    /// The caller has cancelled the queueing, and set RUNNING for that.
    pub(crate) fn discard(&self, why: JoinError) {
        // SAFETY: the caller has set RUNNING.
        unsafe { (self.header().vtable.discard)(self.item, why) };
    }
}

impl<T> Drop for TaskHandle<T> {
    #[inline]
    fn drop(&mut self) {
        // Only the handle adds references, for entries that its cancels leave behind.
        let refs = &self.header().refs;
        // Ordering: AcqRel; the uses of the task come before it is freed.
        let is_last = refs.load(Ordering::Acquire) == 1 || refs.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            // SAFETY: the handle and all entries are gone.
            unsafe { self.item.drop_handles() };
        }
    }
}

// A closure of 32 bytes, or a result, is on one cache line with its header.
const _: () = assert!(mem::size_of::<Header>() <= 32 || cfg!(any(loom, shuttle)));
