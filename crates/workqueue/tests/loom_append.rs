//! Models of *append*: what an item queues to its own queue goes behind its worker's batch. Events
//! as in `PROTOCOL.md`, part *take and recall*.
//!
//! They drive a system whose pool has no worker: the threads of a model draw.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::thread;
use inflight_workqueue::blocking;
use model_support::{Count, FIVE, FOUR, Pool, THREE, draw_all};

/// One slot: an item appends 1, another thread queues 2, and the item queues 3. The rest of its
/// batch goes back meanwhile, by a *recall* or because it blocks: the order is that of queueing.
fn an_appended_entry_keeps_its_place(blocks: bool) {
    let pool = Pool::new(1);
    let (appended, queued) = (Count::new(), Count::new());
    let this = pool.clone();
    drop(pool.wq.spawn({
        let (appended, queued) = (appended.clone(), queued.clone());
        move || {
            this.log.add(0);
            this.item(1);
            appended.add();
            if blocks {
                blocking(|| queued.wait_silently());
            } else {
                queued.wait_silently();
            }
            this.item(3);
        }
    }));
    let owner = pool.beside(|pool| _ = pool.pool.draw(3));
    appended.wait_silently();
    pool.item(2);
    if !blocks {
        pool.pool.recall();
    }
    queued.add();
    owner.join().unwrap();
    pool.assert_ran(&[0, 1, 2, 3]);
    assert_eq!(pool.log.get(), [0, 1, 2, 3], "in the order of queueing");
}

#[test]
fn i27_a_recalled_append_keeps_its_place() {
    check("i27_a_recalled_append_keeps_its_place", FOUR, || {
        an_appended_entry_keeps_its_place(false);
    });
}

#[test]
fn i27_a_block_keeps_the_place_of_an_append() {
    check("i27_a_block_keeps_the_place_of_an_append", FOUR, || {
        an_appended_entry_keeps_its_place(true);
    });
}

/// *append* against so many *recalls*: what an item appends is run by its worker or goes back, and
/// is counted as in flight all the time. With one slot, what a *recall* has not seen comes after
/// what it has put back, whether the owner or a later *recall* puts it back.
fn an_append_against(recalls: usize, max_active: usize) {
    let pool = Pool::new(max_active);
    pool.appender(0, 2);
    pool.item(1);
    let owner = pool.beside(|pool| _ = pool.pool.draw(3));
    (0..recalls).for_each(|_| pool.pool.recall());
    pool.pool.draw(3);
    owner.join().unwrap();
    pool.assert_ran(&[0, 1, 2]);
    assert!(!pool.ordered || pool.log.get() == [0, 1, 2]);
}

#[test]
fn an_append_against_a_recall() {
    check("an_append_against_a_recall", FIVE, || {
        an_append_against(1, 8)
    });
}

#[test]
fn i27_an_append_against_a_recall() {
    check("i27_an_append_against_a_recall", THREE, || {
        an_append_against(1, 1)
    });
}

#[test]
fn i27_an_append_against_two_recalls() {
    check("i27_an_append_against_two_recalls", THREE, || {
        an_append_against(2, 1)
    });
}

/// *append* after a *recall* that has not seen the entry: the owner looks again and gives it back,
/// or its item would wait for it for ever.
#[test]
fn an_append_is_not_left_behind_a_recall() {
    check("an_append_is_not_left_behind_a_recall", FOUR, || {
        let pool = Pool::new(8);
        let (begun, ran) = (Count::new(), Count::new());
        let this = pool.clone();
        drop(pool.wq.spawn({
            let (begun, ran) = (begun.clone(), ran.clone());
            move || {
                begun.add();
                let appended = ran.clone();
                drop(this.wq.spawn(move || appended.add()));
                ran.wait_silently();
            }
        }));
        let owner = pool.beside(|pool| _ = pool.pool.draw(3));
        begun.wait_silently();
        // If the entry is there by now, this takes it; if not, the owner sees the recall.
        pool.pool.recall();
        while ran.get() == 0 {
            pool.pool.draw(1);
            thread::yield_now();
        }
        owner.join().unwrap();
        assert_eq!(pool.wq.stats().completed, 2);
    });
}

/// No *append* after a *recall* that the owner has noticed: it may have been the last look.
#[test]
fn nothing_is_appended_after_a_recall() {
    check("nothing_is_appended_after_a_recall", FOUR, || {
        let pool = Pool::new(8);
        let (begun, ran) = (Count::new(), Count::new());
        let this = pool.clone();
        drop(pool.wq.spawn({
            let begun = begun.clone();
            move || _ = begun.add()
        }));
        drop(pool.wq.spawn({
            let ran = ran.clone();
            move || {
                let appended = ran.clone();
                drop(this.wq.spawn(move || appended.add()));
                ran.wait_silently();
            }
        }));
        let draw_on = |pool: &Pool, ran: &Count| {
            while ran.get() == 0 {
                pool.pool.draw(1);
                thread::yield_now();
            }
        };
        let owner = pool.beside({
            let ran = ran.clone();
            move |pool| {
                pool.pool.draw(3);
                draw_on(pool, &ran);
            }
        });
        begun.wait_silently();
        pool.pool.recall();
        draw_on(&pool, &ran);
        owner.join().unwrap();
        draw_all(&[&pool.pool]);
        assert_eq!(pool.wq.stats().completed, 3);
    });
}

/// *append* in one slot: A runs, B is queued, A queues C: B comes first.
#[test]
fn i27_an_append_passes_nobody() {
    check("i27_an_append_passes_nobody", FIVE, || {
        let pool = Pool::new(1);
        let owner = {
            let this = pool.clone();
            drop(pool.wq.spawn(move || {
                this.log.add(0);
                let before = this.wq.stats().inactive;
                this.item(2);
                if before > 0 {
                    this.log.add(9);
                }
            }));
            pool.beside(|pool| _ = pool.pool.draw(3))
        };
        pool.item(1);
        owner.join().unwrap();
        draw_all(&[&pool.pool]);
        let log = pool.log.get();
        let at = |n| log.iter().position(|l| *l == n).expect("it has run");
        if log.contains(&9) {
            assert!(at(1) < at(2), "{log:?}");
        }
        assert_eq!(pool.wq.stats().completed, 3);
    });
}
