//! A function on a CPU, or on each of them.

use crate::error::JoinError;
use crate::system::WorkqueueSystem;
use inflight_sync::Arc;

impl WorkqueueSystem {
    /// Runs `f` on that CPU and waits for its result: `work_on_cpu` of Linux. As an item of
    /// [`events`](WorkqueueSystem::events).
    ///
    /// # Errors
    ///
    /// A [`JoinError`]; [`QueueError::NoSuchCpu`](crate::QueueError::NoSuchCpu) is
    /// [`JoinError::Rejected`].
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// assert_eq!(sys.work_on_cpu(0, || inflight_topology::current_cpu())?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn work_on_cpu<T, F>(&self, cpu: usize, f: F) -> Result<T, JoinError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.events().spawn_on(cpu, f).wait()
    }

    /// Runs `f` on each CPU that the process may use, and waits until all have returned:
    /// `schedule_on_each_cpu` of Linux. Gives the results in the order of the CPUs.
    ///
    /// # Errors
    ///
    /// The first [`JoinError`]; the others run all the same.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let cpus = sys.schedule_on_each_cpu(|cpu| cpu)?;
    /// assert!(!cpus.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_on_each_cpu<T, F>(&self, f: F) -> Result<Vec<T>, JoinError>
    where
        F: Fn(usize) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        let (events, f) = (self.events(), Arc::new(f));
        let machine = self.inner().shared().machine();
        let each = machine.cpus().iter().map(|cpu| {
            let f = f.clone();
            events.spawn_on(cpu, move || f(cpu))
        });
        let handles: Vec<_> = each.collect();
        let results: Vec<_> = handles.into_iter().map(|handle| handle.wait()).collect();
        results.into_iter().collect()
    }
}
