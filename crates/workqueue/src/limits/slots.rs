//! The threaded form: `max_active` of a whole queue over front ends that many threads use.
//!
//! The steps are those of [`steps`](super::steps), and so is what is reckoned; here the words are
//! atomics ([`words`]), which a thread takes in its [`hand`], and each group's line lies under a
//! lock. `Share::PerNode` is the same with one group in each set of tokens, so that nothing is
//! shared. `PROTOCOL-limits.md` has the proof; the models in `tests/loom_limits.rs` use its names.
//!
//! The words order nothing but each other: what an item brings along goes through the locks of
//! lines and pools. So they are Relaxed, with the two fences of the proof, except `waiting`.

use super::rules::{Tuning, Words as _};
use super::steps::{self, Op};
use super::{FrontEnd, Share, Started, default_min_active, group_of, groups, shares, weights};
use change::Setting;
use hand::Hand;
use inflight_sync::atomic::Ordering;
use inflight_sync::{CachePadded, Mutex};
use words::{Group, ONE_ACTIVE, Set, free_of};

mod change;
mod hand;
mod words;

/// What waits in a front end.
pub trait Waits {
    /// It waits under this ticket. The line's lock is held.
    fn waits_at(&self, ticket: u64);
}

/// What a queue lets through at once, over all its front ends.
#[derive(Debug)]
pub struct Slots<T> {
    share: Share,
    /// One for all nodes that lend, else one for each group.
    sets: Box<[Set<T>]>,
    setting: Mutex<Setting>,
}

/// Where a front end stands.
#[derive(Clone, Copy, Debug)]
struct Spot {
    set: usize,
    group: usize,
    /// Its gate.
    at: usize,
}

/// A front end is a gate, and above so many bits the group its items are counted in.
const GATE_BITS: u32 = 20;

/// Which gate that is.
pub(crate) const fn gate_of(front: FrontEnd) -> usize {
    front & ((1 << GATE_BITS) - 1)
}

/// Why a newcomer is not active at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Others wait.
    Behind,
    /// Its group has no idle token.
    Empty,
}

impl<T: Waits> Slots<T> {
    /// `cpus` counts the usable online CPUs of each node.
    #[must_use]
    pub fn new(share: Share, max_active: usize, cpus: &[usize]) -> Self {
        Self::tuned(share, max_active, cpus, Tuning::default())
    }

    /// As `new`, with constants of one's own.
    #[must_use]
    pub fn tuned(share: Share, max_active: usize, cpus: &[usize], tuning: Tuning) -> Self {
        let groups = groups(share, cpus.len());
        let (max, min) = (max_active, default_min_active(max_active));
        let sets = match share {
            Share::PerNode => {
                let parts = parts(max, min, cpus, groups);
                let set = |(at, part)| Set::new(part, &[1], at, tuning);
                parts.into_iter().enumerate().map(set).collect()
            }
            Share::Lend => [Set::new(max, &weights(cpus, groups), 0, tuning)].into(),
        };
        Self {
            share,
            sets,
            setting: Mutex::new(Setting::new(max, min, cpus)),
        }
    }

    /// The front end of a gate as long as that leads to a node, or to none. What has come in by it
    /// goes out by it.
    pub fn front(&self, gate: usize, node: Option<usize>) -> FrontEnd {
        gate | group_of(node, self.groups().count()) << GATE_BITS
    }

    /// Whether the gate has such a front end here.
    pub(crate) fn knows(&self, front: FrontEnd, gate: usize) -> bool {
        gate_of(front) == gate && front >> GATE_BITS < self.groups().count()
    }

    fn spot_of(&self, front: FrontEnd) -> Spot {
        let (at, group) = (gate_of(front), front >> GATE_BITS);
        let (set, group) = match self.share {
            Share::PerNode => (group, 0),
            Share::Lend => (0, group),
        };
        Spot { set, group, at }
    }

    fn spot(&self, front: FrontEnd) -> (&Set<T>, &Group<T>, Spot) {
        let spot = self.spot_of(front);
        let set = &self.sets[spot.set];
        (set, &set.groups[spot.group], spot)
    }

    fn hand(&self, spot: Spot) -> Hand<'_, T> {
        Hand {
            slots: self,
            set: spot.set,
        }
    }

    /// A, at the first place: nobody of the group waits, and it has an idle token. No lock is
    /// taken.
    ///
    /// # Errors
    ///
    /// Why it is not active. Then it goes on with [`admit_slowly`](Slots::admit_slowly).
    pub fn try_admit(&self, front: FrontEnd) -> Result<(), Full> {
        let (set, group, spot) = self.spot(front);
        if !set.is_alone() {
            self.hand(spot).demand(spot.group);
        }
        // Ordering: Acquire, pairs with the Release in `Group::tell`: who waited here before the
        // newcomer and does no more is in its pool.
        if group.waiting.load(Ordering::Acquire) > 0 {
            return Err(Full::Behind);
        }
        match group.activate(|free| free.min(1)) {
            0 => Err(Full::Empty),
            _ => Ok(()),
        }
    }

    /// A, as [`try_admit`](Slots::try_admit), for several newcomers at once: `part` says for how
    /// many, of how many the group has idle tokens. Returns that.
    pub fn try_admit_many(&self, front: FrontEnd, part: impl Fn(usize) -> usize) -> usize {
        let (set, group, spot) = self.spot(front);
        if !set.is_alone() {
            self.hand(spot).demand(spot.group);
        }
        // Ordering: Acquire, as in `try_admit`.
        if group.waiting.load(Ordering::Acquire) > 0 {
            return 0;
        }
        group.activate(part)
    }

    /// The rest of A for a newcomer that [`try_admit`](Slots::try_admit) did not let through, and J
    /// and B. `started` is told who is active, be it the newcomer or whose turn it was.
    pub fn admit_slowly(&self, front: FrontEnd, item: T, why: Full, started: &mut Started<'_, T>) {
        let mut hand = self.hand(self.spot_of(front));
        let op = match why {
            Full::Behind => Op::Join { front, item },
            Full::Empty => Op::Try {
                front,
                item,
                place: 1,
            },
        };
        op.run(&mut hand, started);
    }

    /// J for several newcomers of one front end, behind others, and B.
    pub fn join_all(
        &self,
        front: FrontEnd,
        items: impl Iterator<Item = T>,
        started: &mut Started<'_, T>,
    ) {
        let spot = self.spot_of(front);
        let mut hand = self.hand(spot);
        hand.join_each(spot, items);
        steps::retry_all(&mut hand, spot.group, started);
    }

    /// A, for somebody who does not wait: whether he is active. `started` is told who else is.
    pub fn admit_now(&self, front: FrontEnd, started: &mut Started<'_, T>) -> bool {
        match self.try_admit(front) {
            Ok(()) => return true,
            Err(Full::Behind) => return false,
            Err(Full::Empty) => {}
        }
        let spot = self.spot_of(front);
        let mut hand = self.hand(spot);
        let group = spot.group;
        let Some(op) = steps::take_any(&mut hand, group) else {
            return false;
        };
        hand.count(group);
        op.run(&mut hand, started);
        true
    }

    /// An active item of the front end has ended.
    #[cfg(any(test, loom, feature = "unstable-sim"))]
    pub fn leave(&self, front: FrontEnd, started: &mut Started<'_, T>) {
        self.leave_many(front, 1, started);
    }

    /// So many active items of the front end have ended.
    pub fn leave_many(&self, front: FrontEnd, items: usize, started: &mut Started<'_, T>) {
        let (set, group, spot) = self.spot(front);
        let mut hand = self.hand(spot);
        // Relaxed: R3 looks at both again, after the fence.
        let plain = set.debt.load(Ordering::Relaxed) == 0
            && group.waiting.load(Ordering::Relaxed) == 0
            && !set.central.load(Ordering::Relaxed);
        if !plain {
            for _ in 0..items {
                Op::Release { front }.run(&mut hand, started);
            }
            return;
        }
        // R and R2 in one. Relaxed: tokens order nothing.
        let change = items as u64 * (ONE_ACTIVE - 1);
        let before = group.held.fetch_sub(change, Ordering::Relaxed);
        let own = spot.group;
        if free_of(before) + items > group.high.load(Ordering::Relaxed) {
            Op::Trim { group: own }.run(&mut hand, started);
        } else {
            Op::Look { group: own }.run(&mut hand, started);
        }
    }

    /// Takes back an item that has not become active.
    pub fn remove(&self, front: FrontEnd, ticket: u64, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let (_, group, spot) = self.spot(front);
        let mut line = group.line.lock();
        let item = line.with(spot.at).remove(spot.at, ticket, is_it)?;
        group.tell(&line);
        Some(item)
    }

    /// Looks at an inactive item.
    pub fn inspect<R>(&self, front: FrontEnd, ticket: u64, f: impl FnOnce(&T) -> R) -> Option<R> {
        let (_, group, spot) = self.spot(front);
        let mut line = group.line.lock();
        line.with(spot.at).inside(spot.at).get(ticket).map(f)
    }

    fn groups(&self) -> impl Iterator<Item = &Group<T>> {
        let groups = self.sets.iter().flat_map(|set| &set.groups);
        groups.map(|group| &**group)
    }

    /// One that waits, if anybody does: how many wait in its front end, and how often one of its
    /// group has become active after waiting.
    pub fn first_inactive<R>(&self, f: impl Fn(&T) -> R) -> Option<(R, usize, u64)> {
        self.groups().find_map(|group| {
            if group.waiting() == 0 {
                return None;
            }
            let line = group.line.lock();
            let inside = line.fronts.inside(line.fronts.first(0)?);
            let (_, first) = inside.first()?;
            Some((f(first), inside.len(), line.served))
        })
    }

    /// Items that wait.
    pub fn inactive(&self) -> usize {
        self.groups().map(Group::waiting).sum()
    }

    /// Items that wait in the front end.
    #[cfg(any(test, loom, feature = "unstable-sim"))]
    pub fn inactive_at(&self, front: FrontEnd) -> usize {
        let (_, group, spot) = self.spot(front);
        group.line.lock().with(spot.at).inside(spot.at).len()
    }

    /// Whether items of the two front ends use the same tokens, and there is only one, be it that
    /// nobody has it while they are frozen.
    pub fn share_the_only_one(&self, one: FrontEnd, other: FrontEnd) -> bool {
        let set = self.spot_of(one).set;
        if self.spot_of(other).set != set {
            return false;
        }
        let setting = self.setting.lock();
        let (max, min) = (setting.max_active, setting.min_active);
        match self.share {
            Share::PerNode => parts(max, min, &setting.cpus, self.sets.len())[set] == 1,
            Share::Lend => max == 1,
        }
    }

    /// Which front ends use the same tokens as this one, by number.
    pub fn set_of(&self, front: FrontEnd) -> usize {
        self.spot_of(front).set
    }

    /// How many sets of tokens there are.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// How many newcomers of this front end would be active if they came now.
    pub fn room(&self, front: FrontEnd) -> usize {
        let (set, group, _) = self.spot(front);
        // Relaxed: it is as good as just before.
        if group.waiting.load(Ordering::Relaxed) > 0 {
            return 0;
        }
        let owed = set.debt.load(Ordering::Relaxed);
        set.idle().saturating_sub(owed)
    }

    /// Active items of all front ends.
    pub fn active(&self) -> usize {
        self.sets.iter().map(Set::active).sum()
    }

    /// Tokens in nobody's hand.
    #[cfg(any(test, loom, feature = "unstable-sim"))]
    pub fn idle_tokens(&self) -> usize {
        self.sets.iter().map(Set::idle).sum()
    }

    /// By node, and then for what belongs to none if there are several: active items, and how many
    /// there may be. So many more of these front ends are as good as active.
    pub fn by_node(&self, more: &[(FrontEnd, usize)]) -> Vec<(usize, usize)> {
        let of = |set: &Set<T>| {
            let limit = set.limit.load(Ordering::Relaxed);
            let active = |group: &CachePadded<Group<T>>| (group.active(), limit);
            set.groups.iter().map(active).collect::<Vec<_>>()
        };
        let mut groups: Vec<_> = self.sets.iter().flat_map(of).collect();
        for (front, more) in more {
            let spot = self.spot_of(*front);
            groups[spot.set + spot.group].0 += more; // One of the two is 0.
        }
        let nodes = 0..self.setting.lock().cpus.len().max(1);
        let none = (groups.len() > 1).then_some(None);
        let nodes = nodes.map(Some).chain(none);
        nodes
            .map(|node| groups[group_of(node, groups.len())])
            .collect()
    }

    /// The limit, and what each node is sure of, also while frozen.
    pub fn limits(&self) -> (usize, usize) {
        let setting = self.setting.lock();
        (setting.max_active, setting.min_active)
    }

    /// How the limit is split.
    pub fn share(&self) -> Share {
        self.share
    }

    /// Whether there is one count for all, because the limit is too small to be split.
    #[cfg(any(test, loom, feature = "unstable-sim"))]
    pub fn is_central(&self) -> bool {
        self.sets
            .iter()
            .any(|set| set.central.load(Ordering::Relaxed))
    }

    /// The ticket of an item that waits.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn find(&self, front: FrontEnd, is_it: impl Fn(&T) -> bool) -> Option<u64> {
        let (_, group, spot) = self.spot(front);
        let mut line = group.line.lock();
        line.with(spot.at).inside(spot.at).find(is_it)
    }

    /// How often words of others were written.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn touches(&self) -> u64 {
        self.sets.iter().map(Set::touches).sum()
    }
}

/// By group, when nodes do not lend.
fn parts(max: usize, min: usize, cpus: &[usize], groups: usize) -> Vec<usize> {
    let shares = shares(max, min, cpus);
    let parts = shares.nodes.into_iter().chain([shares.nodeless]);
    parts.take(groups).collect()
}
