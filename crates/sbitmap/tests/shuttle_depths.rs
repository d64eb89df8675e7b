//! Random schedules of a depth that moves, and of bits that are taken in every way: one by one,
//! several together, as masks, in batches, shallow.
//!
//! A get that begins after a shrink has returned is below it; a wait for more than the depth is
//! told; bits above the depth stay with their owners, and vanish; what growth makes is had.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sbitmap::{GetManyError, PutError};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, block_on, thread};
use shuttle_support::{Mode, Owned, SECOND, Threads, check, get_task, poll_with, waker};

/// The depth as one thread changes it: its serial, odd while a change is under way.
#[derive(Default)]
struct Depth {
    serial: AtomicUsize,
    depth: AtomicUsize,
}

impl Depth {
    fn new(depth: usize) -> Arc<Self> {
        let known = Self::default();
        known.depth.store(depth, Ordering::Relaxed);
        Arc::new(known)
    }

    fn resize(&self, owned: &Owned, depth: usize) {
        self.serial.fetch_add(1, Ordering::Relaxed);
        owned.resize(depth);
        self.depth.store(owned.real_depth(depth), Ordering::Relaxed);
        self.serial.fetch_add(1, Ordering::Relaxed);
    }

    /// Bits that were taken while the depth did not change are below it.
    fn taken(&self, get: impl FnOnce() -> Vec<usize>) -> Vec<usize> {
        let (serial, depth) = (
            self.serial.load(Ordering::Relaxed),
            self.depth.load(Ordering::Relaxed),
        );
        let bits = get();
        if serial % 2 == 0 && self.serial.load(Ordering::Relaxed) == serial {
            assert!(bits.iter().all(|&bit| bit < depth), "{bits:?} of {depth}");
        }
        bits
    }
}

/// What one call takes without waiting, by the number of the call.
fn try_any(owned: &Owned, n: usize) -> Vec<usize> {
    let queue = &owned.queue;
    let mut bits = Vec::new();
    match n % 5 {
        0 => bits.extend(queue.try_get()),
        1 => assert_eq!(queue.try_get_batch(3, &mut bits), bits.len()),
        2 => bits.extend(
            queue
                .try_get_mask(2)
                .into_iter()
                .flat_map(|mask| mask.iter()),
        ),
        3 => bits.extend(queue.try_get_shallow(2)),
        _ => match queue.try_get_many(2) {
            Ok(two) => bits = two,
            Err(GetManyError::Exhausted { .. } | GetManyError::TooMany { .. }) => {}
            Err(error) => panic!("{error}"),
        },
    }
    bits
}

/// The depth goes up and down while waits of each form and tries of each kind go on. Two always
/// can be had.
fn depth_moves(mode: Mode) {
    let owned = Owned::new(3, 5, mode);
    let depth = Depth::new(owned.real_depth(3));
    let mut threads = Threads::default();
    let changed = depth.clone();
    threads.on(&owned, move |o| {
        for to in [5, 2, 4, 2, 3] {
            changed.resize(o, to);
            let bits = changed.taken(|| o.queue.try_get().into_iter().collect());
            o.use_and_put(&bits);
        }
    });
    for n in 0..2 {
        let depth = depth.clone();
        threads.on(&owned, move |o| {
            for round in 0..5 {
                let bits = depth.taken(|| try_any(o, n * 2 + round));
                o.use_and_put(&bits);
            }
        });
    }
    let known = depth.clone();
    threads.on(&owned, move |o| {
        for _ in 0..3 {
            let bits = known.taken(|| vec![o.queue.get_blocking().unwrap()]);
            o.use_and_put(&bits);
            let bits = known.taken(|| vec![block_on(o.queue.get()).unwrap()]);
            o.use_and_put(&bits);
        }
    });
    threads.on(&owned, move |o| {
        for _ in 0..3 {
            let bits = depth.taken(|| o.queue.get_many_blocking(2).unwrap());
            o.use_and_put(&bits);
            let bits = depth.taken(|| o.queue.get_timeout(SECOND).into_iter().collect());
            o.use_and_put(&bits);
        }
    });
    threads.join_ticking(&owned.clock, SECOND / 4);
    owned.assert_all_back();
}

/// Waiters for more than there is are told, those for less are not; growth feeds who waits, though
/// nobody puts.
fn waits_meet_resizes(mode: Mode) {
    let (owned, held) = Owned::taken(2, 5, mode);
    let mut threads = Threads::default();
    // Three keep one each; the depth ends at five, two of which are held until the end.
    threads
        .on(&owned, |o| o.claim(&[o.queue.get_blocking().unwrap()]))
        .on(&owned, |o| o.claim(&[block_on(o.queue.get()).unwrap()]))
        .on(&owned, |o| {
            o.claim(&[o.queue.id_blocking().unwrap().into_id()])
        })
        .on(&owned, |o| {
            // Five cannot be had before they go.
            match o.queue.get_many_timeout(o.real_depth(5), SECOND) {
                Err(GetManyError::TimedOut) => {}
                Err(GetManyError::TooMany { .. }) => {}
                result => panic!("{result:?}"),
            }
        })
        .on(&owned, |o| {
            for to in [3, 1, 4, 5] {
                o.resize(to);
                thread::yield_now();
            }
        });
    threads.join_ticking(&owned.clock, SECOND);
    owned.assert_at_rest(5);
    // Above the depth: they vanish, once.
    owned.resize(1);
    owned.assert_at_rest(5);
    let all = owned.held();
    owned.put(&all);
    for &bit in &held {
        assert_eq!(owned.queue.put(bit), Err(PutError::NotAllocated { bit }));
    }
    owned.assert_at_rest(0);
    owned.resize(5);
    owned.assert_all_back();
}

/// A waiter for as many as there are meets a shrink by others, and nobody is left half-fed: it has
/// all or is told, and who waits behind it goes on.
fn collectors_meet_shrinks(mode: Mode) {
    let (owned, held) = Owned::taken(3, 3, mode);
    let mut threads = Threads::default();
    for all in [3, 2] {
        threads.on(&owned, move |o| {
            // Of the local engine's ids some stay out: what it refuses is above all of them.
            let n = if all == 3 { o.real_depth(3) } else { 2 };
            match block_on(o.queue.get_many(n)) {
                Ok(bits) => o.use_and_put(&bits),
                Err(GetManyError::TooMany { .. }) => assert_eq!(all, 3),
                Err(error) => panic!("{error}"),
            }
        });
    }
    threads
        .on(&owned, |o| {
            o.use_and_put(&[o.queue.get_blocking().unwrap()])
        })
        .on(&owned, |o| {
            o.use_and_put(&[block_on(o.queue.get()).unwrap()])
        })
        .on(&owned, move |o| {
            o.put(&held[1..]);
            o.put(&held[..1]);
        })
        .on(&owned, |o| {
            o.resize(2);
            thread::yield_now();
            o.resize(3);
            thread::yield_now();
            // For good: nobody waits for three any more.
            o.resize(2);
        });
    threads.join();
    owned.assert_all_back();
}

/// Masks and batches against single waiters, each of whom keeps its bit: what comes back in one
/// step serves all it can.
fn batches_serve_single_waiters(mode: Mode) {
    let owned = Owned::new(6, 6, mode);
    // None where bits are handed out round robin.
    let masks: Vec<_> = (0..2).filter_map(|_| owned.queue.try_get_mask(2)).collect();
    let mut left: Vec<_> = Vec::new();
    left.extend(std::iter::from_fn(|| owned.queue.try_get()));
    owned.claim(&left);
    for mask in &masks {
        owned.claim(&mask.iter().collect::<Vec<_>>());
    }
    let mut threads = Threads::default();
    for _ in 0..2 {
        threads
            .on(&owned, |o| o.claim(&[o.queue.get_blocking().unwrap()]))
            .on(&owned, |o| o.claim(&[block_on(o.queue.get()).unwrap()]));
    }
    threads.on(&owned, |o| o.claim(&o.queue.get_many_blocking(2).unwrap()));
    threads.on(&owned, move |o| {
        for mask in masks {
            o.put_mask(mask);
        }
    });
    threads.on(&owned, move |o| o.put(&left));
    threads.on(&owned, |o| {
        let mut bits = Vec::new();
        o.queue.try_get_batch(2, &mut bits);
        o.use_and_put(&bits);
        if let Some(mask) = o.queue.try_get_mask(3) {
            o.use_and_put_mask(mask);
        }
    });
    threads.join();
    owned.assert_at_rest(6);
    owned.put_held();
    owned.assert_all_back();
}

/// Batches of wakes: sixteen bits make batches of two. All come back in the end, in pieces.
fn batches_of_wakes(mode: Mode) {
    let (owned, held) = Owned::taken(16, 17, mode);
    let leaving = get_task(&owned);
    let mut threads = Threads::default();
    for n in 0..3 {
        threads.on(&owned, move |o| {
            let bits = if n == 0 {
                block_on(o.queue.get_many(3)).unwrap()
            } else {
                vec![o.queue.get_blocking().unwrap()]
            };
            o.use_and_put(&bits);
        });
    }
    threads.spawn(move || {
        let mut leaving = leaving;
        let bits = poll_with(&mut leaving, &waker(|| ()));
        drop(leaving);
        drop(bits);
    });
    threads
        .on(&owned, |o| o.queue.set_least_share(Some(8)))
        .on(&owned, |o| {
            o.resize(8);
            o.resize(17);
        });
    let (some, rest) = (held[..5].to_vec(), held[5..].to_vec());
    threads
        .on(&owned, move |o| some.iter().for_each(|&bit| o.put(&[bit])))
        .on(&owned, move |o| rest.chunks(3).for_each(|bits| o.put(bits)));
    threads.join();
    // Where the task that left had a bit by its only poll, it is lost with it.
    let all = owned.queue.weight();
    assert!(all <= 1, "{all}");
    if all == 0 {
        owned.assert_all_back();
    }
}

#[test]
fn a_depth_that_moves() {
    check("a_depth_that_moves", depth_moves);
}

#[test]
fn waits_and_resizes() {
    check("waits_and_resizes", waits_meet_resizes);
}

#[test]
fn collectors_and_shrinks() {
    check("collectors_and_shrinks", collectors_meet_shrinks);
}

#[test]
fn batches_and_single_waiters() {
    check("batches_and_single_waiters", batches_serve_single_waiters);
}

#[test]
fn batches_of_wakes_and_pieces() {
    check("batches_of_wakes_and_pieces", batches_of_wakes);
}
