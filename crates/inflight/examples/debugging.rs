//! Four common troubles, made on purpose, and what the library says of them: a function that
//! computes for long, an item that never ends, a request the device has forgotten, a task that
//! keeps all ids.
//!
//! `cargo run --release -p inflight --example debugging`; the book's chapter on debugging shows
//! what it prints.

use inflight::prelude::*;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn parse_everything() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (tell, told) = mpsc::channel();
    let stalled = tell.clone();
    let system = WorkqueueSystem::builder()
        .hog_reports(1, move |hog| drop(tell.send(format!("hog: {hog}"))))
        .watchdog(Duration::from_millis(200), move |stall| {
            drop(stalled.send(format!("stall: {stall}")));
        })
        .build()?;

    println!("== a function that computes for long on a bound queue, while others wait");
    let packets = system.workqueue("packets").bound().build()?;
    let cpu = inflight::topology::current_cpu();
    let (parse, short) = (Work::new(parse_everything), Work::new(|| ()));
    // On a busy machine it may not have used its time at the first try.
    let hog = loop {
        packets.queue_on(cpu, &parse)?;
        packets.queue_on(cpu, &short)?;
        packets.flush_blocking()?;
        if let Ok(hog) = told.try_recv() {
            break hog;
        }
    };
    println!("{hog}");

    println!("\n== an item that never ends, in front of a limit");
    let (release, released) = mpsc::channel::<()>();
    let uploads = system.workqueue("uploads").unbound(Attrs::new());
    let uploads = uploads.max_active(1).build()?;
    let first = uploads.spawn_named("send part 1", move || blocking(|| released.recv().is_ok()));
    let second = uploads.spawn_named("send part 2", || ());
    println!("{}", told.recv()?);
    println!("\n== the same in the dump");
    let dump = system.dump();
    let state = dump.split("State\n=====\n").last();
    println!("{}", state.unwrap_or_default());
    release.send(())?;
    assert!(first.wait()?, "it was told to end");
    second.wait()?;

    println!("\n== a request the device has forgotten");
    let set = TagSet::builder().depth(8).build(|_, _| 0_u64)?;
    let disk = set.add_tenant("disk0")?;
    let mut tag = disk.try_alloc()?;
    *tag = 4096;
    let token = tag.into_token();
    std::thread::sleep(Duration::from_millis(20));
    set.for_each_in_flight(|request| {
        println!(
            "in flight for more than 10 ms: {}",
            request.age() > Duration::from_millis(10)
        );
    });
    println!("{:?}", set.stats());
    drop(set.redeem(token)?);
    println!("a second completion: {}", set.redeem(token).unwrap_err());

    println!("\n== a task that keeps all ids");
    let ids = SbitmapQueue::builder(4).build()?;
    let kept = ids.get_many_blocking(4)?;
    println!("{:?}", ids.get_timeout(Duration::from_millis(1)));
    println!("{:?}", ids.snapshot());
    ids.put_batch(&kept)?;
    Ok(())
}
