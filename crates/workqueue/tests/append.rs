//! Small items that queue others, or themselves: the worker appends them and goes on at once, as
//! long as nobody else has a claim on it.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{
    Attrs, JoinHandle, QueueError, Work, Workqueue, WorkqueueSystem, blocking,
};
use std::time::Duration;
use support::{Level, Log, small_items, times, watch};

fn system(topology: &str) -> WorkqueueSystem {
    let topology = Topology::synthetic(topology).unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    small_items(builder).build().unwrap()
}

/// One of each kind that workers go round in.
fn queues(sys: &WorkqueueSystem) -> [Workqueue; 4] {
    let attrs = Attrs::new().scope(Scope::System);
    [
        sys.workqueue("bound").bound().build().unwrap(),
        sys.workqueue("narrow")
            .bound()
            .max_active(1)
            .build()
            .unwrap(),
        sys.workqueue("unbound").unbound(attrs).build().unwrap(),
        sys.workqueue("ordered").ordered().build().unwrap(),
    ]
}

fn hop(wq: &Workqueue, left: usize, ran: &Arc<AtomicUsize>) {
    let (again, ran) = (wq.clone(), ran.clone());
    drop(wq.spawn(move || {
        ran.fetch_add(1, Ordering::Relaxed);
        if left > 0 {
            hop(&again, left - 1, &ran);
        }
    }));
}

/// A work that queues itself until it is told to stop, or is refused. Relaxed, all: counts and
/// signals.
struct Endless {
    work: Work,
    stop: Arc<AtomicBool>,
    runs: Arc<AtomicUsize>,
    refused: Arc<Mutex<Option<QueueError>>>,
}

impl Endless {
    fn new(wq: &Workqueue) -> Self {
        let (stop, runs) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let refused: Arc<Mutex<Option<QueueError>>> = Arc::default();
        let me = Arc::new(Mutex::new(None));
        let work = Work::new({
            let (stop, runs, refused) = (stop.clone(), runs.clone(), refused.clone());
            let (me, wq) = (me.clone(), wq.clone());
            move || {
                runs.fetch_add(1, Ordering::Relaxed);
                let me: Option<Work> = me.lock().clone();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(Err(refusal)) = me.map(|me| wq.queue(&me)) {
                    *refused.lock() = Some(refusal);
                }
            }
        });
        *me.lock() = Some(work.clone());
        Self {
            work,
            stop,
            runs,
            refused,
        }
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// It has gone on for a while.
    fn runs_on(&self) {
        let before = self.runs();
        while self.runs() < before + times(200) {
            thread::yield_now();
        }
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.work.flush_blocking().unwrap();
    }
}

/// Each item that is queued from within another runs once, whatever the kind of queue, and the
/// statistics add up.
#[test]
fn chains_run_to_their_end() {
    const HOPS: usize = times(3_000);
    let sys = system("core:2");
    for wq in queues(&sys) {
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..4 {
            hop(&wq, HOPS, &ran);
        }
        wq.drain_blocking().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 4 * (HOPS + 1));
        let stats = wq.stats();
        assert_eq!(stats.queued, 4 * (HOPS as u64 + 1), "{}", wq.name());
        assert_eq!(
            (stats.started, stats.completed),
            (stats.queued, stats.queued)
        );
        assert_eq!((stats.active, stats.inactive), (0, 0));
    }
}

/// What an item queues comes behind what the one before it has queued: an ordered queue keeps
/// that order whatever is appended where.
#[test]
fn an_ordered_queue_stays_in_order() {
    let sys = system("core:2");
    let wq = sys.workqueue("ordered").ordered().build().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    // Under the lock of `order`, so that queueing is in the order of numbers.
    let next = Arc::new(Mutex::new(0));
    fn queue(
        wq: &Workqueue,
        next: &Arc<Mutex<usize>>,
        order: &Arc<Mutex<Vec<usize>>>,
        children: usize,
    ) {
        let mut number = next.lock();
        let (mine, again) = (*number, (wq.clone(), next.clone(), order.clone()));
        *number += 1;
        drop(wq.spawn(move || {
            let (wq, next, order) = again;
            order.lock().push(mine);
            for _ in 0..children {
                queue(&wq, &next, &order, children - 1);
            }
        }));
    }
    let submitters: Vec<_> = (0..2)
        .map(|_| {
            let (wq, next, order) = (wq.clone(), next.clone(), order.clone());
            thread::spawn(move || (0..times(40)).for_each(|_| queue(&wq, &next, &order, 4)))
        })
        .collect();
    submitters.into_iter().for_each(|s| s.join().unwrap());
    wq.drain_blocking().unwrap();
    let order = order.lock();
    assert_eq!(order.len(), *next.lock());
    assert!(order.is_sorted(), "by number of queueing");
}

/// A runs, B is queued by another thread, A queues C: C comes last, although A's worker could have
/// appended it.
#[test]
fn what_an_item_queues_does_not_pass_what_waits() {
    for topology in ["core:1", "core:4"] {
        let sys = system(topology);
        let [_, narrow, _, ordered] = queues(&sys);
        for wq in [narrow, ordered] {
            let (order, begun, queued) = (Log::new(), Level::new(), Level::new());
            let push = |name| {
                let order = order.clone();
                move || order.push(name)
            };
            let a = wq.spawn_on(0, {
                let (wq, order) = (wq.clone(), order.clone());
                let (begun, queued, c) = (begun.clone(), queued.clone(), push('C'));
                move || {
                    order.push('A');
                    begun.raise();
                    queued.wait_silently(1);
                    wq.spawn_on(0, c).detach();
                }
            });
            begun.wait(1);
            wq.spawn_on(0, push('B')).detach();
            queued.raise();
            a.wait().unwrap();
            wq.flush_blocking().unwrap();
            assert_eq!(order.entries(), ['A', 'B', 'C'], "{}", wq.name());
        }
    }
}

/// Other queues of the same pool have their turn, and so has what others queue there.
#[test]
fn an_endless_chain_lets_others_run() {
    let sys = system("core:1");
    for wq in queues(&sys) {
        let endless = Endless::new(&wq);
        assert!(wq.queue(&endless.work).unwrap().is_queued());
        endless.runs_on();
        let other = sys.workqueue("other").bound().build().unwrap();
        other.spawn(|| ()).wait().unwrap();
        wq.spawn(|| ()).wait().unwrap();
        endless.end();
    }
}

/// A flush waits for what was queued before it, and not for the chain's later runs.
#[test]
fn a_flush_of_an_endless_chain_returns() {
    let sys = system("core:1");
    for wq in queues(&sys) {
        let endless = Endless::new(&wq);
        assert!(wq.queue(&endless.work).unwrap().is_queued());
        for _ in 0..times(20) {
            endless.runs_on();
            wq.flush_blocking().unwrap();
        }
        endless.end();
    }
}

/// Whatever happens to the work itself finds it.
#[test]
fn a_chain_is_stopped_by_its_work() {
    let sys = system("core:1");
    for wq in queues(&sys) {
        let endless = Endless::new(&wq);
        for _ in 0..times(20) {
            assert!(wq.queue(&endless.work).unwrap().is_queued());
            endless.runs_on();
            endless.work.cancel_sync_blocking().unwrap();
            let runs = endless.runs();
            wq.flush_blocking().unwrap();
            assert_eq!(endless.runs(), runs, "neither pending nor running");
            assert!(!endless.work.is_pending() && !endless.work.is_running());
        }
        let stats = wq.stats();
        assert_eq!(stats.completed + stats.cancelled, stats.queued);
    }
}

/// Nothing of a frozen queue begins, be it appended or not.
#[test]
fn a_freeze_stops_a_chain() {
    let sys = system("core:1");
    let attrs = Attrs::new().scope(Scope::System);
    let queues = [
        sys.workqueue("bound").bound().freezable(),
        sys.workqueue("unbound").unbound(attrs).freezable(),
        sys.workqueue("ordered").ordered().freezable(),
    ];
    for builder in queues {
        let wq = builder.build().unwrap();
        let endless = Endless::new(&wq);
        assert!(wq.queue(&endless.work).unwrap().is_queued());
        for _ in 0..times(10) {
            endless.runs_on();
            let frozen = sys.freeze();
            while frozen.is_busy() {
                thread::yield_now();
            }
            let runs = endless.runs();
            // A queue that is not frozen goes round the same worker.
            let other = sys.workqueue("other").bound().build().unwrap();
            other.spawn(|| ()).wait().unwrap();
            assert_eq!(endless.runs(), runs, "{} is frozen", wq.name());
            drop(frozen);
        }
        endless.end();
    }
}

/// The end of the system is the end of a chain: it is refused, and told so.
#[test]
fn shutdown_ends_a_chain() {
    for kind in 0..4 {
        let sys = system("core:1");
        let wq = queues(&sys)[kind].clone();
        let endless = Endless::new(&wq);
        assert!(wq.queue(&endless.work).unwrap().is_queued());
        endless.runs_on();
        drop(sys);
        assert_eq!(*endless.refused.lock(), Some(QueueError::ShutDown));
        assert!(!endless.work.is_pending() && !endless.work.is_running());
    }
}

/// Items of one pwq run beside each other, on two workers, and each queues what its worker could
/// append: what the first has appended is not lost to the second's.
#[test]
fn of_two_workers_neither_loses_what_the_other_appends() {
    let builder = WorkqueueSystem::builder().topology(Topology::synthetic("core:4").unwrap());
    // Who waits here counts as running.
    let builder = builder.intensive_threshold(Duration::from_secs(60));
    let sys = small_items(builder).build().unwrap();
    let attrs = Attrs::new().scope(Scope::System);
    let wq = sys.workqueue("unbound").unbound(attrs).build().unwrap();
    let rounds = Arc::new(AtomicUsize::new(0));
    let news = rounds.clone();
    let all = thread::spawn(move || {
        // Its end is part of what may hang.
        let _sys = sys;
        for _ in 0..times(100) {
            rounds.fetch_add(1, Ordering::Relaxed);
            // After these an item is small, by what is known of it.
            for _ in 0..times(2_000) {
                drop(wq.spawn_on(0, || ()));
            }
            wq.flush_blocking().unwrap();
            let (begun, go, fillers, ran) =
                (Level::new(), Level::new(), Level::new(), Level::new());
            let keeps = || {
                let (wq, begun, go, ran) = (wq.clone(), begun.clone(), go.clone(), ran.clone());
                let runs = AtomicUsize::new(0);
                Work::new(move || {
                    if runs.fetch_add(1, Ordering::Relaxed) > 0 {
                        return;
                    }
                    begun.raise();
                    go.wait_silently(1);
                    for _ in 0..3 {
                        let ran = ran.clone();
                        drop(wq.spawn_on(0, move || ran.raise()));
                    }
                    blocking(|| ran.wait_silently(6));
                })
            };
            let (first, second) = (keeps(), keeps());
            wq.queue_on(0, &first).unwrap();
            begun.wait(1);
            wq.queue_on(0, &second).unwrap();
            // Whoever comes finds more, and takes the second alone: the next one may be running.
            wq.queue_on(0, &first).unwrap();
            for _ in 0..30 {
                let fillers = fillers.clone();
                drop(wq.spawn_on(0, move || fillers.raise()));
            }
            begun.wait(2);
            fillers.wait(30);
            go.raise();
            ran.wait(6);
            wq.flush_blocking().unwrap();
            let stats = wq.stats();
            let numbers = (stats.completed, stats.active, stats.panicked);
            assert_eq!(numbers, (stats.queued, 0, 0));
        }
    });
    watch(&news, vec![all], || {
        format!("round {}", news.load(Ordering::Relaxed))
    });
}

/// A worker that has appended nothing when the queue closes appends nothing afterwards.
#[test]
fn what_begins_to_append_late_finds_the_queue_closed() {
    for _ in 0..times(20) {
        let sys = system("core:2");
        let wq = sys.workqueue("bound").bound().build().unwrap();
        // Small items, so that there is room in a batch.
        for _ in 0..times(50) {
            (0..20).for_each(|_| drop(wq.spawn_on(0, || ())));
            wq.flush_blocking().unwrap();
        }
        let (began, closed) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let late = wq.spawn_on(0, {
            let (wq, began, closed) = (wq.clone(), began.clone(), closed.clone());
            move || {
                began.store(true, Ordering::Relaxed);
                while !closed.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                wq.queue_on(0, &Work::new(|| ()))
            }
        });
        while !began.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let end = thread::spawn(move || drop(sys));
        // The other CPU's pwq, so that nothing waits where the item runs.
        let probe = Work::new(|| ());
        while wq.queue_on(1, &probe) != Err(QueueError::ShutDown) {
            thread::yield_now();
        }
        closed.store(true, Ordering::Relaxed);
        assert_eq!(late.wait().unwrap(), Err(QueueError::ShutDown));
        end.join().unwrap();
    }
}

/// An item in a batch of its own, which goes on when it is told to, queues `then`, says so, and
/// ends when it is told to.
fn late(
    wq: &Workqueue,
    go: &Arc<AtomicBool>,
    end: &Arc<AtomicBool>,
    then: impl FnOnce() + Send + 'static,
) -> (JoinHandle<()>, Arc<AtomicBool>) {
    // Small items, so that there is room in a batch.
    for _ in 0..times(50) {
        (0..20).for_each(|_| drop(wq.spawn_on(0, || ())));
        wq.flush_blocking().unwrap();
    }
    let (began, queued) = (signal(), signal());
    let item = wq.spawn_on(0, {
        let (wq, go, end) = (wq.clone(), go.clone(), end.clone());
        let (began, queued) = (began.clone(), queued.clone());
        move || {
            began.store(true, Ordering::Release);
            await_signal(&go);
            drop(wq.spawn_on(0, then));
            queued.store(true, Ordering::Release);
            await_signal(&end);
        }
    });
    await_signal(&began);
    (item, queued)
}

/// Ordering: Release where it is set, Acquire where it is awaited: what came before is seen.
fn signal() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

fn await_signal(signal: &AtomicBool) {
    while !signal.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

/// Something has come to wait for the slot since the item began: what it queues waits behind that.
#[test]
fn what_begins_to_append_late_passes_nobody() {
    for _ in 0..times(20) {
        let sys = system("core:1");
        let wq = sys.workqueue("narrow").bound().max_active(1);
        let wq = wq.build().unwrap();
        let (go, order) = (signal(), Arc::new(Mutex::new(Vec::new())));
        let own = order.clone();
        let (item, _) = late(&wq, &go, &go, move || own.lock().push("own"));
        let before = order.clone();
        drop(wq.spawn_on(0, move || before.lock().push("before")));
        // Who looks at the system takes its pools' locks.
        drop(sys.dump());
        go.store(true, Ordering::Release);
        item.wait().unwrap();
        wq.flush_blocking().unwrap();
        assert_eq!(*order.lock(), ["before", "own"]);
    }
}

/// The queue has gone over to another pool since the item began: what it queues goes there.
#[test]
fn what_begins_to_append_late_goes_where_its_queue_has_gone() {
    for _ in 0..times(20) {
        let sys = system("cache:2 core:1");
        let attrs = Attrs::new().scope(Scope::System);
        let wq = sys.workqueue("moves").unbound(attrs).build().unwrap();
        let (go, end, ran) = (signal(), signal(), signal());
        let says = ran.clone();
        let then = move || says.store(true, Ordering::Release);
        let (item, queued) = late(&wq, &go, &end, then);
        let elsewhere = Attrs::new().scope(Scope::Cpu);
        wq.set_attrs(elsewhere).unwrap();
        go.store(true, Ordering::Release);
        await_signal(&queued);
        // Looks at the pwqs, which know nothing of the pool that was left.
        wq.set_max_active(7).unwrap();
        end.store(true, Ordering::Release);
        item.wait().unwrap();
        wq.flush_blocking().unwrap();
        assert!(ran.load(Ordering::Acquire));
    }
}
