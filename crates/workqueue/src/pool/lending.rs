//! How a pool lends items to its peers and its workers run theirs. `PROTOCOL-lending.md`.

use super::{Deed, Entry, Help, Inner, Pool};
use crate::door::Count;
use crate::layout::Cpus;
use crate::lending::{Load, Notice, Reason};
use crate::machine::{Action, Next};
use crate::peers::Peers;
use inflight_sync::Arc;
use inflight_sync::time::Instant;
use inflight_topology::CpuSet;

impl Inner {
    /// What is known of the pool now.
    fn load(&self) -> Load {
        Load {
            waiting: self.core.unattended() + self.core.letters() as usize,
            // Nobody can be brought: as if all were there.
            awake: if self.core.is_in_distress() {
                self.core.target()
            } else {
                self.core.running()
            },
            service: self.core.estimate(),
            submitters: self.peers.as_ref().map_or(0, |peers| peers.submitters()),
            ..Load::default()
        }
    }

    /// Y2, before something happens: where else somebody is to be woken, and nobody here.
    pub(super) fn hold(&mut self) -> Option<(Arc<Pool>, Reason)> {
        let place = self.peers.as_ref()?.better_place(self.load());
        self.core.hold(place.is_some());
        place
    }

    /// Y2, after it: who else is to help.
    pub(super) fn calls(&mut self, place: Option<(Arc<Pool>, Reason)>) -> Help {
        let Some(peers) = &self.peers else {
            return Help::None;
        };
        self.core.hold(false);
        let listed = self.core.waiting().next().map(|entry| &entry.queue);
        let Some(queue) = listed.or_else(|| self.mail.first().map(|(queue, _)| queue)) else {
            return Help::None;
        };
        if let Some((pool, reason)) = place.or_else(|| peers.helper(self.load())) {
            queue.counted(Count::Sent, 1);
            if reason == Reason::Crowd {
                queue.counted(Count::Crowded, 1);
            }
            return Help::Send(pool);
        }
        if queue.lacks_pools() && !peers.are_needless(&self.load()) {
            return Help::Muster(queue.clone());
        }
        Help::None
    }

    /// Y4: what a worker that asks for more, and finds nothing to do here, looks at.
    pub(super) fn looks(&mut self, me: usize) -> Option<(Arc<Peers>, Load)> {
        let peers = self.peers.as_ref();
        let peers = peers.filter(|peers| peers.may_have_something())?;
        let looks = self.core.may_look(me);
        looks.then(|| (peers.clone(), self.load()))
    }
}

impl Pool {
    /// Its peers are these from now on. The table's lock is held.
    pub(crate) fn meet(&self, peers: Peers) {
        let mut inner = self.state.lock();
        inner.peers = Some(Arc::new(peers));
        self.tell(&mut inner);
    }

    pub(crate) fn notice(&self) -> &Arc<Notice> {
        &self.notice
    }

    pub(crate) fn cpus(&self) -> CpuSet {
        match &self.place.cpus {
            Cpus::One(cpu) => [*cpu].into(),
            Cpus::Pod { cpus, .. } => cpus.clone(),
        }
    }

    /// The peers learn how it is.
    pub(super) fn tell(&self, inner: &mut Inner) {
        let load = inner.load();
        if let Some(peers) = &inner.peers {
            self.notice.tell(&load);
            peers.call(&load, &mut inner.calling);
        }
    }

    /// When a worker is woken, if anybody wants to know.
    pub(super) fn wakes(&self, inner: &mut Inner, worker: usize) {
        if inner.peers.as_ref().is_some_and(|peers| peers.are_some()) && self.is_timed() {
            inner.woken[worker] = Some(self.env.clock.now());
        }
    }

    /// A worker that was woken is here.
    pub(super) fn has_come(&self, inner: &mut Inner, worker: usize, now: Instant) {
        if let Some(woken) = inner.woken[worker].take() {
            let took = u64::try_from((now - woken).as_nanos()).unwrap_or(u64::MAX);
            inner.delay.note(took, 10);
            self.notice.came(inner.delay.ns(), now);
        }
    }

    /// Y2: a worker is wanted for an item of another pool.
    pub(super) fn invite(self: &Arc<Self>) {
        let mut inner = self.state.lock();
        let mut action = inner.core.invite();
        if self.is_asked_in_vain(&mut inner, action) {
            action = Action::None;
        }
        let deed = self.deed(&mut inner, action);
        drop(inner);
        deed.perform();
    }

    /// Y5: the oldest item, for a worker of another pool.
    pub(crate) fn lend(self: &Arc<Self>) -> Option<Entry> {
        if self.state.lock().core.has_mail() {
            self.fetch_mail();
        }
        let mut inner = self.state.lock();
        let entry = inner.core.lend()?;
        self.tell(&mut inner);
        // A pool that could get no worker has nobody who would look.
        let unused = inner.is_unused();
        drop(inner);
        if unused {
            self.offer();
        }
        entry.queue.counted(Count::Taken, 1);
        Some(entry)
    }

    /// Y4-Y6: what the worker, which looks at its peers, runs for another pool, if anything.
    pub(super) fn borrow(
        self: &Arc<Self>,
        me: usize,
        peers: &Peers,
        mine: Load,
    ) -> Option<(Next<Entry>, Deed)> {
        let entry = peers.take(mine)?;
        Some(self.patient_event(|core| {
            let action = core.adopt(me, &entry);
            (Next::Run(entry), action)
        }))
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle))))]
mod tests {
    use crate::item::Ended;
    use crate::lending::Load;
    use crate::pool::Pool;
    use crate::{Attrs, Work, WorkqueueSystem};
    use inflight_sync::atomic::{AtomicBool, Ordering};
    use inflight_sync::fault::Faults;
    use inflight_sync::time::Clock;
    use inflight_sync::wait::Event;
    use inflight_sync::{Arc, thread};
    use inflight_topology::{Scope, Topology};
    use std::time::Duration;

    /// So many times without any news, and somebody hangs.
    const TIMES: usize = 5_000_000;

    /// The pool of that CPU.
    fn of_cpu(sys: &WorkqueueSystem, cpu: usize) -> Arc<Pool> {
        let mut pools = sys.pools().into_iter();
        let of_it = pools.find(|pool| pool.cpus() == [cpu].into());
        of_it.expect("something was queued there")
    }

    /// G3: a pool without any worker, which its queue has left, goes when its last item is lent.
    #[test]
    fn a_pool_without_workers_goes_with_the_last_item_it_lends() {
        let faults = Faults::new();
        let builder = WorkqueueSystem::builder().topology(Topology::synthetic("core:2").unwrap());
        // Whose time stands still, so that no rescuer comes.
        let builder = builder.clock(Clock::manual()).faults(&faults);
        let sys = builder.build().unwrap();
        let [one, all] = [Scope::Cpu, Scope::System].map(|scope| Attrs::new().scope(scope));
        let other = sys.workqueue("other").unbound(all.clone()).build().unwrap();
        other.spawn(|| ()).wait().unwrap();
        let wq = sys.workqueue("lent").unbound(one).mem_reclaim();
        let wq = wq.build().unwrap();
        faults.refuse_spawns(true);
        let work = Work::new(|| ());
        assert!(wq.queue_on(0, &work).unwrap().is_queued());
        let home = of_cpu(&sys, 0);
        wq.set_attrs(all).unwrap();
        let is_there = || sys.pools().iter().any(|pool| Arc::ptr_eq(pool, &home));
        assert!(is_there(), "it has an item");
        let entry = home.lend().unwrap();
        assert!(!is_there());
        // As the worker that has borrowed it would find.
        assert!(work.cancel());
        entry
            .queue
            .leave(entry.gate, entry.colour, &Ended::Cancelled);
        drop(entry);
        wq.flush().unwrap();
    }

    /// What pools say of themselves may be old: the only one that could help was said to be awake
    /// when the item came, and is not. The look at home asks again.
    #[test]
    fn a_look_asks_again_for_who_was_said_to_be_awake() {
        let builder = WorkqueueSystem::builder().intensive_threshold(Duration::MAX);
        let builder = builder.topology(Topology::synthetic("core:2").unwrap());
        let sys = builder.sampling(true).build().unwrap();
        let attrs = Attrs::new().scope(Scope::Cpu);
        let wq = sys.workqueue("lent").unbound(attrs).build().unwrap();
        (0..2).for_each(|cpu| wq.spawn_on(cpu, || ()).wait().unwrap());
        let [home, other] = [0, 1].map(|cpu| of_cpu(&sys, cpu));
        while other.state.lock().core.running() > 0 {
            thread::yield_now();
        }
        let (begun, ran) = (Arc::new(Event::new()), Arc::new(AtomicBool::new(false)));
        let is_over = {
            let ran = ran.clone();
            // Relaxed: nothing is handed over.
            move || ran.load(Ordering::Relaxed)
        };
        let started = Arc::new(AtomicBool::new(false));
        let hog = wq.spawn_on(0, {
            let (begun, started, is_over) = (begun.clone(), started.clone(), is_over.clone());
            move || {
                started.store(true, Ordering::Relaxed);
                begun.notify_all();
                (0..TIMES)
                    .take_while(|_| !is_over())
                    .for_each(|_| thread::yield_now());
            }
        });
        begun.wait_while(|| !started.load(Ordering::Relaxed));
        other.notice.tell(&Load {
            awake: 1,
            ..Load::default()
        });
        (0..2).for_each(|_| home.state.lock().core.took(1_000_000_000));
        let item = wq.spawn_on(0, move || ran.store(true, Ordering::Relaxed));
        assert_eq!(wq.stats().sent, 0);
        let mut inner = other.state.lock();
        other.tell(&mut inner);
        drop(inner);
        hog.wait().unwrap();
        assert!(is_over(), "nobody has come while the other one ran");
        item.wait().unwrap();
        assert_eq!(wq.stats().taken, 1);
    }
}
