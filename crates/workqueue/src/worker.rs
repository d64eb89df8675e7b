//! A worker thread, and what the code it runs can ask it.

use crate::attrs::Mode;
use crate::door::{Count, Shared};
use crate::hand::{Drawn, Hand, Kept, Pass, Whence};
use crate::item::{Ended, Instance, Item, Ran, Run, WorkRef};
use crate::limits::gate_of;
use crate::machine::{Next, Rest};
use crate::meter::Charged;
use crate::panics::contained;
use crate::pool::{Deed, Entry, Env, Pool};
use crate::sampler::proc;
use crate::submitter;
use crate::threads::End;
use crate::trace::{self, TraceStep};
use crate::work::Queued;
use inflight_sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use inflight_sync::observer::{self, BlockObserver};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, Parker, cpu};
use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

inflight_sync::thread_local! {
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static CURRENT: RefCell<Option<Rc<Context>>> = RefCell::new(None);
    #[allow(clippy::missing_const_for_thread_local)]
    static SYSTEM: RefCell<Option<Arc<Env>>> = RefCell::new(None);
    /// What runs here although nobody has queued it, innermost last.
    #[allow(clippy::missing_const_for_thread_local)]
    static INLINE: RefCell<Vec<Running>> = RefCell::new(Vec::new());
}

/// What a thread knows of itself while it is a worker.
struct Context {
    pool: Arc<Pool>,
    me: usize,
    /// The item it runs and the queue it came through; `None` between items.
    item: Cell<Option<Running>>,
    /// Depth of blocking sections; only the outermost is the pool's business.
    blocked: Cell<usize>,
    /// Workers that were brought because the item blocked.
    wakeups: Cell<u64>,
    /// It may have more in hand than what it runs.
    visits: Cell<bool>,
    /// It has, since that was asked for last.
    has_blocked: Cell<bool>,
    seen: Arc<Seen>,
}

/// What a worker and the timekeeper tell each other. Relaxed: statistics and hints.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What the timekeeper has found out about the item.
    pub(crate) found: AtomicU8,
    /// The function that runs, if it may be found asleep; else 0.
    pub(crate) function: AtomicUsize,
    /// Whose CPU time it uses.
    pub(crate) charged: Charged,
    /// What it has taken from its pool. No hint: whoever locks it finds what is there.
    pub(crate) hand: Hand,
}

impl Seen {
    pub(crate) fn new(env: &Env) -> Arc<Self> {
        Arc::new(Self {
            charged: Charged::new(&env.metering),
            ..Self::default()
        })
    }
}

/// The item was found asleep, or computing for long.
pub(crate) const FOUND_ASLEEP: u8 = 1;
pub(crate) const FOUND_INTENSIVE: u8 = 2;

/// What a thread is running.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// 0 if it runs on its caller's thread.
    pub(crate) work: usize,
    pub(crate) queue: usize,
    pub(crate) gate: usize,
    /// Of a BH queue: it may not sleep.
    pub(crate) bh: bool,
}

/// A run that ended with a panic nobody can tell anything of.
const LOST: Ran = Ran::Over(Ended::Panicked(None));

/// A work that is to run again does so at once up to so many runs, and none begins later than that
/// after the first.
const REPEATS: u32 = if cfg!(loom) { 2 } else { 32 };
const REPEATS_FOR: Duration = Duration::from_micros(20);

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

/// H3: from now on the calling thread runs an item.
pub(crate) fn begin_inline(item: Running) -> Inline {
    INLINE.with(|inline| inline.borrow_mut().push(item));
    Inline(())
}

impl Drop for Inline {
    fn drop(&mut self) {
        // It was there when this one began.
        let _ = INLINE.try_with(|inline| inline.borrow_mut().pop());
    }
}

impl Context {
    fn new(pool: &Arc<Pool>, me: usize, seen: Arc<Seen>) -> Rc<Self> {
        Rc::new(Self {
            pool: pool.clone(),
            me,
            item: Cell::new(None),
            blocked: Cell::new(0),
            wakeups: Cell::new(0),
            visits: Cell::new(false),
            has_blocked: Cell::new(false),
            seen,
        })
    }

    /// Counts what has happened while an item of that queue ran. What the timekeeper finds out
    /// later is not counted.
    fn count(&self, queue: &Shared) {
        let wakeups = self.wakeups.take();
        if wakeups > 0 {
            queue.counted(Count::CmWakeup, wakeups);
        }
        if !self.pool.env().sampling.on {
            return;
        }
        // Relaxed: a statistic.
        match self.seen.found.load(Ordering::Relaxed) {
            FOUND_ASLEEP => queue.counted(Count::FoundAsleep, 1),
            FOUND_INTENSIVE => queue.counted(Count::Intensive, 1),
            _ => return,
        }
        self.seen.found.store(0, Ordering::Relaxed);
    }

    /// N5: what it has not begun is anybody's.
    fn give_back(&self) {
        if self.visits.replace(false) {
            self.pool.recall_from(self.me);
        }
    }

    /// V5: see [`keep`].
    fn keep<R: Run + ?Sized>(
        &self,
        queue: &Arc<Shared>,
        gate: usize,
        work: &Item<R>,
        handle: &mut impl FnMut() -> WorkRef,
    ) -> Own {
        if !self.pool.is_timed() || self.pool.place().bh {
            return Own::Enter;
        }
        while self.visits.get() {
            let hand = &self.seen.hand;
            match hand.keep(self.pool.key(), gate, work, &mut *handle) {
                Kept::Answer(queued) => return Own::Answer(queued),
                Kept::Ask => queue.let_keep(gate, &self.pool, self.me).perform(),
                Kept::No => break,
            }
        }
        Own::Post
    }

    /// A blocking section begins. Returns what the pool needs.
    fn enter(&self) -> Deed {
        // Between items the worker sleeps on the pool's own account. In a pool of BH items nobody
        // else may run.
        if self.item.get().is_none() || self.pool.place().bh {
            return Deed::default();
        }
        let depth = self.blocked.get();
        self.blocked.set(depth + 1);
        if depth > 0 {
            return Deed::default();
        }
        self.has_blocked.set(true);
        self.give_back();
        let deed = self.pool.block(self.me);
        self.wakeups
            .set(self.wakeups.get() + u64::from(deed.brings()));
        deed
    }

    fn leave(&self) {
        if self.item.get().is_none() || self.pool.place().bh {
            return;
        }
        let depth = self.blocked.get() - 1;
        self.blocked.set(depth);
        if depth == 0 {
            self.pool.unblock(self.me).perform();
            self.pool.meter();
        }
    }
}

impl Context {
    /// Runs the item, as if inside a blocking section if it is known to sleep.
    fn guarded<R>(&self, work: &WorkRef, run: impl FnOnce() -> R) -> R {
        let env = self.pool.env();
        if !env.sampling.on {
            return run();
        }
        let function = work.function();
        if env.learned.knows(function) {
            let section = Section::begin(self);
            let before = proc::used_here();
            let ran = run();
            if let Some((before, after)) = before.zip(proc::used_here()) {
                env.learned.used(function, after.saturating_sub(before));
            }
            drop(section);
            return ran;
        }
        self.seen.function.store(function, Ordering::Relaxed);
        let ran = run();
        self.seen.function.store(0, Ordering::Relaxed);
        ran
    }

    /// Whether an item that says so may run again at once: where it can be known how long that
    /// takes, nobody is told of each run, and the queue has no order to keep.
    fn may_repeat(&self, queue: &Shared) -> bool {
        let in_order = matches!(queue.mode(), Mode::Ordered | Mode::Bh);
        self.pool.is_timed() && !in_order && !trace::is_on(self.pool.env())
    }

    /// Whether the worker has been on its CPU, as far as is known, since the item began.
    fn has_stayed(&self) -> bool {
        // Relaxed: a hint.
        !self.has_blocked.get() && self.seen.found.load(Ordering::Relaxed) == 0
    }

    /// C6: runs the item, and again if it says so, a few times; then what else waits has its turn.
    /// Returns what came of the last run, and how many there were before.
    fn row(&self, work: &WorkRef, queue: &Shared) -> (Ran, u32) {
        // The item catches its own panic; this is for destructors it did not think of.
        let run = || contained(|| work.run()).unwrap_or(LOST);
        if !work.may_repeat() || !self.may_repeat(queue) {
            return (run(), 0);
        }
        let clock = &self.pool.env().clock;
        let since = clock.now();
        self.has_blocked.set(false);
        // To look at the clock takes longer than the least of them.
        let in_time = |n: u32| (n > 4 && n % 4 != 0) || clock.now() - since < REPEATS_FOR;
        let (mut ran, mut before) = (run(), 0);
        while matches!(ran, Ran::Again)
            && before + 1 < REPEATS
            && self.has_stayed()
            && work.is_left_alone()
            && !queue.is_frozen()
            && in_time(before + 1)
        {
            ran = run();
            before += 1;
        }
        (ran, before)
    }
}

/// A blocking section of a worker.
struct Section<C: Borrow<Context>>(C);

impl<C: Borrow<Context>> Section<C> {
    fn begin(context: C) -> Self {
        context.borrow().enter().perform();
        Self(context)
    }
}

impl<C: Borrow<Context>> Drop for Section<C> {
    fn drop(&mut self) {
        self.0.borrow().leave();
    }
}

impl BlockObserver for Context {
    fn blocking(&self) {
        refuse_sleep();
        if self.pool.place().bh {
            return;
        }
        let nested = self.blocked.get() > 0;
        let mut deed = self.enter();
        if nested {
            // Its section may have asked in vain for a thread, and only now it sleeps.
            deed = self.pool.ask_again();
        }
        if deed.attempt().is_err() {
            self.pool.keep_asking(self.me);
        }
    }

    fn unblocked(&self) {
        self.leave();
    }
}

/// The thread function of a worker.
pub(crate) fn run(pool: &Arc<Pool>) -> End {
    join_system(pool.env());
    submitter::is_a_worker();
    pool.settle_thread();
    let parker = Parker::current();
    let seen = Seen::new(pool.env());
    let me = pool.enter(parker.unparker(), &seen);
    let context = Context::new(pool, me, seen);
    CURRENT.with(|c| c.replace(Some(context.clone())));
    let observed = observer::install(context.clone());
    pool.meter();
    let mut stopwatch = Stopwatch::new(pool);
    let mut took = None;
    let mut refreshed = pool.env().refreshed();
    let mut returned = false;
    let end = loop {
        let (next, deed) = pool.next(context.me, took.take());
        deed.perform();
        if refreshed != pool.env().refreshed() {
            // CPUs have come or gone: back to its own, if they are there.
            refreshed = pool.env().refreshed();
            pool.settle_thread();
        }
        match next {
            Next::Run(entry) => {
                if std::mem::take(&mut returned) {
                    entry.queue.counted(Count::Repatriated, 1);
                }
                stopwatch.begin(pool);
                execute(&context, entry);
                took = stopwatch.lap(pool);
            }
            Next::Fetch => took = visit(&context, &mut stopwatch, std::mem::take(&mut returned)),
            Next::Sleep if sleep(pool, context.me, &parker) => {
                returned |= pool.repatriate();
                stopwatch = Stopwatch::new(pool);
            }
            Next::Sleep => break End::Early,
            Next::Exit if pool.is_retired() => break End::Early,
            Next::Exit => break End::WithSystem,
        }
    };
    drop(observed);
    CURRENT.with(|c| c.replace(None));
    leave_system();
    end
}

/// How long items take, where that matters. Small ones are timed together: to look at the clock
/// takes as long as one of them.
struct Stopwatch {
    on: bool,
    since: Option<Instant>,
    /// Items since then.
    items: u32,
    /// So many at a time.
    together: u32,
}

impl Stopwatch {
    /// Items that take less, in ns, are timed together.
    const SMALL: u64 = 1_000;
    const TOGETHER: u32 = 16;

    fn new(pool: &Pool) -> Self {
        Self {
            on: pool.is_timed(),
            since: None,
            items: 0,
            together: 1,
        }
    }

    /// An item begins.
    fn begin(&mut self, pool: &Pool) {
        if self.on && self.since.is_none() {
            self.since = Some(pool.env().clock.now());
        }
    }

    /// An item has ended. What one took, in ns, if it is time to say so.
    fn lap(&mut self, pool: &Pool) -> Option<u64> {
        let since = self.since?;
        self.items += 1;
        if self.items < self.together {
            return None;
        }
        let now = pool.env().clock.now();
        pool.env().crowd.look(now);
        let spent = now - since;
        let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        let took = spent / u64::from(self.items);
        let small = took < Self::SMALL;
        self.together = if small { Self::TOGETHER } else { 1 };
        (self.since, self.items) = (None, 0);
        Some(took)
    }
}

/// An idle worker sleeps until there is work. `false` if it is to leave instead.
fn sleep(pool: &Arc<Pool>, me: usize, parker: &Parker) -> bool {
    // The token of a wake that came before the sleep is kept, so park first, then look.
    parker.park();
    loop {
        match pool.rest(me) {
            Rest::Work => {
                pool.meter();
                return true;
            }
            Rest::Leave => return false,
            Rest::Sleep(None) => parker.park(),
            // Woken or in time, it looks again.
            Rest::Sleep(Some(at)) => drop(parker.park_until(&pool.env().clock, at)),
        }
    }
}

/// R2-R4: the calling thread, a rescuer, helps a pool with the items of those queues, until there
/// are none, or the pool can help itself, or `limit` of them have run, which it says. `each` is
/// told of each item before it runs.
pub(crate) fn rescue(
    pool: &Arc<Pool>,
    mine: impl Fn(&Shared) -> bool,
    each: impl Fn(),
    limit: usize,
) -> bool {
    let seen = Seen::new(pool.env());
    let me = pool.attach(Parker::current().unparker(), &seen);
    let context = Context::new(pool, me, seen);
    submitter::is_a_worker();
    CURRENT.with(|c| c.replace(Some(context.clone())));
    let observed = observer::install(context.clone());
    let pinned = pool.borrow_thread();
    pool.meter();
    let entries = std::iter::from_fn(|| pool.rescue(context.me, &mine));
    let done = entries.take(limit).map(|entry| {
        each();
        execute(&context, entry);
    });
    let done = done.count();
    pool.return_thread(pinned);
    drop(observed);
    CURRENT.with(|c| c.replace(None));
    pool.detach(context.me).perform();
    done == limit
}

/// N4: runs what is in the hand of the worker, who may have `returned` to its CPUs for that.
/// Returns what an item took, in ns.
fn visit(context: &Context, stopwatch: &mut Stopwatch, returned: bool) -> Option<u64> {
    let hand = &context.seen.hand;
    let whence = hand.lock().whence().cloned();
    let Whence { queue, gate, .. } = whence.expect("it has begun");
    context.seen.charged.set(queue.number());
    if returned {
        queue.counted(Count::Repatriated, 1);
    }
    context.visits.set(true);
    let (mut took, mut ended) = (None, None);
    let tally = loop {
        match hand.pass(ended.as_ref()) {
            Pass::Run(Drawn { work, set }) => {
                stopwatch.begin(&context.pool);
                let now = (work, set.instance);
                ended = Some(run_item(context, &queue, gate, now, || ()));
                took = took.max(stopwatch.lap(&context.pool));
            }
            Pass::Over(tally) => break tally,
        }
    };
    context.visits.set(false);
    queue.end_visit(gate, tally);
    took
}

fn execute(context: &Context, entry: Entry) {
    let Entry {
        work,
        queue,
        gate,
        instance,
        colour,
        ..
    } = entry;
    context.seen.charged.set(queue.number());
    let begun = || queue.started(gate);
    let ended = run_item(context, &queue, gate, (work, instance), begun);
    queue.leave(gate, colour, &ended);
}

fn run_item(
    context: &Context,
    queue: &Arc<Shared>,
    gate: usize,
    (work, instance): (WorkRef, Instance),
    begun: impl FnOnce(),
) -> Ended {
    context.item.set(Some(Running {
        work: work.key(),
        queue: queue.key(),
        gate,
        bh: queue.mode() == Mode::Bh,
    }));
    let traced = trace::is_on(context.pool.env());
    let tell = |step| trace::tell(context.pool.env(), queue.name(), work.name(), step);
    let mut ended = Ended::Cancelled;
    if work.claim(instance, context.pool.key()) {
        begun();
        if traced {
            tell(TraceStep::Started);
        }
        let row = || context.guarded(&work, || context.row(&work, queue));
        let (ran, before) = contained(row).unwrap_or((LOST, 0));
        queue.repeated(gate, before.into());
        ended = match ran {
            Ran::Over(ended) => ended,
            Ran::Again => {
                // While it runs, so that who stops it sees it all the time.
                if queue.submit(&work, cpu::current()).is_err() {
                    queue.refused_later();
                }
                Ended::Returned
            }
        };
        if let Ended::Panicked(message) = &ended {
            queue.panicked(work.name(), message.as_deref());
        }
        if traced {
            tell(match ended {
                Ended::Panicked(_) => TraceStep::Panicked,
                _ => TraceStep::Ended,
            });
        }
        work.finish();
    }
    context.count(queue);
    // The last handle on a function or on its result may go here. That still is the item's doing:
    // who flushes the queue or shuts the system down waits for it.
    contained(|| drop(work));
    context.item.set(None);
    ended
}

fn current() -> Option<Rc<Context>> {
    // While the thread's locals are being destroyed it is no worker any more.
    CURRENT.try_with(|c| c.borrow().clone()).ok().flatten()
}

/// Whether the calling thread runs such an item, as a worker or because it has called it.
fn runs(such: impl Fn(Running) -> bool) -> bool {
    let inline = INLINE.try_with(|inline| inline.borrow().iter().any(|item| such(*item)));
    inline.unwrap_or(false) || current().and_then(|c| c.item.get()).is_some_and(such)
}

/// Whether the calling thread is a worker running this item.
pub(crate) fn runs_work(key: usize) -> bool {
    runs(|r| r.work == key)
}

/// N5 for the calling thread, if it is a worker. No lock is held.
pub(crate) fn give_back() {
    if let Some(context) = current() {
        context.give_back();
    }
}

/// Whether the calling thread runs an item of this queue.
pub(crate) fn runs_item_of(queue: usize) -> bool {
    runs(|r| r.queue == queue)
}

/// What a worker does with an item that its own item queues, where there are no letters.
pub(crate) enum Own {
    /// V5, or S2 has come to this.
    Answer(Queued),
    /// It goes into the mailbox.
    Post,
    /// Through the gate at once: the worker would ring for itself, only to fetch the letter before
    /// anything else.
    Enter,
}

/// V5 for the calling thread, if it is a worker and runs an item that came through this gate.
pub(crate) fn keep<R: Run + ?Sized>(
    queue: &Arc<Shared>,
    gate: usize,
    work: &Item<R>,
    handle: &mut impl FnMut() -> WorkRef,
) -> Own {
    let of = |c: &RefCell<Option<Rc<Context>>>| {
        let context = c.borrow();
        let context = context.as_ref()?;
        let item = context.item.get()?;
        let is_here = item.queue == queue.key() && gate_of(item.gate) == gate;
        is_here.then(|| context.keep(queue, gate, work, handle))
    };
    CURRENT.try_with(of).ok().flatten().unwrap_or(Own::Post)
}

/// Whether the calling thread runs an item.
pub(crate) fn runs_any() -> bool {
    runs(|_| true)
}

/// Whether the calling thread runs an item that has come through such a gate of this queue.
pub(crate) fn runs_through(queue: usize, gate: impl Fn(usize) -> bool) -> bool {
    runs(|r| r.queue == queue && gate(r.gate))
}

/// Whether the caller is a BH item, which may not sleep.
pub(crate) fn may_not_sleep() -> bool {
    runs(|r| r.bh)
}

fn refuse_sleep() {
    // Who is being unwound has been told.
    assert!(
        !may_not_sleep() || inflight_sync::thread::panicking(),
        "an item of a BH workqueue may not sleep"
    );
}

/// P4: runs an entry on the calling thread, as that worker of a pool of BH items.
pub(crate) fn run_polled(pool: &Arc<Pool>, me: usize, seen: &Arc<Seen>, entry: Entry) {
    let context = Context::new(pool, me, seen.clone());
    let before = CURRENT.with(|c| c.replace(Some(context.clone())));
    let observed = observer::install(context.clone());
    execute(&context, entry);
    drop(observed);
    CURRENT.with(|c| c.replace(before));
}

/// The calling thread is one of this system's from now on: it does not wait for the system's end.
pub(crate) fn join_system(env: &Arc<Env>) {
    SYSTEM.with(|s| s.replace(Some(env.clone())));
}

/// The calling thread is about to end.
pub(crate) fn leave_system() {
    SYSTEM.with(|s| s.replace(None));
}

/// Whether the calling thread is one of the system's own.
pub(crate) fn belongs_to(env: &Arc<Env>) -> bool {
    let own =
        |s: &RefCell<Option<Arc<Env>>>| s.borrow().as_ref().is_some_and(|e| Arc::ptr_eq(e, env));
    // While the thread's locals are being destroyed it belongs to nobody any more.
    SYSTEM.try_with(own).unwrap_or(false)
}

/// Says that the calling item gets on, though it takes long: the
/// [watchdog](crate::SystemBuilder::watchdog) takes neither its pool nor its queue's limit for
/// stalled for another threshold. Costs two additions and a short lock; not for each step of a
/// loop. On a thread that is no worker it does nothing.
///
/// ```
/// use inflight_workqueue::{WorkqueueSystem, touch_watchdog};
/// use std::time::Duration;
///
/// let builder = WorkqueueSystem::builder();
/// let sys = builder.watchdog(Duration::from_secs(30), |stall| eprintln!("{stall}")).build()?;
/// let wq = sys.workqueue("scrub").bound().build()?;
/// let scrubbed = wq.spawn(|| {
///     let regions = 0..8;
///     regions.map(|region| { touch_watchdog(); region * 2 }).sum::<u32>()
/// });
/// assert_eq!(scrubbed.wait()?, 56);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn touch_watchdog() {
    let Some(context) = current().filter(|c| c.item.get().is_some()) else {
        return;
    };
    context.pool.touch();
    let number = context.seen.charged.queue();
    if let Some(queue) = context.pool.env().metering.queue(number) {
        queue.counted(Count::Touched, 1);
    }
}

/// Runs `f`, which may sleep or wait for something outside: meanwhile another worker may run.
///
/// Around a read from a file, a lock that is held for long, a wait for a device. The pool wakes or
/// starts another worker if work waits, at the price of one lock section before and one after. When
/// `f` has returned, the item goes on at once, even if that makes one running worker too many for a
/// while. Waiting with this library's own means (`flush`, `JoinHandle::wait`, bits, tags) counts as
/// blocking by itself. Nested sections count once. On a thread that is no worker it just calls `f`.
///
/// # Panics
///
/// Inside an item of a BH queue, which may not sleep; `f` is not called.
///
/// ```
/// use inflight_workqueue::{WorkqueueSystem, blocking};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("reads").bound().build()?;
/// let read = wq.spawn(|| blocking(|| std::fs::read("Cargo.toml")));
/// assert!(!read.wait()??.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    refuse_sleep();
    let _section = current().map(Section::begin);
    f()
}
