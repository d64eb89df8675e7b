//! Batched waiting, item by item: `docs/sbitmap-items.md` says what each item is and which tests
//! show it. Here are the items that the other files do not name.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/tasks.rs"]
mod tasks;

use inflight_sbitmap::{BatchedOptions, PutError, ResizeError, SbitmapQueue, WakePolicy};
use tasks::Task;

/// All bits taken.
fn full(depth: usize, max_depth: usize, policy: WakePolicy) -> SbitmapQueue {
    let queue = SbitmapQueue::builder(depth)
        .max_depth(max_depth)
        .fairness(BatchedOptions::new().wake_policy(policy))
        .build()
        .unwrap();
    assert_eq!(queue.try_get_batch(depth, &mut Vec::new()), depth);
    queue
}

fn wake_batch(queue: &SbitmapQueue) -> u32 {
    queue.snapshot().wake_batch
}

/// B6, B9. An eighth of the smaller of depth and smallest limit.
#[test]
fn b6_b9_the_wake_batch_follows_the_smallest_limit() {
    for (depth, limit, batch) in [
        (64, 1, 1),
        (64, 15, 1),
        (64, 16, 2),
        (64, 1000, 8),
        (1024, 40, 5),
        (16, 1000, 2),
    ] {
        let queue = full(depth, depth, WakePolicy::RoundRobin);
        queue.set_least_share(Some(limit));
        assert_eq!(wake_batch(&queue), batch, "depth {depth} limit {limit}");
        assert_eq!(queue.snapshot().least_share, Some(limit));
    }
}

/// B10. An eighth of the least share, and of the depth again when nobody is kept to one.
#[test]
fn b10_the_wake_batch_follows_the_share() {
    for (depth, users, batch) in [
        (64, 1, 8),
        (64, 2, 4),
        (64, 3, 2),
        (64, 8, 1),
        (127, 40, 1),
        (256, 4, 8),
    ] {
        let queue = full(depth, depth, WakePolicy::RoundRobin);
        queue.set_least_share(Some(depth.div_ceil(users)));
        assert_eq!(wake_batch(&queue), batch, "depth {depth} users {users}");
        queue.set_least_share(None);
        assert_eq!(wake_batch(&queue), (depth as u32 / 8).min(8));
    }
}

/// B8, A22. A user kept to a limit is woken by the puts of its limit's bits alone.
#[test]
fn b8_puts_of_a_small_limit_wake() {
    let queue = full(64, 64, WakePolicy::RoundRobin);
    queue.set_least_share(Some(4));
    let task = Task::waiting(&queue);
    queue.put(9).unwrap();
    assert!(task.is_woken());
}

/// B11, H20. Counts stay when the batch changes; they are steps towards the next batch.
#[test]
fn b11_h20_counts_survive_a_change_of_the_batch() {
    let queue = full(32, 64, WakePolicy::RoundRobin);
    let mut tasks: Vec<_> = (0..6).map(|_| Task::waiting(&queue)).collect();
    (0..3).for_each(|bit| queue.put(bit).unwrap());
    assert!(!tasks.iter().any(Task::is_woken), "3 of 4");
    queue.resize(8).unwrap();
    assert_eq!(wake_batch(&queue), 1);
    assert!(tasks.iter().all(Task::is_woken), "all look again");
    let got: Vec<_> = tasks.iter_mut().filter_map(Task::poll).collect();
    assert_eq!(got.len(), 3, "the bits that no full batch had announced");
    // Each put from now on is a batch.
    tasks.drain(..3);
    queue.put(got[0]).unwrap();
    assert!(tasks.iter().any(Task::is_woken));
    let counted = queue.snapshot();
    assert!(counted.completions.wrapping_sub(counted.wakeups) < 1);
}

/// B8, H20. A raised batch strands nobody: those who wait look again.
#[test]
fn h20_growth_gives_its_bits_to_waiters() {
    let queue = full(8, 64, WakePolicy::RoundRobin);
    let mut tasks: Vec<_> = (0..60).map(|_| Task::waiting(&queue)).collect();
    queue.resize(64).unwrap();
    assert_eq!(wake_batch(&queue), 8);
    let got = tasks.iter_mut().filter_map(Task::poll).count();
    assert_eq!(got, 56);
    let snapshot = queue.snapshot();
    assert_eq!((snapshot.ws_active, snapshot.map.busy), (4, 64));
    assert!(matches!(queue.resize(65), Err(ResizeError::Depth { .. })));
}

/// H21. Bits above a shrunken depth vanish when put; waiters get those below.
#[test]
fn h21_waiters_get_bits_below_a_shrunken_depth() {
    let queue = full(8, 8, WakePolicy::RoundRobin);
    queue.resize(2).unwrap();
    let mut task = Task::waiting(&queue);
    (2..8).for_each(|bit| queue.put(bit).unwrap());
    assert_eq!(task.poll(), None);
    assert_eq!(queue.weight(), 2);
    queue.put(1).unwrap();
    assert!(task.is_woken());
    assert_eq!(task.poll(), Some(1));
}

/// B12. Waiting again while in a queue is no second place.
#[test]
fn b12_one_place_for_each_waiter() {
    let queue = full(8, 8, WakePolicy::RoundRobin);
    let mut task = Task::waiting(&queue);
    assert_eq!([task.poll(), task.poll()], [None, None]);
    let snapshot = queue.snapshot();
    assert_eq!(
        (snapshot.ws_active, snapshot.waiters.iter().sum::<usize>()),
        (1, 1)
    );
}

/// B13. A woken waiter is out of its queue at once, and is counted until it runs.
#[test]
fn b13_the_count_falls_when_the_woken_runs() {
    let queue = full(8, 8, WakePolicy::RoundRobin);
    let mut task = Task::waiting(&queue);
    queue.put(0).unwrap();
    let snapshot = queue.snapshot();
    assert_eq!(
        (snapshot.ws_active, snapshot.waiters.iter().sum::<usize>()),
        (1, 0)
    );
    assert_eq!(task.poll(), Some(0));
    assert_eq!(queue.snapshot().ws_active, 0);
}

/// Waiters in the queues with these numbers; the others have none.
fn crowd<'a>(queue: &'a SbitmapQueue, lens: [usize; 8]) -> Vec<Vec<Task<'a>>> {
    let most = lens.into_iter().max().unwrap();
    let mut all: Vec<Vec<_>> = lens.map(|_| Vec::new()).into();
    for _ in 0..most * 8 {
        let before = queue.snapshot().waiters;
        let task = Task::waiting(queue);
        let after = queue.snapshot().waiters;
        let joined = (0..8).find(|&i| after[i] > before[i]).unwrap();
        all[joined].push(task);
    }
    for (tasks, len) in all.iter_mut().zip(lens) {
        tasks.truncate(len);
    }
    assert_eq!(queue.snapshot().waiters, lens);
    all
}

/// B33. Which queues a batch of 4 leaves how long.
#[test]
fn b33_policies_choose_the_queue() {
    let left = |policy| {
        let queue = full(32, 32, policy);
        let _tasks = crowd(&queue, [1, 2, 0, 6, 2, 0, 5, 0]);
        (0..4).for_each(|bit| queue.put(bit).unwrap());
        let snapshot = queue.snapshot();
        (snapshot.waiters, snapshot.wake_index)
    };
    assert_eq!(
        left(WakePolicy::RoundRobin),
        (vec![0, 0, 0, 5, 2, 0, 5, 0], 4)
    );
    assert_eq!(
        left(WakePolicy::FullestFirst),
        (vec![1, 2, 0, 2, 2, 0, 5, 0], 4)
    );
    let balanced = |threshold| left(WakePolicy::BalancedRoundRobin { threshold });
    assert_eq!(balanced(6), left(WakePolicy::RoundRobin));
    assert_eq!(balanced(2), left(WakePolicy::FullestFirst));
}

/// B3. A waiter that was woken and finds nothing joins the next queue in turn, as a newcomer does.
#[test]
fn b3_a_loser_of_a_wake_goes_round() {
    let queue = full(8, 8, WakePolicy::RoundRobin);
    let mut tasks: Vec<_> = (0..25).map(|_| Task::waiting(&queue)).collect();
    assert_eq!(queue.snapshot().waiters, [4, 3, 3, 3, 3, 3, 3, 3]);
    queue.put(0).unwrap();
    // Somebody overtakes, and the woken one finds nothing.
    assert_eq!(queue.try_get(), Some(0));
    let woken = tasks.iter_mut().find(|task| task.is_woken()).unwrap();
    assert_eq!(woken.poll(), None);
    assert_eq!(queue.snapshot().waiters, [3, 4, 3, 3, 3, 3, 3, 3]);
}

/// H7. Under every policy nobody is forgotten while bits come back.
#[test]
fn h7_b33_every_policy_reaches_every_queue() {
    let policies = [
        WakePolicy::RoundRobin,
        WakePolicy::FullestFirst,
        WakePolicy::BalancedRoundRobin { threshold: 1 },
    ];
    for policy in policies {
        let queue = full(16, 16, policy);
        let mut tasks: Vec<_> = (0..50).map(|_| Task::waiting(&queue)).collect();
        let mut bit = 0;
        for _ in 0..200 {
            queue.put(bit).unwrap();
            // Whoever is woken takes it, else we do.
            bit = match tasks.iter().position(Task::is_woken) {
                Some(i) => tasks.swap_remove(i).poll().unwrap(),
                None => queue.try_get().unwrap(),
            };
        }
        assert!(tasks.is_empty(), "{policy:?} left {}", tasks.len());
    }
}

/// A47. The text of a queue, line by line.
#[test]
fn a47_the_text_of_a_queue() {
    let queue = full(8, 8, WakePolicy::RoundRobin);
    queue.set_least_share(Some(8));
    let tasks = crowd(&queue, [2, 0, 0, 0, 0, 0, 0, 1]);
    let text = queue.snapshot().to_string();
    let (head, rest) = text.split_once("alloc_hint={").unwrap();
    assert_eq!(
        head,
        "depth=8\nbusy=8\ncleared=0\nbits_per_word=2\nmap_nr=4\n"
    );
    let (_, rest) = rest.split_once("}\n").unwrap();
    let inactive = "\t{.wait=inactive, .waiters=0},\n".repeat(6);
    assert_eq!(
        rest,
        format!(
            "wake_batch=1\nwake_index=0\nws_active=3\nws={{\n\
             \t{{.wait=active, .waiters=2}},\n{inactive}\
             \t{{.wait=active, .waiters=1}},\n}}\nround_robin=0\nleast_share=8\n\
             max_depth=8\nfairness=Batched\nback_end=Shared\ngranted=0\ncollected=0\n"
        )
    );
    drop(tasks);
    let unlimited = full(8, 8, WakePolicy::RoundRobin).snapshot().to_string();
    assert!(unlimited.contains("\nleast_share=none\n"));
}

/// H11 for masks: each bit counts.
#[test]
fn h11_a_mask_put_counts_its_bits() {
    let queue = SbitmapQueue::builder(64).build().unwrap();
    let range = queue.try_get_mask(16).unwrap();
    queue.try_get_batch(64, &mut Vec::new());
    let tasks: Vec<_> = (0..20).map(|_| Task::waiting(&queue)).collect();
    queue.put_mask(range).unwrap();
    assert_eq!(tasks.iter().filter(|task| task.is_woken()).count(), 16);
    assert!(matches!(
        queue.put_mask(range),
        Err(PutError::NotAllocated { .. })
    ));
}

/// A snapshot goes out and comes back unchanged.
#[cfg(feature = "serde")]
#[test]
fn a47_snapshots_are_serialised() {
    let queue = full(20, 40, WakePolicy::RoundRobin);
    let _task = Task::waiting(&queue);
    let snapshot = queue.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(
        text.contains(r#""depth":20,"max_depth":40,"busy":20"#),
        "{text}"
    );
    let back: inflight_sbitmap::QueueSnapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(back, snapshot);
    let stats: inflight_sbitmap::QueueStats =
        serde_json::from_str(&serde_json::to_string(&queue.stats()).unwrap()).unwrap();
    assert_eq!(stats, queue.stats());
}
