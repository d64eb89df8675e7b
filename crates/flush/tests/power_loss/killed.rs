//! A process is killed at any step, the power stays, and goes later: what the next process commits
//! is found.

use inflight_flush::Power;
use inflight_flush::log::{Durability, GroupMode, LogOptions, MemoryStorage, RecoveredRecord};

fn options() -> LogOptions {
    LogOptions::new()
        .group_mode(GroupMode::Off)
        .segment_size(4096)
        .buffer_size(1024)
}

/// Commits until the power goes or enough was done; what was committed.
fn live(storage: &MemoryStorage, first: u8) -> Vec<RecoveredRecord> {
    let Ok((log, mut known)) = options()
        .open(storage.clone())
        .map(|(log, found)| (log, found.records))
    else {
        return Vec::new();
    };
    for n in first..first + 8 {
        let payload = vec![n; 900];
        let Ok(lsn) = log.append_blocking(&payload) else {
            break;
        };
        if log.commit_blocking(lsn, Durability::Flushed).is_err() {
            break;
        }
        known.push(RecoveredRecord { lsn, payload });
    }
    known
}

#[test]
fn what_a_killed_process_has_left_is_durable_before_it_is_used() {
    let power = Power::new();
    live(&MemoryStorage::new(&power), 1);
    let steps = power.steps();
    assert!(steps > 20, "{steps}");
    for cut in 0..steps {
        let power = Power::new();
        let storage = MemoryStorage::new(&power);
        power.cut_at(cut);
        live(&storage, 1);
        // The process is gone, and with it what stopped it.
        power.cut_at(u64::MAX);
        let known = live(&storage, 100);
        assert!(known.len() >= 8, "killed at {cut}");
        for seed in 0..4 {
            let after = storage.restart(&Power::new(), seed);
            let opened = options().open(after);
            let (_, found) = opened.unwrap_or_else(|e| panic!("killed at {cut}: {e}"));
            assert!(found.records == known, "killed at {cut}, seed {seed}");
        }
    }
}
