//! What the calling thread runs, and what the running code can ask about it.

mod blocking;

pub(crate) use blocking::begin_blocking;
pub use blocking::blocking;

use crate::batch::Entry;
use crate::busy_worker::WorkerDesc;
use crate::error::WaitError;
use crate::flush;
use crate::item::word::Seq;
use crate::item::{Function, ItemPtr, OwnHandle};
use crate::pool_core::WorkerId;
use crate::pwq::{Pwq, Taken};
use crate::worker_pool::{PoolState, Settlement, WorkerPool, WorkerShared};
use crate::workqueue_inner::{Count, WorkqueueInner};
use inflight_sync::block_hook::{self, BlockHookGuard};
use inflight_sync::{Arc, MutexGuard};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

inflight_sync::thread_local! {
    /// The context that is installed, if any. A pointer has no destructor: an access is one load.
    static CURRENT: Cell<Option<NonNull<Context>>> = const { Cell::new(None) };
    /// Items that run on this thread without having been queued, innermost last.
    static INLINE: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// The state of a thread while it runs the batches of a pool.
pub(crate) struct Context {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) me: WorkerId,
    pub(crate) shared: Arc<WorkerShared>,
    /// The pool in which the thread counts as running, if that is another one.
    own: Option<(Arc<WorkerPool>, WorkerId)>,
    /// The entry of its batch that it runs; `None` between items.
    started: Cell<Option<u32>>,
    /// Whether that entry's item runs. What runs before or after that, such as a waker or a
    /// destructor, must not use the item.
    pub(crate) item_runs: Cell<bool>,
    /// The depth of blocking sections; only the outermost one concerns the pool.
    blocked: Cell<usize>,
    /// Whether the thread has blocked since its item began.
    has_blocked: Cell<bool>,
    /// The first entry of the batch, and the limit up to which its items may append.
    begin: Cell<u32>,
    append_end: Cell<u32>,
    /// Whether it moved back to its own CPUs before this batch.
    pub(crate) repatriated: Cell<bool>,
    /// Whether its items have queued an entry through the lock.
    pub(crate) pushed: Cell<bool>,
}

#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// `None` if it runs on its caller's thread, has ended, or was cancelled.
    pub(crate) item: Option<ItemPtr>,
    pwq: NonNull<Pwq>,
    pub(crate) colour: u8,
    /// Its entry in the batch.
    i: u32,
    /// Whether it is of a BH queue and may not sleep.
    bh: bool,
}

impl Running {
    pub(crate) fn pwq(&self) -> &Pwq {
        // SAFETY: an item that runs is in flight, which keeps its pwq alive.
        unsafe { self.pwq.as_ref() }
    }

    /// Whether it is queued again, in that workqueue.
    pub(crate) fn is_queued_in(&self, wq: &WorkqueueInner) -> bool {
        let pwq = self.item.and_then(|item| {
            // SAFETY: it runs on the calling thread and has not ended, so it lives.
            flush::pwq_of(unsafe { item.header() })
        });
        pwq.is_some_and(|pwq| std::ptr::eq(&*pwq.wq, wq))
    }

    /// Whether it holds the only slot that an item waiting in `pwq` can get.
    pub(crate) fn holds_slot_for(&self, pwq: &Pwq) -> bool {
        let own = self.pwq();
        let same_limit = match (own.nr_active.as_ref(), pwq.nr_active.as_ref()) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => own.is_in_line_with(pwq),
            _ => false,
        };
        same_limit && pwq.wq.has_one_slot(pwq)
    }
}

/// Calls nested deeper than this go to a worker.
const INLINE_DEPTH: usize = 4;

/// While it exists, an item runs on its caller's thread.
pub(crate) struct Inline(());

pub(crate) fn may_begin_inline() -> bool {
    // A thread whose locals are being destroyed runs nothing.
    let depth = INLINE.try_with(|inline| inline.borrow().len());
    depth.is_ok_and(|depth| depth < INLINE_DEPTH)
}

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
        // The entry was there when this one began.
        let _ = INLINE.try_with(|inline| inline.borrow_mut().pop());
    }
}

impl Context {
    /// For a worker, or for a thread that counts as running in `own`.
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
            item_runs: Cell::new(false),
            blocked: Cell::new(0),
            has_blocked: Cell::new(false),
            begin: Cell::new(0),
            append_end: Cell::new(0),
            repatriated: Cell::new(false),
            pushed: Cell::new(false),
        })
    }

    /// For the calling thread, which joins the pool as a guest: a rescuer, or a worker of another
    /// pool that counts as running in `own`.
    pub(crate) fn attach(
        pool: &Arc<WorkerPool>,
        state: &mut PoolState,
        thread_name: Option<Arc<str>>,
        own: Option<(Arc<WorkerPool>, WorkerId)>,
    ) -> Rc<Self> {
        let shared = WorkerShared::new(&pool.shared, thread_name);
        let me = state.attach(shared.clone(), own.clone());
        Self::new(pool.clone(), me, shared, own)
    }

    /// A guest has run all its entries.
    pub(crate) fn end_batch(&self) -> MutexGuard<'_, PoolState> {
        let mut state = self.pool.lock();
        state.end_batch(self.me, &self.shared.batch, &Settlement::default());
        state
    }

    /// A guest leaves.
    pub(crate) fn detach(&self) {
        self.pool.leave(self.end_batch(), self.me);
    }

    /// A batch begins at `begin`; its items may append up to `most` entries.
    pub(crate) fn begin_batch(&self, begin: u32, most: u64) {
        self.begin.set(begin);
        let most = most.min(1 << 20) as u32;
        self.append_end.set(begin.wrapping_add(most));
    }

    /// The rest was taken back: perhaps no worker looks any more whether entries wait.
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
            item: self.item_runs.get().then_some(entry.item),
            pwq,
            colour: entry.colour(),
            i,
            bh: self.pool.attrs.bh,
        })
    }

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

    pub(crate) fn own_handle(&self) -> OwnHandle {
        let function = self.shared.function.get();
        function.map_or(OwnHandle::None, Function::own_handle)
    }

    pub(crate) fn has_blocked(&self) -> bool {
        self.has_blocked.get()
    }

    /// An item of that pwq is the first to run after the worker has moved back to its CPUs.
    #[inline]
    pub(crate) fn count_repatriation(&self, pwq: &Pwq) {
        if self.repatriated.replace(false) {
            pwq.wq.counted(Count::Repatriated);
        }
    }

    /// *append*: makes the item pending with `set`, and adds it behind the worker's own batch,
    /// without the lock. `None` if it has to be queued.
    #[inline]
    fn append<E>(
        &self,
        pwq: &Pwq,
        item: ItemPtr,
        set: impl FnOnce() -> Result<Seq, E>,
    ) -> Option<Result<(), E>> {
        let running = self.running()?;
        let batch = &self.shared.batch;
        let room = self.append_end.get().wrapping_sub(batch.end()) as i32 > 0;
        let may = std::ptr::eq(running.pwq.as_ptr(), pwq)
            && room
            && batch.has_room(self.begin.get())
            && self.blocked.get() == 0
            && pwq.may_append()
            && !batch.is_recalled();
        if !may {
            self.pushed.set(true);
            return None;
        }
        let seq = match set() {
            Ok(seq) => seq,
            Err(why) => return Some(Err(why)),
        };
        batch.append(
            self.begin.get(),
            Taken {
                entry: Entry::appended(item, seq, running.colour),
                pwq: running.pwq,
            },
        );
        if batch.is_recalled_now() {
            // The thread that recalled the batch may not have seen the entry, and may not look
            // again.
            let state = self.pool.return_batch(self.me, batch, running.i);
            self.end_appends();
            self.pool.unlock(state, false);
        }
        Some(Ok(()))
    }
}

/// The thread has this context until this is dropped.
pub(crate) struct Installed {
    before: Option<NonNull<Context>>,
    _context: Rc<Context>,
    _hook: BlockHookGuard,
}

/// Whether the calling thread can run entries. One whose locals are being destroyed may not be able
/// to: it must take none.
pub(crate) fn can_install() -> bool {
    block_hook::can_install()
}

pub(crate) fn install(context: Rc<Context>) -> Installed {
    let hook = block_hook::install(context.clone());
    let pointer = NonNull::from(&*context);
    Installed {
        before: CURRENT.with(|current| current.replace(Some(pointer))),
        _hook: hook,
        _context: context,
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.before));
    }
}

/// Calls `f` with the calling thread's context, if it has one.
#[inline]
fn with_current<R>(f: impl FnOnce(&Context) -> R) -> Option<R> {
    let context = CURRENT.try_with(Cell::get).ok().flatten()?;
    // SAFETY: `Installed` keeps it alive, and this thread drops that after the call.
    Some(f(unsafe { context.as_ref() }))
}

/// *append* for the calling thread, if it is a worker that runs an item of that pwq.
#[inline]
pub(crate) fn append<E>(
    pwq: &Pwq,
    item: ItemPtr,
    set: impl FnOnce() -> Result<Seq, E>,
) -> Option<Result<(), E>> {
    with_current(|context| context.append(pwq, item, set)).flatten()
}

/// Whether the calling thread runs such an item, as a worker or inline.
pub(crate) fn runs(such: impl Fn(&Running) -> bool) -> bool {
    let inline = INLINE.try_with(|inline| inline.borrow().iter().any(&such));
    let item = || with_current(Context::running).flatten();
    inline.unwrap_or(false) || item().is_some_and(|item| such(&item))
}

pub(crate) fn runs_item(item: ItemPtr) -> bool {
    runs(|running| running.item == Some(item))
}

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

/// Refuses a wait that would be for the caller's own return (`own`), and any wait of a BH item.
pub(crate) fn refuse_wait(own: bool) -> Result<(), WaitError> {
    if own || may_not_sleep() {
        return Err(WaitError::WouldDeadlock);
    }
    Ok(())
}

fn refuse_sleep() {
    // A thread that unwinds has panicked already.
    assert!(
        !may_not_sleep() || inflight_sync::thread::panicking(),
        "an item of a BH workqueue may not sleep"
    );
}

/// Calls `f` with what the calling worker runs, from its start until what its end calls has
/// returned.
pub(crate) fn with_running<R>(f: impl FnOnce(&Running, &Context) -> R) -> Option<R> {
    with_current(|context| Some(f(&context.running()?, context))).flatten()
}
