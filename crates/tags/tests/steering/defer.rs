//! What is put off because too many callbacks run inside each other: it runs, on its own thread.

use crate::support::{Pipe, machine, on};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_tags::steering::Completions;
use inflight_tags::{Tag, TagSet, Tenant};
use inflight_topology::steering::Completion;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

const DEEP: usize = Completion::MAX_DEPTH as usize;

type Act = Box<dyn Fn(&Machine, u64) + Send + Sync>;

/// A callback that does what the test says, given the number in the slot.
struct Machine {
    queue: Tenant<u64>,
    completions: Mutex<Option<Completions<u64>>>,
    act: Act,
}

impl Machine {
    fn new(act: impl Fn(&Self, u64) + Send + Sync + 'static) -> Arc<Self> {
        let set = TagSet::builder().depth(64).build(|_, _| 0u64).unwrap();
        let machine_of = Arc::new(Self {
            queue: set.add_tenant("q").unwrap(),
            completions: Mutex::new(None),
            act: Box::new(act),
        });
        let completions = set.completions(&machine()).build({
            let machine = Arc::downgrade(&machine_of);
            move |tag: Tag<u64>| {
                let n = *tag;
                drop(tag);
                if let Some(machine) = machine.upgrade() {
                    (machine.act)(&machine, n);
                }
            }
        });
        *machine_of.completions.lock() = Some(completions);
        machine_of
    }

    /// Submits and completes a request with the number `n`.
    fn complete(&self, n: u64) {
        let completions = self.completions.lock().clone();
        let token = on(0, || {
            self.queue
                .try_alloc_with(Default::default())
                .unwrap()
                .into_token()
        });
        let completions = completions.expect("they are still there");
        on(0, || completions.complete(token, |req| *req = n).unwrap());
    }
}

/// Two threads are at the deepest and put something off; the first does not come back until what
/// the second put off has run.
#[test]
fn what_is_put_off_waits_for_its_own_thread_only() {
    const FIRST: u64 = 1000;
    const SECOND: u64 = 2000;
    const PUT_OFF: u64 = 500;
    let (ready, done) = (Pipe::new(), Pipe::new());
    let machine = Machine::new({
        let (ready, done) = (ready.clone(), done.clone());
        move |machine, n| match n % 1000 {
            PUT_OFF if n > SECOND => done.send(()),
            PUT_OFF => {}
            level if level + 1 < DEEP as u64 => machine.complete(n + 1),
            level => {
                machine.complete(n - level + PUT_OFF);
                if n < SECOND {
                    ready.send(());
                    assert_eq!(done.recv(), Some(()));
                }
            }
        }
    });
    let first = thread::spawn({
        let machine = machine.clone();
        move || machine.complete(FIRST)
    });
    assert_eq!(ready.recv(), Some(()));
    let second = thread::spawn({
        let machine = machine.clone();
        move || machine.complete(SECOND)
    });
    second.join().unwrap();
    first.join().unwrap();
    let stats = machine.completions.lock().take().unwrap().stats();
    assert_eq!(
        (stats.inline_depth, stats.completed()),
        (2, 2 * (DEEP as u64 + 1))
    );
}

/// The deepest callback puts some off and lets go of the last handle of the completions.
#[test]
fn what_is_put_off_runs_although_the_completions_are_gone() {
    let ran = Arc::new(AtomicUsize::new(0));
    let machine = Machine::new({
        let ran = ran.clone();
        move |machine, n| {
            ran.fetch_add(1, Ordering::Relaxed);
            if n + 1 < DEEP as u64 {
                machine.complete(n + 1);
            } else if n < DEEP as u64 {
                (0..5).for_each(|_| machine.complete(100));
                drop(machine.completions.lock().take());
                assert_eq!(ran.load(Ordering::Relaxed), DEEP, "not yet");
            }
        }
    });
    machine.complete(0);
    assert_eq!(ran.load(Ordering::Relaxed), DEEP + 5);
    assert_eq!(machine.queue.set().in_use(), 0);
}

/// What is thrown may throw again when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic_any("the grenade");
        }
    }
}

#[test]
fn panics_leave_nothing_behind() {
    let ran = Arc::new(AtomicUsize::new(0));
    let machine = Machine::new({
        let ran = ran.clone();
        move |machine, n| {
            ran.fetch_add(1, Ordering::Relaxed);
            if n + 1 < DEEP as u64 {
                machine.complete(n + 1);
            } else if n < DEEP as u64 {
                (0..5).for_each(|_| machine.complete(100));
            } else {
                panic_any(Grenade);
            }
        }
    });
    let throws = |n| {
        let thrown = catch_unwind(AssertUnwindSafe(|| machine.complete(n))).unwrap_err();
        assert!(thrown.is::<Grenade>());
        std::mem::forget(thrown);
    };
    throws(0);
    assert_eq!(ran.load(Ordering::Relaxed), DEEP + 5);
    assert_eq!(machine.queue.set().in_use(), 0);
    // Nothing is "running" on this thread any more: the next one is called at once.
    throws(100);
    assert_eq!(ran.load(Ordering::Relaxed), DEEP + 6);
}
