//! Random schedules of a whole system: more threads and longer histories than the models can take.
#![cfg(shuttle)]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::{Arc, thread};
use inflight_topology::Topology;
use inflight_workqueue::{Attrs, Queued, Work, WorkqueueSystem, blocking};

/// Four threads queue, flush and cancel one work through two queues. It never runs twice at once,
/// and every accepted queueing is run or was cancelled.
fn one_work_and_four_threads() {
    let topo = Topology::synthetic("core:2").unwrap();
    let sys = WorkqueueSystem::builder().topology(topo).build().unwrap();
    let queues = [
        sys.workqueue("bound")
            .bound()
            .max_active(2)
            .build()
            .unwrap(),
        sys.workqueue("any")
            .unbound(Attrs::new())
            .max_active(1)
            .build()
            .unwrap(),
    ];
    let (inside, overlaps) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = Work::new({
        let (inside, overlaps) = (inside.clone(), overlaps.clone());
        move || {
            // Relaxed: shuttle runs everything in one order.
            overlaps.fetch_add(inside.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            blocking(thread::yield_now);
            inside.fetch_sub(1, Ordering::Relaxed);
        }
    });
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (queues, work) = (queues.clone(), work.clone());
            thread::spawn(move || {
                let (mut queued, mut cancelled) = (0u64, 0u64);
                for i in 0..4 {
                    let wq = &queues[(i + n) % 2];
                    queued += u64::from(wq.queue_on(i % 2, &work).unwrap() == Queued::Queued);
                    match (i + n) % 4 {
                        0 => cancelled += u64::from(work.cancel()),
                        1 => cancelled += u64::from(work.cancel_sync_blocking().unwrap()),
                        2 => drop(work.flush_blocking().unwrap()),
                        _ => wq.flush_blocking().unwrap(),
                    }
                }
                (queued, cancelled)
            })
        })
        .collect();
    let ended = threads.into_iter().map(|t| t.join().unwrap());
    let (queued, cancelled) = ended.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    drop(sys);
    let stats = queues.each_ref().map(|wq| wq.stats());
    assert_eq!(stats.iter().map(|s| s.queued).sum::<u64>(), queued);
    assert_eq!(stats.iter().map(|s| s.cancelled).sum::<u64>(), cancelled);
    assert_eq!(
        stats.iter().map(|s| s.completed).sum::<u64>(),
        queued - cancelled
    );
    assert_eq!(overlaps.load(Ordering::Relaxed), 0);
}

#[test]
fn random_schedules() {
    check_random("random_schedules", 500, one_work_and_four_threads);
}

#[test]
fn schedules_with_few_preemptions() {
    check_pct(
        "schedules_with_few_preemptions",
        500,
        3,
        one_work_and_four_threads,
    );
}
