//! Models of the two tables that are read while they change.
//!
//! | weaken | fails |
//! |---|---|
//! | the Acquire of `Grown::get`, or the Release of `make` | `grown_*` |
//! | the Acquire of `RetainedVersions::current`, or the Release of `replace` | `versions_*` |
#![cfg(loom)]

use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, Grown, RetainedVersions, thread};

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};

/// What loom watches: written by its maker, before anybody else knows of it.
struct Entry(UnsafeCell<u32>);

// SAFETY: only `new` writes, and whether what it wrote is there is what the models are about.
unsafe impl Sync for Entry {}

impl Entry {
    fn new(value: u32) -> Self {
        let entry = Self(UnsafeCell::new(0));
        // SAFETY: nobody else has it.
        entry.0.with_mut(|place| unsafe { *place = value });
        entry
    }

    fn get(&self) -> u32 {
        // SAFETY: nobody writes any more.
        self.0.with(|place| unsafe { *place })
    }
}

/// Two make an entry, one looks.
#[test]
fn grown_entries_are_there_before_they_are_seen() {
    check(
        "grown_entries_are_there_before_they_are_seen",
        UNBOUNDED,
        || {
            let table = Arc::new(Grown::new());
            let makers = [1, 2].map(|value| {
                let table = table.clone();
                thread::spawn(move || table.get_or_make(1, || Entry::new(value)).get())
            });
            let seen = table.get(1).map(Entry::get);
            let made = makers.map(|maker| maker.join().unwrap());
            assert_eq!(made[0], made[1], "they agree");
            assert!(seen.is_none_or(|seen| seen == made[0]));
            assert_eq!(table.iter().count(), 2, "it and its neighbour");
        },
    );
}

/// One replaces, one reads.
#[test]
fn versions_are_there_before_they_are_seen() {
    check("versions_are_there_before_they_are_seen", UNBOUNDED, || {
        let versions = Arc::new(RetainedVersions::new(Entry::new(1)));
        let changer = thread::spawn({
            let versions = versions.clone();
            move || {
                versions.replace(|old| old.get() == 2, || Entry::new(2));
                versions.replace(|old| old.get() == 1, || unreachable!("it is kept"));
            }
        });
        let seen = versions.current().get();
        assert!(seen == 1 || seen == 2);
        changer.join().unwrap();
        assert_eq!(versions.current().get(), 1);
    });
}
