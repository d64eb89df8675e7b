//! Offline CPUs: a hardware queue whose last CPU is offline is inactive, and can be drained.
//!
//! PROTOCOL-freeze.md has the steps (D1 to E2) and the proof.

use crate::cpu_groups::CpuNodes;
use crate::queue_kind::QueueKind;
use crate::set::TagSet;
use crate::shared::Shared;
use crate::tag_maps::TagMaps;
use inflight_sync::panics::FirstPanic;
use inflight_topology::Topology;

/// The CPUs of a set; from [`TagSet::cpus`].
#[derive(Clone, Copy)]
pub struct Cpus<'a, T: Send + 'static> {
    set: &'a TagSet<T>,
}

impl<T: Send + 'static> TagSet<T> {
    /// Returns the set's CPUs.
    #[must_use]
    pub const fn cpus(&self) -> Cpus<'_, T> {
        Cpus { set: self }
    }
}

impl<T: Send + 'static> Cpus<'_, T> {
    /// Takes a CPU out of use: it goes offline, or the engine's thread on it ends. Returns the
    /// hardware queues that become inactive, because they have no other CPU: usually one or none.
    ///
    /// An inactive hardware queue gives out no tags. Submitters that still run on its CPUs get tags
    /// of its stand-in, the next hardware queue of its [kind](crate::QueueKind) that has a CPU, or
    /// of any kind; so do its waiters when their turn comes, at the latest when it is drained. A
    /// caller that names it gets [`InactiveHwQueue`](crate::AllocError::InactiveHwQueue). Its tags
    /// in use stay valid; [`drain`](crate::HwQueues::drain) waits for the last of them.
    ///
    /// The last CPU stays: a call for it changes nothing, and neither does a call for a CPU that is
    /// offline or that the set does not know. Without a topology the CPUs are those that the
    /// machine may have. Waits for nothing but the build closure of a change of size that is making
    /// slots.
    ///
    /// # Panics
    ///
    /// Panics in the build closure of this set.
    ///
    /// [`Completions::close_cpu`](crate::Completions::close_cpu) does the same for completions.
    ///
    /// ```
    /// use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// use inflight_topology::Topology;
    /// let topo = Topology::synthetic("core:4")?;
    /// let set = TagSet::builder().hw_queues(2).depth(8).topology(&topo).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// assert_eq!(set.cpus().offline(2), [], "CPU 3 has the same hardware queue");
    /// for hwq in set.cpus().offline(3) {
    ///     set.hw_queues().drain_blocking(hwq)?; // and close its ring
    /// }
    /// assert_eq!(set.hw_queues().of_cpu(3), 0);
    /// let refused = dev.try_alloc_with(AllocOptions::new().hw_queue(1)).unwrap_err();
    /// assert_eq!(refused, AllocError::InactiveHwQueue { hw_queue: 1 });
    /// assert_eq!(set.cpus().online(3), [1]);
    /// assert_eq!(set.hw_queues().of_cpu(3), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // A caller that drains nothing does not need the result.
    #[allow(clippy::must_use_candidate)]
    pub fn offline(&self, cpu: usize) -> Vec<usize> {
        self.set.shared.set_online(cpu, false)
    }

    /// Brings a CPU back. Returns the hardware queues that become active. Writes before the call
    /// are visible to the callers that get their tags.
    ///
    /// # Panics
    ///
    /// Panics in the build closure of this set.
    // As above.
    #[allow(clippy::must_use_candidate)]
    pub fn online(&self, cpu: usize) -> Vec<usize> {
        self.set.shared.set_online(cpu, true)
    }

    /// Adapts the set to a changed machine: spreads CPUs over the hardware queues as a set built
    /// [with this topology](crate::TagSetBuilder::topology) would, and makes all
    /// [`Completions`](crate::Completions) of the set steer by it. Returns the hardware queues that
    /// became [active or inactive](crate::HwQueues::is_active).
    ///
    /// No freeze is needed: tags in use stay with their hardware queue, waiting submitters keep
    /// their places, and a caller meanwhile gets a tag by the old map or by the new one. CPUs that
    /// are [`offline`](Cpus::offline) stay so until [`online`](Cpus::online), whatever the topology
    /// says. If the map should not change, for example because each hardware queue is a ring of the
    /// thread of one CPU, use only these two.
    ///
    /// The done lists of CPUs that are not in the topology are closed, and their completions run on
    /// the calling thread; the lists open again when their CPUs are back, unless
    /// [`close`](crate::Completions::close) or [`close_cpu`](crate::Completions::close_cpu) closed
    /// them. New CPUs get done lists, with a runner of the [sink](crate::CompletionSink). A request
    /// that was submitted on a removed CPU completes where it is seen. Each topology that the set
    /// has not seen before costs some memory, which stays until the `Completions` are dropped.
    ///
    /// Waits for no request, only for the build closure of a change of size that is making slots.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a callback, a waker or a sink that ran here, after all of
    /// them have been called, and everything has changed, except that the `Completions` of a sink
    /// that panicked steer as before; and in the build closure of this set.
    ///
    /// ```
    /// use inflight_tags::TagSet;
    /// use inflight_topology::Topology;
    /// let all = Topology::synthetic("core:4")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&all).build(|_, _| ())?;
    /// let map = || [0, 1, 2, 3].map(|cpu| set.hw_queues().of_cpu(cpu));
    /// assert_eq!(map(), [0, 0, 1, 1]);
    /// // CPUs 0 and 1 were taken from us. Their hardware queue gets one of the others.
    /// set.cpus().refresh(&Topology::synthetic("core:4 offline:0-1")?);
    /// assert_eq!(map()[2..], [0, 1]);
    /// set.cpus().refresh(&all); // as `Topology::refresh` finds it
    /// assert_eq!(map(), [0, 0, 1, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // As above.
    #[allow(clippy::must_use_candidate)]
    pub fn refresh(&self, topology: &Topology) -> Vec<usize> {
        let (shared, nodes) = (&self.set.shared, CpuNodes::new(topology));
        let size = &shared.bitmaps.size;
        // Dropped after the lock is released: dropping one may run callbacks.
        let subscribers = shared.subscribers();
        let mut panic = FirstPanic::default();
        let (changed, returned, left) = {
            let _change = size.change();
            let change = || shared.cpu_map.set_nodes(nodes, size.hw_queues());
            let (changed, returned) = shared.queues_changed_by(change);
            let bitmaps = &shared.bitmaps;
            bitmaps.set_users(&shared.cpu_map.users(bitmaps.layout.shared_tags));
            // All of them, and what follows, also if a sink panics: completions wait for it.
            let refreshed = subscribers
                .iter()
                .filter_map(|subscriber| panic.run(|| subscriber.refresh(topology)));
            (changed, returned, refreshed.collect::<Vec<_>>())
        };
        panic.run(|| shared.tell_drains(returned));
        for left in left {
            panic.run(left);
        }
        panic.finish();
        changed
    }
}

inflight_sync::debug_fields!([T: Send + 'static] Cpus<'_, T>: |this|
    known = this.set.shared.cpu_map.cpus());

impl TagMaps {
    /// The hardware queue itself, or the one that stands in for it while it is inactive.
    #[inline]
    pub(crate) fn stand_in(&self, hw_queue: usize) -> usize {
        if self.gate.state().has_inactive_queue() {
            self.active_queues.stand_in(hw_queue)
        } else {
            hw_queue
        }
    }
}

impl<T> Shared<T> {
    /// A CPU goes offline or comes online. Returns the hardware queues that become active or
    /// inactive.
    pub(crate) fn set_online(&self, cpu: usize, online: bool) -> Vec<usize> {
        let change = self.bitmaps.size.change();
        {
            let cpus = self.cpu_map.cpus();
            let mut gone = self.bitmaps.active_queues.gone.lock();
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
        let (changed, returned) = self.queues_changed_by(|| ());
        drop(change);
        self.tell_drains(returned);
        changed
    }

    /// D1 and D2, and E1, for every hardware queue. Under the lock for changes of size. Returns
    /// whether hardware queues returned: the caller tells the drains without the lock.
    #[must_use]
    pub(crate) fn update_active_queues(&self) -> bool {
        let bitmaps: &TagMaps = &self.bitmaps;
        let n = bitmaps.size.hw_queues();
        let (mut mapped, mut served) = (vec![false; n], vec![false; n]);
        {
            let gone = bitmaps.active_queues.gone.lock();
            for cpu in self.cpu_map.cpus() {
                for kind in QueueKind::ALL {
                    let hw_queue = self.cpu_map.hw_queue_of(kind, cpu);
                    mapped[hw_queue] = true;
                    served[hw_queue] |= !gone.contains(&cpu);
                }
            }
        }
        let is_active = |hw_queue: &usize| served[*hw_queue] || !mapped[*hw_queue];
        let all_serve = (0..n).all(|hw_queue| is_active(&hw_queue));
        if !all_serve {
            // Before the words of the queues: a thread that finds one inactive, and drains it, must
            // know that submitters check for it.
            bitmaps.gate.set_inactive_queue(true);
        }
        let mut returned = false;
        for hw_queue in 0..bitmaps.layout.hw_queues {
            let by = if hw_queue >= n || is_active(&hw_queue) {
                hw_queue
            } else {
                // The next queue that has a CPU; of its kind, if there is one.
                let others = (hw_queue + 1..n).chain(0..hw_queue);
                let mut others = others.filter(|&by| served[by]);
                let kind = bitmaps.kind_of(hw_queue);
                let alike = others.clone().find(|&by| bitmaps.kind_of(by) == kind);
                alike.or_else(|| others.next()).unwrap_or(hw_queue)
            };
            returned |= bitmaps.active_queues.set_stand_in(hw_queue, by);
        }
        if all_serve {
            bitmaps.gate.set_inactive_queue(false);
        }
        // D2.
        bitmaps.gate.publish();
        returned
    }

    /// E2, if hardware queues returned. Runs wakers.
    pub(crate) fn tell_drains(&self, returned: bool) {
        if returned {
            self.bitmaps.gate.drained.notify_all();
        }
    }

    /// Which hardware queues are active.
    fn active(&self) -> Vec<bool> {
        let n = self.bitmaps.size.hw_queues();
        (0..n)
            .map(|hw_queue| self.bitmaps.stand_in(hw_queue) == hw_queue)
            .collect()
    }

    /// Which hardware queues become active or inactive by a change of the map or of the CPUs, and
    /// what [`update_active_queues`](Self::update_active_queues) returns. Under the same lock.
    fn queues_changed_by(&self, change: impl FnOnce()) -> (Vec<usize>, bool) {
        let before = self.active();
        change();
        let returned = self.update_active_queues();
        let after = self.active();
        let changed = (0..before.len()).filter(|&hw_queue| before[hw_queue] != after[hw_queue]);
        (changed.collect(), returned)
    }
}
