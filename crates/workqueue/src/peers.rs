//! What the pools of a system know of each other, and how they help. `PROTOCOL-lending.md`.

use crate::lending::{Costs, Lending, Load, Pod, Reason, Wake};
use crate::pool::{Entry, Pool};
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, CachePadded, Weak};
use inflight_topology::Topology;

/// What a pool says of itself: two words, written in sections of its lock and read by the others
/// without it. Relaxed: a hint. What is done by it is decided under the lock of the pool it is done
/// to.
#[derive(Debug, Default)]
pub(crate) struct Notice(CachePadded<Told>);

#[derive(Debug, Default)]
struct Told {
    /// What waits, who is awake, and what an item takes.
    now: AtomicU64,
    /// What its workers took from being woken to running, and when that was seen last.
    delay: AtomicU64,
}

/// Counts have so many bits; more is said to be as many as that.
const COUNT: u32 = 16;

/// A time is told in units of so many ns.
const UNIT: u64 = 64;

/// When something was seen is told in units of so many ns, in so many bits: it comes round after
/// months.
const TICK: u64 = 1 << 20;
const TICKS: u32 = 32;

/// What was seen so many ticks ago says nothing any more: about 10 ms.
const STALE: u64 = 10;

/// How many pools of a system have waiting items that others might take. Relaxed: a hint, as
/// notices are. As long as there is none no worker looks at the others.
#[derive(Debug, Default)]
pub(crate) struct Needy(CachePadded<AtomicUsize>);

impl Needy {
    fn are_some(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// One more, or one fewer.
    fn note(&self, one: bool) {
        if one {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Notice {
    /// The pool's lock is held.
    pub(crate) fn tell(&self, load: &Load) {
        let count = |count: usize| (count as u64).min((1 << COUNT) - 1);
        let service = (load.service / UNIT).min(u64::from(u32::MAX));
        let word = service << (2 * COUNT) | count(load.awake) << COUNT | count(load.waiting);
        if self.0.now.load(Ordering::Relaxed) != word {
            self.0.now.store(word, Ordering::Relaxed);
        }
    }

    /// A worker has come; lately they took so many ns. The pool's lock is held.
    pub(crate) fn came(&self, delay: u64, now: Instant) {
        let delay = (delay / UNIT).min(u64::from(u32::MAX));
        let word = delay << TICKS | (now.as_nanos() / TICK) & u64::from(u32::MAX);
        self.0.delay.store(word, Ordering::Relaxed);
    }

    /// What the pool has said last, all but the delay.
    fn load(&self) -> Load {
        let word = self.0.now.load(Ordering::Relaxed);
        let count = |at: u32| (word >> at & ((1 << COUNT) - 1)) as usize;
        Load {
            waiting: count(0),
            awake: count(COUNT),
            service: (word >> (2 * COUNT)) * UNIT,
            ..Load::default()
        }
    }

    /// What its workers take to come, as far as anybody knows at that time.
    fn delay(&self, now: Instant) -> u64 {
        let word = self.0.delay.load(Ordering::Relaxed);
        let seen = word & u64::from(u32::MAX);
        let ago = (now.as_nanos() / TICK).wrapping_sub(seen) & u64::from(u32::MAX);
        if ago > STALE {
            return 0;
        }
        (word >> TICKS) * UNIT
    }
}

/// A pool and those of its system that may help it and be helped.
pub(crate) struct Peers {
    lending: Lending,
    /// Which of `all` the pool is itself.
    me: usize,
    /// In the order of their CPUs.
    all: Vec<Peer>,
    needy: Arc<Needy>,
    clock: Clock,
}

struct Peer {
    pool: Weak<Pool>,
    notice: Arc<Notice>,
}

impl Peers {
    /// `pool` among `others`.
    pub(crate) fn new(
        topology: &Topology,
        pool: &Arc<Pool>,
        mut others: Vec<Arc<Pool>>,
        needy: &Arc<Needy>,
    ) -> Self {
        others.push(pool.clone());
        others.sort_by_key(|other| other.cpus().first());
        let pods = others.iter().map(|p| Pod::new(topology, &p.cpus()));
        // A pool runs one worker for each CPU.
        let costs = Costs {
            lanes: 1,
            ..Costs::default()
        };
        Self {
            lending: Lending::of(pods.collect(), costs),
            me: others
                .iter()
                .position(|p| Arc::ptr_eq(p, pool))
                .unwrap_or(0),
            all: others
                .iter()
                .map(|p| Peer {
                    pool: Arc::downgrade(p),
                    notice: p.notice().clone(),
                })
                .collect(),
            needy: needy.clone(),
            clock: pool.env().clock.clone(),
        }
    }

    fn loads(&self, mine: Load) -> Vec<Load> {
        let now = self.clock.now();
        let load = |(at, peer): (usize, &Peer)| Load {
            delay: peer.notice.delay(now),
            ..if at == self.me {
                mine
            } else {
                peer.notice.load()
            }
        };
        self.all.iter().enumerate().map(load).collect()
    }

    /// Y2: the pool, if there is one, whose worker is to be woken, instead of one at home, for what
    /// is ready at home or is about to come.
    pub(crate) fn better_place(&self, mine: Load) -> Option<Arc<Pool>> {
        if !self.lending.seeks_place(self.me, &mine) {
            return None;
        }
        self.place(mine, |reason| reason != Reason::Backlog)
    }

    /// Y2: the pool, if there is one, whose worker is to help with the list.
    pub(crate) fn helper(&self, mine: Load) -> Option<Arc<Pool>> {
        self.place(mine, |reason| reason == Reason::Backlog)
    }

    /// There is somebody else.
    pub(crate) fn are_some(&self) -> bool {
        self.all.len() > 1
    }

    /// The pool needs no help, whoever could give it.
    pub(crate) fn are_needless(&self, mine: &Load) -> bool {
        self.lending.keeps(self.me, mine)
    }

    /// Whether the others are to know that they may take something here. `known`: they do.
    pub(crate) fn call(&self, mine: &Load, known: &mut bool) {
        let needy = self.are_some() && mine.waiting > 0 && !self.are_needless(mine);
        if needy != *known {
            *known = needy;
            self.needy.note(needy);
        }
    }

    /// Y4: whether there may be something to take from somebody.
    pub(crate) fn may_have_something(&self) -> bool {
        self.are_some() && self.needy.are_some()
    }

    fn place(&self, mine: Load, such: impl Fn(Reason) -> bool) -> Option<Arc<Pool>> {
        if !self.are_some() || self.are_needless(&mine) {
            return None;
        }
        match self.lending.on_enqueue(self.me, &self.loads(mine)) {
            Wake::Other(to, reason) if such(reason) => self.all[to].pool.upgrade(),
            _ => None,
        }
    }

    /// Y4, Y5: an item for a worker, counted in `mine`, that has found nothing at home. No lock is
    /// held.
    pub(crate) fn take(&self, mine: Load) -> Option<Entry> {
        let (from, _) = self.lending.victim(self.me, &self.loads(mine))?;
        self.all[from].pool.upgrade()?.lend()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_as_it_was_told() {
        let notice = Notice::default();
        assert_eq!(notice.load(), Load::default());
        let told = Load {
            waiting: 700,
            awake: 12,
            service: 174_016,
            ..Load::default()
        };
        notice.tell(&told);
        assert_eq!(notice.load(), told);
    }

    /// A delay counts for a while. The clock's words come round.
    #[test]
    fn a_delay_is_forgotten() {
        let notice = Notice::default();
        for start in [0, 5 * TICK, (1 << TICKS) * TICK - 1] {
            let at = |ticks: u64| Instant::from_nanos(start + ticks * TICK);
            notice.came(300_032, at(0));
            assert_eq!(notice.delay(at(0)), 300_032);
            assert_eq!(notice.delay(at(STALE)), 300_032);
            assert_eq!(notice.delay(at(STALE + 1)), 0);
        }
    }

    /// More than there is room for does not spill over.
    #[test]
    fn a_notice_of_too_much_says_much() {
        let notice = Notice::default();
        notice.tell(&Load {
            waiting: 1 << 20,
            awake: 3,
            service: u64::MAX,
            ..Load::default()
        });
        let read = notice.load();
        assert_eq!((read.waiting, read.awake), (65_535, 3));
        assert!(read.service > 200_000_000_000);
    }
}
