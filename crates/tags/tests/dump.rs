//! A set as text: who holds what.
#![cfg(not(any(loom, shuttle)))]

use inflight_tags::{AllocError, AllocOptions, Clock, Engine, FreezeError, TagSet};
use std::future::Future as _;
use std::task::{Context, Waker};
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

/// A tag that a waiter was given and has not taken is nobody's tag, but no other caller gets it.
#[test]
fn a_future_that_is_kept_and_not_polled() {
    let set = TagSet::builder().depth(2).reserved(1).build(|_, _| ());
    let set = set.unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let reserved = AllocOptions::new().reserved();
    let held = (
        dev.try_alloc().unwrap(),
        dev.try_alloc_with(reserved).unwrap(),
    );
    let mut kept = (Box::pin(dev.alloc()), Box::pin(dev.alloc_with(reserved)));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(kept.0.as_mut().poll(cx).is_pending() && kept.1.as_mut().poll(cx).is_pending());
    drop(held);
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Exhausted);
    let expected = "tag set: 1 hardware queue(s), 2 tags each, 0 in use\n\
                    waiters of hw_queue 0 reserved: 1 granted and not taken, 0 collected\n\
                    waiters of hw_queue 0: 1 granted and not taken, 0 collected\n";
    assert_eq!(set.dump(), expected);
    drop(kept);
    assert_eq!(set.dump().lines().count(), 1, "{}", set.dump());
}

/// A join that has some of its tags.
#[test]
fn tags_that_a_waiter_for_several_has() {
    let set = TagSet::builder().depth(4).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let mut held = dev.try_alloc_batch(4);
    let mut split = dev.split(3);
    let mut join = Box::pin(split.join());
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(join.as_mut().poll(cx).is_pending());
    held.truncate(2);
    let dump = set.dump();
    let line = "\nwaiters of hw_queue 0: 0 granted and not taken, 2 collected\n";
    assert!(dump.contains(line), "{dump}");
}

/// A split that had its tags, and is not asked for them.
#[test]
fn tags_that_a_split_keeps_for_its_next_pieces() {
    for engine in [Engine::Auto, Engine::Shared] {
        let set = TagSet::builder().hw_queues(2).depth(4).reserved(1);
        let set = set.engine(engine).build(|_, _| ()).unwrap();
        let dev = set.add_tenant("nvme0n1").unwrap();
        let mut split = dev.split_with(3, AllocOptions::new().hw_queue(1));
        drop(split.next_blocking().unwrap());
        assert_eq!(set.in_use(), 0);
        assert_eq!(set.try_freeze().unwrap_err(), FreezeError::InUse);
        let expected = "tag set: 2 hardware queue(s), 4 tags each, 0 in use\n\
                        waiters of hw_queue 1: 0 granted and not taken, 2 collected\n";
        assert_eq!(set.dump(), expected, "{engine:?}");
        let tag = split.next_blocking().unwrap();
        assert!(set.dump().contains(" 1 collected\n"), "{}", set.dump());
        drop((split, tag));
        assert_eq!(set.dump().lines().count(), 1, "{}", set.dump());
        assert!(set.try_freeze().is_ok());
    }
}

/// Nobody writes lines of his own into the dump, or moves the cursor of the terminal.
#[test]
fn names_are_parts_of_lines() {
    let set = TagSet::builder().depth(4).build(|_, _| ()).unwrap();
    let odd = set
        .add_tenant("a\n(gone): 9 in use\u{1b}[31m\u{e9}")
        .unwrap();
    let long = set.add_tenant("\u{65e5}".repeat(257)).unwrap();
    let _held = (odd.try_alloc().unwrap(), long.try_alloc().unwrap());
    let dump = set.dump();
    assert_eq!(dump.lines().count(), 5, "{dump}");
    assert!(!dump.replace('\n', "").contains(char::is_control), "{dump}");
    let name = r"a\n(gone): 9 in use\u{1b}[31mé";
    assert!(
        dump.contains(&format!("\ntenant {name}: 1 in use\n")),
        "{dump}"
    );
    let name = "日".repeat(256);
    assert!(
        dump.contains(&format!("\ntenant {name}...: 1 in use\n")),
        "{dump}"
    );
}

/// However many bitmaps have tags that were given and not taken.
#[test]
fn the_lines_of_waiters_are_bounded() {
    let set = TagSet::builder().hw_queues(40).depth(1).build(|_, _| ());
    let set = set.unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let at = |hwq| AllocOptions::new().hw_queue(hwq);
    let held: Vec<_> = (0..40)
        .map(|hwq| dev.try_alloc_with(at(hwq)).unwrap())
        .collect();
    let mut kept: Vec<_> = (0..40)
        .map(|hwq| Box::pin(dev.alloc_with(at(hwq))))
        .collect();
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(
        kept.iter_mut()
            .all(|get| get.as_mut().poll(cx).is_pending())
    );
    drop(held);
    let dump = set.dump();
    assert_eq!(dump.matches("\nwaiters of hw_queue").count(), 32, "{dump}");
    assert!(
        dump.ends_with("\nand 8 more with granted or collected tags\n"),
        "{dump}"
    );
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
