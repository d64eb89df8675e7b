//! [`FlushDomain`]: the users that share the flushes of one device.
//!
//! There is one lock, around the machine. The waiters carry out all steps: the first one of a
//! generation the flush, each its own data. So no thread is needed.

mod request;
mod sequence;
mod tick;
mod wait;

use crate::counters::Counters;
use crate::device::Flusher;
use crate::error::{DeviceError, FlushError};
use crate::machine::{Action, Caps, Deferral, Flags, Machine};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::wait::{Notify, notify_each};
use inflight_sync::{Arc, Mutex};
use request::{Core, Request};
use std::fmt;
use std::future::{Future, ready};
use std::io;
use std::time::Duration;

pub use sequence::Sequence;
pub(crate) use wait::wait_until;

/// A device or file whose flushes are shared: at most one is in flight, and all requests that come
/// meanwhile share the next one. A flush in flight never serves a request that came after it was
/// issued.
///
/// A clone is a handle to the same domain; give one to each queue that writes to the device.
///
/// # Which caller carries out a flush
///
/// One of the waiters. With the device that the domain was made with, the flush blocks it: its
/// thread in `flush_blocking`, its poll in `flush`. An engine with asynchronous flushes of its own
/// uses the `_with` forms and passes the flush; then no thread blocks.
///
/// # What is promised
///
/// - A flush that succeeds makes durable the writes that were completed when it was asked for.
/// - With `preflush` that holds before the request's data starts.
/// - With `fua` the request's own data is durable when it ends.
/// - There is no promise about writes that were not completed at the call, or about the order of
///   requests that wait for different flushes.
///
/// # Fairness
///
/// A caller waits for the end of the flush in flight and for the next one, no longer, however many
/// others ask; but see [`Deferral`] for data that is under way. A flush that has ended is reported
/// when the durable writes of the same time have ended, too ([`Sequence`](crate::Sequence)).
///
/// # Cancel safety
///
/// Dropping a future withdraws its request. If it was chosen to carry out a flush, another waiter
/// for the flush does so. A future that is kept and not polled keeps the flush that it was chosen
/// for.
///
/// In the `_with` forms a future can be dropped while its own flush is under way. It then does not
/// get the flush's error, and the system reports the error to no other caller. So the flush counts
/// as failed. So does a durable write whose [`Sequence`] is dropped, or whose owner panics, before
/// its end is reported.
///
/// # Panics
///
/// A call that wakes other tasks panics with the first panic of a waker, after all are woken. A
/// request that this call submits is withdrawn then.
///
/// ```
/// use inflight_flush::FlushDomain;
/// use std::os::unix::fs::FileExt;
/// # inflight_sync::block_on(async {
/// let file = tempfile::tempfile()?;
/// let domain = FlushDomain::new(file.try_clone()?);
/// file.write_all_at(b"plain", 0)?;
/// domain.flush().await?; // what was written is durable
/// domain.write_fua(|| file.write_all_at(b"commit", 4096)).await?; // and so is this
/// assert_eq!(domain.counters().issued, 2);
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct FlushDomain {
    inner: Arc<Inner>,
}

struct Inner {
    core: Mutex<Core>,
    flusher: Option<Box<dyn Flusher>>,
    clock: Clock,
}

/// The builder of a [`FlushDomain`].
///
/// ```
/// use inflight_flush::{Caps, Deferral, FlushDomain};
/// use std::time::Duration;
/// let domain = FlushDomain::builder()
///     .caps(Caps::volatile())
///     .deferral(Deferral::Bounded(Duration::from_millis(1)))
///     .build(); // no device: its users say how to flush
/// # inflight_sync::block_on(async {
/// domain.flush_with(|| async { Ok(()) }).await.unwrap();
/// # });
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing is made before `build`"]
pub struct FlushDomainBuilder {
    caps: Option<Caps>,
    deferral: Option<Deferral>,
    exclusive: bool,
    clock: Clock,
}

impl FlushDomainBuilder {
    /// Sets what the device can do. Default: [`Flusher::caps`], or a volatile cache.
    pub fn caps(mut self, caps: Caps) -> Self {
        self.caps = Some(caps);
        self
    }

    /// Sets when a flush waits for data under way. Default: [`Deferral::for_caps`].
    pub fn deferral(mut self, deferral: Deferral) -> Self {
        self.deferral = Some(deferral);
        self
    }

    /// States that every write of the device uses this domain ([`begin`](FlushDomain::begin)), so a
    /// flush ends at once if no write has ended, well or not, since the last successful one was
    /// issued. Default: no.
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    /// Makes a domain for the device.
    #[must_use]
    pub fn device(self, flusher: impl Flusher) -> FlushDomain {
        let caps = self.caps.unwrap_or_else(|| flusher.caps());
        self.make(caps, Some(Box::new(flusher)))
    }

    /// Makes a domain whose users pass the flush, in the `_with` forms. The other forms fail if a
    /// flush is needed.
    #[must_use]
    pub fn build(self) -> FlushDomain {
        let caps = self.caps.unwrap_or(Caps::volatile());
        self.make(caps, None)
    }

    fn make(self, caps: Caps, flusher: Option<Box<dyn Flusher>>) -> FlushDomain {
        let deferral = self.deferral.unwrap_or(Deferral::for_caps(caps));
        let machine = Machine::new(caps, deferral)
            .exclusive(self.exclusive)
            .tells_once(true);
        FlushDomain {
            inner: Arc::new(Inner {
                core: Mutex::new(Core::new(machine)),
                flusher,
                clock: self.clock,
            }),
        }
    }
}

impl FlushDomain {
    /// Makes a domain for a device that can flush, with the defaults.
    ///
    /// ```
    /// use inflight_flush::{FlushDomain, MemoryDevice};
    /// let domain = FlushDomain::new(MemoryDevice::new(1 << 20));
    /// domain.flush_blocking().unwrap();
    /// ```
    #[must_use]
    pub fn new(flusher: impl Flusher) -> Self {
        Self::builder().device(flusher)
    }

    /// Returns the builder of a domain.
    pub fn builder() -> FlushDomainBuilder {
        FlushDomainBuilder::default()
    }

    /// Makes durable what was completed before the call.
    ///
    /// # Errors
    ///
    /// If the device fails. All callers that shared the flush get the error.
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// let domain = FlushDomain::new(MemoryDevice::new(4096));
    /// inflight_sync::block_on(domain.flush()).unwrap();
    /// ```
    pub fn flush(&self) -> impl Future<Output = Result<(), FlushError>> + Send + use<> {
        let device = self.clone();
        self.flush_with(move || ready(device.flush_device()))
    }

    /// Flushes as [`flush`](FlushDomain::flush), with `lead`, which is called if this call is
    /// chosen to carry a flush out.
    ///
    /// # Errors
    ///
    /// The error of `lead`, here or in another call that shared its flush.
    ///
    /// ```
    /// # use inflight_flush::FlushDomain;
    /// # async fn ring_fsync() -> std::io::Result<()> { Ok(()) }
    /// let domain = FlushDomain::builder().build();
    /// inflight_sync::block_on(domain.flush_with(|| ring_fsync())).unwrap();
    /// assert_eq!(domain.counters().issued, 1);
    /// ```
    pub fn flush_with<L, F>(
        &self,
        mut lead: L,
    ) -> impl Future<Output = Result<(), FlushError>> + use<L, F>
    where
        L: FnMut() -> F,
        F: Future<Output = io::Result<()>>,
    {
        let domain = self.clone();
        async move {
            let request = domain.submit(Flags::flush());
            let ended = request.proceed(&mut lead).await;
            ended.unwrap_or(Ok(())).map_err(FlushError::Device)
        }
    }

    /// Flushes as [`flush`](FlushDomain::flush); the thread sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `flush`.
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// FlushDomain::new(MemoryDevice::new(4096)).flush_blocking().unwrap();
    /// ```
    pub fn flush_blocking(&self) -> Result<(), FlushError> {
        let ended = self.wait(None, self.flush());
        ended.expect("a wait without deadline ends with its future")
    }

    /// Flushes as [`flush`](FlushDomain::flush); the thread sleeps at most `limit`, unless this
    /// call carries out the flush itself: a device is not interrupted.
    ///
    /// # Errors
    ///
    /// The errors of `flush`, and [`FlushError::TimedOut`].
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// # use std::time::Duration;
    /// let domain = FlushDomain::new(MemoryDevice::new(4096));
    /// domain.flush_timeout(Duration::from_secs(1)).unwrap();
    /// ```
    pub fn flush_timeout(&self, limit: Duration) -> Result<(), FlushError> {
        let ended = self.wait(Some(limit), self.flush());
        ended.unwrap_or(Err(FlushError::TimedOut))
    }

    /// Returns `Ok` if there is nothing to flush: the device has no volatile cache, or no write of
    /// an exclusive domain has ended, well or not, since the last successful flush was issued.
    ///
    /// # Errors
    ///
    /// [`FlushError::WouldBlock`] if a flush is needed. None is issued for this call.
    ///
    /// ```
    /// # use inflight_flush::{Caps, FlushDomain, FlushError, MemoryDevice};
    /// let cached = FlushDomain::new(MemoryDevice::new(4096));
    /// assert_eq!(cached.try_flush(), Err(FlushError::WouldBlock));
    /// let durable = FlushDomain::builder().caps(Caps::durable()).build();
    /// assert_eq!(durable.try_flush(), Ok(()));
    /// ```
    pub fn try_flush(&self) -> Result<(), FlushError> {
        let request = self.submit(Flags::flush());
        let ended = request.ended().ok_or(FlushError::WouldBlock)?;
        ended.map_err(FlushError::Device)
    }

    /// Returns the counters.
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// let domain = FlushDomain::new(MemoryDevice::new(4096));
    /// assert_eq!(domain.counters().issued, 0);
    /// ```
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.inner.core.lock().machine.counters()
    }

    /// Whether the builder was given a device.
    pub(crate) fn has_device(&self) -> bool {
        self.inner.flusher.is_some()
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.inner.core.lock().machine.is_exclusive()
    }

    /// Returns what the device can do.
    #[must_use]
    pub fn caps(&self) -> Caps {
        self.inner.core.lock().machine.caps()
    }

    /// Returns whether a flush, or a durable write, has failed since the domain was made or
    /// [cleared](FlushDomain::clear_poison). Later flushes are still carried out, and may succeed
    /// although the failed one has lost data.
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// assert!(!FlushDomain::new(MemoryDevice::new(4096)).is_poisoned());
    /// ```
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poison().is_some()
    }

    /// Returns the error of the first failed flush or durable write.
    #[must_use]
    pub fn poison(&self) -> Option<DeviceError> {
        self.inner.core.lock().poisoned
    }

    /// Returns how many flushes and durable writes have failed. The number only rises.
    ///
    /// A system reports a loss once. If several users write to the device, each remembers this
    /// number before it writes: if the number has risen when its own flush has ended, its writes
    /// may be lost, although that flush has succeeded.
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// let device = MemoryDevice::new(4096);
    /// let domain = FlushDomain::new(device.clone());
    /// let before = domain.failed_flushes();
    /// device.fail_flushes(1);
    /// domain.flush_blocking().unwrap_err(); // one user's flush
    /// domain.flush_blocking().unwrap(); // another one's
    /// assert!(domain.failed_flushes() > before); // who now knows
    /// ```
    #[must_use]
    pub fn failed_flushes(&self) -> u64 {
        self.inner.core.lock().machine.counters().errors
    }

    /// Clears the failure. For an owner that has written again what may be lost.
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// let device = MemoryDevice::new(4096);
    /// device.fail_flushes(1);
    /// let domain = FlushDomain::new(device);
    /// domain.flush_blocking().unwrap_err();
    /// domain.clear_poison();
    /// assert!(!domain.is_poisoned());
    /// ```
    pub fn clear_poison(&self) {
        self.inner.core.lock().poisoned = None;
    }

    /// Returns the latest time for the next call of [`tick`](FlushDomain::tick), if no other call
    /// is made until then. Threads that wait call it themselves. For tasks an event loop calls it
    /// by its timer, or the thread does that [`tick_in_background`] starts.
    ///
    /// [`tick_in_background`]: FlushDomain::tick_in_background
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.core.lock().machine.next_deadline()
    }

    /// Issues a flush that was delayed too long because data was under way.
    pub fn tick(&self) {
        self.change(|core, now, actions| core.machine.tick(now, actions));
    }

    /// Changes the machine under the lock, and wakes the requests concerned after the lock is
    /// released.
    fn change<R>(
        &self,
        change: impl FnOnce(&mut Core, Instant, &mut Vec<Action<DeviceError>>) -> R,
    ) -> R {
        let (result, told) = self.change_untold(change);
        notify_each(told);
        result
    }

    /// Changes the machine under the lock. Returns the waiters that the caller is to wake.
    fn change_untold<R>(
        &self,
        change: impl FnOnce(&mut Core, Instant, &mut Vec<Action<DeviceError>>) -> R,
    ) -> (R, Vec<Notify>) {
        let now = self.inner.clock.now();
        let mut actions = Vec::new();
        let mut core = self.inner.core.lock();
        let result = change(&mut core, now, &mut actions);
        let told = core.apply(actions);
        (result, told)
    }

    fn submit(&self, flags: Flags) -> Request {
        Request::submit(self, flags).expect("a domain asks for fua with data only")
    }

    fn flush_device(&self) -> io::Result<()> {
        match &self.inner.flusher {
            Some(flusher) => flusher.flush(),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl fmt::Debug for FlushDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The formatter may run anything, so not under the lock.
        let (caps, poisoned, counters) = {
            let core = self.inner.core.lock();
            let machine = &core.machine;
            (machine.caps(), core.poisoned, *machine.counters())
        };
        f.debug_struct("FlushDomain")
            .field("caps", &caps)
            .field("poisoned", &poisoned)
            .field("counters", &counters)
            .finish()
    }
}
