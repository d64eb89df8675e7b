//! An engine of all parts, and the order in which it ends.

use inflight::prelude::*;
use std::{sync::mpsc, thread, time::Duration};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let topo = Topology::discover()?;
    let system = WorkqueueSystem::builder().topology(&topo).build()?;
    let set = TagSet::builder()
        .topology(&topo)
        .depth(8)
        .build(|_, _| 0_u64)?;
    let disk = set.add_tenant("disk0")?;
    let done = system.workqueue("complete").bound().build()?;
    let again = system.workqueue("requeue").bound().build()?;

    let (ring, submitted) = mpsc::sync_channel::<u64>(1); // a device with room for one
    let requeue = Requeue::new(&again, {
        let (set, ring) = (set.clone(), ring.clone());
        move |tag: Tag<u64>| {
            let token = tag.into_token();
            if ring.try_send(token).is_ok() {
                return Ok(());
            }
            let Ok(tag) = set.redeem(token) else {
                return Ok(()); // timed out: the expirer has it
            };
            if set.is_closed() {
                drop(tag); // the engine ends: the request fails
                return Ok(());
            }
            Err((tag, Duration::from_millis(5))) // refused again
        }
    });
    let completions = set
        .completions(&topo)
        .sink(WorkqueueSink::new(&done))
        .build(|tag: Tag<u64>| drop(tag)); // the answer goes out here
    let device = thread::spawn(move || {
        for token in submitted {
            let _ = completions.complete(token, |_request| {}); // an error: it has timed out
        }
    });
    let expirer = thread::spawn({
        let set = set.clone();
        move || {
            while let Some(late) = set.expired_blocking() {
                drop(late.redeem())
            }
        }
    });
    let submitter = thread::spawn({
        let requeue = requeue.clone();
        move || {
            while let Ok(tag) = disk.alloc_blocking() {
                requeue.requeue(tag, Duration::ZERO)
            }
        }
    });
    while requeue.stats().requeued < 100 {
        thread::yield_now(); // the engine is at work
    }

    // 1. No new tags: waiters get an error.
    set.close();
    submitter.join().unwrap();
    // 2. Waiting requests are sent now, or fail.
    requeue.kick();
    // 3. Each tag is back: redeemed, completed and dropped. So the expirer has ended.
    drop(set.freeze_blocking());
    expirer.join().unwrap();
    // 4. The device's handles. The last requests are sent.
    drop((requeue, ring));
    device.join().unwrap();
    // 5. Callbacks have returned; likewise each other queue.
    done.drain_blocking()?;
    again.drain_blocking()?;
    // 6. Threads are joined.
    system.shutdown_blocking()?;
    println!("{} requests in flight", set.in_use());
    Ok(())
}
