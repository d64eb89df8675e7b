//! Spawning functions and futures on a workqueue.

use crate::current;
use crate::error::{JoinError, QueueError, Rejected};
use crate::future;
use crate::item::{Job, Name, Named, NewTask};
use crate::join_handle::JoinHandle;
use crate::workqueue::Workqueue;
use crate::workqueue_inner::Count;
use inflight_sync::time::Clock;
use std::future::Future;

impl Workqueue {
    #[inline]
    fn clock(&self) -> Clock {
        self.inner().shared.clock.clone()
    }

    #[inline]
    fn spawn_job<F: Job>(&self, cpu: usize, f: F) -> JoinHandle<F::Out> {
        let task = match self.inner().spawn(cpu, f) {
            Ok(task) => task,
            Err((refusal, task)) => return self.rejected(refusal, task),
        };
        JoinHandle::new(task, None, self.clock())
    }

    /// As [`spawn`](Workqueue::spawn), on a CPU.
    pub fn spawn_on<T, F>(&self, cpu: usize, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.check_cpu(cpu) {
            Ok(()) => self.spawn_job(cpu, f),
            Err(refusal) => self.rejected(refusal, NewTask::new(f)),
        }
    }

    /// As [`spawn`](Workqueue::spawn), on a memory node: on the caller's CPU if it belongs to the
    /// node, else on the node's first CPU.
    pub fn spawn_node<T, F>(&self, node: usize, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.cpu_of_node(self.inner().here(), node) {
            Ok(cpu) => self.spawn_job(cpu, f),
            Err(refusal) => self.rejected(refusal, NewTask::new(f)),
        }
    }

    /// The rejection is counted, because a caller that detaches the handle does not see it.
    #[cold]
    fn rejected<F: Job>(&self, refusal: QueueError, task: NewTask<F>) -> JoinHandle<F::Out> {
        self.inner().counted(Count::Refused);
        let task = task.reject(JoinError::Rejected(refusal));
        JoinHandle::new(task, None, self.clock())
    }

    /// Queues `f` to run once, on the caller's CPU.
    ///
    /// The handle gives the result, as a future or to a waiting thread. If the queue refuses the
    /// function, the handle gives [`JoinError::Rejected`].
    ///
    /// # Panics
    ///
    /// If a refused function is dropped here and its destructor panics, so does the call.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// assert_eq!(wq.spawn(|| 6 * 7).wait()?, 42);
    /// assert_eq!(wq.spawn_on(0, || 6 * 7).wait()?, 42);
    /// assert!(wq.spawn_on(99_999, || ()).wait().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn<T, F>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_job(self.inner().here(), f)
    }

    /// Runs `f`, on the caller's thread if no worker is about to take it. Returns its result.
    ///
    /// Waking a worker and being woken by it costs more than most functions. So `f` runs at once on
    /// the caller's thread if the pool is not busy, a slot of `max_active` is free and no item
    /// waits for one. It runs as an item of this queue: it takes the slot, it is counted, and a
    /// flush or drain waits for it. Otherwise the call is `spawn(f).wait()`. That also holds for
    /// queues whose workers have properties that the caller lacks (bound, strict or highpri ones,
    /// and those with a nice or a mask of CPUs, the system's mask too), and for calls nested more
    /// than four deep. The call does not overtake: if an item of the queue waits, `f` is queued
    /// behind it.
    ///
    /// The idea is that of waiting threads that help, as in rayon's `join`. For a future that does
    /// not hold up its thread, or a wait with a limit, use [`spawn`](Workqueue::spawn).
    ///
    /// # Errors
    ///
    /// [`JoinError`], as from [`JoinHandle::wait`]; a panic of `f` does not continue in the caller.
    /// After [`JoinError::WouldDeadlock`] `f` has not run and never will. Inside a BH item that is
    /// the result whenever `f` cannot run at once on the caller's thread.
    ///
    /// ```
    /// # use inflight_workqueue::{Attrs, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("sums").unbound(Attrs::new()).build()?;
    /// let me = std::thread::current().id();
    /// let here = wq.call_blocking(|| std::thread::current().id())?;
    /// assert_eq!(here, me, "nothing else was queued");
    /// assert_eq!(wq.stats().completed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_blocking<T, F>(&self, f: F) -> Result<T, JoinError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.inner().call_inline(f) {
            Ok(result) => result,
            // A BH item may not wait for the item, which would run all the same.
            Err(_) if current::may_not_sleep() => Err(JoinError::WouldDeadlock),
            Err(f) => self.spawn(f).wait_or_take_back(),
        }
    }

    /// Polls `future` on this queue's workers, under its limits, until it completes.
    ///
    /// Each poll is an item. It is queued on the CPU of the thread that wakes the future, or where
    /// the queue's [wake rules](crate::WorkqueueBuilder::wake_rules) place it. It waits for a slot
    /// of `max_active`, counts in the statistics, and a flush of the queue waits for it. Between
    /// two polls the future holds no slot and no flush waits for it. A wake allocates nothing.
    /// While the queue is drained, wakes through the queue's own waker are accepted. A future that
    /// has not completed when the queue is destroyed or the system ends gives
    /// [`JoinError::Rejected`]. A future that nothing can wake any more gives
    /// [`JoinError::Cancelled`]. Dropping the handle detaches the future;
    /// [`try_cancel`](JoinHandle::try_cancel) ends it.
    ///
    /// With the feature `futures` a workqueue is also a `futures_task::Spawn`. Its own `spawn`
    /// hides that of `SpawnExt`: write `SpawnExt::spawn(&wq, future)`.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let read = wq.spawn(|| vec![1, 2, 3]);
    /// let sum = wq.spawn_future(async move { read.await.map(|v| v.iter().sum::<i32>()) });
    /// assert_eq!(sum.wait()??, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_future<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        future::spawn(self, None, future).0
    }

    /// As [`spawn_future`](Workqueue::spawn_future), with a name for traces, stall reports and
    /// panics. Without one, the type of the future serves as its name.
    pub fn spawn_future_named<F>(&self, name: impl Into<Name>, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        future::spawn(self, Some(name.into()), future).0
    }

    /// As [`spawn`](Workqueue::spawn), but returns a function that the queue refuses.
    ///
    /// # Errors
    ///
    /// [`Rejected`], with the function and the reason.
    ///
    /// ```
    /// # use inflight_workqueue::{QueueError, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// match wq.try_spawn(|| 6 * 7) {
    ///     Ok(handle) => assert_eq!(handle.wait()?, 42),
    ///     Err(rejected) => assert_eq!(rejected.into_inner()(), 42), // here, then
    /// }
    /// let rejected = wq.try_spawn_on(99_999, || 6 * 7).unwrap_err();
    /// assert_eq!(rejected.error(), QueueError::NoSuchCpu(99_999));
    /// assert_eq!(wq.try_spawn_named("answer", rejected.into_inner())?.wait()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_spawn<T, F>(&self, f: F) -> Result<JoinHandle<T>, Rejected<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.try_spawn_job(self.inner().here(), f)
    }

    /// As [`try_spawn`](Workqueue::try_spawn), with the same errors, on a CPU.
    /// [`QueueError::NoSuchCpu`] is another reason.
    pub fn try_spawn_on<T, F>(&self, cpu: usize, f: F) -> Result<JoinHandle<T>, Rejected<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.check_cpu(cpu) {
            Ok(()) => self.try_spawn_job(cpu, f),
            Err(refusal) => Err(Rejected::new(refusal, f)),
        }
    }

    #[inline]
    fn try_spawn_job<F: Job>(&self, cpu: usize, f: F) -> Result<JoinHandle<F::Out>, Rejected<F>> {
        match self.inner().spawn(cpu, f) {
            Ok(task) => Ok(JoinHandle::new(task, None, self.clock())),
            Err((refusal, task)) => Err(Rejected::new(refusal, task.into_function())),
        }
    }

    /// As [`spawn`](Workqueue::spawn), with a name for traces, stall reports and panics. Without
    /// one, the type of the function serves as its name.
    ///
    /// ```
    /// # use inflight_workqueue::{JoinError, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let Err(JoinError::Panicked(p)) = wq.spawn_named("rescan", || panic!()).wait() else {
    ///     panic!()
    /// };
    /// assert_eq!(p.item(), "rescan");
    /// let reader = wq.spawn_future_named("reader", async { panic!("no disk") });
    /// let Err(JoinError::Panicked(p)) = reader.wait() else { panic!() };
    /// assert_eq!(p.item(), "reader");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_named<T, F>(&self, name: impl Into<Name>, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let name = name.into();
        self.spawn_job(self.inner().here(), Named { name, f })
    }

    /// As [`spawn_named`](Workqueue::spawn_named), with the errors of
    /// [`try_spawn`](Workqueue::try_spawn).
    pub fn try_spawn_named<T, F>(
        &self,
        name: impl Into<Name>,
        f: F,
    ) -> Result<JoinHandle<T>, Rejected<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let name = name.into();
        let spawned = self.try_spawn_job(self.inner().here(), Named { name, f });
        spawned.map_err(|rejected| {
            let error = rejected.error();
            Rejected::new(error, rejected.into_inner().f)
        })
    }
}

#[cfg(feature = "futures")]
impl futures_task::Spawn for Workqueue {
    fn spawn_obj(
        &self,
        future: futures_task::FutureObj<'static, ()>,
    ) -> Result<(), futures_task::SpawnError> {
        match future::spawn(self, None, future) {
            (_, Some(_)) => Err(futures_task::SpawnError::shutdown()),
            (detached, None) => {
                drop(detached);
                Ok(())
            }
        }
    }
}
