//! Join handles: results, panics, cancellation, timed waits, waits on workers.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{
    Attrs, JoinError, JoinHandle, TraceStep, Work, Workqueue, WorkqueueSystem,
};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;
use support::{Level, bound, builder, system};

/// Waits inside items count as blocking, so a chain of waits on one CPU ends.
#[test]
fn waiting_for_a_handle_on_a_worker_lets_others_run() {
    let sys = system();
    let wq = bound(&sys);
    fn depth(wq: &inflight_workqueue::Workqueue, n: u32) -> u32 {
        if n == 0 {
            return 0;
        }
        let inner = wq.clone();
        1 + wq.spawn(move || depth(&inner, n - 1)).wait().unwrap()
    }
    assert_eq!(depth(&wq, 6), 6);
}

/// The name that is told may go as soon as the item may run.
#[test]
fn each_step_of_items_with_owned_names_is_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let sys = builder().trace({
        let told = told.clone();
        move |event| told.lock().push((event.item.to_owned(), event.step))
    });
    let sys = sys.build().unwrap();
    let wq = bound(&sys);
    let items: Vec<_> = (0..8)
        .map(|i| wq.spawn_named(format!("item {i}"), || ()))
        .collect();
    items.into_iter().for_each(|item| item.wait().unwrap());
    let told = told.lock();
    for i in 0..8 {
        let name = format!("item {i}");
        let steps = told.iter().filter(|(item, _)| *item == name);
        let steps: Vec<_> = steps.map(|(_, step)| *step).collect();
        use TraceStep::{Activated, Ended, Queued, Started};
        assert_eq!(steps, [Queued, Activated, Started, Ended], "{name}");
    }
}

/// A queue that runs one item at a time, and now this one until the level is raised.
fn occupied(sys: &WorkqueueSystem) -> (Workqueue, Level, JoinHandle<()>) {
    let one = sys.workqueue("one").unbound(Attrs::new());
    let one = one.max_active(1).build().unwrap();
    let release = Level::new();
    let first = one.spawn({
        let release = release.clone();
        move || release.wait(1)
    });
    (one, release, first)
}

#[test]
fn handles_give_results_panics_and_cancellations() {
    let sys = system();
    let wq = bound(&sys);
    assert_eq!(inflight_sync::block_on(wq.spawn(|| 5)).unwrap(), 5);
    let Err(JoinError::Panicked(payload)) = wq.spawn(|| panic!("on purpose")).wait() else {
        panic!("the panic is reported");
    };
    assert_eq!(payload.message(), Some("on purpose"));
    let (one, release, first) = occupied(&sys);
    let second = one.spawn(|| ());
    assert!(second.try_cancel());
    assert!(second.is_finished() && !second.try_cancel());
    assert!(matches!(second.wait(), Err(JoinError::Cancelled)));
    release.raise();
    first.wait().unwrap();
}

/// The closure of a cancelled function goes at once, with what it holds.
#[test]
fn cancelling_drops_the_function() {
    let sys = system();
    let (one, release, first) = occupied(&sys);
    let held = Arc::new(());
    let second = one.spawn({
        let held = held.clone();
        move || drop(held)
    });
    assert!(second.try_cancel());
    assert_eq!(Arc::strong_count(&held), 1);
    release.raise();
    first.wait().unwrap();
}

#[test]
fn a_timed_wait_gives_the_handle_back() {
    let clock = Clock::manual();
    let sys = builder().clock(clock.clone()).build().unwrap();
    let wq = bound(&sys);
    let release = Level::new();
    let mut handle = wq.spawn({
        let release = release.clone();
        move || release.wait(1)
    });
    let too_late = handle.wait_timeout(Duration::ZERO);
    assert!(matches!(too_late, Err(JoinError::TimedOut)));
    let waiter = thread::spawn(move || (handle.wait_timeout(Duration::from_secs(1)), handle));
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
    clock.advance(Duration::from_secs(1));
    let (too_late, mut handle) = waiter.join().unwrap();
    assert!(matches!(too_late, Err(JoinError::TimedOut)));
    release.raise();
    handle.wait_timeout(Duration::MAX).unwrap();
}

#[test]
fn a_function_that_waits_for_itself_is_told() {
    let sys = system();
    let wq = bound(&sys);
    let slot: Arc<Mutex<Option<inflight_workqueue::JoinHandle<bool>>>> = Arc::default();
    let (ready, done) = (Level::new(), Level::new());
    let handle = wq.spawn({
        let (slot, ready, done) = (slot.clone(), ready.clone(), done.clone());
        move || {
            ready.wait(1);
            let own = slot.lock().take().expect("the test has put it there");
            assert!(matches!(own.wait(), Err(JoinError::WouldDeadlock)));
            done.raise();
            true
        }
    });
    *slot.lock() = Some(handle);
    ready.raise();
    done.wait(1);
}

inflight_sync::thread_local! {
    static TO_END: RefCell<Option<(Level, Workqueue)>> = const { RefCell::new(None) };
}

/// A waker that lets the function in `TO_END` go, and waits for its end, when it is cloned.
fn waiting_waker() -> Waker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    fn clone(_: *const ()) -> RawWaker {
        if let Some((release, wq)) = TO_END.with(RefCell::take) {
            release.raise();
            wq.flush_blocking().unwrap();
        }
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    fn nothing(_: *const ()) {}
    // SAFETY: the functions of the table use no data, so they work on any pointer and from any
    // thread.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

/// The function must be able to end while the waker is being cloned, and the poll must notice.
#[test]
fn a_waker_is_not_cloned_under_the_lock() {
    let sys = system();
    let wq = bound(&sys);
    let release = Level::new();
    let mut handle = pin!(wq.spawn({
        let release = release.clone();
        move || {
            release.wait(1);
            7
        }
    }));
    TO_END.with(|slot| slot.replace(Some((release, wq.clone()))));
    let seen = handle
        .as_mut()
        .poll(&mut Context::from_waker(&waiting_waker()));
    assert!(matches!(seen, Poll::Ready(Ok(7))));
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in drop, on purpose");
    }
}

/// Whatever the function's destructor does, nobody waits for the handle for ever.
#[test]
fn a_cancelled_function_that_panics_in_its_drop_still_resolves() {
    let sys = system();
    let (one, release, first) = occupied(&sys);
    let bomb = PanicsInDrop;
    let second = one.spawn(move || {
        let _bomb = &bomb;
    });
    let cancelled = catch_unwind(AssertUnwindSafe(|| second.try_cancel()));
    assert!(cancelled.is_err(), "the panic is the caller's");
    assert!(matches!(second.wait(), Err(JoinError::Cancelled)));
    release.raise();
    first.wait().unwrap();
}

/// A panicking waker is not the item's fault, and takes neither result nor worker away.
#[test]
fn a_panicking_waker_is_not_counted_as_the_items_panic() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("in a waker, on purpose");
        }
    }
    let sys = system();
    let wq = bound(&sys);
    let release = Level::new();
    let mut handle = pin!(wq.spawn({
        let release = release.clone();
        move || {
            release.wait(1);
            5
        }
    }));
    let waker = Waker::from(Arc::new(Bomb));
    let first = handle.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(first.is_pending());
    release.raise();
    wq.flush_blocking().unwrap();
    let stats = wq.stats();
    assert_eq!((stats.completed, stats.panicked), (1, 0));
    let second = handle.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(second, Poll::Ready(Ok(5))));
}

/// Waits for a function of each size that memory is kept ready for, and says how that went.
fn answers(wq: &Workqueue) -> Vec<Result<(), String>> {
    fn answer<const WORDS: usize>(wq: &Workqueue) -> Result<(), String> {
        let captured = [0_u64; WORDS];
        let waited = wq.spawn(move || assert_eq!(captured[0], 0)).wait();
        waited.map_err(|e| e.to_string())
    }
    vec![
        answer::<1>(wq),
        answer::<8>(wq),
        answer::<16>(wq),
        answer::<24>(wq),
    ]
}

/// Asks when it is dropped.
struct Asks {
    wq: Workqueue,
    told: Arc<Mutex<Vec<Result<(), String>>>>,
}

impl Asks {
    fn ask(&self) {
        let answers = answers(&self.wq);
        self.told.lock().extend(answers);
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        self.ask();
    }
}

/// A function whose handle has gone, before its run or during it, is not what it spawns, whichever
/// memory that is in: it may wait for that, and so may the destructor of its result.
#[test]
fn a_detached_function_waits_for_what_it_spawns() {
    let sys = system();
    let wq = bound(&sys);
    let told = Arc::new(Mutex::new(Vec::new()));
    for before in [true, false] {
        let (one, release, first) = occupied(&sys);
        let (begun, go) = (Level::new(), Level::new());
        let asks = Asks {
            wq: wq.clone(),
            told: told.clone(),
        };
        let handle = one.spawn({
            let (begun, go) = (begun.clone(), go.clone());
            move || {
                begun.raise();
                go.wait(1);
                asks.ask();
                asks
            }
        });
        if before {
            handle.detach();
            release.raise();
        } else {
            release.raise();
            begun.wait(1);
            handle.detach();
        }
        go.raise();
        first.wait().unwrap();
        one.drain_blocking().unwrap();
    }
    assert_eq!(*told.lock(), vec![Ok(()); 16]);
}

/// A handle that was polled goes before the function runs: the waker goes with the function.
#[test]
fn a_detached_function_forgets_who_waited() {
    struct Silent;
    impl Wake for Silent {
        fn wake(self: Arc<Self>) {}
    }
    let sys = system();
    let (one, release, first) = occupied(&sys);
    let silent = Arc::new(Silent);
    let mut handle = one.spawn(|| ());
    let waker = Waker::from(silent.clone());
    let polled = pin!(&mut handle).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop((handle, waker));
    assert_eq!(Arc::strong_count(&silent), 2, "the function has it");
    release.raise();
    first.wait().unwrap();
    one.drain_blocking().unwrap();
    assert_eq!(Arc::strong_count(&silent), 1);
}

#[repr(align(64))]
struct Line([u8; 64]);

#[repr(align(128))]
struct Nothing;

#[repr(align(4096))]
struct Pages([u8; 8192]);

fn is_aligned<T>(value: &T) -> bool {
    std::ptr::from_ref(value).addr() % align_of::<T>() == 0
}

/// A function and its result lie as their types ask, in memory that is used again or not.
#[test]
fn functions_and_results_of_any_size_and_alignment() {
    let sys = system();
    let wq = bound(&sys);
    for _ in 0..3 {
        let (line, nothing, pages) = (Line([3; 64]), Nothing, Pages([5; 8192]));
        let line = wq.spawn(move || is_aligned(&line).then_some(line));
        let nothing = wq.spawn(move || is_aligned(&nothing).then_some(nothing));
        let pages = wq.spawn(move || is_aligned(&pages).then_some(pages));
        let line = line.wait().unwrap().expect("aligned for its run");
        let nothing = nothing.wait().unwrap().expect("aligned for its run");
        let pages = pages.wait().unwrap().expect("aligned for its run");
        assert!(is_aligned(&line) && is_aligned(&nothing) && is_aligned(&pages));
        assert_eq!((line.0, pages.0[8191]), ([3; 64], 5));
        let work = Work::new(move || assert!(is_aligned(&pages) && pages.0 == [5; 8192]));
        assert!(wq.queue(&work).unwrap().is_queued());
        work.flush_blocking().unwrap();
    }
    let never = wq.spawn(|| -> Infallible { panic!("on purpose") });
    assert!(matches!(never.wait(), Err(JoinError::Panicked(_))));
    assert_eq!(wq.stats().panicked, 1);
}
