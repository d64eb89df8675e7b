//! Splits that are polled by hand, and that wait now as a task and now as a thread: no grant and no
//! wakeup is lost between two ways to wait, the stream ends, and no waker runs under a lock.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_tags::{
    Admission, AllocError, AllocOptions, Force, NoPreempt, Split, Tag, TagSet, Tenant,
    WakeAccounting,
};
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Of a manual clock: nobody's time is up unless the test says so.
const LONG: Duration = Duration::from_secs(1_000);

fn policies() -> [Admission; 5] {
    let base = NoPreempt::default().threshold(0);
    [
        Admission::WholeIo,
        Admission::preempt(),
        Admission::NoPreempt(base.accounting(WakeAccounting::PerTag)),
        Admission::NoPreempt(
            base.accounting(WakeAccounting::PerWaiter)
                .force(Force::Never),
        ),
        Admission::elastic_overcommit(4),
    ]
}

/// A device whose clock stands still, and all of its tags.
struct Full {
    clock: Clock,
    dev: Tenant<u32>,
    held: Vec<Tag<u32>>,
}

impl Full {
    fn new(depth: usize, admission: Admission) -> Self {
        let clock = Clock::manual();
        let set = TagSet::builder().depth(depth).admission(admission);
        let set = set.clock(clock.clone()).build(|_, _| 0).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let held = dev.try_alloc_batch(depth);
        assert_eq!(held.len(), depth);
        Self { clock, dev, held }
    }

    fn put(&mut self, n: usize) {
        Tag::free_batch(self.held.drain(..n).collect::<Vec<_>>());
    }

    /// Nothing is in use, and as many tags as the depth can be had.
    fn assert_whole(self, depth: usize) {
        drop(self.held);
        assert_eq!(self.dev.set().in_use(), 0);
        assert_eq!(self.dev.try_alloc_batch(depth).len(), depth);
    }
}

#[derive(Default)]
struct Counts(AtomicUsize);

impl Counts {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Piece = Poll<Option<Result<Tag<u32>, AllocError>>>;

fn poll(split: &mut Split<u32>, counts: &Arc<Counts>) -> Piece {
    let waker = Waker::from(counts.clone());
    split.poll_next(&mut Context::from_waker(&waker))
}

fn rest_of(split: &mut Split<u32>) -> Vec<Tag<u32>> {
    let mut rest = Vec::new();
    while let Some(tag) = block_on(poll_fn(|cx| split.poll_next(cx))) {
        rest.push(tag.unwrap());
    }
    rest
}

#[test]
fn the_stream_ends_after_the_last_piece() {
    for policy in policies() {
        let mut full = Full::new(8, policy);
        full.put(8);
        for n in [0, 1, 3, 8] {
            let mut split = full.dev.split(n);
            let tags = rest_of(&mut split);
            assert_eq!((tags.len(), split.remaining()), (n, 0));
            assert!(matches!(
                poll(&mut split, &Arc::default()),
                Poll::Ready(None)
            ));
        }
        full.assert_whole(8);
    }
}

#[test]
fn an_error_comes_once_and_ends_the_stream() {
    for policy in policies() {
        let full = Full::new(8, policy);
        let counts = Arc::new(Counts::default());
        let mut waits = full.dev.split(3);
        assert!(poll(&mut waits, &counts).is_pending());
        let mut begins = full.dev.split(3);
        let mut asks_wrong = full.dev.split_with(3, AllocOptions::new().reserved());
        full.dev.set().close();
        assert_eq!(counts.get(), 1, "{policy:?}: who waits is told");
        for split in [&mut waits, &mut begins, &mut asks_wrong] {
            let Poll::Ready(Some(Err(error))) = poll(split, &counts) else {
                panic!("{policy:?}: the set is closed");
            };
            assert!(matches!(error, AllocError::Closed | AllocError::NoReserved));
            for _ in 0..2 {
                assert!(matches!(poll(split, &counts), Poll::Ready(None)));
            }
            assert_eq!(split.remaining(), 3);
            assert_eq!(
                split.next_blocking().unwrap_err(),
                error,
                "as often as asked"
            );
        }
    }
}

/// Whoever tries while it waits as a task takes what has been granted, and loses neither its place
/// nor its wake if there is nothing.
#[test]
fn a_try_between_two_polls_loses_nothing() {
    for policy in policies() {
        let mut full = Full::new(16, policy);
        let counts = Arc::new(Counts::default());
        let mut split = full.dev.split(6);
        assert!(poll(&mut split, &counts).is_pending());
        let mut behind = full.dev.alloc_owned();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(behind.poll_alloc(&mut cx).is_pending());

        if !matches!(policy, Admission::ElasticOvercommit { .. }) {
            assert_eq!(split.try_next().unwrap_err(), AllocError::Exhausted);
        }
        let begun = split.remaining();
        full.put(8);
        assert_eq!(counts.get(), 1, "{policy:?}: it has kept its place");
        // The grant of who waits in order; else a tag that is free.
        let tag = split.try_next().expect("it was told").unwrap();
        assert_eq!(split.remaining(), begun - 1, "{policy:?}");
        full.put(8);
        let rest = rest_of(&mut split);
        assert_eq!(rest.len(), 5, "{policy:?}");
        drop((tag, rest, split));
        let Poll::Ready(Ok(last)) = behind.poll_alloc(&mut cx) else {
            panic!("{policy:?}: the next has what is left");
        };
        drop((last, behind));
        full.assert_whole(16);
    }
}

/// A try takes a tag past the line in which its own split stands: the task asks anew.
#[test]
fn a_try_that_overtakes_its_own_wait_tells_the_task() {
    for policy in policies() {
        let mut full = Full::new(64, policy);
        let counts = Arc::new(Counts::default());
        let mut split = full.dev.split(9);
        assert!(poll(&mut split, &counts).is_pending());
        // Less than a batch: nobody is told of it by the put.
        full.put(1);
        let told = counts.get();
        if let Ok(tag) = split.try_next() {
            assert_eq!(counts.get(), 1, "{policy:?}");
            let mut tags: Vec<_> = tag.into_iter().collect();
            // Those beyond the depth, if there are any.
            while let Poll::Ready(tag) = poll(&mut split, &counts) {
                tags.push(tag.unwrap().unwrap());
            }
            full.put(63);
            assert_eq!(counts.get(), 2, "{policy:?}: it waits again");
            drop(rest_of(&mut split));
        } else {
            assert_eq!((policy, told), (Admission::WholeIo, 0), "a part is of nine");
        }
        drop(split);
        full.assert_whole(64);
    }
}

/// What happens to the task's wait before the thread's.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// It goes on.
    Kept,
    /// The future of `next` is dropped.
    Dropped,
}

/// A split that has waited as a task waits as a thread. Whoever puts must tell the thread: if it
/// tells the task, the thread sleeps beside free tags. Its clock does not go, so only the put ends
/// its sleep.
#[test]
fn a_split_that_waited_as_a_task_waits_as_a_thread() {
    // Batches of one, two and eight.
    for depth in [8, 16, 64] {
        for policy in policies() {
            for before in [Before::Kept, Before::Dropped] {
                let what = format!("{policy:?}, {depth}, {before:?}");
                let mut full = Full::new(depth, policy);
                let as_task = Arc::new(Counts::default());
                let mut split = full.dev.split(3);
                match before {
                    Before::Kept => assert!(poll(&mut split, &as_task).is_pending()),
                    Before::Dropped => {
                        let waker = Waker::from(as_task.clone());
                        let next = pin!(split.next());
                        let mut cx = Context::from_waker(&waker);
                        assert!(next.poll(&mut cx).is_pending());
                    }
                }
                let thread = thread::spawn(move || {
                    let tag = split.next_timeout(LONG);
                    (split, tag)
                });
                while full.clock.sleepers() == 0 {
                    thread::yield_now();
                }
                full.put(depth);
                let told = as_task.get();
                if told > 0 {
                    // It would sleep for ever.
                    full.clock.advance(LONG);
                }
                let (mut split, tag) = thread.join().unwrap();
                assert_eq!(told, 0, "{what}: the thread waits");
                let tags = (tag.expect(&what), rest_of(&mut split));
                assert_eq!(tags.1.len(), 2, "{what}");
                drop((tags, split));
                full.assert_whole(depth);
            }
        }
    }
}

/// The other way round: a split whose first piece a thread has waited for, or has waited for in
/// vain, waits as a task.
#[test]
fn a_split_that_waited_as_a_thread_waits_as_a_task() {
    for depth in [8, 16, 64] {
        for policy in policies() {
            for late in [false, true] {
                let what = format!("{policy:?}, {depth}, {late}");
                let mut full = Full::new(depth, policy);
                // In parts, under whole IO.
                let mut split = full.dev.split(2 * depth);
                let thread = thread::spawn(move || {
                    let tag = split.next_timeout(LONG);
                    (split, tag)
                });
                while full.clock.sleepers() == 0 {
                    thread::yield_now();
                }
                if late {
                    full.clock.advance(LONG);
                } else {
                    full.put(depth / 2);
                }
                let (mut split, tag) = thread.join().unwrap();
                assert_eq!(tag.is_err(), late, "{what}");
                let as_task = Arc::new(Counts::default());
                let mut tags: Vec<_> = tag.into_iter().flatten().collect();
                while let Poll::Ready(tag) = poll(&mut split, &as_task) {
                    tags.push(tag.expect(&what).expect(&what));
                }
                assert_eq!(as_task.get(), 0, "{what}");
                let left = full.held.len();
                full.put(left);
                assert_eq!(as_task.get(), 1, "{what}: the task waits");
                let Poll::Ready(Some(Ok(tag))) = poll(&mut split, &as_task) else {
                    panic!("{what}: it was told");
                };
                drop((tag, tags, split));
                full.assert_whole(depth);
            }
        }
    }
}

/// A thread that is told is waited for, since it will serve the next; a task is not, which may be
/// polled late. One that was a thread is a task now: whoever waits behind it is served.
#[test]
fn nobody_waits_for_a_task_that_was_a_thread() {
    let mut full = Full::new(16, Admission::WholeIo);
    let mut split = full.dev.split(32);
    let thread = thread::spawn(move || {
        let tag = split.next_timeout(LONG);
        (split, tag)
    });
    while full.clock.sleepers() == 0 {
        thread::yield_now();
    }
    full.put(4);
    let (mut split, tag) = thread.join().unwrap();
    let mut tags: Vec<_> = tag.into_iter().flatten().collect();
    let as_task = Arc::new(Counts::default());
    while let Poll::Ready(tag) = poll(&mut split, &as_task) {
        tags.push(tag.unwrap().unwrap());
    }
    assert_eq!(tags.len(), 4, "a part");
    let behind = thread::spawn({
        let dev = full.dev.clone();
        move || dev.alloc_timeout(LONG)
    });
    while full.clock.sleepers() == 0 {
        thread::yield_now();
    }
    full.put(4);
    assert_eq!(
        as_task.get(),
        1,
        "its next part is there, and it does not come for it"
    );
    let before = full.dev.set().stats().wakeups;
    full.put(1);
    let told = full.dev.set().stats().wakeups - before;
    if told == 0 {
        // It would sleep on.
        full.clock.advance(LONG);
    }
    let behind = behind.join().unwrap();
    assert_eq!(told, 1, "the one behind is served");
    drop((behind, tags, split));
    full.assert_whole(16);
}

/// While the set is frozen.
#[test]
fn a_freeze_is_waited_out_as_a_task_and_as_a_thread() {
    for policy in policies() {
        let mut full = Full::new(8, policy);
        full.put(8);
        let frozen = full.dev.set().freeze_blocking();
        let counts = Arc::new(Counts::default());
        let mut split = full.dev.split(2);
        assert!(poll(&mut split, &counts).is_pending());
        assert_eq!(split.try_next().unwrap_err(), AllocError::Frozen);
        drop(frozen);
        assert_eq!(counts.get(), 1, "a try has not ended its wait");

        let frozen = full.dev.set().freeze_blocking();
        assert!(poll(&mut split, &counts).is_pending());
        let thread = thread::spawn(move || {
            let tag = split.next_timeout(LONG);
            (split, tag)
        });
        while full.clock.sleepers() == 0 {
            thread::yield_now();
        }
        drop(frozen);
        let (split, tag) = thread.join().unwrap();
        assert!(matches!(tag, Ok(Some(_))), "{policy:?}");
        assert_eq!(counts.get(), 1, "the thread was told, not the task");
        drop((split, tag));
        full.assert_whole(8);
    }
}

/// A waker that comes back to the line when it is woken and when it is dropped, as the last handle
/// of a task may: with a lock of ours held it would wait for itself.
struct ComesBack {
    dev: Mutex<Option<Tenant<u32>>>,
    times: AtomicUsize,
}

impl ComesBack {
    fn new(dev: &Tenant<u32>) -> Arc<Self> {
        Arc::new(Self {
            dev: Mutex::new(Some(dev.clone())),
            times: AtomicUsize::new(0),
        })
    }

    fn comes_back(&self) {
        let Some(dev) = self.dev.lock().clone() else {
            return;
        };
        let mut split = dev.split(1);
        let tag = split.poll_next(&mut Context::from_waker(Waker::noop()));
        drop((tag, split));
        self.times.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wake for ComesBack {
    fn wake(self: Arc<Self>) {
        self.comes_back();
    }
}

impl Drop for ComesBack {
    fn drop(&mut self) {
        self.comes_back();
    }
}

#[test]
fn a_waker_may_come_back_whenever_it_is_woken_or_dropped() {
    for policy in policies() {
        for step in 0..6 {
            let mut full = Full::new(8, policy);
            let mut split = full.dev.split(2);
            let counts = Arc::new(Counts::default());
            let comes_back = ComesBack::new(&full.dev);
            let waker = Waker::from(comes_back);
            assert!(
                split
                    .poll_next(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            // The last handle is the line's.
            drop(waker);
            match step {
                0 => assert!(poll(&mut split, &counts).is_pending()),
                1 => assert_eq!(
                    split.next_timeout(Duration::ZERO).unwrap_err(),
                    AllocError::TimedOut
                ),
                2 => full.put(8),
                3 => {
                    full.put(1);
                    let _ = split.try_next();
                }
                4 => full.dev.set().close(),
                _ => {}
            }
            drop(split);
            if step != 4 {
                full.assert_whole(8);
            }
        }
    }
}

#[cfg(feature = "futures")]
mod futures {
    use super::*;
    use futures_core::Stream;
    use futures_core::stream::FusedStream;
    use std::pin::Pin;

    #[test]
    fn a_split_is_a_stream_that_says_how_long_it_is() {
        let full = Full::new(8, Admission::WholeIo);
        let mut split = full.dev.split(2);
        drop(full.held);
        assert_eq!(
            (split.size_hint(), split.is_terminated()),
            ((1, Some(2)), false)
        );
        let mut cx = Context::from_waker(Waker::noop());
        let mut next = || Pin::new(&mut split).poll_next(&mut cx);
        assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
        full.dev.set().close();
        assert!(matches!(next(), Poll::Ready(Some(Err(AllocError::Closed)))));
        assert!(matches!(next(), Poll::Ready(None)));
        assert_eq!(
            (split.size_hint(), split.is_terminated()),
            ((0, Some(0)), true)
        );
    }
}
