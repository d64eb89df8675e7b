//! Hardware queues by CPU and by kind: reads, polled requests, and the rest.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::cpu;
use inflight_tags::steering::{Decision, InlineReason};
use inflight_tags::{
    AllocError, AllocOptions, BuildError, HwQueueOptions, QueueKind, Steering, Tag, TagSet,
};
use inflight_topology::Topology;

/// Runs `f` as if on a CPU.
fn on<R>(number: usize, f: impl FnOnce() -> R) -> R {
    cpu::set_current_for_thread(Some(number));
    let result = f();
    cpu::set_current_for_thread(None);
    result
}

#[test]
fn c51_tags_come_from_the_queue_of_the_group_the_cpu_is_in() {
    let topology = Topology::synthetic("numa:2 core:6,2").unwrap();
    let builder = TagSet::builder().hw_queues(4).depth(2).topology(&topology);
    let set = builder.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let queue = |number| on(number, || dev.alloc_blocking().unwrap().hw_queue());
    let seen: Vec<usize> = (0..9).map(queue).collect();
    assert_eq!(
        seen,
        [0, 0, 1, 1, 2, 2, 3, 3, 0],
        "an unknown CPU is served"
    );
}

#[test]
fn c8_each_kind_has_its_own_tags_near_the_caller() {
    let topology = Topology::synthetic("core:4").unwrap();
    let builder = TagSet::builder().hw_queues(HwQueueOptions::new(7).read(2).poll(1));
    let builder = builder.depth(1).topology(&topology);
    let set = builder.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let [read, polled] = [AllocOptions::new().read(), AllocOptions::new().polled()];
    for (number, expected) in [(0, [0, 4, 6]), (3, [3, 5, 6])] {
        let all = [AllocOptions::new(), read, polled];
        let tags = on(number, || {
            all.map(|options| dev.try_alloc_with(options).unwrap())
        });
        assert_eq!(tags.each_ref().map(Tag::hw_queue), expected);
        for tag in &tags {
            let kind = set.hw_queues().kind(tag.hw_queue()).unwrap();
            assert_eq!(set.hw_queues().for_kind(kind, number), tag.hw_queue());
        }
        // The other ways of asking, and no kind's tags are given to another.
        let busy = on(number, || dev.try_alloc_with(read).map(drop));
        assert_eq!(busy, Err(AllocError::Exhausted));
        drop(tags);
        let batch = on(number, || dev.try_alloc_batch_with(8, read).unwrap());
        assert_eq!(batch.len(), 1);
        let waited = on(number, || dev.alloc_blocking_with(polled).unwrap());
        assert_eq!((batch[0].hw_queue(), waited.hw_queue()), (expected[1], 6));
        drop((batch, waited));
        let piece = on(number, || dev.split_with(1, read).next_blocking().unwrap());
        assert_eq!(piece.unwrap().hw_queue(), expected[1]);
    }
}

#[test]
fn c8_a_kind_that_is_missing_is_the_default_one() {
    let set = TagSet::builder().hw_queues(2).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    for options in [AllocOptions::new().read(), AllocOptions::new().polled()] {
        let tag = on(1, || dev.try_alloc_with(options).unwrap());
        assert_eq!(tag.hw_queue(), 1);
        assert_eq!(set.hw_queues().kind(1), Some(QueueKind::Default));
    }
}

#[test]
fn c4_kinds_must_leave_a_default_queue() {
    for (read, poll) in [(0, 3), (3, 0), (1, 2), (usize::MAX, 1)] {
        let rings = HwQueueOptions::new(3).read(read).poll(poll);
        let refused = TagSet::builder().hw_queues(rings).build(|_, _| ());
        let refused = refused.unwrap_err();
        let expected = BuildError::Kinds {
            read,
            poll,
            hw_queues: 3,
        };
        assert_eq!(refused, expected);
        assert!(refused.to_string().contains("no default one of 3"));
    }
}

/// As a device that comes back with fewer queues: reads lose theirs first, then polled requests.
#[test]
fn c8_kinds_shrink_and_come_back_with_the_number_of_queues() {
    let builder = TagSet::builder().hw_queues(HwQueueOptions::new(4).read(1).poll(2));
    let set = builder.depth(2).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let kinds = || -> Vec<_> { (0..4).filter_map(|n| set.hw_queues().kind(n)).collect() };
    use QueueKind::{Default, Poll, Read};
    for _ in 0..2 {
        assert_eq!(kinds(), [Default, Read, Poll, Poll]);
        set.set_hw_queues_blocking(3).unwrap();
        assert_eq!(kinds(), [Default, Poll, Poll]);
        let tag = dev.try_alloc_with(AllocOptions::new().read()).unwrap();
        assert_eq!(tag.hw_queue(), 0);
        drop(tag);
        set.set_hw_queues_blocking(1).unwrap();
        assert_eq!(kinds(), [Default]);
        set.set_hw_queues_blocking(4).unwrap();
    }
}

/// What is submitted under a tag for polling completes where it is seen, whatever the policy; but a
/// polled request of a set without such queues is like any other.
#[test]
fn c58_polled_tags_are_steered_as_polled() {
    let topology = Topology::synthetic("cache:2 core:1").unwrap();
    for poll in [1, 0] {
        let builder = TagSet::builder().hw_queues(HwQueueOptions::new(2).poll(poll));
        let builder = builder.steering(Steering::SameCpu);
        let set = builder.depth(4).build(|_, _| ()).unwrap();
        let dev = set.add_tenant("nvme0n1").unwrap();
        let completions = set.completions(&topology).build(drop::<Tag<()>>);
        let run = |options| {
            let token = on(0, || dev.try_alloc_with(options).unwrap().into_token());
            on(1, || completions.complete(token, |()| ()).unwrap())
        };
        let polled = Decision::Inline(InlineReason::Polled);
        assert_eq!(run(AllocOptions::new().polled()) == polled, poll == 1);
        assert_ne!(run(AllocOptions::new()), polled);
        assert_ne!(run(AllocOptions::new().read()), polled);
        assert_eq!(run(AllocOptions::new().hw_queue(1)) == polled, poll == 1);
    }
}

#[test]
fn c19_a_queue_that_is_not_there_or_serves_no_cpu_is_refused() {
    let topology = Topology::synthetic("core:2 offline:1").unwrap();
    let builder = TagSet::builder()
        .hw_queues(HwQueueOptions::new(3).max(4))
        .reserved(1);
    let builder = builder.depth(3).topology(&topology);
    let set = builder.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let ask = |n| dev.try_alloc_with(AllocOptions::new().reserved().mapped_hw_queue(n));
    let held = ask(0).unwrap();
    assert_eq!((held.hw_queue(), held.index()), (0, 0));
    assert_eq!(ask(0).unwrap_err(), AllocError::Exhausted);
    assert_eq!(
        ask(1).unwrap_err(),
        AllocError::Unmapped { hw_queue: 1 },
        "its CPU is offline"
    );
    assert_eq!(
        ask(2).unwrap_err(),
        AllocError::Unmapped { hw_queue: 2 },
        "it has none"
    );
    assert!(matches!(
        ask(3).unwrap_err(),
        AllocError::NoSuchHwQueue { .. }
    ));
    // All forms say so, and nobody waits.
    let unmapped = AllocOptions::new().mapped_hw_queue(2);
    let errors = [
        dev.alloc_blocking_with(unmapped).unwrap_err(),
        inflight_sync::block_on(dev.alloc_with(unmapped)).unwrap_err(),
        dev.try_alloc_batch_with(2, unmapped).unwrap_err(),
        dev.split_with(2, unmapped).next_blocking().unwrap_err(),
    ];
    assert_eq!(errors, [AllocError::Unmapped { hw_queue: 2 }; 4]);
    let either = unmapped.hw_queue(2);
    assert!(dev.try_alloc_with(either).is_ok(), "the last word counts");
    drop(held);
    let modulo = TagSet::builder().hw_queues(cpu::possible() + 1);
    let modulo = modulo.depth(1).build(|_, _| ()).unwrap();
    let dev = modulo.add_tenant("nvme0n1").unwrap();
    let last = AllocOptions::new().mapped_hw_queue(cpu::possible());
    assert!(matches!(
        dev.try_alloc_with(last).unwrap_err(),
        AllocError::Unmapped { .. }
    ));
    let one_before = AllocOptions::new().mapped_hw_queue(cpu::possible() - 1);
    assert!(dev.try_alloc_with(one_before).is_ok());
}

#[test]
fn g17_unique_tags_are_taken_apart_again() {
    let builder = TagSet::builder().hw_queues(4).depth(18).max_depth(20);
    let set = builder.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let mut seen = Vec::new();
    for hw_queue in 0..4 {
        let options = AllocOptions::new().hw_queue(hw_queue);
        let tags = dev.try_alloc_batch_with(18, options).unwrap();
        for tag in &tags {
            let place = (tag.hw_queue(), tag.index());
            assert_eq!(set.hw_queues().place_of_unique(tag.unique()), Some(place));
            seen.push(tag.unique());
        }
    }
    assert!(seen.contains(&0x0003_0011), "queue 3, tag 17");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 72);
    assert_eq!(
        set.hw_queues().place_of_unique(0x0000_0012),
        None,
        "beyond the depth"
    );
    set.resize(20).unwrap();
    assert_eq!(set.hw_queues().place_of_unique(0x0000_0012), Some((0, 18)));
    assert_eq!(set.hw_queues().place_of_unique(u32::MAX), None);
}
