//! The poller of a pool of BH items: how it is called, comes and goes, and what if it does not.
//! `PROTOCOL-bh.md`.

use super::{Deed, Entry, Inner, Pool};
use crate::bh::BH_PATIENCE;
use crate::machine::{Action, Called, Core, Next};
use crate::panics::contained;
use crate::timekeeper::Alarm;
use crate::worker::Seen;
use inflight_sync::{Arc, Parker};

/// Tells a poller to come.
pub(crate) type Notify = Arc<Box<dyn Fn() + Send + Sync>>;

pub(super) struct Seat {
    number: usize,
    notify: Notify,
    /// An alarm is set that asks whether it has come.
    expected: bool,
}

impl Inner {
    pub(super) fn is_poller(&self, worker: usize) -> bool {
        self.poller
            .as_ref()
            .is_some_and(|seat| seat.number == worker)
    }
}

impl Pool {
    /// P1: the pool's poller, unless it has one.
    pub(crate) fn seat_poller(
        self: &Arc<Self>,
        notify: &Notify,
        seen: &Arc<Seen>,
    ) -> Option<usize> {
        let mut inner = self.state.lock();
        if inner.poller.is_some() {
            return None;
        }
        let (number, action) = inner.core.seat_poller();
        inner.seat(number, Parker::current().unparker(), seen);
        // It has no thread of its own whose time could be read.
        inner.threads[number] = None;
        inner.poller = Some(Seat {
            number,
            notify: notify.clone(),
            expected: false,
        });
        let deed = self.deed(&mut inner, action);
        drop(inner);
        deed.perform();
        Some(number)
    }

    /// P7: the poller goes for good.
    pub(crate) fn unseat_poller(self: &Arc<Self>) {
        let mut inner = self.state.lock();
        let seat = inner.poller.take();
        let deed = self.patient(inner, |core| ((), core.unseat_poller())).1;
        deed.perform();
        // Outside the lock: what it captured is foreign.
        drop(seat);
    }

    /// P8: the system ends; nobody waits for the poller any more.
    pub(crate) fn relieve_poller(self: &Arc<Self>) {
        let relieve = |core: &mut Core<Entry>| ((), core.relieve_poller());
        self.patient_event(relieve).1.perform();
    }

    /// P2, without a lock: the poller is told, and has its time. If it is another one by now, that
    /// one comes for nothing.
    pub(super) fn call_poller(self: &Arc<Self>) {
        self.expect_poller();
        let notify = {
            let inner = self.state.lock();
            inner.poller.as_ref().map(|seat| seat.notify.clone())
        };
        if let Some(notify) = notify {
            contained(|| notify());
            // The last of them drops what it captured.
            contained(|| drop(notify));
        }
    }

    /// If the poller has been called, somebody will ask whether it has come.
    fn expect_poller(self: &Arc<Self>) {
        let mut inner = self.state.lock();
        let call = inner.core.open_call();
        let Some((call, seat)) = call.zip(inner.poller.as_mut()) else {
            return;
        };
        if !std::mem::replace(&mut seat.expected, true) {
            drop(inner);
            self.expect(call);
        }
    }

    fn expect(self: &Arc<Self>, call: u64) {
        let at = self.env.clock.now() + BH_PATIENCE;
        let alarm = Alarm::Call(self.clone(), call);
        if !self.env.timekeeper.set_alarm(&self.env, at, alarm) {
            // Nobody would ask: it has no time at all.
            self.call_is_over(call);
        }
    }

    /// P6: that call of the poller has had its time.
    pub(crate) fn call_is_over(self: &Arc<Self>, call: u64) {
        let mut inner = self.state.lock();
        let action = match inner.core.call_is_over(call) {
            Called::Again(call) => {
                drop(inner);
                return self.expect(call);
            }
            Called::Over => Action::None,
            Called::Late(action) => action,
        };
        if let Some(seat) = &mut inner.poller {
            seat.expected = false;
        }
        let deed: Deed = self.patient(inner, |_| ((), action)).1;
        deed.perform();
    }

    /// P3, P4: what the poller is to run next. `here` says whether it has come.
    pub(crate) fn poll_next(self: &Arc<Self>, here: &mut bool) -> Option<Entry> {
        loop {
            let mut inner = self.state.lock();
            if !*here && !inner.core.poller_comes() {
                return None;
            }
            *here = true;
            match inner.core.poller_takes() {
                Next::Run(entry) => return Some(entry),
                Next::Fetch => {
                    let mail = std::mem::take(&mut inner.mail);
                    drop(inner);
                    for (queue, gate) in &mail {
                        queue.fetch(*gate);
                    }
                }
                Next::Sleep | Next::Exit => {
                    *here = false;
                    return None;
                }
            }
        }
    }

    /// Whether the poller has been called and has not come.
    pub(crate) fn waits_for_poller(&self) -> bool {
        self.state.lock().core.open_call().is_some()
    }

    /// P5: the poller, which has come, goes. `true` if something waits for it.
    pub(crate) fn poll_ends(self: &Arc<Self>) -> bool {
        let goes = |core: &mut Core<Entry>| core.poller_goes();
        let (more, deed) = self.patient_event(goes);
        deed.perform();
        if more {
            self.expect_poller();
        }
        more
    }
}
