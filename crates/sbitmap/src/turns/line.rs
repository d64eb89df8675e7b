//! Who is served next: the state under the list's lock, and the service. Events V1 to V4.

use super::chosen::Chosen;
use super::list::{Kind, List, State, Ticket};
use super::{Gate, Rules};
use crate::store::Store;
use inflight_sync::atomic::{Ordering, fence};
use inflight_sync::wait::Notify;

#[derive(Debug)]
pub(super) struct Line {
    pub(super) list: List,
    /// Of the last grant. [`Gate::grants`] follows it.
    pub(super) serial: u32,
    /// Threads that were granted and woken in this period and have not yet run.
    tokens: u32,
    /// Ends when a token is given up for lost: it no longer counts.
    period: u32,
    /// Whether puts and gets know that somebody waits.
    announced: bool,
    /// The thread that looks now and then whether a token is lost.
    watcher: Option<Ticket>,
    pub(super) waits: u64,
    pub(super) wakeups: u64,
}

impl Line {
    pub(super) const fn new(serial: u32) -> Self {
        Self {
            list: List::new(),
            serial,
            tokens: 0,
            period: 0,
            announced: false,
            watcher: None,
            waits: 0,
            wakeups: 0,
        }
    }

    /// Whether the head has to wait for a token. Tasks need none.
    fn is_blocked(&mut self, rules: &Rules) -> bool {
        let tokens = self.tokens;
        self.list
            .head()
            .is_some_and(|head| head.kind == Kind::Thread && tokens >= rules.tokens)
    }

    /// A1: the token of a granted waiter comes back, unless it was given up before. Returns whether
    /// it did: the next head may have waited for it.
    pub(super) fn return_token(&mut self, token: Option<u32>) -> bool {
        let counts = token == Some(self.period);
        self.tokens -= u32::from(counts);
        counts
    }

    /// Gives all tokens up for lost. Returns whether there were any.
    pub(super) fn give_up_tokens(&mut self) -> bool {
        self.period = self.period.wrapping_add(1);
        std::mem::take(&mut self.tokens) > 0
    }

    /// Makes a thread the watcher: the newest of those who came to the back.
    pub(super) fn set_watcher(&mut self, ticket: Ticket, front: bool) {
        let watched = self.watcher.is_some_and(|w| self.list.is_waiting(w));
        if !front || !watched {
            self.watcher = Some(ticket);
        }
    }

    pub(super) fn is_watcher(&self, ticket: Ticket) -> bool {
        self.watcher == Some(ticket)
    }

    /// The watcher has left before its turn: another thread takes over, and must be told.
    ///
    /// One that leaves by its turn was behind all other threads but those at the front, of which
    /// none is left by then.
    pub(super) fn replace_watcher(&mut self, left: Ticket) -> Option<Notify> {
        if !self.is_watcher(left) {
            return None;
        }
        let is_thread = |ticket: &Ticket| {
            let node = self.list.peek(*ticket);
            node.is_some_and(|node| node.kind == Kind::Thread)
        };
        self.watcher = self.list.newest_first().find(is_thread);
        match &self.list.peek(self.watcher?)?.notify {
            Some(Notify::Thread(unparker)) => Some(Notify::Thread(unparker.clone())),
            _ => None,
        }
    }

    /// Those who wait for more than `depth` ids end their wait. Returns whom to tell.
    pub(super) fn refuse_above(&mut self, depth: usize) -> Vec<Notify> {
        let tickets: Vec<Ticket> = self.list.newest_first().collect();
        let mut refused = Vec::new();
        for ticket in tickets {
            if self
                .list
                .peek(ticket)
                .is_some_and(|n| n.want > depth.max(1))
            {
                let node = self.list.unlink(ticket);
                node.state = State::Refused;
                refused.extend(node.notify.take());
                refused.extend(self.replace_watcher(ticket));
            }
        }
        refused
    }

    /// V1 and V4: what puts have to know. Whoever holds the token serves when it arrives.
    fn announce<S: Store>(&mut self, store: &S, gate: &Gate, rules: &Rules) {
        let somebody_waits = !self.list.is_empty();
        if self.announced != somebody_waits {
            self.announced = somebody_waits;
            store.set_waiters(usize::from(somebody_waits));
        }
        gate.close(self.is_blocked(rules));
    }

    /// V1 to V4: grants the heads of the list as long as there are ids and tokens.
    ///
    /// `me` is a waiter of the calling thread, which needs neither token nor news. If `chosen` is
    /// full afterwards, the caller tells it and serves again.
    pub(super) fn serve<S: Store>(
        &mut self,
        store: &S,
        gate: &Gate,
        rules: &Rules,
        me: Option<Ticket>,
        chosen: &mut Chosen,
    ) {
        self.announce(store, gate, rules);
        if self.list.is_empty() {
            return;
        }
        // Ordering: V2, pairs with P2 in `Store::put`.
        fence(Ordering::SeqCst);
        self.hand_out(usize::MAX, store, gate, rules, me, chosen);
    }

    /// V3 and V4, for `n` ids at most: all that a put has to do, which has changed neither the list
    /// nor the tokens.
    pub(super) fn hand_out<S: Store>(
        &mut self,
        n: usize,
        store: &S,
        gate: &Gate,
        rules: &Rules,
        me: Option<Ticket>,
        chosen: &mut Chosen,
    ) {
        self.end_turns_for_collector(gate, rules);
        for _ in 0..n {
            let Some(ticket) = self.list.head_ticket() else {
                break;
            };
            if chosen.is_full() || (me != Some(ticket) && self.is_blocked(rules)) {
                break;
            }
            let Some(id) = store.take() else { break };
            let head = self.list.head().expect("it has a ticket");
            if head.feed(id) {
                self.grant(ticket, rules, me, gate, chosen);
                self.end_turns_for_collector(gate, rules);
            }
        }
        self.announce(store, gate, rules);
    }

    /// While a head collects several ids nobody takes any past it.
    fn end_turns_for_collector(&mut self, gate: &Gate, rules: &Rules) {
        let Some(head) = self.list.head() else { return };
        if head.want > 1 && !head.collects {
            head.collects = true;
            self.serial = self.serial.wrapping_add(rules.life);
            gate.set_grants(self.serial);
        }
    }

    fn grant(
        &mut self,
        ticket: Ticket,
        rules: &Rules,
        me: Option<Ticket>,
        gate: &Gate,
        chosen: &mut Chosen,
    ) {
        self.serial = self.serial.wrapping_add(1);
        gate.set_grants(self.serial);
        let (serial, period) = (self.serial, self.period);
        let node = self.list.unlink(ticket);
        // Tokens without a limit need no counting.
        let limited = rules.tokens != u32::MAX;
        let token = (limited && me != Some(ticket) && node.kind == Kind::Thread).then_some(period);
        node.state = State::Granted { serial, token };
        if me != Some(ticket) {
            let notify = node.notify.take();
            chosen.push(notify);
            self.wakeups += 1;
        }
        self.tokens += u32::from(token.is_some());
    }
}
