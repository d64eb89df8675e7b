//! Bodies of the models of waiting in turns, for any store. Each takes a way to make a queue whose
//! ids are all free.
#![allow(dead_code, reason = "each file that includes this uses some of them")]

#[path = "wake_flag.rs"]
mod wake_flag;

use inflight_sbitmap::tenancy::{Request, Tenancy};
use inflight_sbitmap::{Fairness, GetManyError, SbitmapQueue};
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::block_hook::{BlockHook, install};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, block_on, cpu, thread};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wake_flag::WakeFlag;

/// Depth, largest depth, mode, clock.
pub(crate) type New = fn(usize, usize, Fairness, Clock) -> SbitmapQueue;

/// A fair queue with `depth` ids, all taken.
fn taken(new: New, depth: usize) -> (Arc<SbitmapQueue>, Vec<usize>) {
    taken_in(new, depth, Fairness::fair())
}

fn taken_in(new: New, depth: usize, mode: Fairness) -> (Arc<SbitmapQueue>, Vec<usize>) {
    let queue = new(depth, depth, mode, Clock::system());
    let ids = (0..depth).map(|_| queue.try_get().unwrap()).collect();
    (Arc::new(queue), ids)
}

fn spawn<T: Send + 'static>(
    queue: &Arc<SbitmapQueue>,
    f: impl FnOnce(&SbitmapQueue) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let queue = queue.clone();
    // A CPU that no other thread alive has; the caller's is 0.
    let cpu = Arc::strong_count(&queue) - 1;
    thread::spawn(move || {
        cpu::set_current_for_thread(Some(cpu));
        f(&queue)
    })
}

/// So many have come to wait. Spares a model the ways in which they come.
fn await_waits(queue: &SbitmapQueue, n: u64) {
    while queue.stats().waits != n {
        thread::yield_now();
    }
}

/// Nobody waits, and so many ids are free.
fn assert_quiet(queue: &SbitmapQueue, free: usize) {
    assert_eq!(queue.snapshot().ws_active, 0);
    let got = std::iter::from_fn(|| queue.try_get()).count();
    assert_eq!(got, free, "an id is lost");
}

fn pair(queue: &SbitmapQueue) {
    let id = queue.get_blocking().unwrap();
    queue.put(id).unwrap();
}

pub(crate) fn two_threads_one_id(new: New) {
    let queue = Arc::new(new(1, 1, Fairness::fair(), Clock::system()));
    let other = spawn(&queue, pair);
    pair(&queue);
    other.join().unwrap();
    assert_quiet(&queue, 1);
}

pub(crate) fn three_threads_one_id(new: New) {
    let queue = Arc::new(new(1, 1, Fairness::fair(), Clock::system()));
    let others = [spawn(&queue, pair), spawn(&queue, pair)];
    pair(&queue);
    others.into_iter().for_each(|t| t.join().unwrap());
    assert_quiet(&queue, 1);
}

pub(crate) fn waiter_against_put(new: New) {
    let (queue, ids) = taken(new, 1);
    let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
    queue.put(ids[0]).unwrap();
    assert_eq!(waiter.join().unwrap(), ids[0]);
    assert_quiet(&queue, 0);
}

pub(crate) fn task_against_put(new: New) {
    let (queue, ids) = taken(new, 1);
    let waiter = spawn(&queue, |q| block_on(q.get()).unwrap());
    queue.put(ids[0]).unwrap();
    assert_eq!(waiter.join().unwrap(), ids[0]);
    assert_quiet(&queue, 0);
}

/// A turn is spent: a thread gets twice, and its credit lets it pass the other, who keeps its id.
pub(crate) fn turns_are_spent(new: New) {
    let (queue, ids) = taken(new, 2);
    let twice = spawn(&queue, |q| {
        pair(q);
        pair(q);
    });
    await_waits(&queue, 1);
    let keeps = spawn(&queue, |q| q.get_blocking().unwrap());
    queue.put(ids[0]).unwrap();
    queue.put(ids[1]).unwrap();
    twice.join().unwrap();
    let kept = keeps.join().unwrap();
    assert_quiet(&queue, 1);
    queue.put(kept).unwrap();
}

/// Two ids come in one call; the waiters keep theirs, so the second needs the baton.
pub(crate) fn batch_for_two_that_keep(new: New) {
    let (queue, ids) = taken(new, 2);
    let waiters = [(); 2].map(|()| spawn(&queue, |q| q.get_blocking().unwrap()));
    await_waits(&queue, 2);
    queue.put_batch(&ids).unwrap();
    let mut got = waiters.map(|t| t.join().unwrap());
    got.sort_unstable();
    assert_eq!(got, [0, 1]);
    assert_quiet(&queue, 0);
}

/// Two puts; the second may find the token out, and the waiters keep what they get.
pub(crate) fn two_puts_for_two_that_keep(new: New, mode: Fairness) {
    let (queue, ids) = taken_in(new, 2, mode);
    let waiters = [(); 2].map(|()| spawn(&queue, |q| q.get_blocking().unwrap()));
    await_waits(&queue, 2);
    queue.put(ids[0]).unwrap();
    queue.put(ids[1]).unwrap();
    let mut got = waiters.map(|t| t.join().unwrap());
    got.sort_unstable();
    assert_eq!(got, [0, 1]);
    assert_quiet(&queue, 0);
}

/// A thread and a task keep theirs: when the task is the head no token is asked for.
pub(crate) fn thread_and_task_that_keep(new: New) {
    let (queue, ids) = taken(new, 2);
    let thread = spawn(&queue, |q| q.get_blocking().unwrap());
    let task = spawn(&queue, |q| block_on(q.get()).unwrap());
    queue.put(ids[0]).unwrap();
    queue.put(ids[1]).unwrap();
    let mut got = [thread.join().unwrap(), task.join().unwrap()];
    got.sort_unstable();
    assert_eq!(got, [0, 1]);
    assert_quiet(&queue, 0);
}

/// A thread wants a second id in its turn while another waits behind it.
pub(crate) fn turn_goes_on_from_the_front(new: New) {
    let (queue, ids) = taken(new, 2);
    let greedy = spawn(&queue, |q| {
        let two = [q.get_blocking().unwrap(), q.get_blocking().unwrap()];
        q.put_batch(&two).unwrap();
    });
    await_waits(&queue, 1);
    let other = spawn(&queue, pair);
    queue.put(ids[0]).unwrap();
    queue.put(ids[1]).unwrap();
    greedy.join().unwrap();
    other.join().unwrap();
    assert_quiet(&queue, 2);
}

/// A future is dropped, granted or not; the thread behind it keeps its id.
pub(crate) fn dropped_future_against_grant(new: New) {
    let (queue, ids) = taken(new, 1);
    let mut get = Box::pin(queue.get());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(get.as_mut().poll(&mut cx).is_pending());
    let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
    let id = ids[0];
    let putter = spawn(&queue, move |q| q.put(id).unwrap());
    drop(get);
    putter.join().unwrap();
    assert_eq!(waiter.join().unwrap(), id);
    assert_quiet(&queue, 0);
}

/// As a timed get whose deadline was made before.
fn get_until(queue: &SbitmapQueue, deadline: Instant) -> Option<usize> {
    queue.try_get().or_else(|| {
        let mut waiter = queue.waiter(Request::one(0));
        waiter.block_one(&queue, Some(deadline)).ok()
    })
}

/// A timed thread is granted or too late; the thread beside it keeps its id.
pub(crate) fn deadline_against_grant(new: New) {
    let clock = Clock::manual();
    let queue = Arc::new(new(1, 1, Fairness::fair(), clock.clone()));
    let id = queue.try_get().unwrap();
    let deadline = clock.now() + Duration::from_nanos(1);
    let timed = spawn(&queue, move |q| {
        if let Some(id) = get_until(q, deadline) {
            q.put(id).unwrap();
        }
    });
    let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
    clock.advance(Duration::from_nanos(1));
    queue.put(id).unwrap();
    timed.join().unwrap();
    assert_eq!(waiter.join().unwrap(), id);
    assert_quiet(&queue, 0);
}

/// D25. Two want both ids; none may keep one while it waits for the other.
pub(crate) fn two_collectors(new: New) {
    let (queue, ids) = taken(new, 2);
    let both = |q: &SbitmapQueue| {
        let two = q.get_many_blocking(2).unwrap();
        q.put_batch(&two).unwrap();
    };
    let others = [spawn(&queue, both), spawn(&queue, both)];
    queue.put(ids[0]).unwrap();
    queue.put(ids[1]).unwrap();
    others.into_iter().for_each(|t| t.join().unwrap());
    assert_quiet(&queue, 2);
}

/// A half-fed collector is dropped: what it had goes to the waiter behind it.
pub(crate) fn dropped_collector(new: New) {
    let (queue, ids) = taken(new, 2);
    let mut many = Box::pin(queue.get_many(2));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(many.as_mut().poll(&mut cx).is_pending());
    let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
    let id = ids[0];
    let putter = spawn(&queue, move |q| q.put(id).unwrap());
    drop(many);
    putter.join().unwrap();
    assert_eq!(waiter.join().unwrap(), id);
    assert_quiet(&queue, 0);
}

/// Growth meets a newcomer, who keeps the new id.
pub(crate) fn growth_against_newcomer(new: New) {
    let queue = Arc::new(new(1, 2, Fairness::fair(), Clock::system()));
    let first = queue.try_get().unwrap();
    let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
    queue.resize(2).unwrap();
    assert_ne!(waiter.join().unwrap(), first);
    assert_quiet(&queue, 0);
}

/// A waiter for two meets a shrink to one: it is refused, or it was too early.
pub(crate) fn shrink_against_collector(new: New) {
    let (queue, ids) = taken(new, 2);
    let collector = spawn(&queue, |q| q.get_many_blocking(2));
    queue.resize(1).unwrap();
    assert!(matches!(
        collector.join().unwrap(),
        Err(GetManyError::TooMany { .. })
    ));
    queue.put_batch(&ids).unwrap();
    assert_quiet(&queue, 1);
}

/// The same with an id to be had, which is not all it asks for.
pub(crate) fn shrink_against_newcomer_for_two(new: New) {
    let (queue, mut ids) = taken(new, 2);
    ids.sort_unstable();
    queue.put(ids.remove(0)).unwrap();
    let newcomer = spawn(&queue, |q| q.get_many_blocking(2));
    queue.resize(1).unwrap();
    assert!(matches!(
        newcomer.join().unwrap(),
        Err(GetManyError::TooMany { .. })
    ));
    queue.put_batch(&ids).unwrap();
    assert_quiet(&queue, 1);
}

/// Everybody looks while an id comes back; nobody loses a place or the id.
pub(crate) fn wake_all_against_put(new: New) {
    let (queue, ids) = taken(new, 1);
    let thread = spawn(&queue, |q| q.get_blocking().unwrap());
    let id = ids[0];
    let putter = spawn(&queue, move |q| q.put(id).unwrap());
    queue.wake_all();
    putter.join().unwrap();
    assert_eq!(thread.join().unwrap(), id);
    assert_quiet(&queue, 0);
}

/// A task is polled with another waker while the put goes on: the last waker given is told.
pub(crate) fn second_poll_with_another_waker(new: New) {
    let (queue, ids) = taken(new, 1);
    let mut get = pin!(queue.get());
    let woken = [(); 2].map(|()| Arc::new(WakeFlag::default()));
    let wakers = woken.clone().map(Waker::from);
    let mut cx = Context::from_waker(&wakers[0]);
    assert!(get.as_mut().poll(&mut cx).is_pending());
    let id = ids[0];
    let putter = spawn(&queue, move |q| q.put(id).unwrap());
    let second = get.as_mut().poll(&mut Context::from_waker(&wakers[1]));
    putter.join().unwrap();
    if second.is_pending() {
        assert!(woken[1].is_woken());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(get.as_mut().poll(&mut cx).is_ready());
    }
    assert_quiet(&queue, 0);
}

/// A task's waker is taken by `wake_all` while the id comes: some waker of the task is told after
/// the grant, so a poll after it finds the id.
pub(crate) fn wake_all_against_task(new: New) {
    let (queue, ids) = taken(new, 1);
    let woken = Arc::new(WakeFlag::default());
    let waker = Waker::from(woken.clone());
    let mut get = pin!(queue.get());
    let mut cx = Context::from_waker(&waker);
    assert!(get.as_mut().poll(&mut cx).is_pending());
    let id = ids[0];
    let putter = spawn(&queue, move |q| q.put(id).unwrap());
    queue.wake_all();
    putter.join().unwrap();
    assert!(woken.is_woken());
    assert_eq!(get.as_mut().poll(&mut cx), Poll::Ready(Ok(id)));
    assert_quiet(&queue, 0);
}

/// Holds its thread up when it is to run again.
struct Stop(Arc<AtomicBool>);

impl BlockHook for Stop {
    fn blocking(&self) {}

    fn unblocked(&self) {
        // Relaxed: it hands nothing over.
        while !self.0.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }
}

/// A thread is granted and does not run, another waits behind it: `meanwhile` sees to it that the
/// other is granted too.
fn granted_and_stopped(queue: &Arc<SbitmapQueue>, meanwhile: impl Fn(&dyn Fn() -> bool)) {
    let go = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicBool::new(false));
    let stop = go.clone();
    let stopped = spawn(queue, |q| {
        let _installed = install(Rc::new(Stop(stop)));
        q.get_blocking().unwrap()
    });
    await_waits(queue, 1);
    let is_done = done.clone();
    let other = spawn(queue, move |q| {
        let id = q.get_blocking().unwrap();
        is_done.store(true, Ordering::Relaxed);
        id
    });
    await_waits(queue, 2);
    meanwhile(&|| done.load(Ordering::Relaxed));
    let other = other.join().unwrap();
    go.store(true, Ordering::Relaxed);
    assert_ne!(stopped.join().unwrap(), other);
}

/// L4. Two puts find the token out, as many as stall_limit allows in a model: it is given up. When
/// its holder comes after all, it counts for nothing.
pub(crate) fn token_is_given_up_by_puts(new: New) {
    let (queue, ids) = taken(new, 3);
    granted_and_stopped(&queue, |_| {
        for &id in &ids {
            queue.put(id).unwrap();
        }
    });
    assert_quiet(&queue, 1);
}

/// L4. No more puts come: the watchdog gives the token up.
pub(crate) fn token_is_given_up_by_watchdog(new: New) {
    let clock = Clock::manual();
    let queue = Arc::new(new(2, 2, Fairness::fair(), clock.clone()));
    let ids = [queue.try_get().unwrap(), queue.try_get().unwrap()];
    granted_and_stopped(&queue, |is_done| {
        queue.put_batch(&ids).unwrap();
        while !is_done() {
            clock.advance(Duration::from_millis(20));
            thread::yield_now();
        }
    });
    assert_quiet(&queue, 0);
}

fn spawn_on<T: Send + 'static>(
    cpu: usize,
    queue: &Arc<SbitmapQueue>,
    f: impl FnOnce(&SbitmapQueue) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || {
        cpu::set_current_for_thread(Some(cpu));
        f(&queue)
    })
}

fn poll_once(get: &mut std::pin::Pin<Box<inflight_sbitmap::Get<'_>>>) -> Poll<usize> {
    let mut cx = Context::from_waker(Waker::noop());
    get.as_mut().poll(&mut cx).map(Result::unwrap)
}

/// An id is granted, and put again, while another task comes: behind the first, or to an empty
/// list.
pub(crate) fn newcomer_against_grant(new: New) {
    let (queue, ids) = taken(new, 1);
    let mut first = Box::pin(queue.get());
    assert!(poll_once(&mut first).is_pending());
    let second = spawn_on(0, &queue, |q| block_on(q.get()).unwrap());
    queue.put(ids[0]).unwrap();
    assert_eq!(poll_once(&mut first), Poll::Ready(ids[0]));
    queue.put(ids[0]).unwrap();
    assert_eq!(second.join().unwrap(), ids[0]);
    assert_quiet(&queue, 0);
}

/// One or two tasks, and two puts on two CPUs: the service of each finds the list full or empty.
pub(crate) fn two_puts_for_tasks(new: New, tasks: usize) {
    let (queue, ids) = taken(new, 2);
    let mut gets: Vec<_> = (0..tasks).map(|_| Box::pin(queue.get())).collect();
    for get in &mut gets {
        assert!(poll_once(get).is_pending());
    }
    let id = ids[0];
    let elsewhere = spawn_on(1, &queue, move |q| q.put(id).unwrap());
    queue.put(ids[1]).unwrap();
    elsewhere.join().unwrap();
    assert!(gets.iter_mut().all(|get| poll_once(get).is_ready()));
    assert_quiet(&queue, 2 - tasks);
}

/// A task is dropped while an id is put, and another task comes: it gets the id.
pub(crate) fn dropped_task_against_grant(new: New) {
    let (queue, ids) = taken(new, 1);
    let mut first = Box::pin(queue.get());
    assert!(poll_once(&mut first).is_pending());
    let id = ids[0];
    let putter = spawn_on(0, &queue, move |q| q.put(id).unwrap());
    let other = spawn_on(1, &queue, |q| block_on(q.get()).unwrap());
    drop(first);
    putter.join().unwrap();
    assert_eq!(other.join().unwrap(), id);
    assert_quiet(&queue, 0);
}

/// A task that has not looked for an id before comes to wait, while one is put to an open stack.
pub(crate) fn opening_against_put(new: New) {
    let (queue, ids) = taken(new, 1);
    let id = ids[0];
    let putter = spawn(&queue, move |q| q.put(id).unwrap());
    assert_eq!(block_on(queue.get_many(1)).unwrap(), [id]);
    putter.join().unwrap();
    assert_quiet(&queue, 0);
}

/// A thread and a task come behind a task; all three keep their ids.
pub(crate) fn thread_and_tasks_that_keep(new: New) {
    let (queue, ids) = taken(new, 3);
    let mut tasks = [(); 2].map(|()| Box::pin(queue.get()));
    assert!(poll_once(&mut tasks[0]).is_pending());
    let thread = spawn_on(1, &queue, |q| q.get_blocking().unwrap());
    assert!(poll_once(&mut tasks[1]).is_pending());
    for &id in &ids {
        queue.put(id).unwrap();
    }
    let mut got = vec![thread.join().unwrap()];
    for task in &mut tasks {
        let Poll::Ready(id) = poll_once(task) else {
            panic!("three ids for three")
        };
        got.push(id);
    }
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2]);
    assert_quiet(&queue, 0);
}

/// A newcomer against a close: it has an id, or is told; either way it does not sleep.
pub(crate) fn close_against_waiter(new: New) {
    let (queue, ids) = taken(new, 1);
    let waiter = spawn(&queue, |q| q.get_blocking());
    let closer = spawn(&queue, SbitmapQueue::close);
    queue.put(ids[0]).unwrap();
    closer.join().unwrap();
    if let Ok(id) = waiter.join().unwrap() {
        queue.put(id).unwrap();
    }
    assert_eq!((queue.try_get(), queue.weight()), (None, 0));
}

/// Two close, with an id in a stack: when the call of either has returned nobody gets it.
pub(crate) fn two_closers(new: New) {
    let (queue, ids) = taken(new, 1);
    queue.put(ids[0]).unwrap();
    let closer = spawn(&queue, SbitmapQueue::close);
    queue.close();
    assert_eq!(queue.try_get(), None);
    closer.join().unwrap();
    assert_eq!(queue.weight(), 0);
}

/// Who is told that the queue is closed puts its id, maybe into an open stack, and does not get it
/// again.
pub(crate) fn closed_for_who_is_told(new: New) {
    let (queue, ids) = taken(new, 1);
    let closer = spawn(&queue, SbitmapQueue::close);
    let told = queue.is_closed();
    queue.put(ids[0]).unwrap();
    if told {
        assert_eq!(queue.try_get(), None);
    }
    closer.join().unwrap();
    assert_eq!((queue.try_get(), queue.weight()), (None, 0));
}
