use super::{Backend, CAPACITY, Stacks};
use crate::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::{Arc, thread};

/// So many that a thread has a stack on whichever CPU it runs; Miri is slow to open and close all.
const CPUS: usize = if cfg!(miri) { 16 } else { 1_024 };

fn both(test: impl Fn(Backend)) {
    test(Backend::TryLock);
    test(Backend::best());
}

/// Opens every stack, because the test's thread may move.
fn open_all(stacks: &Stacks, limit: u32) {
    (0..stacks.len()).for_each(|i| stacks.open(i, limit));
}

fn collect(stacks: &Stacks) -> Vec<u32> {
    let mut found = Vec::new();
    (0..stacks.len()).for_each(|i| stacks.close(i));
    stacks.barrier();
    (0..stacks.len()).for_each(|i| stacks.drain(i, |id| found.push(id)));
    found.sort_unstable();
    found
}

#[test]
fn limits_are_kept_and_every_id_comes_back() {
    both(|backend| {
        let stacks = Stacks::new(backend, CPUS);
        open_all(&stacks, 1_000);
        let kept: Vec<u32> = (0..2_000).filter(|&id| stacks.push(id)).collect();
        // More stacks than one only if the thread has moved.
        assert!(kept.len() >= CAPACITY);
        assert_eq!(collect(&stacks), kept);
        assert!(!stacks.push(1) && stacks.pop().is_none(), "closed");
        assert_eq!(collect(&stacks), []);
    });
}

#[test]
fn a_table_that_is_too_short_refuses() {
    let stacks = Stacks::new(Backend::best(), 0);
    assert!(stacks.is_empty());
    assert_eq!(stacks.here(), None);
    assert!(!stacks.push(1));
    assert_eq!(stacks.pop(), None);
}

/// Opened for users with a lock a stack keeps the same ids and limits, whatever the back end.
#[test]
fn a_stack_is_opened_for_users_with_a_lock() {
    both(|backend| {
        let stacks = Stacks::new(backend, CPUS);
        (0..stacks.len()).for_each(|i| stacks.open_locked(i, 4));
        // What is called once finds the stack closed, unless a lock is all there is.
        let once = stacks.push_once(None, 9);
        assert_eq!(once, stacks.backend() == Backend::TryLock);
        let mut kept: Vec<u32> = (0..4).filter(|&id| stacks.push(id)).collect();
        kept.extend(once.then_some(9));
        assert!(kept.len() >= 3, "more only if the thread has moved");
        assert!(!kept.is_empty());
        let popped = stacks.pop_locked().or_else(|| stacks.pop());
        kept.retain(|&id| Some(id) != popped);
        (0..stacks.len()).for_each(|i| stacks.close(i));
        assert!(!stacks.push(5) && !stacks.push_locked(5) && stacks.pop_locked().is_none());
        let mut found = Vec::new();
        (0..stacks.len()).for_each(|i| stacks.drain_locked(i, |id| found.push(id)));
        found.sort_unstable();
        kept.sort_unstable();
        assert_eq!(found, kept);
    });
}

#[test]
fn several_go_in_and_out_in_one_call() {
    for locked in [false, true] {
        both(|backend| {
            let stacks = Stacks::new(backend, CPUS);
            let mut some = [0; 3];
            assert_eq!(stacks.push_all(&[1, 2]), 0, "closed");
            assert_eq!(stacks.pop_all(&mut some), 0);
            for i in 0..stacks.len() {
                if locked {
                    stacks.open_locked(i, 4);
                } else {
                    stacks.open(i, 4);
                }
            }
            let mut pushed = stacks.push_all(&[0, 1, 2, 3, 4, 5]);
            assert!(
                (4..=6).contains(&pushed),
                "the limit, unless the thread has moved"
            );
            let mut found: Vec<u32> = Vec::new();
            let popped = stacks.pop_all(&mut some);
            found.extend(&some[..popped]);
            pushed -= popped;
            (0..stacks.len()).for_each(|i| stacks.close(i));
            stacks.barrier();
            for i in 0..stacks.len() {
                if locked {
                    stacks.drain_locked(i, |id| found.push(id));
                } else {
                    stacks.drain(i, |id| found.push(id));
                }
            }
            found.sort_unstable();
            assert_eq!(found, (0..(pushed + popped) as u32).collect::<Vec<_>>());
        });
    }
}

/// Threads pop and push; one closes, drains and opens again, now for one kind of users and now for
/// the other. An id has one owner at any time and none is lost.
#[test]
fn ids_survive_a_closer() {
    const IDS: u32 = 8;
    let rounds = if cfg!(miri) { 10 } else { 2_000 };
    both(|backend| {
        let stacks = Arc::new(Stacks::new(backend, crate::cpu::possible()));
        let owners: Arc<Vec<AtomicBool>> = Arc::new((0..IDS).map(|_| false.into()).collect());
        let moves = Arc::new(AtomicU64::new(0));
        let (run, left) = (Arc::new(AtomicBool::new(true)), collect(&stacks));
        assert_eq!(left, []);
        let users: Vec<_> = (0..2)
            .map(|_| {
                let (stacks, owners) = (stacks.clone(), owners.clone());
                let (run, moves) = (run.clone(), moves.clone());
                thread::spawn(move || {
                    let mut held = Vec::new();
                    loop {
                        let runs = run.load(Ordering::Relaxed);
                        if !runs && held.is_empty() {
                            break;
                        }
                        // At the end ids only go back, or one comes for each that goes.
                        if let Some(id) = runs.then(|| stacks.pop()).flatten() {
                            let taken = owners[id as usize].swap(true, Ordering::Relaxed);
                            assert!(!taken, "two owners of {id}");
                            moves.fetch_add(1, Ordering::Relaxed);
                            held.push(id);
                        }
                        if let Some(id) = held.pop() {
                            owners[id as usize].store(false, Ordering::Relaxed);
                            if !stacks.push(id) {
                                owners[id as usize].store(true, Ordering::Relaxed);
                                held.push(id);
                                thread::yield_now();
                            }
                        }
                    }
                })
            })
            .collect();
        let mut mine: Vec<u32> = (0..IDS).collect();
        for round in 0..rounds {
            if round % 3 == 0 {
                open_all(&stacks, IDS);
                mine.retain(|&id| !stacks.push(id));
                mine.extend(collect(&stacks));
            } else {
                (0..stacks.len()).for_each(|i| stacks.open_locked(i, IDS));
                mine.retain(|&id| !stacks.push(id));
                (0..stacks.len()).for_each(|i| stacks.close(i));
                (0..stacks.len()).for_each(|i| stacks.drain_locked(i, |id| mine.push(id)));
            }
        }
        // The users may hold some: they need open stacks to be rid of them.
        open_all(&stacks, IDS);
        run.store(false, Ordering::Relaxed);
        users.into_iter().for_each(|user| user.join().unwrap());
        mine.extend(collect(&stacks));
        mine.sort_unstable();
        assert_eq!(mine, (0..IDS).collect::<Vec<_>>());
    });
}
