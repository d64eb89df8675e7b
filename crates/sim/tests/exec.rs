//! The executor: order, wakes, cancellation, determinism.

use fastrand::Rng;
use inflight_sim::exec::{End, Executor, Immediate, SchedulerLatency, Wake, WakeModel, World};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, cpu};
use inflight_tags::TagSet;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const US: Duration = Duration::from_micros(1);

type Log<T> = Rc<RefCell<Vec<T>>>;

fn at(time: Duration) -> Instant {
    Instant::default() + time
}

/// Delays every wake by 7 us and each further one of a batch by 1 us.
struct Fixed;

impl WakeModel for Fixed {
    fn delay(&mut self, wake: Wake, _: &mut Rng) -> Duration {
        US * (7 + wake.rank as u32)
    }
}

/// Waits until it is let go; keeps the waker of the last poll.
#[derive(Default)]
struct Switch {
    open: Cell<bool>,
    polls: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl Switch {
    async fn wait(&self) {
        poll_fn(|cx| {
            self.polls.set(self.polls.get() + 1);
            if self.open.get() {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

#[test]
fn what_is_planned_for_one_moment_happens_in_the_order_of_plans() {
    let mut executor = Executor::new(1, Immediate);
    let log: Log<u32> = Log::default();
    for number in 0..4 {
        let log = log.clone();
        executor.world().call_after(US, move |world| {
            log.borrow_mut().push(number);
            // Planned later for the same moment: after those that stood there before.
            world.call_after(Duration::ZERO, move |_| log.borrow_mut().push(number + 10));
        });
    }
    assert_eq!(executor.run(), End::Finished);
    assert_eq!(*log.borrow(), [0, 1, 2, 3, 10, 11, 12, 13]);
}

proptest! {
    #[test]
    fn events_happen_as_a_stable_sort_by_time_says(
        times in prop::collection::vec(0_u64..20, 0..60),
    ) {
        let mut executor = Executor::new(1, Immediate);
        let log: Log<(u64, usize)> = Log::default();
        for (number, &time) in times.iter().enumerate() {
            let log = log.clone();
            executor.world().call_after(Duration::from_nanos(time), move |world| {
                log.borrow_mut().push((world.now().as_nanos(), number));
            });
        }
        executor.run();
        let mut expected: Vec<_> = times.iter().copied().zip(0..).collect();
        expected.sort_by_key(|&(time, _)| time);
        prop_assert_eq!(&*log.borrow(), &expected);
    }

    #[test]
    fn sleepers_wake_at_their_times(times in prop::collection::vec(0_u64..50, 1..40)) {
        let mut executor = Executor::new(1, Immediate);
        let log: Log<u64> = Log::default();
        for &time in &times {
            let (log, world) = (log.clone(), executor.world().clone());
            executor.spawn(0, async move {
                world.sleep(Duration::from_nanos(time)).await;
                assert_eq!(world.now().as_nanos(), time);
                log.borrow_mut().push(time);
            });
        }
        prop_assert_eq!(executor.run(), End::Finished);
        let mut expected = times;
        expected.sort_unstable();
        prop_assert_eq!(&*log.borrow(), &expected);
    }
}

#[test]
fn a_woken_task_runs_after_the_delay_of_the_model_and_a_sleeper_at_once() {
    let mut executor = Executor::new(1, Fixed);
    let log: Log<(u32, Duration)> = Log::default();
    let switch = Rc::new(Switch::default());
    for number in 0..3 {
        let (log, world, switch) = (log.clone(), executor.world().clone(), switch.clone());
        executor.spawn(0, async move {
            let note = || {
                let now = world.now() - Instant::default();
                log.borrow_mut().push((number, now));
            };
            note();
            if number == 2 {
                switch.wait().await;
            } else {
                world.sleep(US * 100).await;
                switch.open.set(true);
                switch.wake();
            }
            note();
        });
    }
    executor.run();
    let times = [(0, 7), (1, 8), (2, 9), (0, 107), (1, 108), (2, 114)];
    assert_eq!(*log.borrow(), times.map(|(number, us)| (number, US * us)));
}

#[test]
fn wakes_that_arrive_together_are_one_poll_and_one_during_the_poll_is_another() {
    let mut executor = Executor::new(1, Fixed);
    let switch = Rc::new(Switch::default());
    executor.spawn(0, {
        let switch = switch.clone();
        async move { switch.wait().await }
    });
    assert_eq!(executor.run(), End::Stuck { tasks: 1 });
    assert_eq!(switch.polls.get(), 1);
    (0..3).for_each(|_| switch.wake());
    assert_eq!(executor.run(), End::Stuck { tasks: 1 });
    assert_eq!(switch.polls.get(), 2);

    let yields = Rc::new(Cell::new(0));
    let seen = yields.clone();
    executor.spawn(
        0,
        poll_fn(move |cx| {
            seen.set(seen.get() + 1);
            if seen.get() == 5 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }),
    );
    executor.run();
    assert_eq!(yields.get(), 5);

    switch.open.set(true);
    switch.wake();
    assert_eq!(executor.run(), End::Finished);
    switch.wake();
    assert_eq!(
        executor.run(),
        End::Finished,
        "it is gone, and its waker harmless"
    );
    assert_eq!(switch.polls.get(), 3);
}

/// Says when it is dropped.
struct Dropped(Rc<Cell<usize>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn an_aborted_task_is_dropped_where_it_stands() {
    let mut executor = Executor::new(1, Immediate);
    let dropped = Rc::new(Cell::new(0));
    let guarded = |world: World| {
        let guard = Dropped(dropped.clone());
        async move {
            let _guard = guard;
            world.sleep(US).await;
            pending::<()>().await;
        }
    };
    let never_ran = executor.spawn(0, guarded(executor.world().clone()));
    executor.world().abort(never_ran);
    assert_eq!(dropped.get(), 1);
    let asleep = executor.spawn(0, guarded(executor.world().clone()));
    executor.run_until(at(Duration::ZERO));
    executor.world().abort(asleep);
    assert_eq!((dropped.get(), executor.tasks()), (2, 0));
    executor.world().abort(asleep);

    // The timer of the one that was aborted fires while another has its place.
    let switch = Rc::new(Switch::default());
    executor.spawn(0, {
        let switch = switch.clone();
        async move { switch.wait().await }
    });
    assert_eq!(executor.run(), End::Stuck { tasks: 1 });
    assert_eq!(
        switch.polls.get(),
        1,
        "a wake of the task before is none of this one"
    );
}

#[test]
fn a_task_that_aborts_itself_ends_when_it_waits() {
    let mut executor = Executor::new(1, Immediate);
    let dropped = Rc::new(Cell::new(0));
    let own = Rc::new(Cell::new(None));
    let id = executor.spawn(0, {
        let (world, own) = (executor.world().clone(), own.clone());
        let guard = Dropped(dropped.clone());
        async move {
            world.abort(own.get().expect("set before it runs"));
            assert_eq!(guard.0.get(), 0);
            world.sleep(US).await;
            unreachable!();
        }
    });
    own.set(Some(id));
    executor.run();
    assert_eq!((dropped.get(), executor.tasks()), (1, 0));
}

#[test]
fn dropping_the_executor_drops_everything() {
    let executor = Executor::new(1, Immediate);
    let dropped = Rc::new(Cell::new(0));
    let guard = Dropped(dropped.clone());
    let world = executor.world().clone();
    executor.spawn(0, async move {
        let _guard = guard;
        world.sleep(US).await;
    });
    let guard = Dropped(dropped.clone());
    executor.world().call_after(US, move |_| drop(guard));
    drop(executor);
    assert_eq!(dropped.get(), 2);
}

#[test]
fn the_end_of_a_run_says_why() {
    let mut executor = Executor::new(1, Immediate);
    let world = executor.world().clone();
    executor.spawn(0, async move { world.sleep(US * 10).await });
    assert_eq!(executor.run_until(at(US * 4)), End::Deadline);
    assert_eq!(executor.world().now(), at(US * 4));
    assert_eq!(
        executor.run_until(at(US * 10)),
        End::Finished,
        "the deadline is within"
    );
    executor.spawn(0, pending());
    assert_eq!(executor.run_until(at(US * 20)), End::Stuck { tasks: 1 });
    assert_eq!(
        executor.world().now(),
        at(US * 10),
        "nothing was left to wait for"
    );
}

#[test]
fn a_task_runs_on_its_cpu_and_the_thread_has_its_own_back() {
    let before = cpu::current();
    let mut executor = Executor::new(1, Immediate);
    for cpu in [5, 90_000, 0] {
        let world = executor.world().clone();
        executor.spawn(cpu, async move {
            for _ in 0..3 {
                assert_eq!(cpu::current(), cpu);
                world.sleep(US).await;
            }
        });
    }
    assert_eq!(executor.run(), End::Finished);
    cpu::set_current_for_thread(Some(before));
    assert_eq!(cpu::current(), before);
    cpu::set_current_for_thread(None);
}

#[test]
fn latency_grows_with_the_rank_and_has_the_mean_it_should() {
    let mut model = SchedulerLatency {
        rank: US * 3,
        mean: US * 50,
    };
    let mut rng = Rng::with_seed(3);
    let mut executor = Executor::new(1, Immediate);
    let task = executor.spawn(0, async {});
    executor.run();
    let mut mean = |rank| {
        let wake = Wake { task, cpu: 0, rank };
        let sum: Duration = (0..20_000).map(|_| model.delay(wake, &mut rng)).sum();
        sum.as_secs_f64() / 20_000.0 * 1e6
    };
    assert!((mean(0) - 50.0).abs() < 1.5);
    assert!((mean(7) - 71.0).abs() < 1.5);
}

/// Jobs over the real set: who got which tag when.
fn trace(seed: u64) -> Vec<(u64, usize)> {
    let latency = SchedulerLatency {
        rank: US * 3,
        mean: US * 50,
    };
    let mut executor = Executor::new(seed, latency);
    let clock = executor.world().clock();
    let set = TagSet::builder().depth(4).clock(clock).build(|_, _| ());
    let set = set.expect("4 is a legal depth");
    let device = set.add_tenant("disk").expect("the only one");
    let log: Log<(u64, usize)> = Log::default();
    for job in 0..12 {
        let (log, world, device) = (log.clone(), executor.world().clone(), device.clone());
        executor.spawn(job, async move {
            for _ in 0..20 {
                let tag = device.alloc().await.expect("it is not shut down");
                log.borrow_mut().push((world.now().as_nanos(), job));
                world.sleep(US * 30).await;
                drop(tag);
            }
        });
    }
    assert_eq!(executor.run(), End::Finished, "nobody is forgotten");
    log.take()
}

#[test]
fn the_real_set_serves_everybody_and_the_same_seed_gives_the_same_run() {
    let first = trace(7);
    assert_eq!(first.len(), 12 * 20);
    assert_eq!(first, trace(7));
    assert_ne!(first, trace(8));
}

#[test]
fn an_aborted_waiter_of_the_real_set_takes_no_wake_along() {
    let mut executor = Executor::new(1, Fixed);
    let set = TagSet::builder()
        .depth(1)
        .build(|_, _| ())
        .expect("1 is a legal depth");
    let device = set.add_tenant("disk").expect("the only one");
    let tag = device.try_alloc().expect("it is free");
    let got = Rc::new(Cell::new(0));
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let (device, got) = (device.clone(), got.clone());
            executor.spawn(0, async move {
                drop(device.alloc().await);
                got.set(got.get() + 1);
            })
        })
        .collect();
    executor.run_until(at(US * 100));
    drop(tag);
    // The first is woken and not yet polled.
    executor.world().abort(waiters[0]);
    assert_eq!(executor.run(), End::Finished);
    assert_eq!(got.get(), 2);
}

#[test]
fn a_lost_wake_is_noticed() {
    struct Forgetful;
    impl Future for Forgetful {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
    let mut executor = Executor::new(1, Immediate);
    let world = executor.world().clone();
    executor.spawn(0, async move { world.sleep(US).await });
    executor.spawn(0, Forgetful);
    assert_eq!(executor.run_until(at(US * 50)), End::Stuck { tasks: 1 });
}

#[test]
fn a_sleep_that_is_dropped_wakes_its_task_in_vain_and_nothing_else() {
    let mut executor = Executor::new(1, Immediate);
    let done = Arc::new(inflight_sync::Mutex::new(None));
    executor.spawn(0, {
        let (world, done) = (executor.world().clone(), done.clone());
        async move {
            let mut short = pin!(world.sleep(US));
            let mut long = pin!(world.sleep(US * 5));
            poll_fn(|cx| {
                let _ = long.as_mut().poll(cx);
                short.as_mut().poll(cx)
            })
            .await;
            world.sleep(US * 9).await;
            *done.lock() = Some(world.now());
        }
    });
    executor.run();
    assert_eq!(*done.lock(), Some(at(US * 10)));
}
