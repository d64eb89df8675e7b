//! Models of limits that several pwqs share: *acquire*, *release*, *pending*. Events A1-A4, R1-R4
//! as in `PROTOCOL.md`, part *slot and pending*.
//!
//! The first ones drive the shipped `NrActive` alone, the others a queue over two pools without
//! workers: the threads of a model draw.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::{Arc, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::unstable::{ManualPool, NrActive};
use inflight_workqueue::{Attrs, Work, Workqueue, WorkqueueSystem};
use model_support::{ALL, Count, FIVE, FOUR, Log, Own, THREE, Touched, draw_all};
use std::time::Duration;

/// A limit, and what those who have its slots touch.
fn slots(max: usize) -> (Arc<NrActive>, Touched) {
    (Arc::new(NrActive::new(max)), Touched::new())
}

/// A pwq that has a slot uses it and gives it back; so does the one that has it next.
fn use_and_release(slots: &NrActive, touched: &Touched) {
    touched.touch();
    let mut next = slots.release();
    while next.is_some() {
        touched.touch();
        next = slots.release();
    }
}

/// I.6: A1-A4 against R1-R4: whoever comes finds the slot, or whoever gives it back finds him. And
/// A1 against R1: what the one did before is seen.
#[test]
fn i6_acquire_against_release() {
    check("i6_acquire_against_release", ALL, || {
        let (slots, touched) = slots(1);
        assert!(slots.acquire(0));
        touched.touch();
        let other = thread::spawn({
            let (slots, touched) = (slots.clone(), touched.clone());
            move || {
                if slots.acquire(1) {
                    use_and_release(&slots, &touched);
                }
            }
        });
        let mut next = slots.release();
        while let Some(pwq) = next {
            assert_eq!(pwq, 1);
            touched.touch();
            next = slots.release();
        }
        other.join().unwrap();
        assert_eq!(touched.times(), 2, "it has been forgotten");
        assert_eq!(slots.level(), (0, 1));
        assert!(!slots.has_pending());
    });
}

/// I.6 with two who come, one of whom waits already.
#[test]
fn i6_two_acquire_against_release() {
    check("i6_two_acquire_against_release", FOUR, || {
        let (slots, touched) = slots(1);
        assert!(slots.acquire(0));
        assert!(!slots.acquire(1));
        let other = thread::spawn({
            let (slots, touched) = (slots.clone(), touched.clone());
            move || {
                if slots.acquire(2) {
                    use_and_release(&slots, &touched);
                }
            }
        });
        use_and_release(&slots, &touched);
        other.join().unwrap();
        assert_eq!(touched.times(), 3);
        assert_eq!(slots.level(), (0, 1));
    });
}

/// I.14: a slot that is free is not for who comes while somebody waits: the second that comes back
/// is his who was second.
#[test]
fn i14_two_releases_against_two_who_wait() {
    check("i14_two_releases_against_two_who_wait", ALL, || {
        let (slots, _) = slots(2);
        assert!(slots.acquire(0) && slots.acquire(1));
        assert!(!slots.acquire(2) && !slots.acquire(3));
        let other = thread::spawn({
            let slots = slots.clone();
            move || slots.release()
        });
        let here = slots.release();
        let mut given = [here, other.join().unwrap()];
        given.sort();
        assert_eq!(given, [Some(2), Some(3)]);
        assert_eq!(slots.level(), (2, 2));
    });
}

/// I.14: A1 against R1: a newcomer does not pass who waits.
#[test]
fn i14_a_newcomer_does_not_pass_who_waits() {
    check("i14_a_newcomer_does_not_pass_who_waits", ALL, || {
        let (slots, _) = slots(1);
        assert!(slots.acquire(0));
        assert!(!slots.acquire(1));
        let other = thread::spawn({
            let slots = slots.clone();
            move || slots.try_acquire() || slots.acquire(2)
        });
        assert_eq!(slots.release(), Some(1));
        assert!(!other.join().unwrap());
        assert_eq!(slots.release(), Some(2));
    });
}

/// *forget* against R4: who does not wait any more has no slot, or has been given one.
#[test]
fn i16_forget_against_release() {
    check("i16_forget_against_release", ALL, || {
        let (slots, _) = slots(1);
        assert!(slots.acquire(0));
        assert!(!slots.acquire(1));
        let other = thread::spawn({
            let slots = slots.clone();
            move || slots.forget(1)
        });
        let given = slots.release();
        let forgotten = other.join().unwrap();
        assert_eq!(given, (!forgotten).then_some(1));
        assert_eq!(slots.level().0, usize::from(!forgotten));
    });
}

/// The limit rises while somebody comes: *next* finds him, or A4 finds the new limit.
#[test]
fn i13_raise_against_acquire() {
    check("i13_raise_against_acquire", ALL, || {
        let (slots, _) = slots(1);
        assert!(slots.acquire(0));
        let other = thread::spawn({
            let slots = slots.clone();
            move || slots.acquire(1)
        });
        slots.set_max(2);
        let given = slots.next();
        let acquired = other.join().unwrap();
        assert_eq!(usize::from(acquired) + usize::from(given.is_some()), 1);
        assert_eq!(slots.level(), (2, 2));
    });
}

/// The limit falls while slots come back and somebody comes: no more than the new limit are in use
/// in the end, and nobody waits beside a free one.
#[test]
fn i16_lower_against_release() {
    check("i16_lower_against_release", FOUR, || {
        let (slots, _) = slots(2);
        assert!(slots.acquire(0) && slots.acquire(1));
        let releases = thread::spawn({
            let slots = slots.clone();
            move || [slots.release(), slots.release()]
        });
        let comes = thread::spawn({
            let slots = slots.clone();
            move || slots.acquire(2)
        });
        slots.set_max(1);
        let given = releases.join().unwrap();
        let acquired = comes.join().unwrap();
        let given = given.iter().flatten().count();
        assert_eq!(usize::from(acquired) + given, 1);
        assert_eq!(slots.level(), (1, 1));
        assert!(!slots.has_pending());
    });
}

/// A queue over two pools of one CPU each, without workers.
struct Pools {
    sys: WorkqueueSystem,
    wq: Workqueue,
    a: ManualPool,
    b: ManualPool,
    inside: Touched,
    log: Log,
}

impl Pools {
    fn new(max_active: usize) -> Arc<Self> {
        let topo = Topology::synthetic("core:2").unwrap();
        let builder = WorkqueueSystem::builder().topology(topo);
        let sys = builder.idle_timeout(Duration::MAX).build().unwrap();
        let attrs = Attrs::new().scope(Scope::Cpu);
        let wq = sys.workqueue("shared").unbound(attrs).freezable();
        let wq = wq.max_active(max_active).build().unwrap();
        Arc::new(Self {
            a: wq.manual_pool(0),
            b: wq.manual_pool(1),
            sys,
            wq,
            inside: Touched::new(),
            log: Log::default(),
        })
    }

    /// An item that may not run beside another one.
    fn alone(&self, cpu: usize, number: u32) {
        let (inside, log) = (self.inside.clone(), self.log.clone());
        drop(self.wq.spawn_on(cpu, move || {
            inside.touch();
            log.add(number);
        }));
    }

    fn plain(&self, cpu: usize, number: u32) {
        let log = self.log.clone();
        drop(self.wq.spawn_on(cpu, move || log.add(number)));
    }

    fn beside(self: &Arc<Self>, f: impl FnOnce(&Self) + Send + 'static) -> thread::JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || f(&this))
    }

    /// Everything runs that is queued, so many in all.
    fn assert_ran(&self, items: usize) {
        draw_all(&[&self.a, &self.b]);
        assert_eq!(self.log.get().len(), items, "{:?}", self.log.get());
        let stats = self.wq.stats();
        assert_eq!((stats.active, stats.inactive, stats.panicked), (0, 0, 0));
    }
}

/// I.15: two pools, one slot: never two items at once, and the slot goes from pool to pool.
#[test]
fn i15_one_slot_in_two_pools() {
    check("i15_one_slot_in_two_pools", FIVE, || {
        let pools = Pools::new(1);
        for number in 0..2 {
            pools.alone(0, number);
            pools.alone(1, number);
        }
        let other = pools.beside(|pools| _ = pools.b.draw(2));
        pools.a.draw(2);
        other.join().unwrap();
        pools.assert_ran(4);
    });
}

/// I.6 with pools: an item is queued while the slot's holder, in the other pool, ends.
#[test]
fn i6_queue_against_the_end_elsewhere() {
    check("i6_queue_against_the_end_elsewhere", FOUR, || {
        let pools = Pools::new(1);
        pools.alone(0, 0);
        let other = pools.beside(|pools| _ = pools.a.draw(1));
        pools.alone(1, 1);
        pools.b.draw(1);
        other.join().unwrap();
        pools.assert_ran(2);
    });
}

/// I.16: what waits for the slot is cancelled while the slot comes; the next one has it.
#[test]
fn i16_cancel_of_what_is_pending() {
    check("i16_cancel_of_what_is_pending", FIVE, || {
        let pools = Pools::new(1);
        let runs = Touched::new();
        let work = Work::new({
            let runs = runs.clone();
            move || runs.touch()
        });
        pools.alone(0, 0);
        assert!(pools.wq.queue_on(1, &work).unwrap().is_queued());
        let other = pools.beside(|pools| _ = pools.a.draw(1));
        let cancelled = work.cancel();
        pools.alone(0, 1);
        pools.b.draw(1);
        other.join().unwrap();
        pools.assert_ran(2);
        assert_eq!(runs.times() + usize::from(cancelled), 1);
    });
}

/// The limit rises while one batch runs and the other pool waits for its slot.
#[test]
fn i13_raise_against_the_end() {
    check("i13_raise_against_the_end", FOUR, || {
        let pools = Pools::new(1);
        pools.plain(0, 0);
        pools.plain(1, 1);
        let other = pools.beside(|pools| _ = pools.a.draw(1));
        pools.wq.set_max_active(2).unwrap();
        pools.b.draw(1);
        other.join().unwrap();
        pools.assert_ran(2);
    });
}

/// The limit rises while the slot's holder runs on: who waits in the other pool has the new slot.
#[test]
fn i13_raise_while_the_slot_is_held() {
    check("i13_raise_while_the_slot_is_held", FOUR, || {
        let pools = Pools::new(1);
        let this = pools.clone();
        drop(pools.wq.spawn_on(0, move || {
            this.plain(1, 1);
            let raise = this.beside(|pools| pools.wq.set_max_active(2).unwrap());
            this.b.draw(1);
            raise.join().unwrap();
            this.b.draw(1);
            assert_eq!(this.log.get(), [1], "there are two slots");
            this.log.add(0);
        }));
        pools.a.draw(1);
        pools.assert_ran(2);
    });
}

/// The limit falls to one while batches run in both pools: after that no two begin beside each
/// other, and none is left.
#[test]
fn i16_lower_against_two_batches() {
    check("i16_lower_against_two_batches", THREE, || {
        let pools = Pools::new(2);
        (0..2).for_each(|number| pools.plain(0, number));
        (0..2).for_each(|number| pools.plain(1, number));
        let other = pools.beside(|pools| _ = pools.b.draw(2));
        let here = pools.beside(|pools| _ = pools.a.draw(2));
        pools.wq.set_max_active(1).unwrap();
        other.join().unwrap();
        here.join().unwrap();
        pools.alone(0, 8);
        pools.alone(1, 9);
        let other = pools.beside(|pools| _ = pools.b.draw(1));
        pools.a.draw(1);
        other.join().unwrap();
        pools.assert_ran(6);
    });
}

/// *freeze* against a slot on its way to the other pool; the thaw finds what waits.
#[test]
fn i13_freeze_against_a_slot_on_its_way() {
    check("i13_freeze_against_a_slot_on_its_way", FIVE, || {
        let pools = Pools::new(1);
        pools.alone(0, 0);
        pools.alone(1, 1);
        let other = pools.beside(|pools| _ = pools.a.draw(1));
        let frozen = pools.sys.freeze();
        let before = pools.log.get().len();
        pools.b.draw(1);
        let begun = pools.log.get().len() - before;
        assert!(begun <= 1, "what had begun ends, nothing begins");
        assert!(!pools.log.get().contains(&1), "it had not begun");
        drop(frozen);
        other.join().unwrap();
        pools.assert_ran(2);
    });
}

/// The queue goes while its last batch ends and slots are on their way: no pwq is used after that.
#[test]
fn i18_a_pwq_goes_with_a_slot_on_its_way() {
    check("i18_a_pwq_goes_with_a_slot_on_its_way", FIVE, || {
        let pools = Pools::new(1);
        let Pools { sys, a, b, .. } = &*pools;
        let attrs = Attrs::new().scope(Scope::Cpu);
        let wq = sys.workqueue("goes").unbound(attrs).max_active(1);
        let wq = wq.build().unwrap();
        let runs = Count::new();
        let work = Work::new(|| ());
        drop(wq.spawn_on(0, {
            let runs = runs.clone();
            move || runs.add()
        }));
        assert!(wq.queue_on(1, &work).unwrap().is_queued());
        let owner = thread::spawn({
            let a = a.clone();
            move || a.draw(1)
        });
        // Pool B waits for a slot with nothing in it.
        work.cancel();
        drop(wq);
        owner.join().unwrap();
        draw_all(&[a, b]);
        assert_eq!(runs.get(), 1);
        pools.alone(1, 0);
        pools.assert_ran(1);
    });
}

/// The same, and a queue comes that gets the numbers of the pwqs that have gone: the slot is not
/// for it.
#[test]
fn i18_a_slot_on_its_way_to_a_number_that_is_used_again() {
    let name = "i18_a_slot_on_its_way_to_a_number_that_is_used_again";
    check(name, FOUR, || {
        let pools = Pools::new(1);
        let Pools { sys, a, b, .. } = &*pools;
        let of_two_pools = |name: &str| {
            let attrs = Attrs::new().scope(Scope::Cpu);
            let wq = sys.workqueue(name).unbound(attrs).max_active(1);
            wq.build().unwrap()
        };
        let wq = of_two_pools("goes");
        let (runs, work) = (Count::new(), Work::new(|| ()));
        drop(wq.spawn_on(0, {
            let runs = runs.clone();
            move || runs.add()
        }));
        assert!(wq.queue_on(1, &work).unwrap().is_queued());
        work.cancel();
        let owner = thread::spawn({
            let a = a.clone();
            move || a.draw(1)
        });
        drop(wq);
        let next = of_two_pools("comes");
        for cpu in 0..2 {
            let runs = runs.clone();
            drop(next.spawn_on(cpu, move || runs.add()));
        }
        owner.join().unwrap();
        draw_all(&[a, b]);
        assert_eq!(runs.get(), 3);
    });
}

/// A work runs in another queue and is parked in pool B with the only slot, while an item waits for
/// that in pool A: its end, or a cancel, gives the slot on.
#[test]
fn i24_a_parked_entry_has_the_shared_slot() {
    check("i24_a_parked_entry_has_the_shared_slot", FOUR, || {
        let pools = Pools::new(1);
        let bound = pools.sys.workqueue("bound").bound().build().unwrap();
        let runner = bound.manual_pool(0);
        let (runs, cancelled) = (Count::new(), Count::new());
        let started = model_support::Started::default();
        let own = Own::new({
            let (pools, runs, cancelled) = (pools.clone(), runs.clone(), cancelled.clone());
            let started = started.clone();
            move |work| {
                pools.inside.touch();
                if runs.add() == 0 {
                    assert!(pools.wq.queue_on(1, work).unwrap().is_queued());
                    pools.alone(0, 1);
                    pools.alone(1, 2);
                    pools.b.draw(2);
                    let (work, cancelled) = (work.clone(), cancelled.clone());
                    started.start(move || {
                        if work.cancel() {
                            cancelled.add();
                        }
                    });
                }
            }
        });
        assert!(bound.queue_on(0, &own.work).unwrap().is_queued());
        assert_eq!(runner.draw(1), 1);
        let other = pools.beside(|pools| _ = pools.a.draw(1));
        pools.b.draw(1);
        other.join().unwrap();
        started.join();
        draw_all(&[&pools.a, &pools.b]);
        assert_eq!(runs.get() + cancelled.get(), 2);
        pools.assert_ran(2);
        own.forget();
    });
}
