//! Random schedules of completions, late and in time, of handlers of timeouts, and of tokens that
//! come twice, damaged or of other sets.
//!
//! Each request ends once: by its completion or by one handler. Each refusal is the one that the
//! pages promise, and is counted.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_tags::{ExpireError, HwQueueOptions, RedeemError, Tenant};
use shuttle_support::{
    FORMS, Form, Held, Mode, PLAIN, SECOND, Size, Slot, Threads, World, check, polled,
};

/// A request in flight, by its token and who it is.
type Request = (u64, usize);

/// What became of the requests, in the record of the test.
#[derive(Default)]
struct Ends {
    submitted: Vec<Request>,
    completed: Vec<Request>,
    handled: Vec<Request>,
    /// Refusals of `redeem`, and those of them that were `TimedOut`.
    refused: u64,
    late: u64,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Ends>>);

impl Log {
    fn submit(&self, held: Held<'_>) -> Request {
        // Whoever handles the timeout may be faster than this line, but not than the lock.
        let mut ends = self.0.lock();
        let request = held.into_token();
        ends.submitted.push(request);
        request
    }

    fn of(&self, token: u64) -> Request {
        let ends = self.0.lock();
        let found = ends.submitted.iter().find(|request| request.0 == token);
        *found.expect("somebody has submitted it")
    }

    /// A completion, and a second one.
    fn complete(&self, world: &World, request: Request) {
        match world.set.redeem(request.0) {
            Ok(tag) => {
                let held = world.again(tag, request.1);
                self.0.lock().completed.push(request);
                let error = self.refused(world, request.0);
                assert!(
                    matches!(error, RedeemError::NotInFlight { .. }),
                    "{error:?}"
                );
                drop(held);
                let error = self.refused(world, request.0);
                assert!(matches!(error, RedeemError::Stale { .. }), "{error:?}");
            }
            Err(error) => {
                self.count(error);
                assert!(
                    matches!(
                        error,
                        RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
                    ),
                    "{error:?}"
                );
            }
        }
    }

    fn refused(&self, world: &World, token: u64) -> RedeemError {
        let error = world.set.redeem(token).unwrap_err();
        self.count(error);
        error
    }

    fn count(&self, error: RedeemError) {
        let mut ends = self.0.lock();
        ends.refused += 1;
        ends.late += u64::from(matches!(error, RedeemError::TimedOut { .. }));
    }

    /// A request that has been marked, by whoever handles that.
    fn handle<'a>(&self, world: &'a World, token: u64) -> Option<Held<'a>> {
        let request = self.of(token);
        match world.set.redeem_timed_out(token) {
            Ok(tag) => {
                self.0.lock().handled.push(request);
                Some(world.again(tag, request.1))
            }
            Err(error) => {
                self.0.lock().refused += 1;
                assert!(
                    matches!(
                        error,
                        RedeemError::NotInFlight { .. } | RedeemError::Stale { .. }
                    ),
                    "{error:?}"
                );
                None
            }
        }
    }

    fn ended(&self) -> usize {
        let ends = self.0.lock();
        ends.completed.len() + ends.handled.len()
    }

    /// Each request has ended once, and the set has counted what was refused.
    fn assert_even(&self, world: &World) {
        let ends = self.0.lock();
        let mut all = [&ends.completed[..], &ends.handled[..]].concat();
        let mut submitted = ends.submitted.clone();
        all.sort_unstable();
        submitted.sort_unstable();
        assert_eq!(all, submitted);
        let stats = world.set.stats();
        assert_eq!(
            (stats.redeem_errors, stats.late_completions),
            (ends.refused, ends.late)
        );
    }
}

/// Submits in each form, and completes; somebody may think that it is late.
fn submit_and_complete(world: &World, tenant: &Tenant<Slot>, log: &Log) {
    for form in FORMS {
        if let Some(Ok(held)) = form.alloc(world, tenant, PLAIN) {
            let request = log.submit(held);
            thread::yield_now();
            log.complete(world, request);
        }
    }
}

/// Marks by a visit, and takes the tags of what it has marked; some of them go back late.
fn visit_and_handle(world: &World, log: &Log) {
    let mut kept = Vec::new();
    for _ in 0..4 {
        world.clock.advance(SECOND);
        let mut marked = Vec::new();
        world.set.for_each_in_flight(|request| {
            if request.mark_timed_out() {
                marked.push(request.token());
            } else {
                // It has been marked, or has ended.
                let again = request.mark_timed_out();
                assert!(!again);
            }
        });
        for token in marked {
            let held = log
                .handle(world, token)
                .expect("it is this one's to handle");
            assert!(log.handle(world, token).is_none());
            kept.push(held);
        }
        if kept.len() > 1 {
            kept.clear();
        }
    }
}

fn expire_and_handle(world: &World, log: &Log) {
    for _ in 0..3 {
        world.clock.advance(SECOND);
        let mut marked = Vec::new();
        world.set.expire(|token| marked.push(token));
        thread::yield_now();
        for token in marked {
            drop(
                log.handle(world, token)
                    .expect("it is this one's to handle"),
            );
        }
        for late in world.set.iter_expired() {
            let token = late.token().expect("it was submitted");
            let request = log.of(token);
            let held = world.again(late.redeem().unwrap(), request.1);
            log.0.lock().handled.push(request);
            // It goes out again: the first completion is late for good.
            let second = log.submit(held);
            let error = log.refused(world, token);
            assert!(matches!(error, RedeemError::Stale { .. }), "{error:?}");
            log.complete(world, second);
        }
    }
}

/// Submitters complete what handlers mark.
fn late_or_not(mode: Mode) {
    let world = World::new(mode, Size::of(2));
    let (mut threads, log) = (Threads::of(&world), Log::default());
    for n in 0..5 {
        let log = log.clone();
        threads.spawn(move |world, tenant| match n {
            0 | 2 | 4 => submit_and_complete(world, tenant, &log),
            1 => visit_and_handle(world, &log),
            _ => expire_and_handle(world, &log),
        });
    }
    threads.join_all();
    log.assert_even(&world);
    world.assert_whole();
}

/// One token, and many who redeem it: one completion or one handler has it.
fn one_token(mode: Mode) {
    let world = World::new(mode, Size::of(1).hw_queues(HwQueueOptions::new(1)));
    let (mut threads, log) = (Threads::of(&world), Log::default());
    let tenant = threads.tenants[0].clone();
    let held = Form::Try.alloc(&world, &tenant, PLAIN).unwrap().unwrap();
    let request = log.submit(held);
    for n in 0..5 {
        let log = log.clone();
        threads.spawn(move |world, _| match n {
            0 => world.set.for_each_in_flight(|request| {
                request.mark_timed_out();
            }),
            1 | 2 => match world.set.redeem(request.0) {
                Ok(tag) => {
                    let held = world.again(tag, request.1);
                    thread::yield_now();
                    log.0.lock().completed.push(request);
                    drop(held);
                }
                Err(error) => log.count(error),
            },
            _ => match world.set.redeem_timed_out(request.0) {
                Ok(tag) => {
                    let held = world.again(tag, request.1);
                    thread::yield_now();
                    log.0.lock().handled.push(request);
                    drop(held);
                }
                Err(_) => log.0.lock().refused += 1,
            },
        });
    }
    threads.join_all();
    if log.ended() == 0 {
        // It was marked after the others had looked.
        let request_is_marked = world.set.redeem(request.0).unwrap_err();
        assert!(matches!(request_is_marked, RedeemError::TimedOut { .. }));
        log.count(request_is_marked);
        drop(log.handle(&world, request.0).unwrap());
    }
    log.assert_even(&world);
    world.assert_whole();
}

/// Everybody waits for late requests, in each form; each of them is had by one.
fn all_wait_for_late_ones(mode: Mode) {
    const REQUESTS: usize = 4;
    let world = World::new(mode, Size::of(2));
    let (mut threads, log) = (Threads::of(&world), Log::default());
    for n in 0..4 {
        let log = log.clone();
        threads.spawn(move |world, _| {
            let mut owned = world.set.expired_owned();
            while log.ended() < REQUESTS {
                thread::yield_now();
                let late = match n {
                    0 => match world.set.expired_timeout(SECOND) {
                        Ok(late) => Some(late.expect("the set is open")),
                        Err(error) => {
                            assert_eq!(error, ExpireError::TimedOut);
                            None
                        }
                    },
                    1 => polled(world.set.expired(), 2).flatten(),
                    2 => polled(std::future::poll_fn(|cx| owned.poll_expired(cx)), 1).flatten(),
                    _ => world.set.try_expired(),
                };
                let Some(late) = late else { continue };
                let token = late.token().expect("it was submitted");
                let request = log.of(token);
                let held = world.again(late.redeem().unwrap(), request.1);
                log.0.lock().handled.push(request);
                thread::yield_now();
                drop(held);
                let error = world.set.redeem(token).unwrap_err();
                log.count(error);
                assert!(
                    matches!(
                        error,
                        RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
                    ),
                    "{error:?}"
                );
            }
        });
    }
    let submits = log.clone();
    threads.spawn(move |world, tenant| {
        for n in 0..REQUESTS {
            let form = [Form::Blocking, Form::Task][n % 2];
            submits.submit(form.alloc(world, tenant, PLAIN).unwrap().unwrap());
        }
    });
    threads.tick_while_busy(SECOND / 2);
    threads.join_all();
    log.assert_even(&world);
    world.assert_whole();
}

/// Whoever waits for one has it without anybody's help but time's.
fn one_waits_for_a_late_one(mode: Mode) {
    let world = World::new(mode, Size::of(1));
    let (mut threads, log) = (Threads::of(&world), Log::default());
    let submits = log.clone();
    threads.spawn(move |world, tenant| {
        submits.submit(Form::Blocking.alloc(world, tenant, PLAIN).unwrap().unwrap());
    });
    let handles = log.clone();
    threads.spawn(move |world, _| {
        let set = world.set.clone();
        let late = block_on(set.expired()).expect("the set is open");
        let request = handles.of(late.token().unwrap());
        handles.0.lock().handled.push(request);
        drop(world.again(late.redeem().unwrap(), request.1));
    });
    threads.tick_while_busy(SECOND / 2);
    threads.join_all();
    log.assert_even(&world);
}

/// Tokens that nobody made, among those that are out: they are refused, and no request is harmed.
fn forged_ones(mode: Mode) {
    let world = World::new(mode, Size::of(2));
    let (mut threads, log) = (Threads::of(&world), Log::default());
    for _ in 0..2 {
        let log = log.clone();
        threads.spawn(move |world, tenant| submit_and_complete(world, tenant, &log));
    }
    for n in 0..2 {
        let log = log.clone();
        threads.spawn(move |world, _| {
            for round in 0..4 {
                for number in [0, u64::MAX] {
                    let error = log.refused(world, number);
                    assert!(matches!(error, RedeemError::NoToken { .. }), "{error:?}");
                }
                let known = { log.0.lock().submitted.get(round).copied() };
                let Some((token, _)) = known else {
                    thread::yield_now();
                    continue;
                };
                // Its generation, by a bit that no real one has here; its set; its slot.
                let bit = 50 + (3 * round + 5 * n) % 14;
                let error = log.refused(world, token ^ (1 << bit));
                assert!(matches!(error, RedeemError::Stale { .. }), "{error:?}");
                let error = log.refused(world, token ^ (1 << (24 + round)));
                assert!(matches!(error, RedeemError::Foreign { .. }), "{error:?}");
                let error = log.refused(world, token | 0xff_ff00);
                assert!(matches!(error, RedeemError::OutOfRange { .. }), "{error:?}");
                let error = world.set.redeem_timed_out(token).unwrap_err();
                log.0.lock().refused += 1;
                assert!(
                    matches!(
                        error,
                        RedeemError::NotTimedOut { .. }
                            | RedeemError::NotInFlight { .. }
                            | RedeemError::Stale { .. }
                    ),
                    "{error:?}"
                );
            }
        });
    }
    threads.join_all();
    log.assert_even(&world);
    world.assert_whole();
}

#[test]
fn timeouts_meet_completions() {
    check("timeouts_meet_completions", late_or_not);
}

#[test]
fn timeouts_of_one_token() {
    check("timeouts_of_one_token", one_token);
}

#[test]
fn timeouts_are_waited_for() {
    check("timeouts_are_waited_for", all_wait_for_late_ones);
}

#[test]
fn a_timeout_is_waited_for() {
    check("a_timeout_is_waited_for", one_waits_for_a_late_one);
}

#[test]
fn tokens_are_forged() {
    check("tokens_are_forged", forged_ones);
}
