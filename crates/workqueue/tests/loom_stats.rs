//! A model of counters that are read while a batch runs.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::thread;
use model_support::{Count, FIVE, system};

/// *Start* of one entry after the other while somebody counts: what has not ended is not counted.
#[test]
fn no_entry_is_counted_before_it_has_ended() {
    check("no_entry_is_counted_before_it_has_ended", FIVE, || {
        let (sys, _) = system(1, 1);
        let wq = sys.workqueue("drawn").bound().build().unwrap();
        let pool = wq.manual_pool(0);
        let ended = Count::new();
        for _ in 0..2 {
            let ended = ended.clone();
            drop(wq.spawn(move || _ = ended.add()));
        }
        let owner = thread::spawn(move || {
            pool.draw(2);
            pool
        });
        let completed = wq.stats().completed as usize;
        assert!(completed <= ended.get(), "it counts what has not ended");
        let pool = owner.join().unwrap();
        assert_eq!(wq.stats().completed, 2);
        drop((pool, wq, sys));
    });
}
