//! Models of a whole set on the engine that production takes: ids in per-CPU stacks. Four tags are
//! the fewest for which a set opens a stack. Each model runs with the busy flag, which stands for
//! restartable sequences, and with the try-lock, and asserts that ids went through stacks. The
//! stacks alone are modelled in sbitmap's `loom_local`, waiting on them in `loom_turns_local`; here
//! what a set adds: slots, the gate, shares, a closed set.
#![cfg(loom)]

use inflight_sbitmap::model_support::set_backend;
use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{self, Bound};
use inflight_sync::percpu::{Backend, pushes};
use inflight_sync::{Arc, cpu, thread};
use inflight_tags::{AllocError, Engine, Tag, TagSet, Tenant};

const TWO_OR_FOUR: Bound = Bound {
    quick: Some(2),
    deep: Some(4),
};
const THREE: Bound = Bound {
    quick: Some(3),
    deep: Some(4),
};

/// One model, one test for each back end.
macro_rules! models {
    ($(
        $(#[$doc:meta])*
        $name:ident / $locked:ident ($bound:ident) $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            check(stringify!($name), $bound, Backend::BusyFlag, $body);
        }
        /// The same under the try-lock.
        #[test]
        fn $locked() {
            check(stringify!($locked), $bound, Backend::TryLock, $body);
        }
    )*};
}

fn check(name: &str, bound: Bound, backend: Backend, model: fn(World)) {
    let before = pushes();
    model::check(name, bound, move || {
        set_backend(backend);
        cpu::set_current_for_thread(Some(0));
        model(World::new());
    });
    assert!(pushes() > before, "no id went into a stack");
}

/// A set whose CPU 0 has an open stack; all tags but one are held.
struct World {
    set: TagSet<u32>,
    dev: Tenant<u32>,
    held: Vec<Tag<u32>>,
}

impl World {
    const DEPTH: usize = 4;

    fn new() -> Self {
        let set = TagSet::builder().depth(Self::DEPTH).engine(Engine::Local);
        let set = set.ages(false).build(|_, _| 0).unwrap();
        let dev = set.add_tenant("q").unwrap();
        // Each comes out of the words, and the first of them opens the stack.
        let held = (1..Self::DEPTH).map(|_| dev.try_alloc().unwrap());
        let held = held.collect();
        Self { set, dev, held }
    }

    /// The last tag.
    fn last(&self) -> Tag<u32> {
        self.dev.try_alloc().expect("one is free")
    }

    /// The last tag's id is in the stack of this thread's CPU.
    fn warm(&self) {
        drop(self.last());
    }

    /// Runs `body` as a thread on a CPU.
    fn spawn<R: Send + 'static>(
        &self,
        on: usize,
        body: impl FnOnce(&Tenant<u32>) -> R + Send + 'static,
    ) -> thread::JoinHandle<R> {
        let dev = self.dev.clone();
        thread::spawn(move || {
            cpu::set_current_for_thread(Some(on));
            body(&dev)
        })
    }

    /// Every tag can be had.
    fn assert_whole(self) {
        let Self { set, dev, held } = self;
        drop(held);
        assert_eq!(set.in_use(), 0);
        assert_eq!(dev.try_alloc_batch(2 * Self::DEPTH).len(), Self::DEPTH);
    }
}

models! {
    /// A thread that waits, and a put on another CPU, into that CPU's open stack.
    h4_local_waiter_against_put / h4_local_waiter_against_put_locked (TWO_OR_FOUR) |world| {
        let tag = world.last();
        let waiter = world.spawn(1, |dev| drop(dev.alloc_blocking().unwrap()));
        drop(tag);
        // The stacks may be open again by now.
        drop(world.dev.try_alloc());
        waiter.join().unwrap();
        world.assert_whole();
    };

    /// What one owner wrote into its slot is there for the next, by whichever stack the id went.
    h3_local_slot_to_slot / h3_local_slot_to_slot_locked (THREE) |world| {
        fn add(dev: &Tenant<u32>) -> u32 {
            if let Ok(mut tag) = dev.try_alloc() {
                *tag += 1;
                return 1;
            }
            0
        }
        world.warm();
        let other = world.spawn(1, add);
        let mine = add(&world.dev);
        let all = mine + other.join().unwrap();
        assert_eq!(*world.last(), all);
        world.assert_whole();
    };

    /// A freeze takes back the ids in a stack, whose owner pops one meanwhile: A1 to A3 by a pop.
    h24_local_freeze_against_try / h24_local_freeze_against_try_locked (THREE) |mut world| {
        world.warm();
        world.held.clear();
        let data = Arc::new(Guarded(UnsafeCell::new(0)));
        let submitter = world.spawn(0, {
            let data = data.clone();
            move |dev| match dev.try_alloc() {
                Ok(_tag) => data.add(),
                Err(error) => assert_eq!(error, AllocError::Frozen),
            }
        });
        cpu::set_current_for_thread(Some(1));
        let frozen = world.set.freeze_blocking();
        data.add();
        drop(frozen);
        submitter.join().unwrap();
        world.assert_whole();
    };

    /// The same while the ids are in the words: nothing but A2 and F2 orders the two.
    h24_local_freeze_of_words / h24_local_freeze_of_words_locked (THREE) |mut world| {
        world.held.clear();
        assert_eq!(world.set.in_use(), 0, "which closes the stacks");
        let data = Arc::new(Guarded(UnsafeCell::new(0)));
        let submitter = world.spawn(0, {
            let data = data.clone();
            move |dev| match dev.try_alloc() {
                Ok(_tag) => data.add(),
                Err(error) => assert_eq!(error, AllocError::Frozen),
            }
        });
        let frozen = world.set.freeze_blocking();
        data.add();
        drop(frozen);
        submitter.join().unwrap();
        world.assert_whole();
    };

    /// The last put goes into an open stack, and wakes who waits for the freeze.
    h24_local_freeze_against_put / h24_local_freeze_against_put_locked (THREE) |mut world| {
        let tag = world.last();
        world.held.clear();
        let holder = world.spawn(0, move |_| drop(tag));
        cpu::set_current_for_thread(Some(1));
        drop(world.set.freeze_blocking());
        holder.join().unwrap();
        world.assert_whole();
    };

    /// A waiter, whose coming closes the stacks, against the set's close; what is out goes back.
    h6_local_close_against_waiter / h6_local_close_against_waiter_locked (THREE) |mut world| {
        world.warm();
        let tag = world.last();
        let waiter = world.spawn(1, |dev| dev.alloc_blocking().map(drop));
        world.set.close();
        assert_eq!(waiter.join().unwrap(), Err(AllocError::Closed));
        drop(tag);
        world.held.clear();
        assert_eq!(world.set.in_use(), 0);
    };
}

models! {
    /// The put of a tenant that has its share against the coming of another one that waits.
    h9_local_two_tenants / h9_local_two_tenants_locked (THREE) |world| {
        let other = world.set.add_tenant("other").unwrap();
        // The first is looked for, which closes the stacks; a few puts thaw them.
        (0..8).for_each(|_| world.warm());
        let tag = world.last();
        let waiter = thread::spawn(move || {
            cpu::set_current_for_thread(Some(1));
            drop(other.alloc_blocking().unwrap());
        });
        drop(tag);
        waiter.join().unwrap();
        world.assert_whole();
    };

    /// A tag above a depth that shrinks goes back into an open stack, or into the words.
    h21_local_shrink_against_put / h21_local_shrink_against_put_locked (THREE) |mut world| {
        let [most, depth] = [World::DEPTH, World::DEPTH - 1];
        let last = world.last();
        world.held.push(last);
        let above = world.held.iter().position(|tag| tag.index() == depth);
        let above = world.held.swap_remove(above.expect("every tag is held"));
        let holder = world.spawn(0, move |_| drop(above));
        cpu::set_current_for_thread(Some(1));
        world.set.resize(depth).unwrap();
        holder.join().unwrap();
        world.held.clear();
        assert_eq!(world.dev.try_alloc_batch(most).len(), depth);
        world.set.resize(most).unwrap();
        world.assert_whole();
    };
}

/// Data that only the freezer and the holders of tags touch; loom reports it if they meet.
struct Guarded(UnsafeCell<u32>);
// SAFETY: the models access the cell only while they hold a tag, or under the set's freeze.
unsafe impl Sync for Guarded {}
// SAFETY: a u32 may move between threads.
unsafe impl Send for Guarded {}

impl Guarded {
    fn add(&self) {
        // SAFETY: see `Guarded`.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }
}
