//! CPUs that leave and come, when the program says so: what changes then for queues, pools and
//! threads.
//!
//! Unbound queues get other pools, all or none (`workqueue_inner/apply_attrs.rs`). The pool of a
//! CPU that has gone goes on as before, its workers wherever the system puts them. Each worker sees
//! between two batches, by [`must_settle`](SystemShared::must_settle), that it has to take its
//! place again (`worker.rs`; what is done when that is refused: `system_threads.rs`).

use crate::error::AttrsError;
use crate::pool_attrs::Settings;
use crate::system::WorkqueueSystem;
use crate::system_inner::SystemInner;
use crate::system_shared::SystemShared;
use crate::worker_pool::QueueDeferred;
use inflight_sync::atomic::Ordering;
use inflight_topology::Topology;

impl WorkqueueSystem {
    /// The machine has changed: CPUs have gone, or come back. `topology` is what
    /// [`Topology::refresh`] has found; the system does not look by itself.
    ///
    /// Unbound queues go over to the pools that their attributes give on the new machine, all or
    /// nothing, as [`set_attrs`](crate::Workqueue::set_attrs) does for one. Bound queues, BH queues
    /// among them, have a pool for each CPU that was [possible](Topology::possible) when they were
    /// made: while its CPU is away, its workers run where the system lets them, and each is pinned
    /// before the first item it runs after the CPU has come, be it again or for the first time.
    /// Items queued on a CPU that was not even possible then have another one stand in. So it is
    /// for unbound queues with CPUs that were not there when they were made.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NoWorker`] if a pool that is needed at once can get no thread. All goes on
    /// as before, and the call can be repeated.
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
    /// Other settings for all unbound queues, or for none.
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
            self.shared.set_machine(&new.topology);
        }
        let unbound_cpus = new.unbound_cpus();
        let cpus_changed = *self.shared.unbound_cpus.lock() != unbound_cpus;
        *self.shared.unbound_cpus.lock() = unbound_cpus;
        if machine_changed || cpus_changed {
            // Relaxed: as said where it is.
            self.shared.refreshes.fetch_add(1, Ordering::Relaxed);
        }
        for change in changes.into_iter().flatten() {
            change.commit(&mut deferred);
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
    /// Whether a thread has to take its place: it never did, or since then the machine has changed,
    /// or the CPUs of unbound queues.
    pub(crate) fn must_settle(&self, settled: Option<usize>) -> bool {
        settled != Some(self.refreshes())
    }

    /// The calling thread takes its place by `settle`, if it must. The number is read before that,
    /// so that no change in between is missed.
    pub(crate) fn settle_if_moved(&self, settled: &mut Option<usize>, settle: impl FnOnce()) {
        let refreshes = self.refreshes();
        if settled.replace(refreshes) != Some(refreshes) {
            settle();
        }
    }

    fn refreshes(&self) -> usize {
        // Relaxed: as said where it is.
        self.refreshes.load(Ordering::Relaxed)
    }

    /// Whether that is a CPU: of the machine there was at first, or of that there is now.
    pub(crate) fn has_cpu(&self, cpu: usize) -> bool {
        let has = |topology: &Topology| {
            topology.possible().contains(cpu) || topology.cpus().contains(cpu)
        };
        has(&self.topology) || has(self.machine())
    }

    /// The machine as it is now.
    pub(crate) fn machine(&self) -> &Topology {
        self.now.current()
    }

    fn set_machine(&self, machine: &Topology) {
        let same = |other: &Topology| other.version() == machine.version() && other == machine;
        self.now.replace(same, || machine.clone());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::test_support::{Rigged, Signal, until};
    use crate::{Attrs, Share};
    use inflight_sync::thread;
    use inflight_topology::Scope;

    /// A CPU comes while a thread takes its place, which may have been without that: it takes it
    /// once more, and then stays.
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

    /// What pools know of each other's CPUs is right of those that have just come, and is not
    /// forgotten of those that leave and return.
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

    /// Two workers have two items each when a CPU comes, and their node may run one less. Those
    /// that have not begun wait for that.
    #[test]
    fn a_part_that_becomes_smaller_takes_back_what_has_not_begun() {
        let sys = Rigged::new("numa:2 core:2 offline:1", |builder| builder);
        let attrs = Attrs::new().scope(Scope::Numa).strict(true);
        let wq = sys.0.workqueue("parts").unbound(attrs).freezable();
        let wq = wq.share(Share::PerNode).max_active(2).min_active(1);
        let wq = wq.build().unwrap();
        let frozen = sys.0.freeze();
        {
            let mut state = wq.inner().pwq_of(2).unwrap().lock();
            state.watched = true;
            state.core.set_batching(true);
            // Two that wait are worth a second worker.
            state.core.note_service(9_000);
        }
        let [begun, first, second] = [(); 3].map(|()| Signal::default());
        let items = [&first, &second, &first, &second];
        let items = items.map(|open| wq.spawn_on(2, until(&begun, open, 1)));
        drop(frozen);
        begun.wait(2);
        let now = Topology::synthetic("numa:2 core:2").unwrap();
        sys.0.refresh(&now).unwrap();
        first.raise();
        begun.wait(3);
        let idle = || {
            let pwq = wq.inner().pwq_of(2).unwrap();
            pwq.lock().core.workers.nr_idle()
        };
        while idle() == 0 && begun.get() == 3 {
            thread::yield_now();
        }
        let begun = begun.get();
        second.raise();
        items.into_iter().for_each(|item| item.wait().unwrap());
        assert_eq!(begun, 3);
    }
}
