//! Running a function on a CPU, or on each of them.

use crate::completion::Wait;
use crate::error::JoinError;
use crate::join_handle::JoinHandle;
use crate::system::WorkqueueSystem;
use inflight_sync::Arc;
use std::time::Duration;

impl WorkqueueSystem {
    /// Queues `f` to run on that CPU, as an item of [`events`](WorkqueueSystem::events). Waiting
    /// for the handle makes it `work_on_cpu` of Linux.
    ///
    /// If there is no such CPU, the handle gives [`JoinError::Rejected`] with
    /// [`QueueError::NoSuchCpu`](crate::QueueError::NoSuchCpu).
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let cpu = sys.work_on_cpu(0, || inflight_topology::current_cpu());
    /// assert_eq!(cpu.wait()?, 0); // or cpu.await?
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn work_on_cpu<T, F>(&self, cpu: usize, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.events().spawn_on(cpu, f)
    }

    /// Runs `f` on each CPU that the process may use, and waits until all have returned:
    /// `schedule_on_each_cpu` of Linux. Returns the results in the order of the CPUs.
    ///
    /// The call queues the functions. Dropping the future ends the wait.
    ///
    /// # Errors
    ///
    /// The first [`JoinError`]; the other functions run all the same.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # let async_part = async {
    /// let cpus = sys.schedule_on_each_cpu(|cpu| cpu).await?;
    /// assert!(!cpus.is_empty());
    /// # Ok::<(), inflight_workqueue::JoinError>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// let same = sys.schedule_on_each_cpu_blocking(|cpu| cpu)?; // on a thread
    /// let limit = std::time::Duration::from_secs(60);
    /// assert_eq!(sys.schedule_on_each_cpu_timeout(|cpu| cpu, limit)?, same);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_on_each_cpu<T, F>(&self, f: F) -> Wait<'static, Result<Vec<T>, JoinError>>
    where
        F: Fn(usize) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        let handles = self.queue_on_each_cpu(f);
        Wait::new(async {
            let mut results = Vec::with_capacity(handles.len());
            for handle in handles {
                results.push(handle.await);
            }
            results.into_iter().collect()
        })
    }

    /// As [`schedule_on_each_cpu`](WorkqueueSystem::schedule_on_each_cpu), for threads. On a worker
    /// the wait counts as blocking; [`JoinHandle::wait`] says when the wait is refused.
    pub fn schedule_on_each_cpu_blocking<T, F>(&self, f: F) -> Result<Vec<T>, JoinError>
    where
        F: Fn(usize) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        let handles = self.queue_on_each_cpu(f).into_iter();
        let results: Vec<_> = handles.map(JoinHandle::wait).collect();
        results.into_iter().collect()
    }

    /// As [`schedule_on_each_cpu_blocking`](WorkqueueSystem::schedule_on_each_cpu_blocking), for at
    /// most `limit` on the system's clock; then [`JoinError::TimedOut`], and the functions
    /// continue.
    pub fn schedule_on_each_cpu_timeout<T, F>(
        &self,
        f: F,
        limit: Duration,
    ) -> Result<Vec<T>, JoinError>
    where
        F: Fn(usize) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        let clock = &self.inner.shared.clock;
        let end = clock.now() + limit;
        let wait = |mut handle: JoinHandle<T>| handle.wait_timeout(end - clock.now());
        let handles = self.queue_on_each_cpu(f).into_iter();
        let results: Vec<_> = handles.map(wait).collect();
        results.into_iter().collect()
    }

    fn queue_on_each_cpu<T, F>(&self, f: F) -> Vec<JoinHandle<T>>
    where
        F: Fn(usize) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        let (events, f) = (self.events(), Arc::new(f));
        let machine = self.inner.shared.machine();
        let each = machine.cpus().iter().map(|cpu| {
            let f = f.clone();
            events.spawn_on(cpu, move || f(cpu))
        });
        each.collect()
    }
}
