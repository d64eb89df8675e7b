//! Writes with flushes around them.

use super::FlushDomain;
use super::request::Request;
use crate::error::{DeviceError, FlushError, WriteError};
use crate::machine::Flags;
use std::future::{Future, ready};
use std::io;
use std::time::Duration;

/// A request whose data may start now: what [`begin`](FlushDomain::begin) gives.
///
/// Write the data, then say how it went by [`finish`](Sequence::finish). Dropped without, the data
/// counts as failed; if it was to be written durably ([`writes_fua`](Sequence::writes_fua)), as a
/// failed flush, too, which poisons the domain: nobody has heard what the system told the write.
///
/// A durable write is under way from here on. Flushes and other durable writes of the domain are
/// reported when it has ended, so write at once, and ask nothing of the domain meanwhile.
///
/// ```
/// use inflight_flush::{Device, Flags, FlushDomain, MemoryDevice};
/// let device = MemoryDevice::new(1 << 20);
/// let domain = FlushDomain::new(device.clone());
/// let sequence = domain.begin_blocking(Flags::write().preflush().fua())?;
/// let written = device.write_at(b"commit", 512);
/// sequence.finish_blocking(written)?;
/// assert_eq!(domain.counters().issued, 2); // one before the data, one behind it
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped, its data counts as failed"]
pub struct Sequence {
    request: Request,
    writes_fua: bool,
}

impl Sequence {
    fn new(request: Request, writes_fua: bool) -> Self {
        if writes_fua {
            request.begin_durable_write();
        }
        Self {
            request,
            writes_fua,
        }
    }

    /// Whether the data itself is to be written durably (force unit access): `fua` was asked for,
    /// and the device has such writes, so no flush follows.
    ///
    /// ```
    /// # use inflight_flush::{Caps, Flags, FlushDomain};
    /// let domain = FlushDomain::builder().caps(Caps::volatile_with_fua()).build();
    /// let sequence = domain.begin_blocking(Flags::write().fua()).unwrap();
    /// assert!(sequence.writes_fua());
    /// # sequence.finish_blocking(Ok(())).unwrap();
    /// ```
    #[must_use]
    pub const fn writes_fua(&self) -> bool {
        self.writes_fua
    }

    /// Tells how the data went, and waits for the flush behind it if there is one.
    ///
    /// A durable write ([`writes_fua`](Sequence::writes_fua)) is a flush of its own: a system that
    /// tells of a loss once may tell either. So if it has failed that counts as a failed flush, and
    /// the domain is poisoned. If it has succeeded, this waits for the flushes and durable writes
    /// that were under way when it ended: they may have been told of its loss. A thread that has
    /// several sequences, and finishes one with [`finish_blocking`](Sequence::finish_blocking)
    /// while another one of them has not said how its data went, waits for itself. So does one that
    /// flushes between `begin` and the end of its own durable write.
    ///
    /// # Errors
    ///
    /// `result`'s own error, or what the flush said. With `fua` also that a flush, or a durable
    /// write, has failed since the data could start.
    pub fn finish<T>(
        self,
        result: io::Result<T>,
    ) -> impl Future<Output = Result<T, WriteError>> + use<T> {
        let device = self.request.domain().clone();
        self.finish_with(result, move || ready(device.flush_device()))
    }

    /// The same, with a way to flush: see [`FlushDomain::flush_with`].
    ///
    /// # Errors
    ///
    /// As [`finish`](Sequence::finish).
    pub fn finish_with<T, L, F>(
        self,
        result: io::Result<T>,
        mut lead: L,
    ) -> impl Future<Output = Result<T, WriteError>> + use<T, L, F>
    where
        L: FnMut() -> F,
        F: Future<Output = io::Result<()>>,
    {
        // Not in the future: the data has ended now, whenever somebody polls.
        let told = result.as_ref().map(drop).map_err(DeviceError::from);
        self.request.data_done(told);
        async move {
            let value = result.map_err(WriteError::Write)?;
            let ended = self.request.proceed(&mut lead).await;
            match ended {
                None | Some(Ok(())) => Ok(value),
                Some(Err(error)) => Err(WriteError::Flush(error)),
            }
        }
    }

    /// [`finish`](Sequence::finish) as a thread. For a thread that has one sequence at a time: see
    /// there.
    ///
    /// # Errors
    ///
    /// As `finish`.
    pub fn finish_blocking<T>(self, result: io::Result<T>) -> Result<T, WriteError> {
        let domain = self.request.domain().clone();
        let ended = domain.wait(None, self.finish(result));
        ended.expect("a wait without deadline ends with its future")
    }

    /// [`finish`](Sequence::finish) as a thread, at most for `limit`.
    ///
    /// # Errors
    ///
    /// As `finish`, and [`WriteError::TimedOut`].
    pub fn finish_timeout<T>(
        self,
        result: io::Result<T>,
        limit: Duration,
    ) -> Result<T, WriteError> {
        let domain = self.request.domain().clone();
        let ended = domain.wait(Some(limit), self.finish(result));
        ended.unwrap_or(Err(WriteError::TimedOut))
    }
}

impl FlushDomain {
    /// Waits until the data of a request may start: at once, or after a flush if `preflush` asks
    /// for it. The request has data, whatever the flags say.
    ///
    /// # Errors
    ///
    /// If the flush fails.
    ///
    /// See [`Sequence`] for an example.
    pub fn begin(
        &self,
        flags: Flags,
    ) -> impl Future<Output = Result<Sequence, FlushError>> + use<> {
        let device = self.clone();
        self.begin_with(flags, move || ready(device.flush_device()))
    }

    /// The same, with a way to flush: see [`flush_with`](FlushDomain::flush_with).
    ///
    /// # Errors
    ///
    /// As [`begin`](FlushDomain::begin).
    pub fn begin_with<L, F>(
        &self,
        mut flags: Flags,
        mut lead: L,
    ) -> impl Future<Output = Result<Sequence, FlushError>> + use<L, F>
    where
        L: FnMut() -> F,
        F: Future<Output = io::Result<()>>,
    {
        flags.data = true;
        let domain = self.clone();
        async move {
            let writes_fua = flags.fua && domain.caps().native_fua;
            let request = domain.submit(flags);
            match request.proceed(&mut lead).await {
                None => Ok(Sequence::new(request, writes_fua)),
                Some(ended) => {
                    let error = ended.expect_err("a request with data ends after its data");
                    Err(FlushError::Device(error))
                }
            }
        }
    }

    /// [`begin`](FlushDomain::begin) as a thread.
    ///
    /// # Errors
    ///
    /// As `begin`.
    pub fn begin_blocking(&self, flags: Flags) -> Result<Sequence, FlushError> {
        let ended = self.wait(None, self.begin(flags));
        ended.expect("a wait without deadline ends with its future")
    }

    /// [`begin`](FlushDomain::begin) as a thread, at most for `limit`.
    ///
    /// # Errors
    ///
    /// As `begin`, and [`FlushError::TimedOut`].
    pub fn begin_timeout(&self, flags: Flags, limit: Duration) -> Result<Sequence, FlushError> {
        let ended = self.wait(Some(limit), self.begin(flags));
        ended.unwrap_or(Err(FlushError::TimedOut))
    }

    /// [`begin`](FlushDomain::begin) if the data may start now: no `preflush` is asked for, or
    /// there is nothing to flush.
    ///
    /// # Errors
    ///
    /// [`FlushError::WouldBlock`] if a flush is needed before. None is issued for this call.
    ///
    /// ```
    /// # use inflight_flush::{Flags, FlushDomain, FlushError, MemoryDevice};
    /// let domain = FlushDomain::new(MemoryDevice::new(4096));
    /// let refused = domain.try_begin(Flags::write().preflush());
    /// assert_eq!(refused.err(), Some(FlushError::WouldBlock));
    /// let sequence = domain.try_begin(Flags::write().fua())?;
    /// sequence.finish_blocking(Ok(())).unwrap(); // the flush behind it
    /// assert_eq!(domain.counters().issued - domain.counters().withdrawn, 1);
    /// # Ok::<(), FlushError>(())
    /// ```
    pub fn try_begin(&self, mut flags: Flags) -> Result<Sequence, FlushError> {
        flags.data = true;
        let writes_fua = flags.fua && self.caps().native_fua;
        let request = self.submit(flags);
        if !request.may_start() {
            return Err(FlushError::WouldBlock);
        }
        Ok(Sequence::new(request, writes_fua))
    }

    /// [`write_fua`](FlushDomain::write_fua) on a device that needs no flush for it: it has durable
    /// writes, and `write` is one, or it has no volatile cache. Nobody else's flush or durable
    /// write is under way; those that other threads begin while `write` runs are waited for.
    ///
    /// # Errors
    ///
    /// As `write_fua`; [`WriteError::WouldBlock`] if a flush is needed, or one under way: then
    /// `write` has not run.
    ///
    /// ```
    /// # use inflight_flush::{Caps, Device, FlushDomain, MemoryDevice, WriteError};
    /// let device = MemoryDevice::new(4096).with_caps(Caps::volatile_with_fua());
    /// let domain = FlushDomain::new(device.clone());
    /// domain.try_write_fua(|| device.write_fua_at(b"durable", 0)).unwrap();
    /// let cached = FlushDomain::new(MemoryDevice::new(4096));
    /// let refused = cached.try_write_fua(|| unreachable!("it does not run"));
    /// assert!(matches!(refused, Err::<(), _>(WriteError::WouldBlock)));
    /// ```
    pub fn try_write_fua<T>(&self, write: impl FnOnce() -> io::Result<T>) -> Result<T, WriteError> {
        let caps = self.caps();
        if caps.volatile_cache && !caps.native_fua {
            return Err(WriteError::WouldBlock);
        }
        if self.inner.core.lock().machine.calls_are_under_way() {
            return Err(WriteError::WouldBlock);
        }
        // No flush is behind it.
        self.write_fua_blocking(write)
    }

    /// Runs `write`, and makes what it has written durable: by a flush behind it, or by nothing, if
    /// the device has durable writes; then `write` has to be one. It must ask nothing of this
    /// domain: what it asks for would wait for its own end.
    ///
    /// # Errors
    ///
    /// What `write` says, or the flush.
    ///
    /// ```
    /// # use inflight_flush::{Device, FlushDomain, MemoryDevice};
    /// let device = MemoryDevice::new(4096);
    /// let domain = FlushDomain::new(device.clone());
    /// inflight_sync::block_on(domain.write_fua(|| device.write_at(b"durable", 0))).unwrap();
    /// ```
    pub fn write_fua<T, W>(
        &self,
        write: W,
    ) -> impl Future<Output = Result<T, WriteError>> + use<T, W>
    where
        W: FnOnce() -> io::Result<T>,
    {
        let begun = self.begin(Flags::write().fua());
        async move {
            let sequence = begun.await?;
            let written = write();
            sequence.finish(written).await
        }
    }

    /// [`write_fua`](FlushDomain::write_fua) as a thread.
    ///
    /// # Errors
    ///
    /// As `write_fua`.
    pub fn write_fua_blocking<T>(
        &self,
        write: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, WriteError> {
        let ended = self.wait(None, self.write_fua(write));
        ended.expect("a wait without deadline ends with its future")
    }

    /// [`write_fua`](FlushDomain::write_fua) as a thread, at most for `limit`; neither `write` nor
    /// a flush that this call carries out is interrupted.
    ///
    /// # Errors
    ///
    /// As `write_fua`, and [`WriteError::TimedOut`].
    pub fn write_fua_timeout<T>(
        &self,
        write: impl FnOnce() -> io::Result<T>,
        limit: Duration,
    ) -> Result<T, WriteError> {
        let ended = self.wait(Some(limit), self.write_fua(write));
        ended.unwrap_or(Err(WriteError::TimedOut))
    }
}
