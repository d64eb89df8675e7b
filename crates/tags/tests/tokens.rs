//! Tokens: what is accepted, what is refused, and why.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_tags::{AllocOptions, RedeemError, Tag, TagSet, Tenant};
use std::collections::HashSet;
use std::time::Duration;

const PLAIN: AllocOptions = AllocOptions::new();

fn set(depth: usize) -> (TagSet<u32>, Tenant<u32>) {
    let set = TagSet::builder().depth(depth).build(|_, _| 0).unwrap();
    let queue = set.add_tenant("q").unwrap();
    (set, queue)
}

fn submit(queue: &Tenant<u32>) -> u64 {
    queue.try_alloc().unwrap().into_token()
}

#[test]
fn a_token_is_redeemed_once() {
    let (set, dev) = set(4);
    let token = submit(&dev);
    let tag = set.redeem(token).unwrap();
    assert_eq!(
        set.redeem(token).unwrap_err(),
        RedeemError::NotInFlight {
            token: token.into()
        }
    );
    drop(tag);
    assert_eq!(
        set.redeem(token).unwrap_err(),
        RedeemError::Stale {
            token: token.into()
        }
    );
    // Every later use of the same slot has other tokens.
    let mut seen = HashSet::from([token]);
    for _ in 0..1000 {
        let again = submit(&dev);
        assert!(seen.insert(again));
        assert_eq!(
            set.redeem(token).unwrap_err(),
            RedeemError::Stale {
                token: token.into()
            }
        );
        drop(set.redeem(again).unwrap());
    }
}

#[test]
fn a_tag_that_is_submitted_again_gets_a_new_token() {
    let (set, dev) = set(1);
    let first = submit(&dev);
    let second = set.redeem(first).unwrap().into_token();
    assert_ne!(first, second);
    assert_eq!(
        set.redeem(first).unwrap_err(),
        RedeemError::Stale {
            token: first.into()
        }
    );
    assert!(set.redeem(second).is_ok());
}

#[test]
fn a_flipped_bit_is_refused() {
    let (set, dev) = set(100);
    let tokens: Vec<u64> = (0..100).map(|_| submit(&dev)).collect();
    for &token in &tokens {
        for bit in 0..64 {
            let damaged = token ^ (1 << bit);
            let error = set.redeem(damaged).unwrap_err();
            match bit {
                24..30 => {
                    assert!(matches!(error, RedeemError::Foreign { token } if token == damaged))
                }
                30.. => assert!(matches!(error, RedeemError::Stale { token } if token == damaged)),
                // Another slot, whose generation is another, or no slot.
                _ => assert!(matches!(
                    error,
                    RedeemError::Stale { .. } | RedeemError::OutOfRange { .. }
                )),
            }
        }
        for word in [0, u64::MAX, !token, token.swap_bytes(), token >> 1] {
            assert!(word == token || set.redeem(word).is_err());
        }
    }
    assert_eq!(set.in_flight(), 100);
    assert!(tokens.iter().all(|&token| set.redeem(token).is_ok()));
}

#[test]
fn a_slot_number_beyond_the_set_is_out_of_range() {
    let (set, dev) = set(4);
    let token = submit(&dev);
    let beyond = (token & !0xff_ffff) | 4;
    assert_eq!(
        set.redeem(beyond).unwrap_err(),
        RedeemError::OutOfRange {
            token: beyond.into()
        }
    );
    let beyond = token | 0xff_ffff;
    assert_eq!(
        set.redeem(beyond).unwrap_err(),
        RedeemError::OutOfRange {
            token: beyond.into()
        }
    );
    assert!(set.redeem(token).is_ok());
}

#[test]
fn the_generation_is_in_the_upper_34_bits() {
    let (set, dev) = set(2);
    let first = submit(&dev);
    let second = set.redeem(first).unwrap().into_token();
    let generation = |token: u64| token >> 30;
    let last = (1 << 34) - 2;
    let next = generation(first) % last + 1;
    assert_eq!(generation(second), next);
    assert_eq!(first & 0x3fff_ffff, second & 0x3fff_ffff);
    assert!(set.redeem(second).is_ok());
}

#[test]
fn start_generations_differ() {
    let (set, dev) = set(1000);
    let tokens: Vec<u64> = (0..1000).map(|_| submit(&dev)).collect();
    let generations: HashSet<u64> = tokens.iter().map(|token| token >> 30).collect();
    assert!(generations.len() > 990);
    assert!(tokens.iter().all(|&token| set.redeem(token).is_ok()));
}

/// What a late completion is told when the handler of the timeout has freed the tag: the same,
/// until the slot's next owner makes a token, tracks or frees its tag.
#[test]
fn a_late_completion_after_its_timeout_was_handled() {
    type NextUse = fn(Tag<u32>) -> Option<Result<u64, Tag<u32>>>;
    let next_uses: [NextUse; 3] = [
        |tag| Some(Ok(tag.into_token())),
        |mut tag| {
            tag.track();
            Some(Err(tag))
        },
        |tag| {
            drop(tag);
            None
        },
    ];
    for next_use in next_uses {
        let set = TagSet::builder().depth(1).build(|_, _| 0).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let token = submit(&dev);
        set.for_each_in_flight(|t| assert!(t.mark_timed_out()));
        let tail = token.into();
        let late = RedeemError::TimedOut { token: tail };
        let text = late.to_string();
        assert!(text.contains("gets or has had its tag"), "{text}");
        assert_eq!(set.redeem(token).unwrap_err(), late);
        drop(set.redeem_timed_out(token).unwrap());
        assert_eq!(set.redeem(token).unwrap_err(), late);
        let next = dev.try_alloc().unwrap();
        assert_eq!(set.redeem(token).unwrap_err(), late);
        assert_eq!(set.stats().late_completions, 3);
        let kept = next_use(next);
        let stale = RedeemError::Stale { token: tail };
        assert_eq!(set.redeem(token).unwrap_err(), stale);
        assert_eq!(set.stats().late_completions, 3);
        if let Some(Ok(in_flight)) = kept {
            drop(set.redeem(in_flight).unwrap());
        }
    }
}

#[test]
fn timeouts_go_to_exactly_one_side() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(8).clock(clock.clone());
    let set = set.build(|_, tag| tag as u32).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let early = submit(&dev);
    clock.advance(Duration::from_secs(2));
    let late = submit(&dev);
    let mut ages = Vec::new();
    set.for_each_in_flight(|t| {
        ages.push((t.token(), t.age()));
        if t.age() > Duration::from_secs(1) {
            assert!(t.mark_timed_out());
            assert!(!t.mark_timed_out(), "it is marked already");
        }
    });
    assert_eq!(ages.len(), 2);
    assert!(ages.contains(&(early, Duration::from_secs(2))));
    assert!(ages.contains(&(late, Duration::ZERO)));

    assert_eq!(
        set.redeem(early).unwrap_err(),
        RedeemError::TimedOut {
            token: early.into()
        }
    );
    let refused = set.redeem_timed_out(late).unwrap_err();
    assert_eq!(refused, RedeemError::NotTimedOut { token: late.into() });
    assert_eq!(
        set.in_flight(),
        2,
        "an overdue request is still with the device"
    );
    let tag = set.redeem_timed_out(early).unwrap();
    assert_eq!(set.in_flight(), 1);
    let twice = set.redeem_timed_out(early).unwrap_err();
    assert_eq!(
        twice,
        RedeemError::NotInFlight {
            token: early.into()
        }
    );
    assert_eq!(
        set.redeem(early).unwrap_err(),
        RedeemError::TimedOut {
            token: early.into()
        }
    );
    drop(tag);
    assert_eq!(
        set.redeem(early).unwrap_err(),
        RedeemError::TimedOut {
            token: early.into()
        }
    );
    assert_eq!(set.stats().late_completions, 3);
    // Until the slot is used again.
    let all: Vec<u64> = (0..7).map(|_| submit(&dev)).collect();
    assert_eq!(
        set.redeem(early).unwrap_err(),
        RedeemError::Stale {
            token: early.into()
        }
    );
    assert_eq!(set.stats().late_completions, 3);
    let gone = set.redeem_timed_out(early).unwrap_err();
    assert_eq!(
        gone,
        RedeemError::Stale {
            token: early.into()
        }
    );
    assert!(set.redeem(late).is_ok());
    assert!(all.iter().all(|&token| set.redeem(token).is_ok()));
}

#[test]
fn a_mark_that_comes_too_late_does_nothing() {
    let (set, dev) = set(1);
    let token = submit(&dev);
    set.for_each_in_flight(|t| {
        drop(set.redeem(token).unwrap());
        let next = submit(&dev);
        assert!(!t.mark_timed_out(), "the slot is in its next use");
        assert!(set.redeem(next).is_ok());
    });
    assert_eq!(set.in_use(), 0);
}

#[test]
fn the_handler_may_submit_again() {
    let (set, dev) = set(1);
    let first = submit(&dev);
    set.for_each_in_flight(|t| assert!(t.mark_timed_out()));
    let second = set.redeem_timed_out(first).unwrap().into_token();
    assert_eq!(
        set.redeem(first).unwrap_err(),
        RedeemError::Stale {
            token: first.into()
        }
    );
    assert!(set.redeem(second).is_ok());
}

#[test]
fn visits_show_what_is_in_flight_and_nothing_else() {
    let set = TagSet::builder().hw_queues(3).depth(20).reserved(4);
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let mut expected = HashSet::new();
    let mut held = Vec::new();
    for hwq in 0..3 {
        for i in 0..16 {
            let tag = dev.try_alloc_with(PLAIN.hw_queue(hwq)).unwrap();
            if i % 3 == 0 {
                let place = (tag.hw_queue(), tag.index());
                expected.insert((place, tag.into_token()));
            } else {
                held.push(tag);
            }
        }
        let tag = dev.try_alloc_with(PLAIN.reserved().hw_queue(hwq)).unwrap();
        let place = (tag.hw_queue(), tag.index());
        expected.insert((place, tag.into_token()));
    }
    let mut seen = HashSet::new();
    set.for_each_in_flight(|t| {
        assert!(seen.insert(((t.hw_queue(), t.index()), t.token())));
    });
    assert_eq!(seen, expected);
    assert_eq!(set.in_flight(), expected.len());
    assert_eq!(set.held(), held.len());
    assert!(expected.iter().all(|&(_, token)| set.redeem(token).is_ok()));
}

#[test]
fn of_many_threads_one_redeems() {
    let (set, dev) = set(4);
    for _ in 0..if cfg!(miri) { 5 } else { 500 } {
        let token = submit(&dev);
        let threads = [(); 4].map(|()| {
            let set = set.clone();
            thread::spawn(move || {
                set.redeem(token).map(|mut tag| *tag += 1).map_err(|error| {
                    assert!(matches!(
                        error,
                        RedeemError::NotInFlight { .. } | RedeemError::Stale { .. }
                    ));
                })
            })
        });
        let won = threads
            .map(|t| t.join().unwrap())
            .iter()
            .filter(|r| r.is_ok())
            .count();
        assert_eq!(won, 1);
    }
    assert_eq!(set.in_use(), 0);
}
