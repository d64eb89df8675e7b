//! CPU hotplug, when the program reports it: what changes for queues, pools and threads.
//!
//! Unbound queues get new pools, all or none (`workqueue_inner/apply_attrs.rs`). Between two
//! batches, each worker checks whether it has to pin itself again (`worker.rs`); the pool of an
//! offline CPU continues, with its workers wherever the system runs them.

use crate::error::AttrsError;
use crate::pool_attrs::Settings;
use crate::system::WorkqueueSystem;
use crate::system_inner::SystemInner;
use crate::system_shared::SystemShared;
use crate::worker_pool::QueueDeferred;
use inflight_sync::atomic::Ordering;
use inflight_topology::Topology;

impl WorkqueueSystem {
    /// Reports that CPUs have gone offline or come online. `topology` is the result of
    /// [`Topology::refresh`]; the system does not look by itself.
    ///
    /// Unbound queues change to the pools that their attributes give on the new machine, all or
    /// nothing, as [`set_attrs`](crate::Workqueue::set_attrs) does for one queue. Bound queues,
    /// including BH queues, have a pool for each CPU that was [possible](Topology::possible) when
    /// they were made. While its CPU is offline, the pool's workers run where the system lets them.
    /// Once the CPU is online, each worker is pinned before the first item that it runs after that.
    /// Items queued on a CPU that was not possible when the queue was made go to another CPU's
    /// pool. The same holds for unbound queues and CPUs that were not there when they were made.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NoWorker`] if a pool that is needed at once gets no thread. Then nothing has
    /// changed, and the call can be repeated.
    ///
    /// ```
    /// # use inflight_topology::{Refresh, Topology};
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let topo = Topology::discover()?;
    /// let sys = WorkqueueSystem::builder().topology(&topo).build()?;
    /// if let Refresh::Changed(now) = topo.refresh()? {
    ///     sys.refresh(&now)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refresh(&self, topology: &Topology) -> Result<(), AttrsError> {
        self.inner.reconfigure(|settings| {
            settings.topology = topology.clone();
            Ok(())
        })
    }
}

impl SystemInner {
    /// Changes the settings of all unbound queues, or of none.
    pub(crate) fn reconfigure(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), AttrsError>,
    ) -> Result<(), AttrsError> {
        let mut deferred = QueueDeferred::default();
        let mut settings = self.settings.lock();
        if self.is_stopped() {
            return Err(AttrsError::ShutDown);
        }
        let mut new = settings.clone();
        change(&mut new)?;
        let queues = self.queues();
        let unbound = queues.iter().filter(|queue| !queue.mode.is_bound());
        let changes = unbound.map(|queue| queue.prepare(queue.attrs(), &new, &mut deferred));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let machine_changed = new.topology.version() != settings.topology.version()
            || new.topology != settings.topology;
        if machine_changed {
            let machine = &new.topology;
            let same = |other: &Topology| other.version() == machine.version() && other == machine;
            self.shared.now.replace(same, || machine.clone());
        }
        let unbound_cpus = new.unbound_cpus();
        let cpus_changed = *self.shared.unbound_cpus.lock() != unbound_cpus;
        *self.shared.unbound_cpus.lock() = unbound_cpus;
        if machine_changed || cpus_changed {
            // Relaxed: see the field.
            self.shared.refreshes.fetch_add(1, Ordering::Relaxed);
        }
        for change in changes.into_iter().flatten() {
            change.commit(&new, &mut deferred);
        }
        *settings = new;
        drop(settings);
        drop(deferred);
        if machine_changed || cpus_changed {
            self.shared.timers.thread.wake();
            self.shared.reporter.inbox.thread.wake();
            let rescuers = queues.iter().filter_map(|queue| queue.rescuer.as_ref());
            rescuers.for_each(|rescuer| rescuer.inbox.thread.wake());
        }
        Ok(())
    }
}

impl SystemShared {
    /// Whether a thread has to pin itself: it never did, or CPUs have changed since.
    pub(crate) fn must_settle(&self, settled: Option<usize>) -> bool {
        settled != Some(self.refreshes())
    }

    /// Calls `settle` if so. Reads the number before, so that it misses no change in between.
    pub(crate) fn settle_if_moved(&self, settled: &mut Option<usize>, settle: impl FnOnce()) {
        let refreshes = self.refreshes();
        if settled.replace(refreshes) != Some(refreshes) {
            settle();
        }
    }

    fn refreshes(&self) -> usize {
        // Relaxed: see the field.
        self.refreshes.load(Ordering::Relaxed)
    }

    /// Whether the machine, as it was at first or as it is now, has that CPU.
    pub(crate) fn has_cpu(&self, cpu: usize) -> bool {
        let has = |topology: &Topology| {
            topology.possible().contains(cpu) || topology.cpus().contains(cpu)
        };
        has(&self.topology) || has(self.machine())
    }

    pub(crate) fn machine(&self) -> &Topology {
        self.now.current()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Attrs;
    use crate::test_support::Rigged;
    use inflight_topology::Scope;

    /// A CPU comes online while a thread pins itself, perhaps without that CPU: the thread pins
    /// itself once more and then stays.
    #[test]
    fn a_refresh_while_a_thread_settles() {
        let sys = Rigged::new("core:2 offline:1", |builder| builder);
        let shared = &sys.0.inner.shared;
        let (mut settled, mut times) = (None, 0);
        shared.settle_if_moved(&mut settled, || {
            times += 1;
            let now = Topology::synthetic("core:2").unwrap();
            sys.0.refresh(&now).unwrap();
        });
        assert!(shared.must_settle(settled));
        for _ in 0..2 {
            shared.settle_if_moved(&mut settled, || times += 1);
        }
        assert_eq!((times, shared.must_settle(settled)), (2, false));
    }

    /// What pools know of each other's CPUs includes CPUs that have just come online, and is kept
    /// for CPUs that leave and return.
    #[test]
    fn pods_have_all_cores_of_cpus_that_come_and_go() {
        let machine = |text| Topology::synthetic(text).unwrap();
        for away in ["cache:2 core:2 offline:3", "cache:2 core:2 offline:1"] {
            let sys = Rigged::new(away, |builder| builder);
            let attrs = Attrs::new().scope(Scope::Cache);
            let wq = sys.0.workqueue("pods").unbound(attrs).build().unwrap();
            for _ in 0..2 {
                sys.0.refresh(&machine("cache:2 core:2")).unwrap();
                let pwq = wq.inner().pwq_of(0).unwrap();
                let siblings = pwq.lock().siblings.clone().unwrap();
                let cores = siblings.policy.pods.iter().map(|pod| (pod.cpus, pod.cores));
                assert_eq!(cores.collect::<Vec<_>>(), [(2, 2), (2, 2)], "{away}");
                sys.0.refresh(&machine(away)).unwrap();
            }
        }
    }
}
