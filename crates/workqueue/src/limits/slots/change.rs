//! L, F: how the limits of a queue change while it is used.

use super::{Hand, Slots, Waits, parts};
use crate::limits::fronts::Fronts;
use crate::limits::rules::{Words, high};
use crate::limits::steps::{self, Op};
use crate::limits::{Share, Started, weights};
use inflight_sync::asym;
use inflight_sync::atomic::Ordering;

/// What the limits are made from.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) max_active: usize,
    pub(super) min_active: usize,
    pub(super) frozen: bool,
    /// Usable online CPUs by node.
    pub(super) cpus: Vec<usize>,
}

impl Setting {
    pub(super) fn new(max_active: usize, min_active: usize, cpus: &[usize]) -> Self {
        Self {
            max_active,
            min_active,
            frozen: false,
            cpus: cpus.to_vec(),
        }
    }
}

impl<T: Waits> Slots<T> {
    /// Changes the limit. Lowering stops nothing that is active; after a rise what waits starts.
    pub fn set_max_active(&self, max_active: usize, started: &mut Started<'_, T>) {
        self.change(started, |setting| {
            setting.max_active = max_active;
            setting.min_active = setting.min_active.min(max_active);
        });
    }

    /// Changes how many items each node is sure of, up to `max_active`.
    pub fn set_min_active(&self, min_active: usize, started: &mut Started<'_, T>) {
        self.change(started, |setting| {
            setting.min_active = min_active.min(setting.max_active);
        });
    }

    /// F. Nothing becomes active until it is thawed; what is active ends in its time. Who is in
    /// [`try_admit`](Slots::try_admit) while this is called may still be let through.
    pub fn set_frozen(&self, frozen: bool, started: &mut Started<'_, T>) {
        self.change(started, |setting| setting.frozen = frozen);
    }

    /// CPUs have come or gone.
    pub fn set_cpus(&self, cpus: &[usize], started: &mut Started<'_, T>) {
        self.change(started, |setting| setting.cpus = cpus.to_vec());
    }

    /// L. One change at a time.
    fn change(&self, started: &mut Started<'_, T>, f: impl FnOnce(&mut Setting)) {
        let mut setting = self.setting.lock();
        let was_frozen = setting.frozen;
        f(&mut setting);
        if was_frozen && !setting.frozen {
            self.hold(false);
        }
        let (max, min) = match setting.frozen {
            true => (0, 0),
            false => (setting.max_active, setting.min_active),
        };
        match self.share {
            Share::PerNode => {
                let parts = parts(max, min, &setting.cpus, self.sets.len());
                for (at, part) in parts.into_iter().enumerate() {
                    self.change_alone(at, part, started);
                }
            }
            Share::Lend => {
                let set = &self.sets[0];
                let weights = weights(&setting.cpus, set.groups.len());
                self.change_set(0, max, &weights, started);
            }
        }
        if setting.frozen && !was_frozen {
            self.hold(true);
        }
    }

    /// F1. The limit is 0: each token there is stands against debt, and who has one in hand that no
    /// line takes pays with it.
    fn hold(&self, held: bool) {
        for group in self.groups() {
            let mut line = group.line.lock();
            line.held = held;
            group.tell(&line);
        }
    }

    /// A node's own limit. After a rise its front ends are served in their order, one item each,
    /// round after round.
    fn change_alone(&self, at: usize, limit: usize, started: &mut Started<'_, T>) {
        let set = &self.sets[at];
        let old = set.limit.load(Ordering::Relaxed);
        if limit <= old {
            return self.change_set(at, limit, &[1], started);
        }
        set.limit.store(limit, Ordering::Relaxed);
        let mut hand = Hand {
            slots: self,
            set: at,
        };
        let tokens = limit - old;
        let tokens = tokens - hand.pay(tokens);
        let mut turn = 0;
        let next = |fronts: &mut Fronts<T>| fronts.next_in_rounds(&mut turn);
        let tokens = tokens - set.groups[0].serve(tokens, started, next);
        if tokens > 0 {
            Op::Spill { group: 0, tokens }.run(&mut hand, started);
        }
    }

    fn change_set(&self, at: usize, limit: usize, weights: &[usize], started: &mut Started<'_, T>) {
        let set = &self.sets[at];
        let groups = set.groups.len();
        let central = set.tuning.is_central(limit, groups);
        for (group, weight) in set.groups.iter().zip(weights) {
            group.weight.store((*weight).max(1), Ordering::Relaxed);
        }
        let was_central = set.central.load(Ordering::Relaxed);
        let old = set.limit.load(Ordering::Relaxed);
        // Relaxed: hints, but for the debt, and that has the fence.
        set.limit.store(limit, Ordering::Relaxed);
        set.central.store(central, Ordering::Relaxed);
        let weight = |group: usize| set.groups[group].weight();
        for at in 0..groups {
            let high = high(limit, central, groups, at, weight);
            set.groups[at].high.store(high, Ordering::Relaxed);
        }
        if limit < old {
            set.debt.fetch_add(old - limit, Ordering::Relaxed);
            // Ordering: between the debt and the look for idle tokens; pairs with that between a
            // token published and the look at the debt (R3).
            asym::fence_after_rmw();
        }
        let mut hand = Hand {
            slots: self,
            set: at,
        };
        for op in steps::change(old, limit, groups, central && !was_central) {
            op.run(&mut hand, started);
        }
    }
}
