//! Any sequence of waiting, giving up, putting and resizing.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/tasks.rs"]
mod tasks;

use inflight_sbitmap::{Fairness, SbitmapQueue};
use inflight_sync::block_on;
use proptest::collection::vec;
use proptest::prelude::*;
use tasks::{Task, poll_once};

fn take_all(queue: &SbitmapQueue) {
    let free = queue.depth() - queue.weight();
    assert_eq!(queue.try_get_batch(queue.depth(), &mut Vec::new()), free);
}

fn assert_nobody_waits(queue: &SbitmapQueue) {
    let snapshot = queue.snapshot();
    assert_eq!(snapshot.ws_active, 0);
    assert!(snapshot.waiters.iter().all(|&n| n == 0));
}

#[derive(Clone, Debug)]
enum Step {
    Wait,
    Abandon(usize),
    /// Polls one, woken or not.
    Poll(usize),
    Steal,
    Put(usize),
    PutBatch(usize, usize),
    Resize(usize),
    WakeAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Wait),
        2 => any::<usize>().prop_map(Step::Abandon),
        2 => any::<usize>().prop_map(Step::Poll),
        2 => Just(Step::Steal),
        6 => any::<usize>().prop_map(Step::Put),
        1 => (any::<usize>(), 0..20_usize).prop_map(|(at, n)| Step::PutBatch(at, n)),
        1 => any::<usize>().prop_map(Step::Resize),
        1 => Just(Step::WakeAll),
    ]
}

/// Waiting tasks, and the bits that are held.
struct Crowd<'a> {
    queue: &'a SbitmapQueue,
    tasks: Vec<Task<'a>>,
    held: Vec<usize>,
}

impl Crowd<'_> {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait => {
                let mut task = Task::new(self.queue);
                match task.poll() {
                    Some(bit) => self.held.push(bit),
                    None => self.tasks.push(task),
                }
            }
            Step::Abandon(i) if !self.tasks.is_empty() => {
                self.tasks.swap_remove(i % self.tasks.len());
            }
            Step::Poll(i) if !self.tasks.is_empty() => self.poll(i % self.tasks.len()),
            Step::Steal => self.held.extend(self.queue.try_get()),
            Step::Put(i) if !self.held.is_empty() => {
                let bit = self.held.swap_remove(i % self.held.len());
                self.queue.put(bit).unwrap();
            }
            Step::PutBatch(at, n) if !self.held.is_empty() => {
                let from = at % self.held.len();
                let bits: Vec<_> = self
                    .held
                    .drain(from..self.held.len().min(from + n))
                    .collect();
                self.queue.put_batch(&bits).unwrap();
            }
            Step::Resize(to) => self.queue.resize(1 + to % self.queue.max_depth()).unwrap(),
            Step::WakeAll => self.queue.wake_all(),
            _ => {}
        }
    }

    fn poll(&mut self, i: usize) {
        if let Some(bit) = self.tasks[i].poll() {
            self.tasks.swap_remove(i);
            self.held.push(bit);
        }
    }

    /// Runs all tasks that have been woken, until none is.
    fn drain_percpu(&mut self) {
        while let Some(i) = self.tasks.iter().position(Task::is_woken) {
            self.poll(i);
        }
    }

    /// How many bits below the depth are free.
    fn free(&self) -> usize {
        let depth = self.queue.depth();
        depth - self.held.iter().filter(|&&bit| bit < depth).count()
    }

    /// Fewer bits than a batch are free while somebody sleeps, and only while others are in use.
    fn assert_progress(&self) {
        let snapshot = self.queue.snapshot();
        assert_eq!(snapshot.ws_active, self.tasks.len());
        assert_eq!(snapshot.map.busy, self.held.len());
        if !self.tasks.is_empty() {
            let free = self.free();
            assert!(
                free < snapshot.wake_batch as usize,
                "{free} bits are free\n{snapshot}"
            );
            assert!(!self.held.is_empty(), "nothing is in use\n{snapshot}");
        }
    }
}

/// Failures are shown, not kept in a file.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(256))]

    /// No sequence of waiting, giving up, overtaking, putting and resizing leaves a waiter behind.
    /// B8, B12-B14, B18-B22, B25.
    #[test]
    fn no_sequence_leaves_a_waiter_behind(
        depth in prop_oneof![1..=20_usize, Just(32), Just(64)],
        growth in prop_oneof![Just(0), 1..=70_usize],
        rounds in vec(vec(step(), 1..12), 1..40),
    ) {
        let queue = SbitmapQueue::builder(depth).fairness(Fairness::batched())
            .max_depth(depth + growth)
            .fairness(Fairness::batched())
            .build()
            .unwrap();
        take_all(&queue);
        let mut crowd = Crowd { queue: &queue, tasks: Vec::new(), held: (0..depth).collect() };
        for round in &rounds {
            round.iter().for_each(|step| crowd.step(step));
            crowd.drain_percpu();
            crowd.assert_progress();
        }
        // As long as bits come back, everybody gets one.
        while !crowd.tasks.is_empty() {
            assert!(!crowd.held.is_empty(), "{} wait for nothing", crowd.tasks.len());
            crowd.step(&Step::Put(0));
            crowd.drain_percpu();
        }
        assert_nobody_waits(&queue);
        let mut rest = Vec::new();
        assert_eq!(queue.try_get_batch(queue.max_depth(), &mut rest), crowd.free());
        assert_eq!(block_on(async { poll_once(queue.get()) }), None);
    }
}
