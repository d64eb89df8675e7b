use super::{Backend, CAPACITY, Stacks};
use crate::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::{Arc, thread};

fn both(test: impl Fn(Backend)) {
    test(Backend::TryLock);
    test(Backend::best());
}

/// Opens every stack, because the test's thread may move.
fn open_all(stacks: &Stacks, limit: u32) {
    (0..stacks.len()).for_each(|i| stacks.open(i, limit));
}

fn collect(stacks: &Stacks) -> Vec<u16> {
    let mut found = Vec::new();
    (0..stacks.len()).for_each(|i| stacks.close(i));
    stacks.barrier();
    (0..stacks.len()).for_each(|i| stacks.drain(i, |id| found.push(id)));
    found.sort_unstable();
    found
}

#[test]
fn a_closed_stack_refuses() {
    both(|backend| {
        let stacks = Stacks::new(backend, 1_024);
        assert!(!stacks.push(1));
        assert_eq!(stacks.pop(), None);
    });
}

#[test]
fn limits_are_kept_and_every_id_comes_back() {
    both(|backend| {
        let stacks = Stacks::new(backend, 1_024);
        open_all(&stacks, 1_000);
        let kept: Vec<u16> = (0..2_000).filter(|&id| stacks.push(id)).collect();
        // More stacks than one only if the thread has moved.
        assert!(kept.len() >= CAPACITY);
        assert_eq!(collect(&stacks), kept);
        assert!(!stacks.push(1), "closed");
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

/// Threads pop and push; one closes, drains and opens again. An id has one owner at any time and
/// none is lost.
#[test]
fn ids_survive_a_closer() {
    const IDS: u16 = 8;
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
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
                    while run.load(Ordering::Relaxed) || !held.is_empty() {
                        if let Some(id) = stacks.pop() {
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
        let mut mine: Vec<u16> = (0..IDS).collect();
        for _ in 0..rounds {
            open_all(&stacks, u32::from(IDS));
            mine.retain(|&id| !stacks.push(id));
            mine.extend(collect(&stacks));
        }
        // The users may hold some: they need open stacks to be rid of them.
        open_all(&stacks, u32::from(IDS));
        run.store(false, Ordering::Relaxed);
        users.into_iter().for_each(|user| user.join().unwrap());
        mine.extend(collect(&stacks));
        mine.sort_unstable();
        assert_eq!(mine, (0..IDS).collect::<Vec<_>>());
    });
}
