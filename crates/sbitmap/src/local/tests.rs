use super::stack_limits::LARGEST_CAP;
use super::{PerCpuStore, StoreConfig};
use crate::double_free::Check;
use crate::error::PutError;
use crate::layout::Layout;
use crate::mask::BitMask;
use crate::rules::Users;
use crate::store::Store;
use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use inflight_sync::percpu::Backend;
use inflight_sync::{Arc, cpu, thread};
use std::collections::BTreeSet;

impl PerCpuStore {
    fn is_locked(&self) -> bool {
        self.mode.load().is_locked()
    }

    /// How often the stacks were closed and emptied.
    fn freezes(&self) -> u32 {
        self.slow.freezes.load(Ordering::Relaxed)
    }

    /// Gets and puts so many ids, one at a time.
    fn pairs(&self, n: u32) {
        for _ in 0..n {
            let id = self.get().unwrap();
            self.put_id(id).unwrap();
        }
    }
}

fn store_with(depth: usize, max_depth: usize, check: Check, config: StoreConfig) -> PerCpuStore {
    let shift = PerCpuStore::shift(Layout::new(depth, max_depth, None).shift);
    PerCpuStore::new(
        Layout::new(max_depth, max_depth, Some(shift)),
        depth,
        check,
        config,
        cpu::usable(),
    )
}

fn store_of(depth: usize, max_depth: usize, check: Check) -> PerCpuStore {
    let config = StoreConfig::of(depth, Users::all());
    store_with(depth, max_depth, check, config)
}

fn store(depth: usize) -> PerCpuStore {
    store_of(depth, depth, Check::Sequential)
}

/// Both ways to protect a stack, one that alternates between them, and depths with and without
/// stacks.
fn every_kind(depths: &[usize], test: impl Fn(PerCpuStore)) {
    for &depth in depths {
        let best = StoreConfig::of(depth, Users::all());
        let restless = StoreConfig {
            unlock_after: best.unlock_after.map(|_| 3),
            ..best
        };
        for config in [
            best,
            restless,
            StoreConfig::on(Backend::TryLock, depth, Users::all()),
        ] {
            test(store_with(depth, depth, Check::Sequential, config));
        }
    }
}

const DEPTHS: &[usize] = if cfg!(miri) {
    &[1, 3, 31, 70]
} else {
    &[1, 2, 3, 7, 31, 64, 257, 2_500]
};

#[test]
fn every_id_is_handed_out_once_and_none_is_exact() {
    every_kind(DEPTHS, |store| {
        let depth = store.depth();
        for _ in 0..3 {
            let ids: BTreeSet<usize> = std::iter::from_fn(|| store.get()).collect();
            assert_eq!(ids, (0..depth).collect());
            assert_eq!(store.get(), None);
            // The word that an id is put into says that all others are out.
            for &id in &ids {
                assert_eq!(store.put_id(id), Ok(false));
                assert_eq!(store.get(), Some(id), "the only free id of {depth}");
                assert_eq!(store.put_id(id), Ok(false));
                assert!(store.get().is_some());
            }
            ids.iter().for_each(|&id| {
                let _again = store.put_id(id);
            });
            assert_eq!(store.weight(), 0);
            store.thaw();
        }
    });
}

#[test]
fn a_second_put_is_an_error_wherever_the_id_is() {
    every_kind(DEPTHS, |store| {
        assert_eq!(store.put_id(0), Err(PutError::NotAllocated { bit: 0 }));
        let bit = store.depth();
        assert_eq!(store.put_id(bit), Err(PutError::OutOfRange { bit }));
        for freeze in [false, true] {
            let id = store.get().unwrap();
            store.put_id(id).unwrap();
            if freeze {
                store.freeze();
            }
            let twice = Err(PutError::NotAllocated { bit: id });
            assert_eq!(store.put_id(id), twice.map(|()| false));
            assert_eq!(store.put_batch(&[id]).2, twice);
        }
        assert_eq!(store.weight(), 0);
    });
}

#[test]
fn trusted_keeps_no_state_and_racing_tells_one_of_two() {
    let trusted = store_of(64, 64, Check::Trusted);
    let id = trusted.get().unwrap();
    assert_eq!(trusted.put_id(id), Ok(false));

    let checked = Arc::new(store_of(64, 64, Check::Racing));
    for _ in 0..if cfg!(miri) { 10 } else { 500 } {
        let id = checked.get().unwrap();
        let other = thread::spawn({
            let checked = checked.clone();
            move || checked.put_id(id).is_ok()
        });
        let here = checked.put_id(id).is_ok();
        assert!(
            here ^ other.join().unwrap(),
            "one of two puts is the owner's"
        );
    }
    assert_eq!(checked.weight(), 0);
}

#[test]
fn batches_and_masks_cover_all_ids() {
    every_kind(DEPTHS, |store| {
        let depth = store.depth();
        let mut ids = Vec::new();
        assert_eq!(store.try_get_batch(depth + 5, &mut ids), depth);
        assert_eq!(store.try_get_mask(3).some(), None);
        ids.push(depth);
        let (freed, wait, result) = store.put_batch(&ids);
        assert_eq!((freed, wait), (depth, false));
        assert_eq!(result, Err(PutError::OutOfRange { bit: depth }));

        let mut masks = Vec::new();
        while let Some(mask) = store.try_get_mask(8).some() {
            assert!(mask.count() <= 8 && mask.mask & 1 == 1);
            masks.push(mask);
        }
        let seen: BTreeSet<usize> = masks.iter().flat_map(|m| m.iter()).collect();
        assert_eq!(seen.len(), depth);
        for mask in masks {
            assert_eq!(store.put_mask(mask).0, mask.count());
            let bit = mask.first;
            assert_eq!(store.put_mask(mask).2, Err(PutError::NotAllocated { bit }));
        }
        assert_eq!(store.next_set(0), None);
    });
}

#[test]
fn ids_in_use_are_counted_found_and_visited_also_with_ids_in_stacks() {
    every_kind(&[64, 257], |store| {
        let mut ids: Vec<usize> = std::iter::from_fn(|| store.get()).take(40).collect();
        store.put_id(ids.pop().unwrap()).unwrap();
        assert_eq!(store.weight(), ids.len());
        assert!(ids.iter().all(|&id| store.is_set(id)));
        let first = ids.iter().filter(|&&id| id >= ids[5]).min();
        assert_eq!(store.next_set(ids[5]), first.copied());
        let last = ids.iter().max().unwrap();
        assert_eq!(store.next_set(last + 1), None);
        let mut seen = Vec::new();
        store.for_each_set(ids[5], &mut |id| {
            seen.push(id);
            true
        });
        assert_eq!(seen[0], ids[5]);
        seen.sort_unstable();
        ids.sort_unstable();
        assert_eq!(seen, ids);
        assert_eq!(store.snapshot().busy, ids.len());
    });
}

#[test]
fn shallow_users_reach_their_share_only() {
    every_kind(&[64], |store| {
        let mut low: Vec<usize> = std::iter::from_fn(|| store.try_get_shallow(8)).collect();
        low.sort_unstable();
        assert_eq!(low, [0, 1, 16, 17, 32, 33, 48, 49]);
        assert!(store.get().is_some());
    });
}

/// The limits of stacks follow the depth and the CPUs that use it; a store that begins without
/// stacks for lack of ids gets them when it grows.
#[test]
fn stacks_follow_the_depth_and_the_users() {
    let of = |depth, count| {
        let users = Users {
            count,
            ..Users::all()
        };
        store_with(
            depth,
            4_096,
            Check::Sequential,
            StoreConfig::of(depth, users),
        )
    };
    assert_eq!(of(64, 1).cap(), 32);
    assert_eq!(of(64, 16).cap(), 2);
    assert_eq!(of(4_096, 64).cap(), 32);
    let store = of(1, 64);
    assert!(store.is_drained(), "no stack for one id");
    store.pairs(1_000);
    assert!(store.is_drained(), "still");
    let start = store.freezes();
    store.resize(4_096).unwrap();
    store.set_users(4);
    assert_eq!(store.cap(), LARGEST_CAP as u32);
    store.pairs(1_000);
    assert!(!store.is_drained(), "it has stacks by now");
    store.set_users(4_096);
    assert_eq!(store.cap(), 2);
    store.resize(1).unwrap();
    store.pairs(1_000);
    assert!(store.is_drained(), "none again");
    assert!(store.freezes() <= start + 3, "and nobody freezes it anew");
}

/// Of 64 stacks a freeze closes and empties those that were used since the last one.
#[test]
fn a_freeze_takes_the_stacks_that_were_used() {
    let users = Users { count: 64, of: 64 };
    let config = StoreConfig::on(Backend::TryLock, 4_096, users);
    let store = store_with(4_096, 4_096, Check::Sequential, config);
    let closed = |cpus: &[usize]| {
        store.thaw();
        for &cpu in cpus {
            cpu::set_current_for_thread(Some(cpu));
            store.pairs(1);
        }
        let open: Vec<usize> = (0..64).filter(|&i| store.stacks.is_open(i)).collect();
        assert_eq!(open, cpus);
        store.freeze();
        assert_eq!(store.weight(), 0);
        store.slow.closed.load(Ordering::Relaxed)
    };
    assert_eq!(closed(&[0, 7, 63]), 3);
    assert_eq!(closed(&[8]), 1);
    assert_eq!(closed(&[]), 0);
    assert_eq!(closed(&Vec::from_iter(0..64)), 64);
    cpu::set_current_for_thread(None);
}

#[test]
fn while_somebody_waits_getters_are_refused_and_puts_tell() {
    every_kind(&[64], |store| {
        let id = store.get().unwrap();
        store.set_waiters(2);
        fence(Ordering::SeqCst);
        store.drain_percpu();
        assert!(store.is_drained());
        assert_eq!(store.get(), None);
        assert_eq!(store.try_get_mask(2).some(), None);
        assert_eq!(store.try_get_shallow(60), None);
        assert_eq!(store.put_id(id), Ok(true));
        store.thaw();
        assert!(store.is_drained(), "no thaw while somebody waits");
        assert_eq!(store.waiters(), 2);
        assert!(store.take().is_some());
        store.set_waiters(0);
        assert!(store.get().is_some());
    });
}

#[test]
fn plenty_thaws_and_the_stacks_come_back() {
    let store = store(64);
    let start = store.freezes();
    store.freeze();
    store.pairs(1_000);
    assert!(!store.is_drained(), "thawed by 1000 puts");
    assert_eq!(store.freezes(), start + 1);
}

/// After a shortage stacks come back as soon as possible, with locks, and without locks once ids
/// were plentiful for a while. Reading the state is no shortage.
#[test]
fn stacks_are_locked_while_ids_may_be_short() {
    let store = store(64);
    assert_eq!(store.weight(), 0);
    assert!(!store.is_locked());
    if store.backend() == Backend::TryLock {
        return; // only locks are available
    }
    let start = store.freezes();
    store.pairs(10 * 32);
    assert!(!store.is_drained() && !store.is_locked());
    store.freeze();
    assert!(store.is_drained() && store.is_locked());
    store.pairs(2 * 32);
    assert!(
        !store.is_drained() && store.is_locked(),
        "one tick is enough"
    );
    assert_eq!(store.weight(), 0);
    assert!(store.is_locked(), "as it was");
    // Each CPU counts separately, and the thread may move.
    let moves = 10 * cpu::possible() as u32;
    for _ in 0..moves {
        store.pairs(super::UNLOCK_AFTER);
        if !store.is_locked() {
            break;
        }
    }
    assert!(
        !store.is_drained() && !store.is_locked(),
        "sections are let in"
    );
    assert_eq!(store.freezes(), start + 3);
    store.pairs(10);
    assert_eq!(store.weight(), 0, "nothing was left behind");
}

/// Threads that hold at most their share are never told "none", and no id has two owners, while a
/// thread freezes all the time.
#[test]
fn shares_that_fit_are_always_granted() {
    const THREADS: usize = 3;
    let rounds = if cfg!(miri) { 40 } else { 30_000 };
    every_kind(&[3, 12, 64, 300], |store| {
        let depth = store.depth();
        let store = Arc::new(store);
        let owners: Arc<Vec<AtomicBool>> = Arc::new((0..depth).map(|_| false.into()).collect());
        let done = Arc::new(AtomicUsize::new(0));
        let users: Vec<_> = (0..THREADS)
            .map(|t| {
                let (store, owners, done) = (store.clone(), owners.clone(), done.clone());
                thread::spawn(move || {
                    let mut random = fastrand::Rng::with_seed(t as u64);
                    let mut held = Vec::new();
                    for _ in 0..rounds {
                        if held.len() < depth / THREADS && (held.is_empty() || random.bool()) {
                            let id = store.get().expect("within the share");
                            assert!(!owners[id].swap(true, Ordering::Relaxed), "two owners");
                            held.push(id);
                        } else {
                            let id = held.swap_remove(random.usize(..held.len()));
                            owners[id].store(false, Ordering::Relaxed);
                            assert_eq!(store.put_id(id), Ok(false));
                        }
                    }
                    for id in held {
                        owners[id].store(false, Ordering::Relaxed);
                        store.put_id(id).unwrap();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        while done.load(Ordering::Relaxed) < THREADS {
            store.freeze();
            thread::yield_now();
            store.thaw();
            thread::yield_now();
            if users
                .iter()
                .all(inflight_sync::thread::JoinHandle::is_finished)
            {
                break;
            }
        }
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!(store.weight(), 0);
    });
}

/// The ids of a mask may be put in any parts and in any way, each id once.
#[test]
fn a_mask_is_put_in_any_parts_and_each_id_once() {
    every_kind(&[64, 257], |store| {
        let mut random = fastrand::Rng::with_seed(7);
        let mut held: Vec<BitMask> = Vec::new();
        for _ in 0..if cfg!(miri) { 60 } else { 3_000 } {
            if held.is_empty() || random.bool() {
                held.extend(store.try_get_mask(random.usize(1..=20)).some());
            } else {
                let all = held.swap_remove(random.usize(..held.len()));
                let part = match random.u8(..4) {
                    0 => all.mask,
                    _ => all.mask & random.u64(..),
                };
                let [put, kept] = [part, all.mask & !part].map(|mask| BitMask { mask, ..all });
                let result = match random.u8(..3) {
                    0 => put.iter().try_for_each(|id| store.put(id).map(|_| ())),
                    1 => store.put_batch(&put.iter().collect::<Vec<_>>()).2,
                    _ => store.put_mask(put).2,
                };
                assert_eq!(result, Ok(()), "{put:?} of {all:?}");
                assert_eq!(store.put_mask(put).0, 0, "{put:?} of {all:?}, again");
                held.extend(Some(kept).filter(|kept| kept.mask != 0));
            }
            assert_eq!(store.weight(), held.iter().map(|ids| ids.count()).sum());
            store.thaw();
        }
    });
}

/// H21. A get pops an id that is above the depth as it read it. If that has grown meanwhile, the id
/// must not come into the words behind the back of who waits: the get has it.
#[test]
fn h21_a_late_get_keeps_an_id_that_is_below_the_depth_by_now() {
    for check in [Check::Sequential, Check::Racing] {
        let store = store_of(64, 64, check);
        let popped = std::iter::from_fn(|| store.take()).last().expect("many");
        store.set_waiters(1);
        assert_eq!(store.get_slow(Some(popped as u32), 0), Some(popped));
        // It has not grown.
        store.resize(popped).unwrap();
        assert_eq!(store.get_slow(Some(popped as u32), 0), None);
        store.resize(64).unwrap();
        assert_eq!((store.take(), store.take()), (Some(popped), None));
    }
}
