//! A pool of BH items: one runs at a time, in order, and a caller's loop may run them.
//!
//! A poller is a worker without a thread. While it comes in time it is the one that is called, and
//! a thread that has become a worker hands over to it after its item. A poller that does not come
//! is late: the thread is brought, until the poller comes again.

use super::{Action, Core, Item, Next, State};

#[derive(Debug)]
pub(super) struct Poller {
    number: usize,
    /// It was called and has not come in time.
    late: bool,
    /// The system ends: it is not called any more.
    relieved: bool,
    /// How often it has been asked to come.
    calls: u64,
}

/// What has become of a call.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a worker is waiting to be brought"]
pub(crate) enum Called {
    /// The poller has come, or has gone, or is not needed any more.
    Over,
    /// It has been called again since; this is that call.
    Again(u64),
    /// It has not come: somebody else is to run what waits.
    Late(Action),
}

impl<T: Item> Core<T> {
    /// A pool of BH items: whatever its items are, one runs after the other has ended.
    pub(crate) fn run_one_by_one(&mut self) {
        self.one_by_one = true;
    }

    /// Nobody is being created: the first worker comes when it is needed.
    pub(crate) fn begin_unmanned(&mut self) {
        self.creating = 0;
    }

    /// P1: a poller comes to this pool, which has none. It is idle.
    pub(crate) fn seat_poller(&mut self) -> (usize, Action) {
        debug_assert!(self.poller.is_none(), "one poller");
        let number = self.add(State::Idle);
        self.poller = Some(Poller {
            number,
            late: false,
            relieved: false,
            calls: 0,
        });
        (number, self.kick())
    }

    /// P7: the poller leaves for good. What waits is the thread's.
    pub(crate) fn unseat_poller(&mut self) -> Action {
        let Some(Poller { number, .. }) = self.poller.take() else {
            return Action::None;
        };
        self.release(number);
        self.send_home(number);
        self.workers[number].state = State::Gone;
        self.vacant.push(number);
        self.kick()
    }

    /// P2: calls the poller, if there is one that comes in time and is idle.
    pub(super) fn call_poller(&mut self) -> Option<Action> {
        let poller = self.poller.as_mut()?;
        if poller.late || self.workers[poller.number].state != State::Idle {
            return None;
        }
        poller.calls += 1;
        let number = poller.number;
        self.set_off(number);
        Some(Action::Wake(number))
    }

    /// Whether a thread is to leave what waits to the poller.
    pub(super) fn yields_to_poller(&self) -> bool {
        self.poller.as_ref().is_some_and(|poller| !poller.late)
    }

    /// The call that the poller has not answered.
    pub(crate) fn open_call(&self) -> Option<u64> {
        let poller = self.poller.as_ref()?;
        (self.workers[poller.number].state == State::Woken).then_some(poller.calls)
    }

    /// P3: the poller is here. `false` if it has nothing to do, or a thread runs.
    pub(crate) fn poller_comes(&mut self) -> bool {
        let Some(poller) = &mut self.poller else {
            return false;
        };
        if poller.relieved {
            return false;
        }
        poller.late = false;
        let me = poller.number;
        let wanted = self.has_work() && self.running < self.target && !self.stopped;
        if self.workers[me].state == State::Idle && wanted {
            self.set_off(me);
        }
        if self.workers[me].state != State::Woken {
            return false;
        }
        self.arrive(me);
        debug_assert!(!self.is_too_many(me), "a thread would have left it all");
        true
    }

    /// P4: the poller, which has come, has finished what it ran, if anything, and asks for more.
    /// With `Next::Sleep` it has gone again.
    pub(crate) fn poller_takes(&mut self) -> Next<T> {
        let Some(me) = self.poller.as_ref().map(|poller| poller.number) else {
            return Next::Sleep;
        };
        self.release(me);
        if let Some(item) = self.take_ready(me) {
            return Next::Run(item);
        }
        if self.mail {
            self.mail_fetched();
            return Next::Fetch;
        }
        self.send_home(me);
        Next::Sleep
    }

    /// P5: the poller, which has come, goes. `true` if something waits: it is called again, or, if
    /// it is relieved, a thread is brought.
    pub(crate) fn poller_goes(&mut self) -> (bool, Action) {
        let Some(me) = self.poller.as_ref().map(|poller| poller.number) else {
            return (false, Action::None);
        };
        self.release(me);
        self.send_home(me);
        let more = self.has_work() && !self.stopped && self.call_poller().is_some();
        let action = if more { Action::None } else { self.kick() };
        (more, action)
    }

    /// P8: the poller is not called any more; what it does not run already is the thread's.
    pub(crate) fn relieve_poller(&mut self) -> Action {
        if let Some(poller) = &mut self.poller {
            (poller.late, poller.relieved) = (true, true);
            let number = poller.number;
            if self.workers[number].state == State::Woken {
                self.send_home(number);
            }
        }
        self.kick()
    }

    /// P6: the time for that call is up.
    pub(crate) fn call_is_over(&mut self, call: u64) -> Called {
        match self.open_call() {
            None => Called::Over,
            Some(now) if now != call => Called::Again(now),
            Some(_) => {
                if let Some(poller) = &mut self.poller {
                    poller.late = true;
                    let number = poller.number;
                    self.send_home(number);
                }
                Called::Late(self.kick())
            }
        }
    }

    /// The poller counts no more.
    fn send_home(&mut self, number: usize) {
        match self.workers[number].state {
            State::Woken => {
                self.arriving -= 1;
                self.running -= 1;
            }
            State::Running => self.running -= 1,
            _ => {}
        }
        self.workers[number].state = State::Idle;
    }
}
