//! A worker takes several items out of a mailbox at once, and tells the gate of their ends at once.

use super::mail::Letter;
use super::{DoorState, Shared};
use crate::attrs::Mode;
use crate::gate::visits_share;
use crate::hand::{Drawn, Recalled, Tally, Whence};
use crate::limits::gate_of;
use crate::pool::{Deed, Deeds, Pool};
use crate::trace;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;

impl DoorState {
    /// Whether it is that worker of that pool who may have kept items.
    fn is_keeper(&self, pool: &Arc<Pool>, me: usize) -> bool {
        let is_me = |(of, worker): &(Arc<Pool>, usize)| Arc::ptr_eq(of, pool) && *worker == me;
        self.keeper.as_ref().is_some_and(is_me)
    }
}

impl Shared {
    /// V4: takes what the mailbox of that gate has for that pool's worker into its hand, as far as
    /// it may run at once, and what is left stays. `None` if no visit has begun.
    pub(crate) fn draw(self: &Arc<Self>, gate: usize, pool: &Arc<Pool>, me: usize) -> Option<Deed> {
        let door = &self.gates[gate];
        let mut state = door.state.lock();
        // Traces tell of each item; what computes for long is not taken together with others.
        if self.cpu_intensive || trace::is_on(self.env()) {
            return None;
        }
        if state.is_keeper(pool, me) {
            state.keeper = None; // That visit is over.
        } else if state.keeper.is_some() {
            // What another one may have kept comes first.
            let kept = self.take_kept(gate, &mut state);
            drop(state);
            kept.perform();
            return None;
        }
        let at = match &self.fronts {
            Some(_) => state.gate.front(),
            None => gate,
        };
        let mail = &mut *door.mail.inside.lock();
        pool.begin_visit(me, (self, gate), |(most, sharers), held, may_run| {
            let bells = &mail.bells;
            let lease = |letter: &Letter| bells[letter.pool].as_ref().map(|bell| &bell.pool);
            let is_mine = |letter: &&Letter| {
                let mine = lease(letter).is_some_and(|lease| Arc::ptr_eq(lease.pool(), pool));
                mine && !(letter.set.may_be_running && may_run(letter.work.key()))
            };
            let most = match sharers {
                1 => most,
                _ => most.min(mail.letters.len() / (2 * sharers)).max(1),
            };
            let letters = mail.letters.iter().take(most);
            let mine = letters.take_while(is_mine).count();
            let first = mail.letters.front().and_then(lease);
            let on_one_slot = first.filter(|_| self.mode == Mode::Ordered).cloned();
            let items = match &self.fronts {
                Some(fronts) => {
                    let part = |free| visits_share(free).min(mine);
                    fronts.slots.try_admit_many(at, part)
                }
                None => state.gate.admit_visit(mine, on_one_slot.is_some()),
            };
            if items == 0 {
                return 0;
            }
            if items == 1 {
                self.started(gate);
            }
            let whence = Whence {
                queue: self.clone(),
                gate: at,
                colour: state.gate.enter_many(items),
                on_one_slot,
            };
            let drawn = mail.letters.drain(..items).map(|letter| Drawn {
                work: letter.work,
                set: letter.set,
            });
            held.begin(whence, drawn, most - items);
            door.taken_out(mail)
        })
    }

    /// V5: lets that worker keep what the items of its visit queue here, if they would be next.
    pub(crate) fn let_keep(self: &Arc<Self>, gate: usize, pool: &Arc<Pool>, me: usize) -> Deeds {
        let door = &self.gates[gate];
        let mut state = door.state.lock();
        let mut deeds = Deeds::default();
        if !state.is_keeper(pool, me) {
            // Of one the gate knows: what another has kept comes first, and he keeps no more.
            deeds = self.take_kept(gate, &mut state);
        }
        // V6 finds nobody who has not asked yet, so whoever closes the gate is asked for here.
        let takes_items = state.refusal(self.key()).is_none();
        let nobody_waits = match &self.fronts {
            Some(fronts) => fronts.slots.room(state.gate.front()) > 0,
            None => state.gate.nobody_waits(),
        };
        let mut pools = state.pools.iter().flatten();
        let leads_here = pools.any(|lease| Arc::ptr_eq(lease.pool(), pool));
        let (keeps, deed) = pool.let_keep(me, takes_items && nobody_waits && leads_here);
        if keeps {
            state.keeper = Some((pool.clone(), me));
        }
        deeds.push(deed);
        deeds
    }

    /// V6: what a worker has kept is queued. The gate is locked, and the mailbox not looked at yet.
    pub(super) fn take_kept(self: &Arc<Self>, gate: usize, state: &mut DoorState) -> Deeds {
        let mut deeds = Deeds::default();
        let Some((pool, worker)) = state.keeper.take() else {
            return deeds;
        };
        let kept = pool.take_kept(worker, self, gate);
        let mut kept = kept.into_iter().peekable();
        while kept.peek().is_some() {
            let DoorState {
                gate: limit, pools, ..
            } = state;
            let mut leases = pools.iter().flatten();
            let lease = leases.find(|lease| Arc::ptr_eq(lease.pool(), &pool));
            let lease = lease.expect("whoever changes them takes what is kept first");
            let next = &mut || kept.next().map(|kept| (kept.work, kept.set));
            self.enter_some(gate, limit, lease, next, &mut deeds);
        }
        deeds
    }

    /// N4: a visit is over.
    pub(crate) fn end_visit(&self, gate: usize, tally: Tally) {
        self.count_begun(gate, tally);
        self.end(gate, tally).settle(self);
    }

    fn count_begun(&self, gate: usize, tally: Tally) {
        if tally.begun != 0 {
            // Relaxed: a statistic. What is below zero wraps.
            let started = &self.gates[gate_of(gate)].started;
            started.fetch_add(tally.begun as u64, Ordering::Relaxed);
        }
    }

    /// N5: what a worker has not begun of its visit here goes back to where it was, and the gate is
    /// told of what has ended.
    pub(crate) fn recall(self: &Arc<Self>, gate: usize, pool: &Arc<Pool>, worker: usize) {
        let mut state = self.gates[gate_of(gate)].state.lock();
        let kept = self.take_kept(gate_of(gate), &mut state);
        let Some((recalled, deed)) = pool.end_visit(worker, (self, gate)) else {
            drop(state);
            return kept.perform();
        };
        let Recalled {
            whence,
            rest,
            tally,
            ..
        } = recalled;
        // Those on one slot: it is with the one that runs.
        for drawn in rest.into_iter().rev() {
            state.gate.put_back(|ticket| {
                // One that was cancelled may have been queued again, and wait elsewhere.
                if drawn.is_pending() {
                    drawn.work.set_ticket(Some(ticket));
                }
                drawn.entry(&whence)
            });
        }
        self.count_begun(gate, tally);
        let started = self.give_back(gate, tally.slots);
        let left = state.leave(self.told(tally), started);
        drop(state);
        deed.perform();
        kept.perform();
        left.settle(self);
        // Outside the locks: a lease may be the last one.
        drop(whence);
    }
}
