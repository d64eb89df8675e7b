//! One thread that sleeps for all tasks that wait for a time.
//!
//! ```text
//! task:   T1 lock, its waker in the map   T2 unlock; the first of all: unpark the thread
//! thread: R1 lock, take those due         R2 unlock, wake them; none: park until the next is due
//! drop:   D1 lock, ended, take all        D2 unlock, unpark the thread, wake them
//! ```
//!
//! R1 sees the tasks that came before it. A task that comes after R1 and is the first unparks the
//! thread, whose park then ends at once, also if it has yet to begin. A task that is not the first
//! need not: the thread checks again when the first is due, which is earlier. The models are in
//! `tests/loom_timer.rs`.
//!
//! While the system refuses the thread, all waiting tasks are woken at once: each of them reads the
//! clock and asks for the thread again.

use super::{Clock, Instant};
use crate::fault::Faults;
use crate::panics::dispose;
use crate::{Arc, Mutex, Parker, Unparker, thread};
use std::collections::BTreeMap;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Wakes tasks at points on a clock, all of them by one thread.
///
/// The thread **starts** when the first task has to wait, sleeps while no task waits, and ends when
/// the timer is dropped.
///
/// ```
/// use inflight_sync::time::{Clock, Timer};
/// use std::time::Duration;
/// let timer = Timer::new(Clock::system());
/// let until = timer.clock().now() + Duration::from_millis(1);
/// inflight_sync::block_on(timer.sleep_until(until));
/// assert!(timer.clock().now() >= until);
/// ```
pub struct Timer(Arc<TimerShared>);

struct TimerShared {
    clock: Clock,
    faults: Faults,
    state: Mutex<TimerState>,
}

#[derive(Default)]
struct TimerState {
    waiting: BTreeMap<Key, Waker>,
    next_id: u64,
    started: bool,
    /// Set by the thread when it runs.
    thread: Option<Unparker>,
    ended: bool,
}

/// The time, and the number of the task.
type Key = (Instant, u64);

impl Timer {
    /// Makes a timer for a clock, without a thread yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::with_faults(clock, &Faults::none())
    }

    /// Makes a timer as [`new`](Self::new), whose thread `faults` may refuse.
    #[must_use]
    pub fn with_faults(clock: Clock, faults: &Faults) -> Self {
        Self(Arc::new(TimerShared {
            clock,
            faults: faults.clone(),
            state: Mutex::default(),
        }))
    }

    /// Returns the timer's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Waits as a task until a point on the clock. The wait ends at once if the timer is dropped.
    ///
    /// While the system refuses the timer's thread, the task polls in a loop.
    pub fn sleep_until(&self, until: Instant) -> Sleep {
        Sleep {
            timer: self.0.clone(),
            until,
            key: None,
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let (thread, waiting) = {
            let mut state = self.0.state.lock();
            state.ended = true;
            (state.thread.take(), mem::take(&mut state.waiting))
        };
        if let Some(thread) = thread {
            thread.unpark();
        }
        wake(waiting);
    }
}

/// A panic of a waker is ignored, so that the others are woken: the panic hook has reported it.
fn wake(tasks: BTreeMap<Key, Waker>) {
    for waker in tasks.into_values() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            dispose(panic);
        }
    }
}

impl TimerShared {
    /// How many tasks wait.
    fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Makes the thread. If it is refused, the next poll tries again.
    fn start(self: Arc<Self>) {
        let builder = thread::Builder::new().name("inflight/sleep".to_owned());
        let me = self.clone();
        if builder.faults(&self.faults).spawn(move || me.run()).is_ok() {
            return;
        }
        let waiting = {
            let mut state = self.state.lock();
            state.started = false;
            // Each comes back when it polls again. They are not cloned: a waker may run anything
            // then, and this is under the lock.
            mem::take(&mut state.waiting)
        };
        wake(waiting);
    }

    /// The thread's function. A task that came before the look is in the map. One that comes after
    /// it and is due first unparks the thread.
    fn run(&self) {
        let parker = Parker::current();
        loop {
            let (due, next) = {
                let mut state = self.state.lock();
                if state.ended {
                    return;
                }
                state.thread.get_or_insert_with(|| parker.unparker());
                let later = state.waiting.split_off(&(self.clock.now(), u64::MAX));
                let next = later.keys().next().map(|&(until, _)| until);
                (mem::replace(&mut state.waiting, later), next)
            };
            if !due.is_empty() {
                wake(due);
                continue;
            }
            match next {
                Some(until) => {
                    let _unparked = parker.park_until(&self.clock, until);
                }
                None => parker.park(),
            }
        }
    }
}

/// The future of [`Timer::sleep_until`].
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    timer: Arc<TimerShared>,
    until: Instant,
    /// Once it waits.
    key: Option<Key>,
}

impl Sleep {
    fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            // A waker may run anything when it is dropped: not under the lock.
            let left = self.timer.state.lock().waiting.remove(&key);
            drop(left);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let timer = this.timer.clone();
        if timer.clock.now() >= this.until {
            this.leave();
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        let (old, start, thread) = {
            let mut state = timer.state.lock();
            if state.ended {
                drop(state);
                return Poll::Ready(());
            }
            let key = *this.key.get_or_insert_with(|| {
                state.next_id += 1;
                (this.until, state.next_id)
            });
            let old = state.waiting.insert(key, waker);
            let is_first = state.waiting.keys().next() == Some(&key);
            let thread = state.thread.clone().filter(|_| old.is_none() && is_first);
            (old, !mem::replace(&mut state.started, true), thread)
        };
        if start {
            timer.start();
        }
        if let Some(thread) = thread {
            thread.unpark();
        }
        // Last: the drop of a waker may panic.
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.leave();
    }
}

crate::debug_fields!(Timer: |this|
    clock = this.0.clock, waiting = this.0.waiting());

crate::debug_fields!(Sleep: |this| until = this.until);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::atomic::{AtomicUsize, Ordering};
    use crate::block_on;
    use crate::panics::test_support::{Bomb, Throws};
    use std::task::{RawWaker, RawWakerVTable, Wake};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    /// Counts wakes; and panics, if it is to.
    #[derive(Default)]
    struct WakeCount {
        times: AtomicUsize,
        panics: bool,
    }

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            // Relaxed: a counter.
            self.times.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "as the test wants it");
        }
    }

    fn poll(sleep: &mut Sleep, told: &Arc<WakeCount>) -> Poll<()> {
        Pin::new(sleep).poll(&mut Context::from_waker(&told.clone().into()))
    }

    fn wait_for(told: &WakeCount) {
        while told.times.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
    }

    /// How many threads the timer has: each keeps what it shares.
    fn threads(timer: &Timer, sleeps: usize) -> usize {
        Arc::strong_count(&timer.0) - 1 - sleeps
    }

    /// A writer that looks at the timer does not wait for its lock.
    #[test]
    fn it_is_printed_without_its_lock() {
        struct Looks<'a>(&'a Timer);
        impl std::fmt::Write for Looks<'_> {
            fn write_str(&mut self, _: &str) -> std::fmt::Result {
                self.0.0.state.try_lock().map(drop).ok_or(std::fmt::Error)
            }
        }
        let timer = Timer::new(Clock::manual());
        std::fmt::write(&mut Looks(&timer), format_args!("{timer:?}")).expect("it is not locked");
    }

    #[test]
    fn one_thread_sleeps_for_all_and_ends_with_its_timer() {
        let clock = Clock::manual();
        let timer = Timer::new(clock.clone());
        let start = clock.now();
        let tasks: Vec<Arc<WakeCount>> = (0..5).map(|_| Arc::default()).collect();
        let mut sleeps: Vec<Sleep> = (1..6)
            .map(|i| timer.sleep_until(start + SECOND * (6 - i)))
            .collect();
        assert_eq!(threads(&timer, 5), 0, "nobody waits");
        for (sleep, told) in sleeps.iter_mut().zip(&tasks) {
            assert!(poll(sleep, told).is_pending());
        }
        assert_eq!(threads(&timer, 5), 1);
        // The last one is the first to be woken, although it came when the thread slept.
        clock.advance(SECOND);
        wait_for(&tasks[4]);
        assert!(poll(&mut sleeps[4], &tasks[4]).is_ready());
        let counts = |at: usize| tasks[at].times.load(Ordering::Relaxed);
        assert_eq!((0..4).map(counts).sum::<usize>(), 0);
        drop(sleeps.pop());
        drop(sleeps.pop());
        clock.advance(SECOND * 4);
        tasks[..3].iter().for_each(|told| wait_for(told));
        assert_eq!(counts(3), 0, "it was dropped");
        drop(sleeps);
        let shared = Arc::downgrade(&timer.0);
        drop(timer);
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_from_waking() {
        let timer = Timer::new(Clock::manual());
        let until = timer.clock().now() + SECOND;
        let bad = Arc::new(WakeCount {
            panics: true,
            ..WakeCount::default()
        });
        let good = Arc::default();
        let (mut first, mut second) = (timer.sleep_until(until), timer.sleep_until(until));
        assert!(poll(&mut first, &bad).is_pending());
        assert!(poll(&mut second, &good).is_pending());
        timer.clock().advance(SECOND);
        wait_for(&good);
        wait_for(&bad);
    }

    #[test]
    fn what_a_waker_throws_may_panic_too() {
        let timer = Timer::new(Clock::manual());
        let until = timer.clock().now() + SECOND;
        let good = Arc::<WakeCount>::default();
        let [mut first, mut second, mut later] =
            [until, until, until + SECOND].map(|until| timer.sleep_until(until));
        let throws = Waker::from(Arc::new(Throws));
        let mut cx = Context::from_waker(&throws);
        assert!(Pin::new(&mut first).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut second).poll(&mut cx).is_pending());
        assert!(poll(&mut later, &good).is_pending());
        assert_eq!(threads(&timer, 3), 1);
        timer.clock().advance(SECOND);
        timer.clock().advance(SECOND);
        while good.times.load(Ordering::Relaxed) == 0 && threads(&timer, 3) == 1 {
            thread::yield_now();
        }
        assert_eq!(good.times.load(Ordering::Relaxed), 1);
    }

    /// The thread was refused, so the waker stayed. When the task asks again with another waker the
    /// old one goes, and that panics: the thread is there all the same.
    #[test]
    fn a_waker_whose_drop_panics_keeps_nobody_from_waking() {
        struct DropsBomb(#[allow(dead_code, reason = "dropped with the waker")] Bomb);
        impl Wake for DropsBomb {
            fn wake(self: Arc<Self>) {}
        }

        let timer = Timer::new(Clock::manual());
        let mut sleep = timer.sleep_until(timer.clock().now() + SECOND);
        let waker = Waker::from(Arc::new(DropsBomb(Bomb)));
        let polled = Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(waker);
        let told = Arc::default();
        let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut sleep, &told)));
        assert!(polled.is_err(), "the last handle of the old waker");
        assert_eq!(threads(&timer, 1), 1);
        timer.clock().advance(SECOND);
        wait_for(&told);
    }

    #[test]
    fn while_its_thread_is_refused_each_task_polls() {
        let (clock, faults) = (Clock::manual(), Faults::new());
        let timer = Timer::with_faults(clock.clone(), &faults);
        let until = clock.now() + SECOND;
        let tasks: [Arc<WakeCount>; 2] = Default::default();
        let mut sleeps = [(); 2].map(|()| timer.sleep_until(until));
        let woken = || {
            tasks
                .each_ref()
                .map(|t| t.times.swap(0, Ordering::Relaxed) > 0)
        };
        faults.refuse_spawns(true);
        assert!(poll(&mut sleeps[0], &tasks[0]).is_pending());
        assert_eq!(woken(), [true, false]);
        assert!(poll(&mut sleeps[1], &tasks[1]).is_pending());
        assert_eq!(woken(), [false, true], "the first has been told");
        assert!(poll(&mut sleeps[0], &tasks[0]).is_pending());
        assert_eq!(woken(), [true, false], "none relies on the other");
        let [due, waits] = &mut sleeps;
        faults.refuse_spawns(false);
        assert!(poll(waits, &tasks[1]).is_pending());
        assert!(poll(due, &tasks[0]).is_pending());
        assert_eq!(woken(), [false, false], "there is a thread");
        clock.advance(SECOND);
        wait_for(&tasks[0]);
        wait_for(&tasks[1]);
        assert!(poll(due, &tasks[0]).is_ready());
        assert!(poll(waits, &tasks[1]).is_ready());
    }

    /// A clone of a waker may run anything, such as what prints the timer.
    #[test]
    fn no_waker_is_cloned_under_the_lock() {
        fn clone(timer: *const ()) -> RawWaker {
            // SAFETY: the data is the test's timer, which lives longer than its wakers.
            let shared = unsafe { &(*timer.cast::<Timer>()).0 };
            assert!(shared.state.try_lock().is_some(), "it is locked");
            RawWaker::new(timer, &TABLE)
        }
        static TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| {});

        let faults = Faults::new();
        let timer = Timer::with_faults(Clock::manual(), &faults);
        let mut sleep = timer.sleep_until(timer.clock().now() + SECOND);
        let data: *const Timer = &raw const timer;
        // SAFETY: the functions of the table expect a timer, which any thread may use.
        let waker = unsafe { Waker::from_raw(RawWaker::new(data.cast(), &TABLE)) };
        let mut cx = Context::from_waker(&waker);
        faults.refuse_spawns(true);
        assert!(Pin::new(&mut sleep).poll(&mut cx).is_pending());
        faults.refuse_spawns(false);
        assert!(Pin::new(&mut sleep).poll(&mut cx).is_pending());
        assert_eq!(threads(&timer, 1), 1);
    }

    #[test]
    fn a_sleep_is_over_when_its_timer_is_gone() {
        let timer = Timer::new(Clock::manual());
        let told = Arc::default();
        let mut sleep = timer.sleep_until(timer.clock().now() + SECOND);
        assert!(poll(&mut sleep, &told).is_pending());
        drop(timer);
        wait_for(&told);
        block_on(sleep);
    }
}
