//! Who is woken when, with tasks polled by hand: nothing here depends on timing.
//!
//! Items (`docs/sbitmap-items.md`): B1, B5, B12-B14, B17-B20, B22, B24.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/tasks.rs"]
mod tasks;

use inflight_sbitmap::{Engine, Fairness, Get, PutError, SbitmapQueue};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, cpu};
use std::pin::pin;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;
use tasks::{Count, Task, poll_once};

/// A queue with all bits taken.
fn full(depth: usize) -> SbitmapQueue {
    let queue = SbitmapQueue::builder(depth)
        .fairness(Fairness::batched())
        .build()
        .unwrap();
    take_all(&queue);
    queue
}

fn take_all(queue: &SbitmapQueue) {
    let free = queue.depth() - queue.weight();
    assert_eq!(queue.try_get_batch(queue.depth(), &mut Vec::new()), free);
}

/// Bits freed while somebody waited, and how many of them have been turned into wakes.
fn counters(queue: &SbitmapQueue) -> (u32, u32) {
    let snapshot = queue.snapshot();
    (snapshot.completions, snapshot.wakeups)
}

fn assert_nobody_waits(queue: &SbitmapQueue) {
    let snapshot = queue.snapshot();
    assert_eq!(snapshot.ws_active, 0);
    assert!(snapshot.waiters.iter().all(|&n| n == 0));
}

fn woken(tasks: &[Task<'_>]) -> usize {
    tasks.iter().filter(|task| task.is_woken()).count()
}

#[test]
fn a_future_polled_again_after_it_was_ready_waits_for_another_bit() {
    for mode in [Fairness::batched(), Fairness::fair(), Fairness::fifo()] {
        for engine in [Engine::Shared, Engine::Auto] {
            let builder = SbitmapQueue::builder(1).fairness(mode).engine(engine);
            let queue = builder.build().unwrap();
            take_all(&queue);
            let mut task = Task::new(&queue);
            for _ in 0..3 {
                assert_eq!(task.poll(), None);
                queue.put(0).unwrap();
                assert!(task.is_woken());
                assert_eq!(task.poll(), Some(0));
            }
            queue.put(0).unwrap();
            assert_eq!(task.poll(), Some(0));
            assert_nobody_waits(&queue);
        }
    }
}

#[test]
fn the_wake_batch_is_an_eighth_of_the_depth_from_1_to_8() {
    let batches = [
        (1, 1),
        (15, 1),
        (16, 2),
        (31, 3),
        (32, 4),
        (63, 7),
        (64, 8),
        (999, 8),
    ];
    for (depth, batch) in batches {
        let queue = SbitmapQueue::builder(depth)
            .fairness(Fairness::batched())
            .build()
            .unwrap();
        assert_eq!(queue.snapshot().wake_batch, batch, "depth {depth}");
        assert_eq!(queue.snapshot().fairness, Fairness::batched());
    }
}

#[test]
fn a_free_bit_is_had_at_once() {
    let clock = Clock::manual();
    let queue = SbitmapQueue::builder(4)
        .fairness(Fairness::batched())
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut bits = vec![
        queue.try_get().unwrap(),
        queue.get_blocking().unwrap(),
        queue.get_timeout(Duration::ZERO).ok().unwrap(),
        poll_once(queue.get()).unwrap().unwrap(),
    ];
    bits.sort_unstable();
    assert_eq!(bits, [0, 1, 2, 3]);
    assert_eq!(queue.try_get(), None);
    assert_eq!(queue.get_timeout(Duration::ZERO).ok(), None);
    assert_eq!(queue.stats().wakeups, 0);
    assert_nobody_waits(&queue);
}

#[test]
fn puts_are_counted_only_while_somebody_waits() {
    let queue = full(32);
    (0..10).for_each(|bit| queue.put(bit).unwrap());
    assert_eq!(counters(&queue), (0, 0));
    take_all(&queue);

    let mut task = Task::waiting(&queue);
    (0..3).for_each(|bit| queue.put(bit).unwrap());
    assert_eq!((counters(&queue), task.wakes()), ((3, 0), 0));
    queue.put(3).unwrap();
    assert_eq!((counters(&queue), task.wakes()), ((4, 4), 1));
    assert!(task.poll().is_some());
    assert_eq!(queue.stats().wakeups, 1);
    assert_nobody_waits(&queue);
}

/// Waiters in chosen queues: many join, then all but some leave.
fn waiters_in<'a>(queue: &'a SbitmapQueue, wanted: &[usize]) -> Vec<(usize, Task<'a>)> {
    let lens = || queue.snapshot().waiters;
    let mut tasks = Vec::new();
    while lens().iter().zip(wanted).any(|(have, want)| have < want) {
        let before = lens();
        let task = Task::waiting(queue);
        let after = lens();
        let joined = (0..after.len()).find(|&i| after[i] > before[i]).unwrap();
        tasks.push((joined, task));
    }
    // The first come of each queue stay.
    let mut kept = vec![0; wanted.len()];
    tasks.retain(|&(joined, _)| {
        kept[joined] += 1;
        kept[joined] <= wanted[joined]
    });
    assert_eq!(lens(), wanted);
    tasks
}

#[test]
fn a_batch_goes_on_to_the_next_queue() {
    let queue = full(32);
    let tasks = waiters_in(&queue, &[1, 0, 0, 5, 0, 0, 0, 0]);
    assert_eq!(queue.snapshot().wake_index, 0);
    (0..4).for_each(|bit| queue.put(bit).unwrap());
    let snapshot = queue.snapshot();
    assert_eq!(snapshot.waiters, [0, 0, 0, 2, 0, 0, 0, 0]);
    assert_eq!(snapshot.wake_index, 4);
    assert_eq!(snapshot.ws_active, 6, "woken ones have not run yet");
    // Those that came last to queue 3 still sleep.
    let sleeping: Vec<_> = tasks.iter().map(|(_, task)| !task.is_woken()).collect();
    assert_eq!(sleeping, [false, false, false, false, true, true]);
}

#[test]
fn a_large_batch_of_puts_wakes_several_batches() {
    let queue = full(32);
    let tasks: Vec<_> = (0..20).map(|_| Task::waiting(&queue)).collect();
    queue.put_batch(&[0, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!((counters(&queue), woken(&tasks)), ((9, 8), 8));
    (9..12).for_each(|bit| queue.put(bit).unwrap());
    assert_eq!((counters(&queue), woken(&tasks)), ((12, 12), 12));
}

#[test]
fn a_batch_of_puts_counts_its_good_bits() {
    let queue = full(16);
    let tasks: Vec<_> = (0..4).map(|_| Task::waiting(&queue)).collect();
    assert!(matches!(
        queue.put_batch(&[0, 99, 0]),
        Err(PutError::OutOfRange { .. })
    ));
    assert_eq!((counters(&queue), woken(&tasks)), ((1, 0), 0));
    assert!(matches!(
        queue.put_batch(&[0, 1]),
        Err(PutError::NotAllocated { .. })
    ));
    assert_eq!((counters(&queue), woken(&tasks)), ((2, 2), 2));
    assert!(matches!(queue.put(0), Err(PutError::NotAllocated { .. })));
    assert!(matches!(queue.put(16), Err(PutError::OutOfRange { .. })));
    assert_eq!(queue.put_batch(&[]), Ok(()));
    assert_eq!(
        (counters(&queue), woken(&tasks)),
        ((2, 2), 2),
        "nothing was freed"
    );
}

#[test]
fn within_a_queue_the_first_come_is_woken_first() {
    let queue = full(1);
    let wanted = [4, 0, 3, 0, 0, 3, 0, 0];
    let tasks = waiters_in(&queue, &wanted);
    let mut order: Vec<usize> = Vec::new();
    for _ in 0..tasks.len() {
        queue.put(0).unwrap();
        // The bit goes to a thief, so every put wakes somebody who has not been woken yet.
        assert_eq!(queue.try_get(), Some(0));
        let new = (0..tasks.len()).filter(|i| tasks[*i].1.is_woken() && !order.contains(i));
        let new: Vec<_> = new.collect();
        assert_eq!(new.len(), 1, "one bit, one wake");
        order.extend(new);
    }
    for size in 0..wanted.len() {
        let size: Vec<_> = order.iter().filter(|&&i| tasks[i].0 == size).collect();
        assert!(size.is_sorted(), "{order:?}");
    }
    assert!(tasks.iter().all(|(_, task)| task.wakes() == 1));
}

/// The waiter at position `p` of all is woken within about `p + 1` freed bits, rounded up to a
/// batch.
#[test]
fn nobody_is_forgotten() {
    for (depth, waiters) in [(8, 40_usize), (16, 33), (32, 64), (64, 100)] {
        let queue = full(depth);
        let batch = queue.snapshot().wake_batch as usize;
        let tasks: Vec<_> = (0..waiters).map(|_| Task::waiting(&queue)).collect();
        let mut freed: usize = 0;
        for bit in (0..depth).cycle().take(waiters.next_multiple_of(batch)) {
            queue.put(bit).unwrap();
            freed += 1;
            assert_eq!(queue.try_get(), Some(bit), "a thief takes it");
            let due = freed / batch * batch;
            assert_eq!(woken(&tasks), due.min(waiters));
            // The queues are served in turn, so position is kept up to one round of them.
            let overdue = due.saturating_sub(8 * batch).min(waiters);
            assert!(tasks[..overdue].iter().all(Task::is_woken));
        }
        assert_eq!(woken(&tasks), waiters);
    }
}

#[test]
fn an_overtaken_waiter_queues_again() {
    let queue = full(1);
    let mut task = Task::waiting(&queue);
    for round in 1..=20 {
        queue.put(0).unwrap();
        assert_eq!(task.wakes(), round);
        assert_eq!(queue.try_get(), Some(0), "whoever tries may overtake");
        assert_eq!(task.poll(), None);
        assert_eq!(queue.snapshot().ws_active, 1);
    }
    assert_eq!(queue.stats().waits, 21);
    queue.put(0).unwrap();
    assert_eq!(task.poll(), Some(0));
    assert_eq!(queue.stats().wakeups, 21);
    assert_nobody_waits(&queue);
}

#[test]
fn the_last_polled_waker_is_the_one_that_is_woken() {
    let queue = full(1);
    let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
    let mut get = pin!(queue.get());
    for count in [&first, &second] {
        let waker = Waker::from(count.clone());
        assert!(
            get.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    assert_eq!(
        queue.snapshot().ws_active,
        1,
        "polling again does not queue twice"
    );
    queue.put(0).unwrap();
    assert_eq!((first.get(), second.get()), (0, 1));
}

#[test]
fn a_future_that_was_never_polled_does_not_wait() {
    let queue = full(1);
    drop(queue.get());
    let _unpolled = queue.get();
    assert_nobody_waits(&queue);
    assert_eq!(queue.stats().waits, 0);
}

#[test]
fn a_future_dropped_before_it_is_chosen_leaves_the_queue() {
    let queue = full(1);
    let first = Task::waiting(&queue);
    let mut second = Task::waiting(&queue);
    drop(first);
    assert_eq!(queue.snapshot().ws_active, 1);
    queue.put(0).unwrap();
    assert_eq!(second.wakes(), 1);
    assert_eq!(second.poll(), Some(0));
    assert_nobody_waits(&queue);
}

#[test]
fn a_future_dropped_after_it_was_chosen_passes_the_wake_on() {
    let queue = full(1);
    let mut tasks: Vec<_> = (0..10).map(|_| Task::waiting(&queue)).collect();
    queue.put(0).unwrap();
    for left in (1..10).rev() {
        let chosen = tasks.iter().position(Task::is_woken).unwrap();
        drop(tasks.remove(chosen));
        assert_eq!((tasks.len(), woken(&tasks)), (left, 1));
    }
    assert_eq!(tasks[0].poll(), Some(0));
    drop(tasks);
    assert_nobody_waits(&queue);
}

#[test]
fn a_chosen_future_without_successor_drops_its_wake_and_no_bit() {
    let queue = full(2);
    let task = Task::waiting(&queue);
    queue.put(1).unwrap();
    assert_eq!(task.wakes(), 1);
    drop(task);
    assert_nobody_waits(&queue);
    assert_eq!(queue.try_get(), Some(1));
}

#[test]
fn a_finished_future_takes_no_more_wakes() {
    let queue = full(2);
    let mut first = Task::waiting(&queue);
    let second = Task::waiting(&queue);
    queue.put(0).unwrap();
    assert_eq!(first.poll(), Some(0));
    queue.put(1).unwrap();
    assert_eq!((first.wakes(), second.wakes()), (1, 1));
    drop(first);
    assert_eq!(queue.snapshot().ws_active, 1);
}

/// A waker that moves its thread to CPU 1 when it is cloned: the scheduler may do so at any moment.
fn moving_waker() -> Waker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    fn clone(_: *const ()) -> RawWaker {
        cpu::set_current_for_thread(Some(1));
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    fn nothing(_: *const ()) {}
    // SAFETY: the functions of the table use no data, so they work on any pointer and from any
    // thread.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

/// In turn a search begins where its CPU's turn is. Bits before it must not stay free while a
/// waiter that came to another CPU between its two looks sleeps.
#[test]
fn in_turn_a_waiter_may_move_to_another_cpu() {
    let queue = SbitmapQueue::builder(16)
        .fairness(Fairness::batched())
        .shift(4)
        .round_robin(true)
        .build()
        .unwrap();
    take_all(&queue);
    let low: Vec<_> = (0..15).collect();
    for cpu in [0, 1] {
        cpu::set_current_for_thread(Some(cpu));
        queue.put_batch(&low).unwrap();
        // The turn of a CPU may be anywhere; its second round ends at 15, which stays taken.
        while queue.try_get() != Some(14) {}
    }
    queue.put_batch(&low).unwrap();
    cpu::set_current_for_thread(Some(0));

    let waker = moving_waker();
    let mut get = pin!(queue.get());
    let polled = get.as_mut().poll(&mut Context::from_waker(&waker));
    queue.put(15).unwrap();
    let snapshot = queue.snapshot();
    let asleep = snapshot.waiters.iter().sum::<usize>();
    assert!(
        polled.is_ready() || asleep == 0,
        "all bits are free and a waiter sleeps\n{snapshot}"
    );
}

#[test]
fn wake_all_makes_everybody_look_again() {
    let queue = full(32);
    let mut tasks: Vec<_> = (0..30).map(|_| Task::waiting(&queue)).collect();
    // Three bits are no batch.
    queue.put_batch(&[4, 5, 6]).unwrap();
    assert_eq!(woken(&tasks), 0);
    queue.wake_all();
    assert!(tasks.iter().all(|task| task.wakes() == 1));
    let mut got: Vec<_> = tasks.iter_mut().filter_map(Task::poll).collect();
    got.sort_unstable();
    assert_eq!(got, [4, 5, 6]);
    let snapshot = queue.snapshot();
    assert_eq!(
        (snapshot.ws_active, snapshot.waiters.iter().sum::<usize>()),
        (27, 27)
    );
    queue.wake_all();
    assert_eq!(tasks.iter().filter(|task| task.wakes() == 2).count(), 27);
    drop(tasks);
    queue.wake_all();
    assert_nobody_waits(&queue);
}

#[test]
fn the_text_lists_map_and_queues() {
    let queue = full(32);
    let _task = Task::waiting(&queue);
    queue.put(3).unwrap();
    let text = queue.snapshot().to_string();
    let keys = [
        "depth=32",
        "busy=31",
        "cleared=1",
        "bits_per_word=8",
        "map_nr=4",
        "alloc_hint={",
        "wake_batch=4",
        "wake_index=0",
        "ws_active=1",
        "ws={",
        "round_robin=0",
    ];
    let mut lines = text.lines().map(str::trim_start);
    for key in keys {
        assert!(
            lines.any(|line| line.starts_with(key)),
            "{key} in its place in\n{text}"
        );
    }
}

#[test]
fn everything_is_sharable_and_shows_itself() {
    fn check<T: Send + std::fmt::Debug>(value: &T) {
        assert!(!format!("{value:?}").is_empty());
    }
    fn share<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let queue = Arc::new(share(full(1)));
    check(&queue);
    check(&SbitmapQueue::builder(1).fairness(Fairness::batched()));
    check(&queue.snapshot());
    check(&queue.stats());
    let get: Get<'_> = queue.get();
    check(&get);
}

/// A batch that is not full wakes nobody, but a waiter whose time is up takes what is free.
#[test]
fn a_timed_waiter_takes_a_free_bit_with_its_last_look() {
    let clock = Clock::manual();
    let queue = Arc::new(
        SbitmapQueue::builder(64)
            .fairness(Fairness::batched())
            .clock(clock.clone())
            .build()
            .unwrap(),
    );
    take_all(&queue);
    let waiter = inflight_sync::thread::spawn({
        let queue = queue.clone();
        move || queue.get_timeout(Duration::from_secs(1)).ok()
    });
    while clock.sleepers() == 0 {
        inflight_sync::thread::yield_now();
    }
    queue.put(7).unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!(waiter.join().unwrap(), Some(7));
}

#[test]
fn switching_one_check_off_leaves_the_other() {
    let queue = SbitmapQueue::builder(8)
        .fairness(Fairness::batched())
        .trusted(true)
        .checked(false)
        .build()
        .unwrap();
    let bit = queue.get_blocking().unwrap();
    queue.put(bit).unwrap();
    assert!(queue.put(bit).is_ok(), "a trusted map checks nothing");
}
