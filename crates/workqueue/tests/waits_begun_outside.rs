//! An item awaits a future that was made outside, and that waits for the item. `drain.rs` tests
//! that of drain and destroy.
//!
//! A test drops its system only if all went well: otherwise the drop would wait for ever.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, DisableError, Wait, WaitError, Work, Workqueue, WorkqueueSystem};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Waker};
use support::{Level, held_work, system, until};

/// Who waits: a function, a function that its caller's thread runs, or a poll of a future.
#[derive(Clone, Copy, Debug)]
enum Who {
    Function,
    Call,
    Future,
}

const EVERYBODY: [Who; 3] = [Who::Function, Who::Call, Who::Future];

fn is_pending<T>(wait: &mut (impl Future<Output = T> + Unpin)) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    Pin::new(wait).poll(&mut cx).is_pending()
}

/// A place for an answer.
type Answer<T> = Arc<Mutex<Option<T>>>;

/// Runs `function` as an item. Whoever looks for the answer is not stuck if there is none.
fn run<T: Send + 'static>(
    wq: &Workqueue,
    who: Who,
    function: impl FnOnce() -> Wait<'static, T> + Send + 'static,
) -> Answer<T> {
    let answer = Answer::default();
    let put = answer.clone();
    match who {
        Who::Function => wq
            .spawn(move || *put.lock() = Some(block_on(function())))
            .detach(),
        Who::Future => wq
            .spawn_future(async move {
                let answer = function().await;
                *put.lock() = Some(answer);
            })
            .detach(),
        Who::Call => {
            let wq = wq.clone();
            drop(thread::spawn(move || {
                let called = wq.call_blocking(move || block_on(function()));
                *put.lock() = Some(called.unwrap());
            }));
        }
    }
    answer
}

fn answered<T>(what: impl Fn() -> String, answer: &Answer<T>) -> T {
    until(|| answer.lock().is_some(), || format!("{} hangs", what()));
    answer.lock().take().unwrap()
}

/// While an item of `wq` runs, `begin` makes a wait, which the item then waits for. Its answer.
fn awaited_inside<T: Send + 'static>(
    wq: &Workqueue,
    who: Who,
    begin: impl FnOnce() -> Wait<'static, T>,
) -> T {
    let (begun, given, wait) = (Level::new(), Level::new(), Answer::default());
    let answer = run(wq, who, {
        let (begun, given, wait) = (begun.clone(), given.clone(), wait.clone());
        move || -> Wait<'static, T> {
            begun.raise();
            given.wait(1);
            wait.lock().take().unwrap()
        }
    });
    begun.wait(1);
    *wait.lock() = Some(begin());
    given.raise();
    answered(|| format!("what waits for itself, {who:?},"), &answer)
}

/// For each who waits, and for a wait that has been polled where it was begun or not.
fn each(test: impl Fn(&WorkqueueSystem, &Workqueue, Who, bool)) {
    for who in EVERYBODY {
        for polled in [false, true] {
            let sys = ManuallyDrop::new(system());
            let wq = sys.workqueue("own").unbound(Attrs::new()).build().unwrap();
            test(&sys, &wq, who, polled);
            drop(ManuallyDrop::into_inner(sys));
        }
    }
}

#[test]
fn an_item_is_not_to_wait_for_a_flush_that_waits_for_it() {
    each(|_, wq, who, polled| {
        let answer = awaited_inside(wq, who, || {
            let mut flush = wq.flush();
            assert!(!polled || is_pending(&mut flush));
            flush
        });
        assert_eq!(answer, Err(WaitError::WouldDeadlock), "{who:?}");
        wq.flush_blocking().unwrap();
    });
}

/// What is queued after a flush has begun may wait for what came before.
#[test]
fn a_later_item_may_wait_for_a_flush() {
    each(|_, wq, who, polled| {
        let (work, hold, begun) = held_work();
        assert!(wq.queue(&work).unwrap().is_queued());
        begun.wait(1);
        let mut flush = wq.flush();
        assert!(!polled || is_pending(&mut flush));
        let asked = Level::new();
        let answer = run(wq, who, {
            let asked = asked.clone();
            move || {
                assert!(is_pending(&mut flush), "the first item runs");
                asked.raise();
                flush
            }
        });
        asked.wait(1);
        hold.raise();
        assert_eq!(answered(|| format!("{who:?}"), &answer), Ok(()));
    });
}

/// An item holds the only slot, and the flush waits for one that came before, in another pool.
#[test]
fn an_item_is_not_to_wait_for_a_flush_of_what_waits_for_its_slot() {
    let sys = ManuallyDrop::new(system());
    let attrs = Attrs::new().scope(Scope::Cache);
    let one = sys.workqueue("one").unbound(attrs).max_active(1);
    let wq = one.build().unwrap();
    let (work, hold, begun) = held_work();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    // The slot goes from pool to pool: there, here, there, and here is what is left behind.
    wq.spawn_on(2, || ()).detach();
    wq.spawn_on(0, || ()).detach();
    let behind = wq.spawn_on(0, || ());
    let flush = wq.flush();
    let later = wq.spawn_on(2, move || {
        assert!(!behind.is_finished(), "it has not begun");
        block_on(flush)
    });
    hold.raise();
    until(
        || later.is_finished(),
        || "what has the slot hangs".to_owned(),
    );
    assert_eq!(later.wait().unwrap(), Err(WaitError::WouldDeadlock));
    drop(ManuallyDrop::into_inner(sys));
}

#[test]
fn an_item_is_not_to_wait_for_the_end_of_its_system_that_others_began() {
    each(|sys, wq, who, polled| {
        let answer = awaited_inside(wq, who, || {
            let mut shutdown = sys.shutdown();
            assert!(!polled || is_pending(&mut shutdown));
            shutdown
        });
        let left = answer.unwrap_err();
        assert!(left.is_own_worker(), "{who:?}");
        assert_eq!(left.items(), 1);
    });
}

/// The end that an item has begun can be waited for elsewhere.
#[test]
fn what_an_item_has_begun_others_may_wait_for() {
    let sys = ManuallyDrop::new(system());
    let wq = sys.workqueue("own").unbound(Attrs::new()).build().unwrap();
    let handle = wq.spawn({
        let sys = sys.observer();
        move || sys.shutdown()
    });
    let shutdown = handle.wait().unwrap();
    assert_eq!(block_on(shutdown), Ok(()));
    drop(ManuallyDrop::into_inner(sys));
}

/// A work that is given a wait for itself.
#[test]
fn a_work_is_not_to_wait_for_itself_in_a_wait_that_others_began() {
    /// The works, for ever, as waits borrow them: nothing is leaked.
    static WORKS: Mutex<Vec<&Work>> = Mutex::new(Vec::new());
    /// Whether it was refused.
    type Refused = Pin<Box<dyn Future<Output = bool> + Send>>;
    type Begin = fn(&'static Work) -> Refused;
    let waits: [(&str, Begin); 3] = [
        ("flush", |work| {
            let wait = work.flush();
            Box::pin(async { wait.await == Err(WaitError::WouldDeadlock) })
        }),
        ("cancel_sync", |work| {
            let wait = work.cancel_sync();
            Box::pin(async { wait.await == Err(WaitError::WouldDeadlock) })
        }),
        ("disable_sync", |work| {
            let wait = work.disable_sync();
            Box::pin(async { wait.await == Err(DisableError::WouldDeadlock) })
        }),
    ];
    for (what, wait) in waits {
        let sys = ManuallyDrop::new(system());
        let wq = sys.workqueue("own").unbound(Attrs::new()).build().unwrap();
        let (begun, given) = (Level::new(), Level::new());
        let (wait_given, answer) = (Answer::<Refused>::default(), Answer::default());
        let work: &'static Work = Box::leak(Box::new(Work::new({
            let (begun, given) = (begun.clone(), given.clone());
            let (wait, answer) = (wait_given.clone(), answer.clone());
            move || {
                begun.raise();
                given.wait(1);
                let wait = wait.lock().take().unwrap();
                *answer.lock() = Some(block_on(wait));
            }
        })));
        WORKS.lock().push(work);
        assert!(wq.queue(work).unwrap().is_queued());
        begun.wait(1);
        let mut wait = wait(work);
        assert!(is_pending(&mut wait));
        *wait_given.lock() = Some(wait);
        given.raise();
        assert!(answered(|| format!("a work in its own {what}"), &answer));
        drop(ManuallyDrop::into_inner(sys));
    }
}
