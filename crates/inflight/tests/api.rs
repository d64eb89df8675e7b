//! The usages that the design promised before there was code, as they were written.

use std::future::poll_fn;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[test]
fn topology() -> Result<()> {
    use inflight::topology::{CpuSet, Scope, Topology};

    let topo = Topology::discover()?;
    let big = Topology::synthetic("numa:2 cache:2 core:6 smt:2")?;
    let mut pods = Vec::new();
    for pod in big.pods(Scope::Cache) {
        pods.push(format!("{} on node {:?}", pod.cpus(), pod.node()));
    }
    assert_eq!(pods[0], "0-5,24-29 on node Some(0)");
    assert_eq!(pods.len(), 4);
    assert!(big.shares_cache(0, 24));
    let _cpu: usize = inflight::topology::current_cpu();
    if cfg!(target_os = "linux") {
        let mine = topo.cpus().first().expect("a process runs somewhere");
        let guard = topo.pin_current_thread(&mine.to_string().parse::<CpuSet>()?)?;
        drop(guard);
    }
    Ok(())
}

#[test]
fn bitmap_and_queue() -> Result<()> {
    use inflight::sbitmap::{Fairness, GetError, PutError, Sbitmap, SbitmapQueue};

    let map = Sbitmap::builder(1024).build()?;
    let bit = map.try_get().unwrap();
    assert!(map.try_get_shallow(8).is_some());
    let mut bits = Vec::new();
    assert_eq!(map.try_get_batch(32, &mut bits), 32);
    if let Some(b) = map.try_get_mask(32) {
        assert!(b.first < 1024 && b.mask != 0);
        map.put_mask(b)?;
    }
    map.put(bit)?;
    assert_eq!(map.put(bit), Err(PutError::NotAllocated { bit }));
    map.put_batch(&bits)?;
    assert!(
        Sbitmap::builder(1024)
            .shift(6)
            .round_robin(true)
            .build()
            .is_ok()
    );

    let q = SbitmapQueue::builder(256)
        .max_depth(512)
        .fairness(Fairness::fair())
        .build()?;
    let a = q.try_get();
    let b = q.get_blocking()?;
    let c = q.get_timeout(Duration::from_millis(5))?;
    let d = inflight::sync::block_on(async { q.get().await })?;
    let mut all = [a.unwrap(), b, c, d];
    all.sort_unstable();
    assert!(all.windows(2).all(|w| w[0] != w[1]));
    let four = inflight::sync::block_on(async { q.get_many(4).await })?;
    assert_eq!(four.len(), 4);
    q.resize(512)?;
    let id = q.id_blocking()?;
    let bit = id.id();
    drop(id);
    assert_eq!(q.put(bit), Err(PutError::NotAllocated { bit }));
    q.close();
    assert_eq!(q.get_blocking(), Err(GetError::Closed));
    q.put(b)?;
    println!("{:#?}", q.snapshot());
    Ok(())
}

#[test]
fn tag_sets() -> Result<()> {
    use inflight::tags::{AllocError, AllocOptions, RedeemError, Steering, TagSet};
    use inflight::topology::Topology;

    struct Req {
        off: u64,
        buf: Vec<u8>,
    }
    let topo = Topology::synthetic("core:4 smt:2")?;
    let set = TagSet::builder()
        .hw_queues(4)
        .depth(256)
        .reserved(8)
        .topology(&topo)
        .steering(Steering::SameCache)
        .build(|_hwq, _tag| Req {
            off: 0,
            buf: vec![0; 4096],
        })?;
    let dev = set.add_tenant("nvme0n1")?;

    let mut tag = dev.try_alloc()?;
    tag.off = 4096;
    let token: u64 = tag.into_token();
    let tag = set.redeem(token)?;
    assert_eq!((tag.off, tag.buf.len()), (4096, 4096));
    drop(tag);
    assert!(matches!(set.redeem(token), Err(RedeemError::Stale { .. })));

    let tag = inflight::sync::block_on(async { dev.alloc().await })?;
    drop(tag);
    let tag = dev.alloc_blocking()?;
    drop(tag);
    let tag = dev.alloc_timeout(Duration::from_millis(5))?;
    drop(tag);
    let mut next = dev.alloc_owned();
    let tag = inflight::sync::block_on(poll_fn(|cx| next.poll_alloc(cx)))?;
    drop(tag);
    let many = dev.try_alloc_batch(16);
    assert_eq!(many.len(), 16);
    drop(many);
    let reserved = AllocOptions::new().reserved();
    drop(inflight::sync::block_on(dev.alloc_with(reserved))?);
    drop(dev.alloc_blocking_with(reserved)?);
    drop(dev.alloc_timeout_with(Duration::from_millis(5), reserved)?);
    assert_eq!(dev.try_alloc_batch_with(16, reserved)?.len(), 8);

    let mut pieces = 0;
    let mut split = dev.split(8);
    while let Some(tag) = inflight::sync::block_on(split.next())? {
        drop(tag);
        pieces += 1;
    }
    let mut split = dev.split(8);
    while let Some(tag) = split.next_blocking()? {
        drop(tag);
        pieces += 1;
    }
    assert_eq!((pieces, split.remaining()), (16, 0));

    let token = dev
        .try_alloc_with(AllocOptions::new().reserved())?
        .into_token();
    set.for_each_in_flight(|t| {
        if t.age() >= Duration::ZERO {
            t.mark_timed_out();
        }
    });
    assert!(matches!(
        set.redeem(token),
        Err(RedeemError::TimedOut { .. })
    ));
    drop(set.redeem_timed_out(token)?);
    drop(set.freeze_timeout(Duration::from_secs(60))?);
    let frozen = set.freeze_blocking();
    set.resize(128)?;
    set.set_hw_queues_blocking(8)?;
    assert_eq!(
        (set.depth(), set.hw_queues().len(), set.capacity()),
        (128, 8, 1024)
    );
    let refused = dev.try_alloc();
    assert!(matches!(refused, Err(AllocError::Frozen)));
    set.close();
    let refused = dev.alloc_blocking();
    assert!(matches!(refused, Err(AllocError::Closed)));
    drop(frozen);
    Ok(())
}

#[test]
fn workqueues() -> Result<()> {
    use inflight::topology::{Scope, Topology};
    use inflight::workqueue::{Attrs, Work, WorkqueueSystem, blocking};

    let sys = WorkqueueSystem::builder()
        .topology(Topology::discover()?)
        .build()?;
    let crypt = sys
        .workqueue("kcryptd")
        .unbound(Attrs::new().scope(Scope::Cache).strict(false))
        .max_active(64)
        .build()?;
    let irq = sys.workqueue("complete").bound().build()?;

    let buf = [1_u8; 16];
    let handle = crypt.spawn(move || buf.iter().map(|&b| u32::from(b)).sum::<u32>());
    assert_eq!(inflight::sync::block_on(handle)?, 16);
    let panicked = crypt.spawn(|| panic!("in the item")).wait();
    assert!(panicked.is_err(), "a panic is an error for its owner");

    let work = Work::new(|| ());
    assert!(crypt.queue(&work)?.is_queued());
    work.flush_blocking()?;
    irq.queue_on(0, &work)?;
    crypt.queue_node(0, &work)?;
    work.cancel_sync_blocking()?;
    work.disable_sync_blocking()?;
    assert!(!crypt.queue(&work)?.is_queued(), "disabled");
    work.enable()?;
    crypt.flush_blocking()?;
    crypt.drain_blocking()?;
    crypt.set_max_active(16)?;
    assert!(blocking(|| std::fs::read("Cargo.toml")).is_ok());
    println!("{}", sys.dump());
    assert_eq!(crypt.stats().panicked, 1);
    crypt.destroy_blocking()?;
    Ok(())
}
