//! The threaded form: `max_active` of a whole queue over front ends that many threads use.
//!
//! The steps are those of [`steps`](super::steps), and so is what is reckoned; here the words are
//! atomics, and each group's line lies under a lock. `Share::PerNode` is the same with one group in
//! each set of tokens, so that nothing is shared. `PROTOCOL-limits.md` has the proof; the models
//! in `tests/loom_limits.rs` use its names.
//!
//! The words order nothing but each other: what an item brings along goes through the locks of
//! lines and pools. So they are Relaxed, with the two fences of the proof, except `waiting`.

use super::fronts::Fronts;
use super::rules::{Touch, Tuning, Words, high};
use super::steps::{self, Op};
use super::{FrontEnd, LENDING_NODES, Share, Started, default_min_active, shares, weights};
use inflight_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use inflight_sync::{CachePadded, Mutex, asym};

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

/// What the limits are made from.
#[derive(Clone, Debug)]
struct Setting {
    max_active: usize,
    min_active: usize,
    frozen: bool,
    /// Usable online CPUs by node.
    cpus: Vec<usize>,
}

/// One set of tokens.
#[derive(Debug)]
struct Set<T> {
    groups: Box<[CachePadded<Group<T>>]>,
    spare: CachePadded<AtomicUsize>,
    starving: CachePadded<AtomicU64>,
    /// Written when limits change, and by those who pay.
    debt: CachePadded<AtomicUsize>,
    /// Written when limits change.
    limit: AtomicUsize,
    central: AtomicBool,
    tuning: Tuning,
    #[cfg(all(test, not(any(loom, shuttle))))]
    touches: [AtomicU64; 3],
}

/// What belongs to a group.
#[derive(Debug)]
struct Group<T> {
    /// Idle tokens, and, in [`ONE_ACTIVE`], active items.
    held: AtomicU64,
    /// Inactive items, and [`HELD`] while the line is. Written under the lock, after what was taken
    /// out has been handed on.
    waiting: AtomicUsize,
    peak: AtomicUsize,
    grace: AtomicU32,
    weight: AtomicUsize,
    /// More idle tokens than that it does not keep.
    high: AtomicUsize,
    line: CachePadded<Mutex<Line<T>>>,
    /// That of gate 0 here.
    first_front: FrontEnd,
}

/// The front ends of a group that wait.
#[derive(Debug)]
struct Line<T> {
    /// By gate, as far as somebody has waited there.
    fronts: Fronts<T>,
    /// Items that have become active after waiting.
    served: u64,
    /// F: nobody becomes active.
    held: bool,
}

/// Who is next of a group's front ends.
type Next<'a, T> = dyn FnMut(&mut Fronts<T>) -> Option<(usize, T)> + 'a;

/// Of [`Group::waiting`]: a newcomer joins, whether others wait or not.
const HELD: usize = 1 << (usize::BITS - 1);

/// Of [`Group::held`].
const ONE_ACTIVE: u64 = 1 << 32;

const fn free_of(held: u64) -> usize {
    (held & (ONE_ACTIVE - 1)) as usize
}

const fn active_of(held: u64) -> usize {
    (held >> 32) as usize
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
        let nodes = match share {
            Share::PerNode => cpus.len(),
            Share::Lend => cpus.len().min(LENDING_NODES),
        };
        let groups = if nodes <= 1 { 1 } else { nodes + 1 };
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
            setting: Mutex::new(Setting {
                max_active: max,
                min_active: min,
                frozen: false,
                cpus: cpus.to_vec(),
            }),
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
        let of = |set: &Set<T>| {
            let sum = |touches: &AtomicU64| touches.load(Ordering::Relaxed);
            set.touches.iter().map(sum).sum::<u64>()
        };
        self.sets.iter().map(of).sum()
    }
}

/// Nodes beyond the number of groups share one with others.
pub(super) fn group_of(node: Option<usize>, groups: usize) -> usize {
    match (node, groups) {
        (_, 1) => 0,
        (Some(node), groups) => node % (groups - 1),
        (None, groups) => groups - 1,
    }
}

/// By group, when nodes do not lend.
fn parts(max: usize, min: usize, cpus: &[usize], groups: usize) -> Vec<usize> {
    let shares = shares(max, min, cpus);
    let parts = shares.nodes.into_iter().chain([shares.nodeless]);
    parts.take(groups).collect()
}

impl<T> Set<T> {
    /// Its groups have these weights, and these numbers from the first on.
    fn new(limit: usize, weights: &[usize], first: usize, tuning: Tuning) -> Self {
        let groups = weights.len();
        let central = tuning.is_central(limit, groups);
        let weight = |at: usize| weights[at].max(1);
        let group = |at: usize| {
            CachePadded::new(Group {
                held: AtomicU64::new(if groups == 1 { limit as u64 } else { 0 }),
                waiting: AtomicUsize::new(0),
                peak: AtomicUsize::new(0),
                grace: AtomicU32::new(0),
                weight: AtomicUsize::new(weight(at)),
                high: AtomicUsize::new(high(limit, central, groups, at, weight)),
                line: CachePadded::new(Mutex::new(Line {
                    fronts: Fronts::new(1),
                    served: 0,
                    held: false,
                })),
                first_front: (first + at) << GATE_BITS,
            })
        };
        Self {
            groups: (0..groups).map(group).collect(),
            spare: CachePadded::new(AtomicUsize::new(if groups == 1 { 0 } else { limit })),
            starving: CachePadded::new(AtomicU64::new(0)),
            debt: CachePadded::new(AtomicUsize::new(0)),
            limit: AtomicUsize::new(limit),
            central: AtomicBool::new(central),
            tuning,
            #[cfg(all(test, not(any(loom, shuttle))))]
            touches: Default::default(),
        }
    }

    fn is_alone(&self) -> bool {
        self.groups.len() == 1
    }

    fn active(&self) -> usize {
        self.groups.iter().map(|group| group.active()).sum()
    }

    fn idle(&self) -> usize {
        let free = |group: &CachePadded<Group<T>>| free_of(group.held.load(Ordering::Relaxed));
        self.spare.load(Ordering::Relaxed) + self.groups.iter().map(free).sum::<usize>()
    }
}

impl<T> Line<T> {
    /// The front ends, that of this gate among them.
    fn with(&mut self, gate: usize) -> &mut Fronts<T> {
        while self.fronts.len() <= gate {
            self.fronts.add(0, false);
        }
        &mut self.fronts
    }
}

impl<T> Group<T> {
    /// Items that wait.
    fn waiting(&self) -> usize {
        // Relaxed: it is as good as just before.
        self.waiting.load(Ordering::Relaxed) & !HELD
    }

    fn active(&self) -> usize {
        active_of(self.held.load(Ordering::Relaxed))
    }

    fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// A part of the idle tokens become active items. Returns how many.
    fn activate(&self, part: impl Fn(usize) -> usize) -> usize {
        let mut taken = 0;
        let take = |held| {
            taken = part(free_of(held));
            (taken > 0).then(|| held + taken as u64 * (ONE_ACTIVE - 1))
        };
        // Relaxed: tokens order nothing.
        let held = &self.held;
        let change = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        change.map_or(0, |_| taken)
    }

    /// The lock is held.
    fn tell(&self, line: &Line<T>) {
        let held = if line.held { HELD } else { 0 };
        let waiting = line.fronts.waiting(0) | held;
        // Ordering: Release, pairs with the Acquire in `try_admit`: what was taken out has been
        // handed on.
        self.waiting.store(waiting, Ordering::Release);
    }

    /// Up to so many start, as `next` takes them. Returns how many.
    fn serve(
        &self,
        tokens: usize,
        started: &mut Started<'_, T>,
        mut next: impl FnMut(&mut Fronts<T>) -> Option<(usize, T)>,
    ) -> usize {
        // Relaxed: whoever serves nobody publishes the token, and looks again after that (R3).
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut line = self.line.lock();
        self.serve_locked(&mut line, tokens, started, &mut next)
    }

    fn serve_locked(
        &self,
        line: &mut Line<T>,
        tokens: usize,
        started: &mut Started<'_, T>,
        next: &mut Next<'_, T>,
    ) -> usize {
        let mut served = 0;
        while served < tokens && !line.held {
            let Some((front, item)) = next(&mut line.fronts) else {
                break;
            };
            // Relaxed: tokens order nothing. Counted before it can end.
            self.held.fetch_add(ONE_ACTIVE, Ordering::Relaxed);
            started(self.first_front | front, item);
            served += 1;
        }
        line.served += served as u64;
        self.tell(line);
        served
    }
}

/// A thread that takes steps on one set of tokens. Front ends are those of the queue.
struct Hand<'a, T> {
    slots: &'a Slots<T>,
    set: usize,
}

impl<'a, T> Hand<'a, T> {
    fn set(&self) -> &'a Set<T> {
        &self.slots.sets[self.set]
    }

    fn at(&self, group: usize) -> &'a Group<T> {
        &self.set().groups[group]
    }
}

impl<T: Waits> Hand<'_, T> {
    /// J, and the fence.
    fn join_each(&mut self, spot: Spot, items: impl Iterator<Item = T>) {
        let (bit, at) = (1 << spot.group, spot.at);
        let group = self.at(spot.group);
        {
            let mut line = group.line.lock();
            for item in items {
                let fronts = line.with(at);
                item.waits_at(fronts.inside(at).next_ticket());
                fronts.join(at, item);
            }
            group.tell(&line);
            // Relaxed: as for all words. The mark is written under the lock.
            if !self.is_alone() && self.starving() & bit == 0 {
                self.set().starving.fetch_or(bit, Ordering::Relaxed);
                self.touched(Touch::Mark);
            }
        }
        // Ordering: between J and B; pairs with the one between R2 and R3.
        fence(Ordering::SeqCst);
    }
}

// Relaxed throughout: tokens order nothing, and what two threads have to see of each other stands
// on both sides of the fences in `join_each` and `fence`.
impl<T: Waits> Words<T> for Hand<'_, T> {
    fn groups(&self) -> usize {
        self.set().groups.len()
    }

    fn tuning(&self) -> &Tuning {
        &self.set().tuning
    }

    fn limit(&self) -> usize {
        self.set().limit.load(Ordering::Relaxed)
    }

    fn is_central(&self) -> bool {
        self.set().central.load(Ordering::Relaxed)
    }

    fn debt(&self) -> usize {
        self.set().debt.load(Ordering::Relaxed)
    }

    fn starving(&self) -> u64 {
        self.set().starving.load(Ordering::Relaxed)
    }

    fn active(&self, group: usize) -> usize {
        self.at(group).active()
    }

    fn weight(&self, group: usize) -> usize {
        self.at(group).weight()
    }

    fn high(&self, group: usize) -> usize {
        self.at(group).high.load(Ordering::Relaxed)
    }

    fn peak(&self, group: usize) -> usize {
        self.at(group).peak.load(Ordering::Relaxed)
    }

    fn set_peak(&mut self, group: usize, peak: usize) {
        self.at(group).peak.store(peak, Ordering::Relaxed);
    }

    fn grace(&self, group: usize) -> u32 {
        self.at(group).grace.load(Ordering::Relaxed)
    }

    fn set_grace(&mut self, group: usize, grace: u32) {
        self.at(group).grace.store(grace, Ordering::Relaxed);
    }

    fn take_free(&mut self, group: usize, part: impl Fn(usize) -> usize) -> usize {
        let mut taken = 0;
        let take = |held| {
            taken = part(free_of(held));
            (taken > 0).then(|| held - taken as u64)
        };
        let held = &self.at(group).held;
        match held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => taken,
            Err(_) => 0,
        }
    }

    fn add_free(&mut self, group: usize, tokens: usize) {
        let held = &self.at(group).held;
        held.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    fn take_spare(&mut self, part: impl Fn(usize) -> usize) -> usize {
        take(&self.set().spare, part)
    }

    fn add_spare(&mut self, tokens: usize) {
        self.set().spare.fetch_add(tokens, Ordering::Relaxed);
    }

    fn pay(&mut self, tokens: usize) -> usize {
        take(&self.set().debt, |debt| debt.min(tokens))
    }

    fn count(&mut self, group: usize) {
        let held = &self.at(group).held;
        held.fetch_add(ONE_ACTIVE, Ordering::Relaxed);
    }

    fn group(&self, front: usize) -> usize {
        self.slots.spot_of(front).group
    }

    fn must_wait(&self, front: usize) -> bool {
        self.has_line(self.group(front))
    }

    fn has_line(&self, group: usize) -> bool {
        self.at(group).waiting.load(Ordering::Relaxed) > 0
    }

    fn start(&mut self, _front: usize) {}

    fn join(&mut self, front: usize, item: T) {
        self.join_each(self.slots.spot_of(front), std::iter::once(item));
    }

    fn finish(&mut self, front: usize) -> usize {
        let group = self.group(front);
        let held = &self.at(group).held;
        held.fetch_sub(ONE_ACTIVE, Ordering::Relaxed);
        group
    }

    fn serve(&mut self, group: usize, tokens: usize, started: &mut Started<'_, T>) -> usize {
        let next = |fronts: &mut Fronts<T>| fronts.next(0);
        self.at(group).serve(tokens, started, next)
    }

    fn serve_or_unmark(&mut self, group: usize, started: &mut Started<'_, T>) -> bool {
        let bit = 1 << group;
        let group = self.at(group);
        let mut line = group.line.lock();
        let mut next = |fronts: &mut Fronts<T>| fronts.next(0);
        if group.serve_locked(&mut line, 1, started, &mut next) == 1 {
            return true;
        }
        // The mark of a line that is held is still needed.
        if self.starving() & bit != 0 && !line.held {
            self.set().starving.fetch_and(!bit, Ordering::Relaxed);
            self.touched(Touch::Mark);
        }
        false
    }

    fn fence(&self) {
        // Ordering: between R2 and R3; pairs with the one between J and B, and with that of whoever
        // lowers the limit. What is published here is published by a read-modify-write.
        asym::fence_after_rmw();
    }

    fn touched(&mut self, what: Touch) {
        #[cfg(all(test, not(any(loom, shuttle))))]
        self.set().touches[what as usize].fetch_add(1, Ordering::Relaxed);
        let _ = what;
    }
}

/// Takes a part of a count.
fn take(count: &AtomicUsize, part: impl Fn(usize) -> usize) -> usize {
    let mut taken = 0;
    let take = |now| {
        taken = part(now);
        (taken > 0).then(|| now - taken)
    };
    // Relaxed: as for all words.
    match count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        Ok(_) => taken,
        Err(_) => 0,
    }
}
