//! CPUs that leave: a hardware queue whose last CPU is gone is inactive, and can be drained.
//!
//! ```text
//! leave:     D1 mark the queue inactive    D2 heavy fence
//!            D3 wait on `drained` until none of its bits is set, or it serves again
//! submitter: A1 .. A3, then D4: the queue is inactive -> put back (B1), look again
//! return:    E1 unmark it                  E2 notify `drained`
//! ```
//!
//! PROTOCOL.md has the proof.

use crate::bitmaps::Bitmaps;
use crate::drained::Drained;
use crate::error::DrainError;
use crate::kind::QueueKind;
use crate::set::{Shared, TagSet};
use inflight_sync::Mutex;
use inflight_sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::time::Duration;

/// Which hardware queues serve, and which stand in for the others.
#[derive(Debug)]
pub(crate) struct Service {
    /// By hardware queue: `serial << 32 | who serves for it`. The serial moves whenever the queue
    /// turns active or inactive.
    words: Box<[AtomicU64]>,
    /// The CPUs that have left. Changed under the lock for changes of size.
    gone: Mutex<BTreeSet<usize>>,
}

const SERIAL: u64 = 1 << 32;

impl Service {
    pub(crate) fn new(hw_queues: usize) -> Self {
        Self {
            words: (0..hw_queues as u64).map(AtomicU64::new).collect(),
            gone: Mutex::new(BTreeSet::new()),
        }
    }

    fn word(&self, hw_queue: usize) -> u64 {
        // Ordering: pairs with D1 and E1 in `serve_by`.
        self.words[hw_queue].load(Ordering::Acquire)
    }

    /// Who serves for the hardware queue: itself, unless it is inactive.
    pub(crate) fn stand_in(&self, hw_queue: usize) -> usize {
        (self.word(hw_queue) % SERIAL) as usize
    }

    /// D1 or E1 of one hardware queue. One caller at a time. Returns whether it turned active.
    fn serve_by(&self, hw_queue: usize, by: usize) -> bool {
        let old = self.word(hw_queue);
        let was_active = old % SERIAL == hw_queue as u64;
        let is_active = by == hw_queue;
        let serial = (old / SERIAL + u64::from(was_active != is_active)) % SERIAL;
        // Ordering: pairs with the load in `word`: who sees it sees what was done before.
        self.words[hw_queue].store(serial * SERIAL + by as u64, Ordering::Release);
        is_active && !was_active
    }
}

impl<T> Shared<T> {
    /// D1 and D2, E1 and E2, for every hardware queue. Under the lock for changes of size.
    pub(crate) fn look_who_serves(&self) {
        let bitmaps: &Bitmaps = &self.bitmaps;
        let n = bitmaps.size().hw_queues();
        let (mut mapped, mut served) = (vec![false; n], vec![false; n]);
        {
            let gone = bitmaps.service().gone.lock();
            for cpu in self.map.cpus() {
                for kind in QueueKind::ALL {
                    let hw_queue = self.map.hw_queue_of(kind, cpu);
                    mapped[hw_queue] = true;
                    served[hw_queue] |= !gone.contains(&cpu);
                }
            }
        }
        let is_active = |hw_queue: &usize| served[*hw_queue] || !mapped[*hw_queue];
        let all_serve = (0..n).all(|hw_queue| is_active(&hw_queue));
        if !all_serve {
            // Before the marks of the queues: who finds one, and drains, must know that submitters
            // look for it.
            bitmaps.gate().set_short(true);
        }
        let mut returned = false;
        for hw_queue in 0..bitmaps.geometry().hw_queues {
            let by = if hw_queue >= n || is_active(&hw_queue) {
                hw_queue
            } else {
                // The next one that has a CPU; of its kind, if there is one.
                let others = (hw_queue + 1..n).chain(0..hw_queue);
                let mut others = others.filter(|&by| served[by]);
                let kind = bitmaps.kind_of(hw_queue);
                let alike = others.clone().find(|&by| bitmaps.kind_of(by) == kind);
                alike.or_else(|| others.next()).unwrap_or(hw_queue)
            };
            returned |= bitmaps.service().serve_by(hw_queue, by);
        }
        if all_serve {
            bitmaps.gate().set_short(false);
        }
        // D2.
        bitmaps.gate().publish();
        if returned {
            // E2.
            bitmaps.gate().drained().notify_all();
        }
    }

    fn active(&self) -> Vec<bool> {
        let n = self.bitmaps.size().hw_queues();
        (0..n)
            .map(|hw_queue| self.bitmaps.stand_in(hw_queue) == hw_queue)
            .collect()
    }

    /// A CPU goes or comes. Which hardware queues have turned.
    fn set_online(&self, cpu: usize, online: bool) -> Vec<usize> {
        let _change = self.bitmaps.size().change();
        {
            let cpus = self.map.cpus();
            let mut gone = self.bitmaps.service().gone.lock();
            let changed = if online {
                gone.remove(&cpu)
            } else {
                let is_last = cpus.iter().all(|c| *c == cpu || gone.contains(c));
                cpus.contains(&cpu) && !is_last && gone.insert(cpu)
            };
            if !changed {
                return vec![];
            }
        }
        self.turned_by(|| ())
    }

    /// Which hardware queues turn active or inactive by a change of the map or of who is there.
    /// Under the lock for changes of size.
    pub(crate) fn turned_by(&self, change: impl FnOnce()) -> Vec<usize> {
        let before = self.active();
        change();
        self.look_who_serves();
        let after = self.active();
        (0..before.len())
            .filter(|&hw_queue| before[hw_queue] != after[hw_queue])
            .collect()
    }

    /// D2. The word of a hardware queue that is to be drained.
    fn begin_drain(&self, hw_queue: usize) -> Result<u64, DrainError> {
        if hw_queue >= self.bitmaps.size().hw_queues() {
            return Err(DrainError::NoSuchHwQueue);
        }
        let word = self.bitmaps.service().word(hw_queue);
        if word % SERIAL == hw_queue as u64 {
            return Err(DrainError::Active);
        }
        // Whoever did D1 may not have come to its D2 yet.
        self.bitmaps.gate().publish();
        Ok(word)
    }

    /// D3: whether it has come to an end.
    fn end_drain(
        &self,
        hw_queue: usize,
        word: u64,
        pass: &mut Drained<'_>,
    ) -> Option<Result<(), DrainError>> {
        if self.bitmaps.service().word(hw_queue) / SERIAL != word / SERIAL {
            let there = hw_queue < self.bitmaps.size().hw_queues();
            let why = if there {
                DrainError::Active
            } else {
                DrainError::NoSuchHwQueue
            };
            return Some(Err(why));
        }
        // The bit first: whose it is was written before A2, and stays until its put.
        let counts = |table, tag| {
            !self.bitmaps.geometry().shared || self.slot(table, tag).hw_queue() == hw_queue
        };
        (!pass.is_busy_with(counts)).then_some(Ok(()))
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// A CPU leaves: it goes offline, or the engine's thread on it ends. Returns the hardware
    /// queues that turn inactive with it, having no other CPU: one or none, as a rule.
    ///
    /// An inactive hardware queue gives out no tags. Submitters that run on its CPUs all the same
    /// get theirs from the next hardware queue of its [kind](crate::QueueKind) that has a CPU, or
    /// of any kind; so do its waiters when their turn comes, at the latest when it is drained. Who
    /// names it gets [`InactiveHwQueue`](crate::AllocError::InactiveHwQueue). Its tags that are out
    /// live on; [`drain_hw_queue`](TagSet::drain_hw_queue) waits for the last of them.
    ///
    /// The last CPU does not leave: a call for it changes nothing, as one for a CPU that is gone
    /// or that the set does not know. Without a topology the CPUs are those that the machine may
    /// have. Waits for nobody, but for the build closure of a change of size that is making slots.
    ///
    /// # Panics
    ///
    /// In the build closure of this set.
    ///
    /// Completions are told by [`Completions::close_cpu`](crate::Completions::close_cpu).
    ///
    /// The idea is the CPU hotplug of blk-mq.
    ///
    /// ```
    /// use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// use inflight_topology::Topology;
    /// let topo = Topology::synthetic("core:4")?;
    /// let set = TagSet::builder().hw_queues(2).depth(8).topology(&topo).build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// assert_eq!(set.cpu_offline(2), [], "CPU 3 has the same hardware queue");
    /// for hwq in set.cpu_offline(3) {
    ///     set.drain_hw_queue_blocking(hwq)?; // and close its ring
    /// }
    /// assert_eq!(set.hw_queue_of(3), 0);
    /// let refused = dev.try_alloc(AllocOptions::new().hw_queue(1)).unwrap_err();
    /// assert_eq!(refused, AllocError::InactiveHwQueue);
    /// assert_eq!(set.cpu_online(3), [1]);
    /// assert_eq!(set.hw_queue_of(3), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Why: who drains nothing has no use for it.
    #[allow(clippy::must_use_candidate)]
    pub fn cpu_offline(&self, cpu: usize) -> Vec<usize> {
        self.shared().set_online(cpu, false)
    }

    /// A CPU is back. Returns the hardware queues that serve again with it. What was done before
    /// the call is visible to those who get their tags.
    ///
    /// # Panics
    ///
    /// In the build closure of this set.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// # let topo = inflight_topology::Topology::synthetic("core:2")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// set.cpu_offline(0);
    /// assert_eq!(set.cpu_online(0), [0]);
    /// assert_eq!(set.cpu_online(0), [], "it was back already");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Why: as above.
    #[allow(clippy::must_use_candidate)]
    pub fn cpu_online(&self, cpu: usize) -> Vec<usize> {
        self.shared().set_online(cpu, true)
    }

    /// Whether a hardware queue gives out tags; not if all its CPUs are
    /// [offline](TagSet::cpu_offline), or if there is none of that number.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().hw_queues(2).build(|_, _| ())?;
    /// assert!(set.is_active(1) && !set.is_active(2));
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_active(&self, hw_queue: usize) -> bool {
        hw_queue < self.hw_queues() && self.shared().bitmaps.stand_in(hw_queue) == hw_queue
    }

    /// Waits until no tag of an inactive hardware queue is held or in flight: its ring can then be
    /// closed. What the last owners wrote is visible. May be dropped at any time.
    ///
    /// Somebody has to complete its requests meanwhile. What a [`Split`](crate::Split) has
    /// collected there counts as held.
    ///
    /// # Errors
    ///
    /// [`Active`](DrainError::Active) if it serves, or does so [again](TagSet::cpu_online) before
    /// it was drained; [`NoSuchHwQueue`](DrainError::NoSuchHwQueue).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// # let topo = inflight_topology::Topology::synthetic("core:2")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// assert_eq!(set.cpu_offline(1), [1]);
    /// inflight_sync::block_on(set.drain_hw_queue(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn drain_hw_queue(&self, hw_queue: usize) -> Result<(), DrainError> {
        let shared = self.shared();
        let word = shared.begin_drain(hw_queue)?;
        let mut pass = Drained::of_hw_queue(&shared.bitmaps, hw_queue);
        let mut end = None;
        let drained = shared.bitmaps.gate().drained();
        drained
            .listen_while(|| {
                end = shared.end_drain(hw_queue, word, &mut pass);
                end.is_none()
            })
            .await;
        end.expect("the wait is over when there is an end")
    }

    /// [`drain_hw_queue`](TagSet::drain_hw_queue), sleeping.
    ///
    /// A thread that holds a tag of it waits for itself, for ever.
    ///
    /// # Errors
    ///
    /// As [`drain_hw_queue`](TagSet::drain_hw_queue).
    ///
    /// ```
    /// # use inflight_tags::{DrainError, TagSet};
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// assert_eq!(set.drain_hw_queue_blocking(1), Err(DrainError::NoSuchHwQueue));
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn drain_hw_queue_blocking(&self, hw_queue: usize) -> Result<(), DrainError> {
        let shared = self.shared();
        let word = shared.begin_drain(hw_queue)?;
        let mut pass = Drained::of_hw_queue(&shared.bitmaps, hw_queue);
        let mut end = None;
        shared.bitmaps.gate().drained().wait_while(|| {
            end = shared.end_drain(hw_queue, word, &mut pass);
            end.is_none()
        });
        end.expect("the wait is over when there is an end")
    }

    /// [`drain_hw_queue`](TagSet::drain_hw_queue), sleeping at most for `timeout`. The hardware
    /// queue stays inactive.
    ///
    /// # Errors
    ///
    /// As [`drain_hw_queue`](TagSet::drain_hw_queue); [`TimedOut`](DrainError::TimedOut).
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, DrainError, TagSet};
    /// # use std::time::Duration;
    /// # let topo = inflight_topology::Topology::synthetic("core:2")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// let held = set.add_queue("sda").try_alloc(AllocOptions::new().hw_queue(1))?;
    /// set.cpu_offline(1);
    /// let short = Duration::from_millis(1);
    /// assert_eq!(set.drain_hw_queue_timeout(1, short), Err(DrainError::TimedOut));
    /// drop(held);
    /// assert_eq!(set.drain_hw_queue_timeout(1, short), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_hw_queue_timeout(
        &self,
        hw_queue: usize,
        timeout: Duration,
    ) -> Result<(), DrainError> {
        let shared = self.shared();
        let word = shared.begin_drain(hw_queue)?;
        let clock = shared.bitmaps.clock();
        let mut pass = Drained::of_hw_queue(&shared.bitmaps, hw_queue);
        let mut end = None;
        let drained = shared.bitmaps.gate().drained();
        drained.wait_while_until(clock, clock.now() + timeout, || {
            end = shared.end_drain(hw_queue, word, &mut pass);
            end.is_none()
        });
        end.unwrap_or(Err(DrainError::TimedOut))
    }
}
