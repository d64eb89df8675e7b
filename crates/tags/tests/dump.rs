//! A set as text: who holds what.
#![cfg(not(any(loom, shuttle)))]

use inflight_tags::{AllocOptions, Clock, TagSet};
use std::time::Duration;

#[test]
fn who_holds_what() {
    let clock = Clock::manual();
    let set = TagSet::builder().hw_queues(2).depth(4).clock(clock.clone());
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let other = set.add_tenant("nvme0n2").unwrap();
    let (first, second) = (AllocOptions::new(), AllocOptions::new().hw_queue(1));
    let tag = dev.try_alloc_with(first.hw_queue(0)).unwrap();
    let (a, late) = (tag.index(), tag.into_token());
    clock.advance(Duration::from_secs(30));
    set.for_each_in_flight(|t| assert!(t.mark_timed_out()));
    let tag = dev.try_alloc_with(second).unwrap();
    let (b, in_flight) = (tag.index(), tag.into_token());
    let held = dev.try_alloc_with(first.hw_queue(0)).unwrap();
    let mut tracked = other.try_alloc_with(first.hw_queue(0)).unwrap();
    tracked.track();
    clock.advance(Duration::from_secs(10));
    drop(other);
    let (c, d) = (tracked.index(), held.index());
    let expected = format!(
        "tag set: 2 hardware queue(s), 4 tags each, 4 in use\n\
         tenant nvme0n1: 3 in use\n\
         tenant (gone): 1 in use\n\
         nvme0n1 hw_queue 0 tag {a}: timed out, not redeemed for 40s, token {late:#018x}\n\
         (gone) hw_queue 0 tag {c}: held, tracked for 10s\n\
         nvme0n1 hw_queue 1 tag {b}: in flight for 10s, token {in_flight:#018x}\n\
         nvme0n1 hw_queue 0 tag {d}: held\n"
    );
    assert_eq!(set.dump(), expected);
    drop((held, tracked, set.redeem(in_flight)));
    drop(set.redeem_timed_out(late).unwrap());
    let _frozen = set.freeze_blocking();
    let idle = "tag set: 2 hardware queue(s), 4 tags each, 0 in use; the tag set is frozen\n";
    assert_eq!(set.dump(), idle);
}

/// However many tags and tenants there are.
#[test]
fn its_length_is_bounded() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(1000).clock(clock.clone());
    let set = set.build(|_, _| ()).unwrap();
    let tenants: Vec<_> = (0..100)
        .map(|n| set.add_tenant(format!("t{n}")).unwrap())
        .collect();
    let tokens: Vec<u64> = (0..900)
        .map(|n| {
            let tag = tenants[n % 100].try_alloc().unwrap();
            clock.advance(Duration::from_secs(1));
            tag.into_token()
        })
        .collect();
    let dump = set.dump();
    assert_eq!(dump.lines().count(), 1 + 32 + 1 + 64 + 1, "{dump}");
    assert!(dump.contains("and 68 more tenants\n") && dump.ends_with("and 836 more tags\n"));
    let oldest = dump.lines().nth(34).unwrap();
    assert!(
        oldest.ends_with(&format!("for 899s, token {:#018x}", tokens[0])),
        "{oldest}"
    );
    for token in tokens {
        drop(set.redeem(token).unwrap());
    }
}
