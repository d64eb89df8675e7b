//! How long a turn lasts, and how many ids it has.
//!
//! Somebody waits for ever, so only a turn takes an id without waiting.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/turn_rig.rs"]
mod turn_rig;

use inflight_sbitmap::tenancy::{Request, Tenancy, Waiter};
use inflight_sbitmap::{Engine, SbitmapQueue};
use inflight_sync::{Arc, thread};
use std::pin::pin;
use std::task::Poll;
use turn_rig::{Stop, in_turns, poll, wait_for_waiters};

const ENGINES: [Engine; 2] = [Engine::Shared, Engine::Local];
/// Ids of a turn, with the one that it begins with: `QUANTUM` in `src/turns/turn.rs`.
const IDS: usize = 13;
/// Grants after which it is over: `TURN_LIFE` in `src/turns/turn.rs`.
const GRANTS: usize = 11;

/// A queue of so many free ids, and somebody who waits for one that he may not have.
fn held_up(depth: usize, engine: Engine) -> (Arc<SbitmapQueue>, Waiter) {
    let queue = Arc::new(in_turns(depth, engine));
    let mut never = queue.waiter(Request::one(1));
    let asked = std::future::poll_fn(|cx| never.poll_one(&queue, cx));
    assert!(poll(pin!(asked)).is_pending());
    assert_eq!(queue.try_get(), None, "somebody waits, and this is no turn");
    (queue, never)
}

/// So many grants to a task.
fn grant(queue: &SbitmapQueue, times: usize) {
    for _ in 0..times {
        let Poll::Ready(bit) = poll(pin!(queue.get())) else {
            panic!("this tenant may have some")
        };
        queue.put(bit.unwrap()).unwrap();
    }
}

#[test]
fn a_turn_has_so_many_ids() {
    for engine in ENGINES {
        let (queue, mut never) = held_up(16, engine);
        let first = queue.get_blocking().unwrap();
        let more: Vec<_> = std::iter::from_fn(|| queue.try_get()).collect();
        assert_eq!(more.len(), IDS - 1, "{engine:?}");
        assert_eq!(queue.weight(), IDS);
        queue.put(first).unwrap();
        assert_eq!(queue.try_get(), None, "it is used up");
        never.leave(&queue);
    }
}

/// Each grant moves the end nearer, and no take moves it away.
#[test]
fn a_turn_is_over_after_so_many_grants() {
    for engine in ENGINES {
        let (queue, mut never) = held_up(16, engine);
        queue.get_blocking().unwrap();
        grant(&queue, GRANTS - 1);
        let passed = queue.try_get();
        assert!(passed.is_some(), "{engine:?}: the turn is not over yet");
        grant(&queue, 1);
        assert_eq!(queue.try_get(), None, "{engine:?}: it is");
        never.leave(&queue);
    }
}

/// Who has no more luck in its turn waits at the front: with a new serial, and the ids that are
/// left.
#[test]
fn a_turn_that_goes_on_from_the_front_has_no_more_ids() {
    for engine in ENGINES {
        let (queue, mut never) = held_up(4, engine);
        let mut bits: Vec<_> = (0..4).map(|_| queue.get_blocking().unwrap()).collect();
        let mut got = bits.len();
        while got < IDS {
            // All are out: the next one is waited for.
            let putter = thread::spawn({
                let (queue, bit) = (queue.clone(), bits.remove(0));
                move || {
                    wait_for_waiters(&queue, 2);
                    queue.put(bit).unwrap();
                }
            });
            bits.push(queue.get_blocking().unwrap());
            putter.join().unwrap();
            got += 1;
        }
        queue.put(bits.pop().unwrap()).unwrap();
        assert_eq!(queue.try_get(), None, "{engine:?}: it has had its ids");
        never.leave(&queue);
    }
}

/// A turn begins with its grant, not when its thread runs.
#[test]
fn a_thread_that_comes_late_has_no_turn() {
    for engine in ENGINES {
        for late in [GRANTS - 1, GRANTS] {
            let (queue, mut never) = held_up(4, engine);
            let bits: Vec<_> = (0..4).map(|_| queue.try_get_past(0, false)).collect();
            let stop = Arc::new(Stop::default());
            let stopped = stop.spawn({
                let queue = queue.clone();
                move || {
                    queue.get_blocking().unwrap();
                    queue.try_get().is_some()
                }
            });
            stop.wait_until_asleep();
            for bit in bits {
                queue.put(bit.unwrap()).unwrap();
            }
            stop.wait_until_reached();
            grant(&queue, late);
            stop.go_on();
            let passed = stopped.join().unwrap();
            assert_eq!(passed, late < GRANTS, "{engine:?}: {late} grants later");
            never.leave(&queue);
        }
    }
}

#[test]
fn no_turn_outlives_a_close() {
    for engine in ENGINES {
        let (queue, mut never) = held_up(4, engine);
        queue.get_blocking().unwrap();
        queue.close();
        assert_eq!(queue.try_get(), None, "{engine:?}");
        never.leave(&queue);
    }
}
