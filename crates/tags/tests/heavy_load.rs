//! What the patch series "improve tag allocation under heavy load" promises, on whole tag sets:
//! patch by patch.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_tags::{
    Admission, AllocError, Force, NoPreempt, Split, Tag, TagSet, Tenant, WakeAccounting, WakePolicy,
};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        // Relaxed: one thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that asks for one tag.
struct Task {
    future: Pin<Box<dyn Future<Output = Result<Tag<()>, AllocError>>>>,
    told: Arc<Count>,
    seen: usize,
}

impl Task {
    fn of(dev: &Tenant<()>) -> Self {
        Self {
            future: Box::pin(dev.alloc_owned()),
            told: Arc::default(),
            seen: 0,
        }
    }

    fn waiting(dev: &Tenant<()>) -> Self {
        let mut task = Self::of(dev);
        assert!(task.poll().is_none(), "it has to wait");
        task
    }

    fn poll(&mut self) -> Option<Tag<()>> {
        // Relaxed: one thread.
        self.seen = self.told.0.load(Ordering::Relaxed);
        let waker = Waker::from(self.told.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(tag) => Some(tag.unwrap()),
            Poll::Pending => None,
        }
    }

    fn is_woken(&self) -> bool {
        // Relaxed: one thread.
        self.told.0.load(Ordering::Relaxed) > self.seen
    }
}

fn dev(depth: usize, admission: Admission) -> Tenant<()> {
    let set = TagSet::builder().depth(depth).admission(admission);
    let set = set.build(|_, _| ()).unwrap();
    set.add_tenant("nvme0n1").unwrap()
}

/// Newcomers wait while more than eight do, however many tags are free.
fn never() -> Admission {
    let rules = NoPreempt::default().force(Force::Never);
    Admission::NoPreempt(rules.accounting(WakeAccounting::PerWaiter))
}

/// Patch 2. A woken waiter that finds nothing waits at the queue it came from, so that each freed
/// tag wakes somebody else, in the order they came, round after round.
#[test]
fn patch_2_who_loses_a_wake_keeps_its_queue() {
    // Eight tags: a batch of one. Three waiters at each of the eight queues.
    let dev = dev(8, never());
    let mut held: Vec<_> = (0..8).map(|_| dev.try_alloc().unwrap()).collect();
    let mut tasks: Vec<_> = (0..24).map(|_| Task::waiting(&dev)).collect();
    // One more came and went: a newcomer would join the second queue, the first is served next.
    drop(Task::waiting(&dev));
    for round in 0..72 {
        drop(held.pop());
        held.push(dev.try_alloc().unwrap()); // an overtaker
        let woken: Vec<_> = (0..24).filter(|&i| tasks[i].is_woken()).collect();
        // Each queue in turn, and in each its waiters in turn: a loser is the last of its queue.
        assert_eq!(woken, [round % 24], "round {round}");
        assert!(tasks[woken[0]].poll().is_none());
    }
}

/// Patch 3. The set's builder says which wait queue is served, for every policy that has several.
#[test]
fn patch_3_the_order_of_the_wait_queues() {
    let first_woken = |admission| {
        let dev = dev(8, admission);
        let mut held: Vec<_> = std::iter::from_fn(|| dev.try_alloc().ok()).collect();
        let mut tasks: Vec<_> = (0..19).map(|_| Task::waiting(&dev)).collect();
        // The first two queues' longest waiters leave: those queues have two waiters, the third
        // has three, the rest two.
        drop(tasks.drain(..2));
        drop(held.pop());
        let woken = (0..tasks.len()).find(|&i| tasks[i].is_woken());
        woken.unwrap() + 2
    };
    let level = WakePolicy::BalancedRoundRobin { threshold: 1 };
    let balanced = WakePolicy::BalancedRoundRobin { threshold: 0 };
    for (policy, first) in [
        (WakePolicy::RoundRobin, 8),
        (WakePolicy::FullestFirst, 2),
        (level, 8),
        (balanced, 2),
    ] {
        let no_preempt = NoPreempt::default().wake_policy(policy);
        let elastic = Admission::ElasticOvercommit {
            max_extra: 1,
            wake_policy: policy,
        };
        for admission in [
            Admission::Preempt(policy),
            Admission::NoPreempt(no_preempt),
            elastic,
        ] {
            assert_eq!(first_woken(admission), first, "{admission:?}");
        }
    }
}

/// Patch 4. While more than eight wait, a newcomer that could wait does, beside free tags; who
/// cannot wait takes one; and so does a waiter that was woken.
#[test]
fn patch_4_newcomers_wait_beside_free_tags() {
    let dev = dev(32, never()); // a batch of 4
    let mut held: Vec<_> = (0..32).map(|_| dev.try_alloc().unwrap()).collect();
    let mut tasks: Vec<_> = (0..14).map(|_| Task::waiting(&dev)).collect();
    held.truncate(31);
    assert!(!tasks.iter().any(Task::is_woken), "1 put of 4");
    // A tag is free, fourteen wait.
    tasks.push(Task::waiting(&dev));
    held.push(dev.try_alloc().expect("who cannot wait is let past"));
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Exhausted);
    // Four puts in all: four waiters are woken, and each takes its tag although others wait.
    held.truncate(29);
    let woken: Vec<_> = (0..15).filter(|&i| tasks[i].is_woken()).collect();
    assert_eq!(woken.len(), 4);
    let mut late = Task::of(&dev);
    assert!(late.poll().is_none(), "free ones, and more than eight wait");
    for &i in &woken[..3] {
        held.push(tasks[i].poll().expect("a woken one takes one"));
    }
    // The rest are served by further puts.
    tasks.push(late);
    let mut served = 3;
    while served < 16 {
        drop(held.remove(0));
        for task in &mut tasks {
            if task.is_woken() {
                if let Some(tag) = task.poll() {
                    held.push(tag);
                    served += 1;
                }
            }
        }
    }
    held.clear();
    assert!(Task::of(&dev).poll().is_some(), "nobody waits any more");
}

/// With eight or fewer who wait a newcomer tries at once.
#[test]
fn patch_4_up_to_eight_waiters_newcomers_try() {
    let dev = dev(32, never());
    let mut held: Vec<_> = (0..32).map(|_| dev.try_alloc().unwrap()).collect();
    let _tasks: Vec<_> = (0..8).map(|_| Task::waiting(&dev)).collect();
    held.pop();
    assert!(Task::of(&dev).poll().is_some());
}

fn piece(split: &mut Split<()>) -> Poll<Option<Tag<()>>> {
    let mut next = Box::pin(split.next());
    let mut cx = Context::from_waker(Waker::noop());
    next.as_mut().poll(&mut cx).map(Result::unwrap)
}

/// Patch 6. The first piece of a split waits as any newcomer; the later ones pass.
#[test]
fn patch_6_followers_of_a_split_pass() {
    let dev = dev(32, never());
    let mut held: Vec<_> = (0..31).map(|_| dev.try_alloc().unwrap()).collect();
    let mut begun = dev.split(2);
    let Poll::Ready(Some(first)) = piece(&mut begun) else {
        panic!("one was free")
    };
    let _tasks: Vec<_> = (0..9).map(|_| Task::waiting(&dev)).collect();
    held.pop();
    // One is free, nine wait.
    let mut fresh = dev.split(2);
    assert!(piece(&mut fresh).is_pending(), "its first piece waits");
    let follower = piece(&mut begun);
    assert!(
        matches!(follower, Poll::Ready(Some(_))),
        "a later one passes"
    );
    drop(first);
}
