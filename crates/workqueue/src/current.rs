//! What the calling thread runs, and what the code that it runs can ask.

mod blocking;

pub use blocking::blocking;

use crate::batch::Entry;
use crate::busy_worker::WorkerDesc;
use crate::error::WaitError;
use crate::hog;
use crate::item::ItemPtr;
use crate::item::word::Seq;
use crate::pool_core::WorkerId;
use crate::pwq::{Pwq, Taken};
use crate::system_shared::SystemShared;
use crate::worker_pool::{WorkerPool, WorkerShared};
use crate::workqueue_inner::{Count, WorkqueueInner};
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;
use inflight_sync::block_hook::{self, BlockHookGuard};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

inflight_sync::thread_local! {
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static CURRENT: RefCell<Option<Rc<Context>>> = RefCell::new(None);
    /// What runs here although nobody has queued it, innermost last.
    #[allow(clippy::missing_const_for_thread_local)]
    static INLINE: RefCell<Vec<Running>> = RefCell::new(Vec::new());
}

/// What a thread knows of itself while it runs the batches of a pool.
pub(crate) struct Context {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) me: WorkerId,
    pub(crate) shared: Arc<WorkerShared>,
    /// The pool in which it counts as running, if that is another one.
    own: Option<(Arc<WorkerPool>, WorkerId)>,
    /// The entry of its batch that it runs; `None` between items.
    started: Cell<Option<u32>>,
    /// Depth of blocking sections; only the outermost is the pool's business.
    blocked: Cell<usize>,
    /// It has blocked since its item began.
    has_blocked: Cell<bool>,
    /// The first entry of the batch, and where what its items append has to end.
    begin: Cell<u32>,
    append_end: Cell<u32>,
    /// It went back to its own CPUs before this batch.
    pub(crate) repatriated: Cell<bool>,
    /// Its items have queued through the lock.
    pub(crate) pushed: Cell<bool>,
}

#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// `None` if it runs on its caller's thread.
    item: Option<ItemPtr>,
    pwq: NonNull<Pwq>,
    pub(crate) colour: u8,
    /// Which entry of its batch it is.
    i: u32,
    /// Of a BH queue: it may not sleep.
    bh: bool,
}

impl Running {
    pub(crate) fn pwq(&self) -> &Pwq {
        // SAFETY: an item that runs is in flight, which keeps its pwq alive.
        unsafe { self.pwq.as_ref() }
    }

    /// Whether it has the only slot that an item which waits in `pwq` can get.
    pub(crate) fn holds_slot_for(&self, pwq: &Pwq) -> bool {
        let own = self.pwq();
        let same_limit = match (own.nr_active.as_ref(), pwq.nr_active.as_ref()) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => std::ptr::eq(own, pwq),
            _ => false,
        };
        same_limit && pwq.wq.has_one_slot(pwq)
    }
}

/// Calls within calls beyond this go to a worker.
const INLINE_DEPTH: usize = 4;

/// Something runs on its caller's thread.
pub(crate) struct Inline(());

/// Whether the calling thread may run one more.
pub(crate) fn may_begin_inline() -> bool {
    // While the thread's locals are being destroyed it runs nothing.
    let depth = INLINE.try_with(|inline| inline.borrow().len());
    depth.is_ok_and(|depth| depth < INLINE_DEPTH)
}

/// From now on the calling thread runs an item of that pwq.
pub(crate) fn begin_inline(pwq: &Pwq, colour: u8) -> Inline {
    let running = Running {
        item: None,
        pwq: NonNull::from(pwq),
        colour,
        i: 0,
        bh: false,
    };
    INLINE.with(|inline| inline.borrow_mut().push(running));
    Inline(())
}

impl Drop for Inline {
    fn drop(&mut self) {
        // It was there when this one began.
        let _ = INLINE.try_with(|inline| inline.borrow_mut().pop());
    }
}

impl Context {
    /// Of a worker, or of a thread that counts as running in `own`, if in any.
    pub(crate) fn new(
        pool: Arc<WorkerPool>,
        me: WorkerId,
        shared: Arc<WorkerShared>,
        own: Option<(Arc<WorkerPool>, WorkerId)>,
    ) -> Rc<Self> {
        Rc::new(Self {
            pool,
            me,
            shared,
            own,
            started: Cell::new(None),
            blocked: Cell::new(0),
            has_blocked: Cell::new(false),
            begin: Cell::new(0),
            append_end: Cell::new(0),
            repatriated: Cell::new(false),
            pushed: Cell::new(false),
        })
    }

    /// A batch that begins there has been taken; its items may append until it has so many entries.
    pub(crate) fn begin_batch(&self, begin: u32, most: u64) {
        self.begin.set(begin);
        let most = most.min(1 << 20) as u32;
        self.append_end.set(begin.wrapping_add(most));
    }

    /// Others have taken the rest of the batch, or it was returned: perhaps nobody looks any more
    /// whether what is behind its item waits.
    pub(crate) fn end_appends(&self) {
        self.append_end.set(self.begin.get());
    }

    #[inline]
    pub(crate) fn begin_item(&self, pwq: &Pwq, i: u32) {
        debug_assert_eq!(
            self.blocked.get(),
            0,
            "each section has ended with its item"
        );
        self.shared.charged.set(pwq.wq.number);
        self.has_blocked.set(false);
        self.started.set(Some(i));
    }

    #[inline]
    pub(crate) fn end_item(&self) {
        self.started.set(None);
    }

    #[inline]
    fn running(&self) -> Option<Running> {
        let i = self.started.get()?;
        let Taken { entry, pwq } = self.shared.batch.get(i);
        Some(Running {
            item: Some(entry.item),
            pwq,
            colour: entry.colour,
            i,
            bh: self.pool.attrs.bh,
        })
    }

    /// What the item that runs tells others of itself, and its entry.
    pub(crate) fn tell<R>(&self, tell: impl FnOnce(&mut WorkerDesc, u32) -> R) -> Option<R> {
        let entry = self.started.get()?;
        Some(tell(&mut self.shared.told.lock(), entry))
    }

    pub(crate) fn item_name(&self) -> String {
        let own = self.tell(|told, entry| told.name(entry)).flatten();
        own.unwrap_or_else(|| self.function_name().to_owned())
    }

    pub(crate) fn function_name(&self) -> &'static str {
        self.shared.function.get().map_or("", |f| f.name())
    }

    /// Whether what runs is a work that its function may queue.
    pub(crate) fn runs_work(&self) -> bool {
        self.shared.function.get().is_some_and(|f| f.is_work())
    }

    /// Whether the worker has been on its CPU, as far as is known, since the item began.
    pub(crate) fn has_stayed(&self) -> bool {
        // Relaxed: a hint.
        !self.has_blocked.get() && self.shared.found.load(Ordering::Relaxed) == 0
    }

    /// Counts what was found out while an item of that pwq ran. What is found later is not counted.
    #[inline]
    pub(crate) fn count_findings(&self, pwq: &Pwq) {
        if self.repatriated.replace(false) {
            pwq.wq.counted(Count::Repatriated, 1);
        }
        // Relaxed: a statistic.
        let found = self.shared.found.load(Ordering::Relaxed);
        if found != 0 {
            self.shared.found.store(0, Ordering::Relaxed);
            if found == FOUND_ASLEEP {
                pwq.wq.counted(Count::FoundAsleep, 1);
            } else if hog::is_hog(&self.pool.attrs) {
                pwq.wq.counted(Count::Intensive, 1);
            }
        }
    }

    /// *append*: behind the own batch, without the lock.
    #[inline]
    fn append(&self, pwq: &Pwq, item: ItemPtr, seq: Seq) -> bool {
        let Some(running) = self.running() else {
            return false;
        };
        let batch = &self.shared.batch;
        let room = self.append_end.get().wrapping_sub(batch.end()) as i32 > 0;
        let may = std::ptr::eq(running.pwq.as_ptr(), pwq)
            && room
            && self.blocked.get() == 0
            && pwq.may_append()
            && !batch.is_recalled();
        let appended = may && {
            let entry = Entry {
                item,
                seq,
                colour: running.colour,
                counted: false,
            };
            let taken = Taken {
                entry,
                pwq: running.pwq,
            };
            batch.append(self.begin.get(), taken)
        };
        self.pushed.set(!appended);
        if appended && batch.is_recalled_now() {
            // Whoever recalled it may not have seen the entry, and may look no more.
            let state = self.pool.return_batch(self.me, batch, running.i);
            self.end_appends();
            self.pool.unlock(state, false);
        }
        appended
    }
}

/// The item was found asleep, or computing for long.
pub(crate) const FOUND_ASLEEP: u8 = 1;
pub(crate) const FOUND_INTENSIVE: u8 = 2;

/// The thread is what its context says until this is dropped.
pub(crate) struct Installed {
    before: Option<Rc<Context>>,
    _hook: BlockHookGuard,
}

pub(crate) fn install(context: Rc<Context>) -> Installed {
    let hook = block_hook::install(context.clone());
    let before = CURRENT.with(|current| current.replace(Some(context)));
    Installed {
        before,
        _hook: hook,
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = CURRENT.try_with(|current| current.replace(before));
    }
}

fn current() -> Option<Rc<Context>> {
    // While the thread's locals are being destroyed it is no worker any more.
    CURRENT.try_with(|c| c.borrow().clone()).ok().flatten()
}

/// *append* for the calling thread, if it is a worker that runs an item of that pwq.
#[inline]
pub(crate) fn append(pwq: &Pwq, item: ItemPtr, seq: Seq) -> bool {
    let here = CURRENT.try_with(|current| {
        let current = current.borrow();
        current
            .as_ref()
            .is_some_and(|context| context.append(pwq, item, seq))
    });
    here.unwrap_or(false)
}

/// Whether the calling thread runs such an item, as a worker or because it has called it.
pub(crate) fn runs(such: impl Fn(&Running) -> bool) -> bool {
    let inline = INLINE.try_with(|inline| inline.borrow().iter().any(&such));
    let item = || CURRENT.try_with(|c| c.borrow().as_ref().and_then(|c| c.running()));
    inline.unwrap_or(false) || item().ok().flatten().is_some_and(|item| such(&item))
}

pub(crate) fn runs_item(item: ItemPtr) -> bool {
    runs(|running| running.item == Some(item))
}

/// Whether the calling thread runs an item of a queue of that system.
pub(crate) fn runs_item_in(system: &Arc<SystemShared>) -> bool {
    runs(|running| Arc::ptr_eq(&running.pwq().wq.shared, system))
}

/// Whether the calling thread runs an item of this queue.
pub(crate) fn runs_item_of(wq: &WorkqueueInner) -> bool {
    runs(|running| std::ptr::eq(&*running.pwq().wq, wq))
}

pub(crate) fn runs_any() -> bool {
    runs(|_| true)
}

/// Whether the caller is a BH item, which may not sleep.
pub(crate) fn may_not_sleep() -> bool {
    runs(|running| running.bh)
}

/// Whether an item that waits in `pwq` waits for the caller's own return.
pub(crate) fn is_behind_caller(pwq: &Pwq) -> bool {
    runs(|running| running.holds_slot_for(pwq))
}

/// The wait that the caller wants would be for its own return if it waited for such an item, or it
/// may not wait at all.
pub(crate) fn refuse_wait(own: bool) -> Result<(), WaitError> {
    if own || may_not_sleep() {
        return Err(WaitError::WouldDeadlock);
    }
    Ok(())
}

fn refuse_sleep() {
    // Who is being unwound has been told.
    assert!(
        !may_not_sleep() || inflight_sync::thread::panicking(),
        "an item of a BH workqueue may not sleep"
    );
}

/// The item that the calling worker runs, with its pwq.
pub(crate) fn with_running<R>(f: impl FnOnce(ItemPtr, &Pwq, &Context) -> R) -> Option<R> {
    let context = current()?;
    let running = context.running()?;
    Some(f(running.item?, running.pwq(), &context))
}
