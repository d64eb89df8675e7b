//! The core alone, event by event.

use super::*;

/// A number, and whether it ran when it was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job(usize, bool);

impl Item for Job {
    type Key = usize;
    fn key(&self) -> usize {
        self.0
    }
    fn may_be_running(&self) -> bool {
        self.1
    }
    fn is_intensive(&self) -> bool {
        false
    }
}

fn job(n: usize) -> Job {
    Job(n, false)
}

/// A pool whose first worker has arrived and found nothing to do.
fn idle_pool(target: usize) -> Core<Job> {
    let mut core = Core::new(target);
    let first = core.created();
    assert_eq!(core.next(first), (Next::Sleep, Action::None));
    core
}

#[test]
fn a_push_wakes_one_worker_and_the_next_push_none() {
    let mut core = idle_pool(1);
    assert_eq!(core.push(job(1)), Action::Wake(0));
    assert_eq!(
        core.push(job(2)),
        Action::None,
        "the woken one counts as running"
    );
    assert_eq!(core.next(0), (Next::Run(job(1)), Action::None));
    assert_eq!(core.next(0), (Next::Run(job(2)), Action::None));
    assert_eq!(core.next(0), (Next::Sleep, Action::None));
}

/// Two pushes, one wake: the worker that takes the first item brings the next worker.
#[test]
fn i3_workers_chain_up_to_the_target() {
    let mut core = idle_pool(2);
    assert_eq!(core.push(job(1)), Action::Wake(0));
    assert_eq!(core.push(job(2)), Action::Create);
    assert_eq!(core.push(job(3)), Action::None, "one creation at a time");
    assert_eq!(core.next(0), (Next::Run(job(1)), Action::None));
    let second = core.created();
    assert_eq!(
        core.next(second),
        (Next::Run(job(2)), Action::None),
        "two run, the target"
    );
    assert_eq!(core.running(), 2);
}

/// I.32: whatever happens while a worker is being created, nobody creates more than there is work
/// and room for, in a bound pool one; and those for whom nothing is left when they come go idle and
/// are woken by the next items.
#[test]
fn i32_no_more_are_created_than_work_and_room() {
    let mut core = idle_pool(2);
    assert_eq!(core.push(job(1)), Action::Wake(0));
    assert_eq!(core.push(job(2)), Action::Create);
    assert_eq!(core.next(0), (Next::Run(job(1)), Action::None));
    assert_eq!(core.block(0), Action::None, "one is on its way to the item");
    assert_eq!(core.push(job(3)), Action::Create, "two items, two may run");
    assert_eq!(core.push(job(4)), Action::None, "two are on their way");
    assert_eq!(core.ask_again(), Action::None);
    for n in 2..=4 {
        assert_eq!(core.remove(|j| j.0 == n), Some(job(n)));
    }
    assert!(!core.wants_first(), "they are on their way");
    let [second, third] = [core.created(), core.created()];
    for worker in [second, third] {
        assert_eq!(core.next(worker), (Next::Sleep, Action::None));
    }
    assert_eq!(core.push(job(5)), Action::Wake(third));
    assert_eq!(core.push(job(6)), Action::Wake(second));

    let mut bound = idle_pool(1);
    let _ = bound.push(job(1));
    let _ = bound.push(job(2));
    assert_eq!(bound.next(0).0, Next::Run(job(1)));
    assert_eq!(bound.block(0), Action::Create);
    assert_eq!(bound.push(job(3)), Action::None, "one may run");
    let second = bound.created();
    assert_eq!(bound.next(second), (Next::Run(job(2)), Action::None));
}

/// Of two threads on their way one is refused: whether the other one comes or not, nobody waits for
/// ever.
#[test]
fn one_of_two_creations_fails() {
    for comes in [true, false] {
        let mut core = idle_pool(2);
        for n in 1..=4 {
            let _ = core.push(job(n));
        }
        let _ = core.next(0);
        assert_eq!(core.block(0), Action::Create, "one more");
        assert!(core.create_failed().is_empty(), "another one is on its way");
        if comes {
            let second = core.created();
            let (next, action) = core.next(second);
            assert_eq!((next, action), (Next::Run(job(2)), Action::Create));
        } else {
            assert_eq!(core.create_failed(), vec![0], "it is to keep asking");
        }
    }
}

/// A new pool, and one whose items are short, wait for the one that comes.
#[test]
fn one_is_created_for_short_items() {
    let mut core = Core::new(2);
    assert_eq!(core.push(job(1)), Action::None);
    assert_eq!(core.push(job(2)), Action::None, "the first is on its way");
    core.be_patient(20_000);
    let first = core.created();
    for _ in 0..100 {
        core.took(100);
    }
    assert_eq!(core.next(first), (Next::Run(job(1)), Action::None));
    assert_eq!(core.block(first), Action::Create);
    assert_eq!(core.push(job(3)), Action::None, "it will run both");
    (0..2).for_each(|_| core.took(1_000_000));
    assert_eq!(core.push(job(4)), Action::Create, "items have become long");
}

#[test]
fn the_worker_that_went_idle_last_is_woken_first() {
    let mut core = idle_pool(2);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    assert_eq!(core.push(job(1)), Action::Wake(second));
    assert_eq!(core.push(job(2)), Action::Wake(0));
}

/// The block itself looks for waiting work, so an item pushed just before it is not stranded.
#[test]
fn i2_a_block_brings_a_worker_for_what_waits() {
    let mut core = idle_pool(1);
    let _ = core.push(job(1));
    let _ = core.next(0);
    assert_eq!(core.push(job(2)), Action::None, "a worker runs");
    assert_eq!(core.block(0), Action::Create);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Run(job(2)), Action::None));
    core.unblock(0);
    assert_eq!(core.running(), 2, "nobody is preempted");
    let _ = core.push(job(3));
    assert_eq!(
        core.next(second),
        (Next::Sleep, Action::None),
        "one too many: it parks"
    );
    assert_eq!(core.next(0), (Next::Run(job(3)), Action::None));
}

#[test]
fn a_block_with_nothing_waiting_brings_nobody() {
    let mut core = idle_pool(1);
    let _ = core.push(job(1));
    let _ = core.next(0);
    assert_eq!(core.block(0), Action::None);
    assert_eq!(core.push(job(2)), Action::Create, "the push after it does");
}

#[test]
fn a_failed_creation_is_tried_again_at_the_next_event() {
    let mut core = idle_pool(1);
    let _ = core.push(job(1));
    let _ = core.next(0);
    let _ = core.push(job(2));
    assert_eq!(core.block(0), Action::Create);
    assert_eq!(core.create_failed(), [0], "the blocked one is told");
    assert_eq!(core.push(job(3)), Action::Create);
    assert_eq!(core.create_failed(), [0]);
    core.unblock(0);
    assert_eq!(
        core.next(0),
        (Next::Run(job(2)), Action::None),
        "the old worker goes on"
    );
    assert_eq!(core.block(0), Action::Create);
}

/// After a failure one blocked worker asks again, and no other.
#[test]
fn one_blocked_worker_keeps_asking() {
    let mut core = idle_pool(1);
    for n in 0..2 {
        let _ = core.push(job(n));
        if n > 0 {
            let second = core.created();
            assert_eq!(core.next(second), (Next::Run(job(n)), Action::None));
        } else {
            let _ = core.next(0);
        }
        assert_eq!(core.block(n), Action::None);
    }
    assert!(!core.keep(0), "nothing waits");
    assert_eq!(core.push(job(2)), Action::Create);
    assert!(!core.keep(0), "a thread is on its way");
    assert_eq!(core.create_failed(), [0, 1], "either may be able to");
    assert!(core.keep(1));
    assert!(!core.keep(0), "one is enough");
    assert_eq!(core.push(job(3)), Action::Create, "each event asks too");
    assert_eq!(core.create_failed(), [0; 0], "the keeper is there");
    core.end_keeping();
    assert_eq!(core.ask_again(), Action::Create);
    let third = core.created();
    assert!(!core.keep(1), "it has come");
    assert_eq!(core.next(third), (Next::Run(job(2)), Action::None));
}

/// A requeued item that still runs on one worker is not given to another.
#[test]
fn i25_a_running_item_is_put_behind_its_runner() {
    let mut core = idle_pool(1);
    let _ = core.push(job(7));
    let _ = core.next(0);
    let _ = core.block(0);
    assert_eq!(core.push(Job(7, true)), Action::Create);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    assert_eq!(core.ready(), 1);
    core.unblock(0);
    assert_eq!(core.next(0), (Next::Run(Job(7, true)), Action::None));
}

#[test]
fn what_waits_behind_a_runner_can_be_taken_back() {
    let mut core = idle_pool(1);
    let _ = core.push(job(7));
    let _ = core.next(0);
    let _ = core.block(0);
    let _ = core.push(Job(7, true));
    let second = core.created();
    let _ = core.next(second);
    assert_eq!(core.remove(|j| j.0 == 7), Some(Job(7, true)));
    assert_eq!(
        core.remove(|j| j.0 == 7),
        None,
        "the running one is not on a list"
    );
}

#[test]
fn a_stopped_pool_sends_all_workers_home() {
    let mut core = idle_pool(1);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    assert_eq!(
        core.stop(),
        [0, second],
        "more than may run, but they only leave"
    );
    assert_eq!(core.next(0), (Next::Exit, Action::None));
    assert_eq!(core.next(second), (Next::Exit, Action::None));
    assert_eq!(core.running(), 0);
}

/// A rescuer takes the items of its kind while the pool is in distress, and no others; leaving, it
/// asks for a worker for what it leaves behind.
#[test]
fn i20_a_rescuer_that_leaves_looks_for_more_work() {
    let mut core = Core::<Job>::new(1);
    assert_eq!(
        core.create_failed(),
        [0; 0],
        "there has never been a worker"
    );
    assert!(core.wants_first());
    assert_eq!(core.create_failed(), [0; 0]);
    assert_eq!(core.push(job(1)), Action::Create);
    let _ = core.create_failed();
    assert_eq!(core.push(job(2)), Action::Create);
    let _ = core.create_failed();
    let rescuer = core.attach();
    assert_eq!(core.rescue(rescuer, |job| job.0 == 2), Some(job(2)));
    assert_eq!(
        core.block(rescuer),
        Action::Create,
        "it does not count as running"
    );
    core.unblock(rescuer);
    assert_eq!(
        (core.running(), core.rescue(rescuer, |job| job.0 == 2)),
        (0, None)
    );
    let worker = core.created();
    assert_eq!(
        core.rescue(rescuer, |_| true),
        None,
        "the pool can help itself"
    );
    assert_eq!(core.next(worker), (Next::Run(job(1)), Action::None));
    assert_eq!(core.block(worker), Action::None);
    assert_eq!(core.push(job(3)), Action::Create);
    let _ = core.create_failed();
    assert_eq!(core.detach(rescuer), Action::Create, "as it leaves");
}

/// I.4, I.34: the worker says that it blocks, and it is found asleep, in either order: it stops to
/// count once, and counts again once.
#[test]
fn i34_the_first_to_notice_a_sleep_counts() {
    for said_first in [true, false] {
        let mut core = idle_pool(1);
        let _ = core.push(job(1));
        let _ = core.next(0);
        let _ = core.push(job(2));
        assert!(core.waits());
        let seen: Vec<_> = core.suspects().collect();
        let (worker, turn) = seen[0];
        if said_first {
            assert_eq!(core.block(0), Action::Create);
            assert_eq!(core.found_asleep(worker, turn), None, "old news");
            assert_eq!(core.running(), 0);
            core.unblock(0);
            assert_eq!(core.found_asleep(worker, turn), None, "of another turn");
        } else {
            assert_eq!(core.found_asleep(worker, turn), Some(Action::Create));
            assert_eq!(core.found_intensive(worker, turn), None, "once");
            assert_eq!((core.block(0), core.running()), (Action::None, 0));
            core.unblock(0);
        }
        assert_eq!(core.running(), 1);
        assert_eq!(core.next(0), (Next::Run(job(2)), Action::None));
        assert_eq!(core.found_asleep(worker, turn), None, "of another item");
    }
}

/// A sleeper that nobody was told of counts again when its item ends, and may be one too many.
#[test]
fn a_found_sleeper_counts_again_at_its_end() {
    let mut core = idle_pool(1);
    let _ = core.push(job(1));
    let _ = core.next(0);
    let _ = core.push(job(2));
    let (worker, turn) = core.suspects().next().unwrap();
    assert_eq!(core.found_asleep(worker, turn), Some(Action::Create));
    let second = core.created();
    assert_eq!(core.next(second), (Next::Run(job(2)), Action::None));
    assert_eq!(
        core.next(0),
        (Next::Sleep, Action::None),
        "the second one runs"
    );
    assert_eq!(core.running(), 1);
}

/// The idle rule: how many idle workers are too many beside so many busy ones.
#[test]
fn the_idle_rule() {
    let smallest = |busy: usize| {
        (0..100)
            .find(|idle| {
                let mut core = Core::<Job>::new(1);
                core.alive = busy + idle;
                core.idle = (0..*idle).collect();
                core.has_too_many()
            })
            .unwrap()
    };
    let table = [0, 1, 4, 5, 8, 9, 12, 16, 32, 64].map(|busy| (busy, smallest(busy)));
    assert_eq!(
        table,
        [
            (0, 3),
            (1, 3),
            (4, 3),
            (5, 4),
            (8, 4),
            (9, 5),
            (12, 5),
            (16, 6),
            (32, 10),
            (64, 18)
        ]
    );
}

/// Five idle workers, one second apart: three leave, each when its own time is up, the longest idle
/// first, and two stay and sleep without limit.
#[test]
fn the_longest_idle_leave_first() {
    let at = |secs: u64| Instant::default() + Duration::from_secs(secs);
    let timeout = Duration::from_secs(300);
    let mut core = Core::<Job>::new(5);
    let mut told = Vec::new();
    for n in 0..5 {
        core.creating = 1;
        let me = core.created();
        assert_eq!(core.next(me), (Next::Sleep, Action::None));
        told.extend(core.went_idle(me, at(n)));
    }
    assert_eq!(
        told,
        [0],
        "the third makes them too many; the first keeps the time"
    );
    assert_eq!(core.rest(4, at(5), timeout).0, Rest::Sleep(None));
    assert_eq!(
        core.rest(0, at(5), timeout),
        (Rest::Sleep(Some(at(300))), vec![])
    );
    assert_eq!(
        core.rest(0, at(300), timeout),
        (Rest::Leave, vec![1]),
        "the next keeps the time"
    );
    assert_eq!(
        core.rest(1, at(300), timeout),
        (Rest::Sleep(Some(at(301))), vec![])
    );
    assert_eq!(
        core.rest(1, at(302), timeout),
        (Rest::Leave, vec![2]),
        "and takes another along"
    );
    assert_eq!(core.rest(2, at(302), timeout), (Rest::Leave, vec![]));
    assert_eq!(core.rest(3, at(999), timeout), (Rest::Sleep(None), vec![]));
    assert_eq!(core.push(job(1)), Action::Wake(4), "the last to go idle");
    assert_eq!(core.rest(4, at(999), timeout), (Rest::Work, vec![]));
}

/// A worker is back from a short block before the one woken in its place has arrived: it goes on,
/// and the other one parks.
#[test]
fn a_short_block_does_not_leave_the_cpu_idle() {
    let mut core = idle_pool(1);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    assert_eq!(core.push(job(1)), Action::Wake(second));
    let _ = core.push(job(2));
    let _ = core.push(job(3));
    let _ = core.next(second);
    assert_eq!(core.block(second), Action::Wake(0));
    core.unblock(second);
    assert_eq!(core.running(), 2);
    assert_eq!(
        core.next(second),
        (Next::Run(job(2)), Action::None),
        "the woken one is not there yet"
    );
    assert_eq!(core.next(0), (Next::Sleep, Action::None), "one too many");
    assert_eq!(core.next(second), (Next::Run(job(3)), Action::None));
}

/// Five workers, of which the first four are idle: the last of them on CPU 0, the others on CPU 1.
fn four_idle_and_one_running() -> Core<Job> {
    let mut core = idle_pool(1);
    core.at(0, 1);
    for cpu in [1, 1, 0] {
        let worker = core.created();
        core.at(worker, cpu);
        assert_eq!(core.next(worker), (Next::Sleep, Action::None));
    }
    let runner = core.created();
    let _ = core.push(job(1));
    let _ = core.push(job(2));
    assert_eq!(core.next(runner), (Next::Run(job(1)), Action::None));
    core
}

/// Who is woken in place of one that sleeps was on its CPU last, because there it is woken; the
/// longest idle keeps the time and is left alone.
#[test]
fn a_blocked_worker_is_replaced_on_its_cpu() {
    for (cpu, replaced_by) in [(0, 3), (1, 2), (7, 3)] {
        let mut core = four_idle_and_one_running();
        core.at(4, cpu);
        assert_eq!(core.block(4), Action::Wake(replaced_by), "on CPU {cpu}");
    }
    let mut core = four_idle_and_one_running();
    for (worker, cpu) in [(0, 9), (1, 1), (2, 1), (4, 9)] {
        core.at(worker, cpu);
    }
    let turn = core.suspects().next().unwrap().1;
    assert_eq!(core.found_asleep(4, turn), Some(Action::Wake(3)), "not 0");
}

/// Back from a block while another worker is on its way: it goes on, but not if it would share its
/// CPU with one that runs there.
#[test]
fn one_that_comes_back_does_not_crowd_a_cpu() {
    for (cpu, goes_on) in [(0, true), (1, false)] {
        let mut core = idle_pool(2);
        let [second, third] = [(); 2].map(|()| {
            let worker = core.created();
            assert_eq!(core.next(worker), (Next::Sleep, Action::None));
            worker
        });
        assert_eq!(core.push(job(1)), Action::Wake(third));
        assert_eq!(core.push(job(2)), Action::Wake(second));
        let _ = core.push(job(3));
        core.at(third, 0);
        core.at(second, 1);
        let _ = core.next(third);
        let _ = core.next(second);
        assert_eq!(core.block(third), Action::Wake(0));
        core.unblock(third);
        core.at(third, cpu);
        let next = core.next(third).0;
        let expected = if goes_on {
            Next::Run(job(3))
        } else {
            Next::Sleep
        };
        assert_eq!(next, expected, "back on CPU {cpu}");
        let next = core.next(0).0;
        let expected = if goes_on {
            Next::Sleep
        } else {
            Next::Run(job(3))
        };
        assert_eq!(next, expected, "the one on its way");
    }
}

/// Short items wait for the worker that runs; a look brings another one all the same, and so does
/// work enough, or the running worker's block.
#[test]
fn a_patient_pool_wakes_a_second_worker_only_for_what_is_worth_it() {
    let mut core = idle_pool(2);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    core.be_patient(20_000);
    for _ in 0..100 {
        core.took(100);
    }
    assert_eq!(core.push(job(0)), Action::Wake(second), "nobody runs");
    assert!(!core.waits(), "it is on its way");
    assert_eq!(core.next(second), (Next::Run(job(0)), Action::None));
    assert_eq!(core.push(job(1)), Action::None);
    assert!(core.waits(), "somebody is to look");
    assert_eq!(core.hasten(), Action::Wake(0));
    assert_eq!(core.hasten(), Action::None, "as many run as may");
    assert_eq!(core.next(0), (Next::Run(job(1)), Action::None));

    assert_eq!(core.next(0), (Next::Sleep, Action::None));
    assert_eq!(core.push(job(2)), Action::None);
    assert_eq!(
        core.block(second),
        Action::Wake(0),
        "nobody else would run it"
    );
    assert_eq!(core.next(0), (Next::Run(job(2)), Action::None));
    core.unblock(second);
    assert_eq!(core.next(0), (Next::Sleep, Action::None));

    (0..2).for_each(|_| core.took(1_000_000));
    assert_eq!(core.push(job(3)), Action::Wake(0), "items have become long");
}

/// A pool of small items whose worker has drawn what it may of so many letters: how many it has.
fn visit(letters: usize) -> (Core<Job>, usize) {
    let mut core = Core::new(1);
    core.be_generous(1_000);
    for _ in 0..64 {
        core.took(100);
    }
    let me = core.created();
    assert_eq!(core.mail_came(), Action::None, "one is on its way");
    assert_eq!(core.next(me), (Next::Fetch, Action::None));
    let items = core.may_visit(me).min(letters);
    let left = letters - items;
    let action = core.begin_visit(me, items, 0, (left > 0, left));
    assert_eq!(action, Action::None);
    (core, items)
}

#[test]
fn a_worker_draws_as_many_small_items_as_its_time_lasts() {
    let (mut core, items) = visit(64);
    assert!((7..=10).contains(&items), "ten by the estimate: {items}");
    assert!(core.waits(), "somebody looks after them");
    assert_eq!(core.next(0).0, Next::Fetch, "there are more");
    let (mut core, items) = visit(3);
    assert_eq!(items, 3);
    assert!(core.waits(), "also if nothing else is ready");
    assert_eq!(core.next(0).0, Next::Sleep);
    let (core, items) = visit(1);
    assert_eq!(items, 1);
    assert!(!core.waits(), "it runs, and nothing waits for it");
}

/// What is ready is older than what is in the mail, and with several each takes what is next.
#[test]
fn who_is_not_alone_draws_its_share() {
    let (mut core, _) = visit(64);
    let _ = core.push(job(7));
    assert_eq!(core.may_visit(0), 0, "something is ready");
    let mut core = Core::new(2);
    core.be_generous(1_000);
    let first = core.created();
    let _ = core.push(job(1));
    let _ = core.push(job(2));
    assert_eq!(core.next(first), (Next::Run(job(1)), Action::None));
    let second = core.created();
    let _ = core.mail_came();
    assert_eq!(core.next(second).0, Next::Run(job(2)));
    assert_eq!(core.next(first).0, Next::Fetch);
    assert_eq!(core.sharers(first), 2, "the second one runs");
    assert_eq!(core.may_visit(first), 0, "nothing is known of the items");
    (0..100).for_each(|_| core.took(300));
    assert_eq!(core.may_visit(first), 3);
    (0..100).for_each(|_| core.took(900));
    assert_eq!(core.may_visit(first), 0, "long ones go one by one");
}

/// What comes back is ahead of what came later, and one that blocks leaves it to others.
#[test]
fn what_was_in_hand_is_next_again() {
    let (mut core, _) = visit(4);
    let _ = core.push(job(9));
    let _ = core.push(Job(0, true));
    // It has gone on to the second one.
    let hand = [job(2), job(3)];
    assert_eq!(core.recalled(0, Some(1), hand.into_iter()), Action::None);
    assert_eq!(core.block(0), Action::Create);
    let other = core.created();
    let mut order = Vec::new();
    while let (Next::Run(job), _) = core.next(other) {
        order.push(job.0);
    }
    assert_eq!(order, [2, 3, 9, 0], "the first one does not run any more");
}

/// An entry of an item that may be in the worker's visit waits for its end, or for a recall.
#[test]
fn i25_a_visit_counts_as_running_anything() {
    let (mut core, _) = visit(3);
    let _ = core.push(Job(1, true));
    assert_eq!(core.block(0), Action::Create);
    let other = core.created();
    assert_eq!(core.next(other).0, Next::Sleep, "it is behind the first");
    core.unblock(0);
    let hand = [job(1), job(2)];
    assert_eq!(core.recalled(0, Some(0), hand.into_iter()), Action::None);
    let order: Vec<_> = core.waiting().map(|job| job.0).collect();
    assert_eq!(order, [1, 2, 1]);
}

/// One that was found asleep comes back while another visits: what is recalled for it is not passed
/// by another visit.
#[test]
fn nobody_visits_while_what_came_before_is_recalled() {
    let (mut core, _) = visit(1);
    assert_eq!(core.found_asleep(0, 1), Some(Action::None));
    assert_eq!(core.mail_came(), Action::Create);
    let other = core.created();
    assert_eq!(core.next(other).0, Next::Fetch);
    assert!(core.may_visit(other) > 1);
    let _ = core.begin_visit(other, 2, 1, (false, 0));
    assert!(core.begin_recall(0));
    let _ = core.recalled(other, Some(1), std::iter::empty());
    let _ = core.mail_came();
    assert_eq!(core.may_visit(other), 0, "its items come first");
    core.end_recall();
    assert!(core.may_visit(other) > 1);
}

/// Beside one that counts and takes nothing, because it has no CPU, a worker visits as if it were
/// alone; with one that comes for items now and then it shares them.
#[test]
fn a_worker_shares_with_those_that_take_something() {
    let mut core = Core::new(2);
    core.be_generous(1_000);
    core.be_patient(20_000);
    (0..100).for_each(|_| core.took(100));
    let first = core.created();
    let _ = core.push(job(0));
    assert_eq!(core.next(first).0, Next::Run(job(0)));
    core.begin_looks();
    let _ = core.mail_came();
    assert_eq!(core.look(), Action::Create, "it has no CPU");
    let second = core.created();
    assert_eq!(core.next(second).0, Next::Fetch);
    assert_eq!(core.sharers(second), 2, "the first has taken the last one");
    let _ = core.push(job(1));
    assert_eq!(core.next(second).0, Next::Run(job(1)));
    let _ = core.mail_came();
    assert_eq!(core.next(second).0, Next::Fetch);
    assert!(core.may_visit(second) > 1);
    assert_eq!(core.sharers(second), 1, "both count, and one comes");
    let _ = core.begin_visit(second, 3, 2, (true, 1));
    assert!(core.gives_way(first), "so it recalls nothing");
    assert_eq!(core.next(first).0, Next::Sleep);
    assert_eq!(core.next(second).0, Next::Fetch, "all three have run");
}

/// Of mail that was fetched in part the rest comes after what that has made ready.
#[test]
fn what_is_left_of_the_mail_comes_after_what_was_fetched() {
    let mut core = Core::new(1);
    let me = core.created();
    let _ = core.mail_came();
    assert_eq!(core.next(me).0, Next::Fetch);
    let _ = core.push_all((0..64).map(job));
    core.mail_is_left();
    for n in 0..64 {
        assert_eq!(core.next(me).0, Next::Run(job(n)));
        let _ = core.push(job(100 + n)); // What is ready never ends.
    }
    assert_eq!(core.next(me).0, Next::Fetch);
}

/// Where items are tiny two workers get on no faster than one, as long as that one gets on.
#[test]
fn of_tiny_items_one_worker_takes_all() {
    let mut core = Core::new(2);
    core.be_patient(20_000);
    for _ in 0..200 {
        core.took(100);
    }
    let first = core.created();
    for n in 0..1_000 {
        assert_eq!(core.push(job(n)), Action::None, "one is on its way");
    }
    let _ = core.next(first);
    core.begin_looks();
    assert_eq!(core.look(), Action::Create, "it is in the same item still");
    let second = core.created();
    assert_eq!(core.next(second).0, Next::Run(job(1)), "whatever others do");
    assert_eq!(core.next(first).0, Next::Sleep, "the second gets on");
    assert_eq!(core.next(second).0, Next::Run(job(2)), "and nobody else");
    assert_eq!(core.look(), Action::None, "it has since the look before");
    assert_eq!(core.look(), Action::Wake(first), "and now it has not");
}

/// A key is an address. Where a worker has not said yet that what it ran has ended, another item
/// that has its key by now goes behind it, and then behind the one that runs it: it is late, and
/// does not run twice at once.
#[test]
fn a_name_that_is_given_again_only_delays() {
    let mut core = idle_pool(3);
    assert_eq!(core.push(job(1)), Action::Wake(0));
    assert_eq!(core.next(0).0, Next::Run(job(1)));
    // It has ended and gone; this is another one.
    assert_eq!(core.push(job(1)), Action::Create);
    let second = core.created();
    assert_eq!(core.next(second).0, Next::Run(job(1)));
    let again = Job(1, true);
    assert_eq!(core.push(again), Action::Create);
    let third = core.created();
    assert_eq!(core.next(third).0, Next::Sleep, "behind the first worker");
    assert_eq!(core.next(0).0, Next::Sleep, "behind the second");
    assert_eq!(core.next(second).0, Next::Run(again));
}
