//! The words of a set of tokens and of its groups, and the lines of those who wait.

use super::GATE_BITS;
use crate::limits::fronts::Fronts;
use crate::limits::rules::{Tuning, high};
use crate::limits::{FrontEnd, Started};
use inflight_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use inflight_sync::{CachePadded, Mutex};

/// One set of tokens.
#[derive(Debug)]
pub(super) struct Set<T> {
    pub(super) groups: Box<[CachePadded<Group<T>>]>,
    pub(super) spare: CachePadded<AtomicUsize>,
    pub(super) starving: CachePadded<AtomicU64>,
    /// Written when limits change, and by those who pay.
    pub(super) debt: CachePadded<AtomicUsize>,
    /// Written when limits change.
    pub(super) limit: AtomicUsize,
    pub(super) central: AtomicBool,
    pub(super) tuning: Tuning,
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) touches: [AtomicU64; 3],
}

/// What belongs to a group.
#[derive(Debug)]
pub(super) struct Group<T> {
    /// Idle tokens, and, in [`ONE_ACTIVE`], active items.
    pub(super) held: AtomicU64,
    /// Inactive items, and [`HELD`] while the line is. Written under the lock, after what was taken
    /// out has been handed on.
    pub(super) waiting: AtomicUsize,
    pub(super) peak: AtomicUsize,
    pub(super) grace: AtomicU32,
    pub(super) weight: AtomicUsize,
    /// More idle tokens than that it does not keep.
    pub(super) high: AtomicUsize,
    pub(super) line: CachePadded<Mutex<Line<T>>>,
    /// That of gate 0 here.
    first_front: FrontEnd,
}

/// The front ends of a group that wait.
#[derive(Debug)]
pub(super) struct Line<T> {
    /// By gate, as far as somebody has waited there.
    pub(super) fronts: Fronts<T>,
    /// Items that have become active after waiting.
    pub(super) served: u64,
    /// F: nobody becomes active.
    pub(super) held: bool,
}

/// Who is next of a group's front ends.
type Next<'a, T> = dyn FnMut(&mut Fronts<T>) -> Option<(usize, T)> + 'a;

/// Of [`Group::waiting`]: a newcomer joins, whether others wait or not.
const HELD: usize = 1 << (usize::BITS - 1);

/// Of [`Group::held`].
pub(super) const ONE_ACTIVE: u64 = 1 << 32;

pub(super) const fn free_of(held: u64) -> usize {
    (held & (ONE_ACTIVE - 1)) as usize
}

const fn active_of(held: u64) -> usize {
    (held >> 32) as usize
}

impl<T> Set<T> {
    /// Its groups have these weights, and these numbers from the first on.
    pub(super) fn new(limit: usize, weights: &[usize], first: usize, tuning: Tuning) -> Self {
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

    pub(super) fn is_alone(&self) -> bool {
        self.groups.len() == 1
    }

    pub(super) fn active(&self) -> usize {
        self.groups.iter().map(|group| group.active()).sum()
    }

    /// How often words of others were written.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn touches(&self) -> u64 {
        let of = |touches: &AtomicU64| touches.load(Ordering::Relaxed);
        self.touches.iter().map(of).sum()
    }

    pub(super) fn idle(&self) -> usize {
        let free = |group: &CachePadded<Group<T>>| free_of(group.held.load(Ordering::Relaxed));
        self.spare.load(Ordering::Relaxed) + self.groups.iter().map(free).sum::<usize>()
    }
}

impl<T> Line<T> {
    /// The front ends, that of this gate among them.
    pub(super) fn with(&mut self, gate: usize) -> &mut Fronts<T> {
        while self.fronts.len() <= gate {
            self.fronts.add(0, false);
        }
        &mut self.fronts
    }
}

impl<T> Group<T> {
    /// Items that wait.
    pub(super) fn waiting(&self) -> usize {
        // Relaxed: it is as good as just before.
        self.waiting.load(Ordering::Relaxed) & !HELD
    }

    pub(super) fn active(&self) -> usize {
        active_of(self.held.load(Ordering::Relaxed))
    }

    pub(super) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// A part of the idle tokens become active items. Returns how many.
    pub(super) fn activate(&self, part: impl Fn(usize) -> usize) -> usize {
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
    pub(super) fn tell(&self, line: &Line<T>) {
        let held = if line.held { HELD } else { 0 };
        let waiting = line.fronts.waiting(0) | held;
        // Ordering: Release, pairs with the Acquire in `try_admit`: what was taken out has been
        // handed on.
        self.waiting.store(waiting, Ordering::Release);
    }

    /// Up to so many start, as `next` takes them. Returns how many.
    pub(super) fn serve(
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

    pub(super) fn serve_locked(
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
