//! A worker takes several items out of a mailbox at once, and tells the gate of their ends at once.

use super::Shared;
use super::mail::Letter;
use crate::attrs::Mode;
use crate::gate::visits_share;
use crate::hand::{Drawn, Recalled, Tally, Whence};
use crate::limits::gate_of;
use crate::pool::{Deed, Pool};
use crate::trace;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;

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
        let at = match &self.fronts {
            Some(_) => state.gate.front(),
            None => gate,
        };
        let mail = &mut *door.mail.inside.lock();
        pool.begin_visit(me, (self, gate), |most, held| {
            let bells = &mail.bells;
            let lease = |letter: &Letter| bells[letter.pool].as_ref().map(|bell| &bell.pool);
            let is_mine = |letter: &&Letter| {
                // Where it may be running, the pool has to look at it.
                let mine = lease(letter).is_some_and(|lease| Arc::ptr_eq(lease.pool(), pool));
                mine && !letter.set.may_be_running
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
                instance: letter.set.instance,
            });
            held.begin(whence, drawn);
            door.taken_out(mail)
        })
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
        let Some((recalled, deed)) = pool.end_visit(worker, (self, gate)) else {
            return;
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
                if drawn.work.is_pending_as(drawn.instance) {
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
        left.settle(self);
        // Outside the locks: a lease may be the last one.
        drop(whence);
    }
}
