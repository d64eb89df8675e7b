//! How long a slot lives: as long as somebody, or a device, may reach it.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use inflight_sync::{Arc, block_on, thread};
use inflight_tags::{Tag, TagSet, Tenant};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A payload whose end can be seen: while it lives it holds a count of `alive`.
struct Buffer {
    bytes: [u8; 64],
    _alive: Arc<()>,
}

fn buffers(depth: usize) -> (TagSet<Buffer>, Tenant<Buffer>, Arc<()>) {
    let alive = Arc::new(());
    let set = TagSet::builder().depth(depth).build({
        // The set keeps the closure.
        let alive = Arc::downgrade(&alive);
        move |_, _| Buffer {
            bytes: [0; 64],
            _alive: alive.upgrade().unwrap(),
        }
    });
    let set = set.unwrap();
    let queue = set.add_tenant("q").unwrap();
    assert_eq!(Arc::strong_count(&alive), 1 + depth);
    (set, queue, alive)
}

/// How many payloads have not been dropped.
fn living(alive: &Arc<()>) -> usize {
    Arc::strong_count(alive) - 1
}

#[test]
fn held_tags_outlive_their_handles() {
    let (set, dev, alive) = buffers(2);
    let mut held = dev.try_alloc().unwrap();
    drop((set, dev));
    assert_eq!(living(&alive), 1, "the free slot is gone");
    held.bytes[0] = 7;
    assert_eq!(Arc::weak_count(&alive), 1, "the set is still there");
    drop(held);
    assert_eq!(living(&alive), 0);
    assert_eq!(Arc::weak_count(&alive), 0, "and is freed by the last tag");
}

/// Tags end on several threads while the last handle goes: payloads and set are freed once.
#[test]
fn the_last_handle_among_ending_tags() {
    for _ in 0..if cfg!(miri) { 5 } else { 200 } {
        let (set, dev, alive) = buffers(6);
        let mut tags = dev.try_alloc_batch(6);
        let enders: Vec<_> = (0..3)
            .map(|_| {
                let two = tags.split_off(tags.len() - 2);
                thread::spawn(move || drop(two))
            })
            .collect();
        drop((set, dev));
        enders.into_iter().for_each(|ender| ender.join().unwrap());
        assert_eq!(living(&alive), 0);
        assert_eq!(Arc::weak_count(&alive), 0);
    }
}

#[test]
fn after_normal_use_nothing_is_left() {
    let (set, dev, alive) = buffers(4);
    for _ in 0..3 {
        let completed = dev.try_alloc().unwrap().into_token();
        let timed_out = dev.try_alloc().unwrap().into_token();
        let again = dev.try_alloc().unwrap().into_token();
        set.for_each_in_flight(|t| assert!(t.token() != timed_out || t.mark_timed_out()));
        drop(set.redeem(completed).unwrap());
        drop(set.redeem_timed_out(timed_out).unwrap());
        let again = set.redeem(again).unwrap().into_token();
        drop(set.redeem(again).unwrap());
        // What is refused takes no count away.
        for token in [completed, timed_out, again] {
            assert!(set.redeem(token).is_err() && set.redeem_timed_out(token).is_err());
        }
    }
    drop((set, dev));
    assert_eq!(living(&alive), 0);
}

/// The engine unwinds with requests at the device. Their buffers stay; the others are freed.
#[test]
fn what_is_in_flight_outlives_the_set() {
    /// Where the device writes. A leak checker finds the buffers through it.
    static DEVICE: [AtomicPtr<u8>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

    let (set, dev, alive) = buffers(5);
    let engine = catch_unwind(AssertUnwindSafe(move || {
        for ring in &DEVICE {
            let mut tag = dev.try_alloc().unwrap();
            ring.store(tag.bytes.as_mut_ptr(), Ordering::Relaxed);
            let _token = tag.into_token();
        }
        // One of them has timed out: the device may write to it all the same.
        let mut marks = 0;
        set.for_each_in_flight(|t| marks += u32::from(marks == 0 && t.mark_timed_out()));
        let completed = dev.try_alloc().unwrap().into_token();
        let _completed = set.redeem(completed).unwrap();
        panic!("a bug in the engine");
    }));
    assert!(engine.is_err());
    assert_eq!(living(&alive), 2);
    for ring in &DEVICE {
        let byte = ring.load(Ordering::Relaxed);
        // SAFETY: the slot of a tag in flight is never freed, and nobody else can reach it.
        unsafe { byte.write(7) };
    }
}

/// A handler finds the tag in flight before its submitter has the token, frees it, and drops the
/// last handle: the submitter must not look at the slot any more. For Miri and the sanitizers.
#[test]
fn the_slot_may_be_freed_under_the_hands_of_its_submitter() {
    for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
        let (set, dev, alive) = buffers(1);
        let tag = dev.try_alloc().unwrap();
        drop(dev);
        let handler = thread::spawn(move || {
            let mut found = None;
            while found.is_none() {
                set.for_each_in_flight(|t| found = t.mark_timed_out().then(|| t.token()));
                thread::yield_now();
            }
            drop(set.redeem_timed_out(found.unwrap()).unwrap());
            found
        });
        let token = tag.into_token();
        assert_eq!(handler.join().unwrap(), Some(token));
        assert_eq!(living(&alive), 0);
    }
}

/// A held tag that is put in flight when nobody is left to redeem it.
#[test]
fn a_token_made_after_the_last_handle_keeps_its_slot_too() {
    static DEVICE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

    let (set, dev, alive) = buffers(1);
    let mut tag = dev.try_alloc().unwrap();
    drop((set, dev));
    DEVICE.store(tag.bytes.as_mut_ptr(), Ordering::Relaxed);
    assert_ne!(tag.into_token(), 0);
    assert_eq!(living(&alive), 1);
    // SAFETY: as above.
    unsafe { DEVICE.load(Ordering::Relaxed).write(7) };
}

/// A payload that has tags of its own set, counts its drops and panics in them.
struct Owner {
    others: Vec<Tag<Self>>,
    drops: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "the payload's panic");
    }
}

/// A tag has a tag, which has a third one. Whether the last handle or the first tag goes first, and
/// whatever panics, each payload is dropped once.
#[test]
fn tags_in_payloads_of_their_own_set_end_with_them() {
    for (handles_first, panics) in [(false, 9), (true, 9), (false, 1), (true, 1), (true, 3)] {
        let drops = Arc::<AtomicUsize>::default();
        let counted = drops.clone();
        let set = TagSet::builder().depth(5).build(move |_, tag| Owner {
            others: Vec::new(),
            drops: counted.clone(),
            panics: tag == panics,
        });
        let dev = set.unwrap().add_tenant("q").unwrap();
        let mut tags = dev.try_alloc_batch(3);
        tags.sort_unstable_by_key(Tag::index);
        for _ in 0..2 {
            let last = tags.pop().unwrap();
            tags.last_mut().unwrap().others.push(last);
        }
        let mut dev = Some(dev);
        let handles = |dev: &mut Option<_>| drop(dev.take());
        if handles_first {
            let _ = catch_unwind(AssertUnwindSafe(|| handles(&mut dev)));
        }
        let _ = catch_unwind(AssertUnwindSafe(|| drop(tags)));
        let _ = catch_unwind(AssertUnwindSafe(|| handles(&mut dev)));
        assert_eq!(drops.load(Ordering::Relaxed), 5, "{handles_first} {panics}");
    }
}

inflight_sync::thread_local! {
    static AT_END: AtEnd = const { AtEnd(RefCell::new(None)) };
}

struct AtEnd(RefCell<Option<Box<dyn FnOnce()>>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|call| call());
    }
}

/// What a thread does while its locals are destroyed.
#[test]
fn a_thread_that_ends_may_use_a_set() {
    let set = TagSet::builder().depth(1).max_depth(2).build(|_, _| ());
    let set = set.unwrap();
    let (ended, used) = (Arc::<AtomicBool>::default(), set.clone());
    let ends = ended.clone();
    let uses = move || {
        // First, so that it is destroyed after all locals of the library.
        AT_END.with(|at_end| {
            let set = used.clone();
            at_end.0.replace(Some(Box::new(move || {
                let dev = set.add_tenant("end").unwrap();
                let tag = dev.alloc_blocking().unwrap();
                assert!(dev.try_alloc().is_err());
                drop(set.redeem(tag.into_token()).unwrap());
                drop(block_on(dev.alloc()).unwrap());
                drop(set.freeze_blocking());
                set.resize(2).unwrap();
                assert_eq!(dev.split(2).join_blocking().unwrap().len(), 2);
                ends.store(true, Ordering::Relaxed);
            })));
        });
        let dev = used.add_tenant("q").unwrap();
        drop(dev.alloc_blocking().unwrap());
    };
    thread::spawn(uses).join().unwrap();
    assert!(ended.load(Ordering::Relaxed));
    assert_eq!(set.in_use(), 0);
}

/// Whether a type is `Send`, and `Sync`: what it has itself goes before what the trait has.
struct Is<T>(PhantomData<T>);

impl<T: Send> Is<T> {
    const SEND: bool = true;
}

impl<T: Sync> Is<T> {
    const SYNC: bool = true;
}

trait IsNot {
    const SEND: bool = false;
    const SYNC: bool = false;
}

impl<T> IsNot for Is<T> {}

/// A tag is what its data is. A set gives nobody a reference to data, so it is `Sync` without.
#[test]
fn threads_share_what_they_may() {
    type Local = std::rc::Rc<()>;
    let tags = [Is::<Tag<u8>>::SYNC, Is::<Tag<Cell<u8>>>::SYNC];
    assert_eq!(tags, [true, false]);
    let sets = [Is::<TagSet<Cell<u8>>>::SYNC, Is::<Tenant<Cell<u8>>>::SYNC];
    assert_eq!(sets, [true; 2]);
    let sent = [Is::<Tag<Cell<u8>>>::SEND, Is::<TagSet<Cell<u8>>>::SEND];
    assert_eq!(sent, [true; 2]);
    let of_thread = [Is::<Tag<Local>>::SEND, Is::<TagSet<Local>>::SEND];
    assert_eq!(of_thread, [false; 2]);
    assert_eq!([Is::<TagSet<Local>>::SYNC; 1], [false]);
}
