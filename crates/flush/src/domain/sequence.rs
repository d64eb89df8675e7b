//! Writes with flushes around them.

use super::FlushDomain;
use super::request::Request;
use crate::error::{DeviceError, FlushError, WriteError};
use crate::machine::Flags;
use std::future::{Future, ready};
use std::io;
use std::time::Duration;

/// A request whose data may start now: the result of [`begin`](FlushDomain::begin).
///
/// Write the data, then report the result by [`finish`](Sequence::finish). If the sequence is
/// dropped without that, the data counts as failed; if it was to be written durably
/// ([`writes_fua`](Sequence::writes_fua)), also as a failed flush, which poisons the domain,
/// because the system's answer to the write is lost.
///
/// A durable write is under way from here on. Flushes and other durable writes of the domain are
/// reported when it has ended, so write at once, and make no other call of the domain meanwhile.
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

    /// Returns whether the data itself is to be written durably (force unit access): `fua` was
    /// asked for, and the device has such writes, so no flush follows.
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

    /// Reports the result of the data, and waits for the flush after it if there is one.
    ///
    /// A durable write ([`writes_fua`](Sequence::writes_fua)) is a flush of its own: a system that
    /// reports a loss once may report it to either. So a failed durable write counts as a failed
    /// flush, and poisons the domain. After a successful one, this waits for the flushes and
    /// durable writes that were under way when it ended, because the system may have reported its
    /// loss to them. A thread that has several sequences, and finishes one with
    /// [`finish_blocking`](Sequence::finish_blocking) while another has not reported the result of
    /// its data, waits for itself. So does a thread that flushes between `begin` and the end of its
    /// own durable write.
    ///
    /// # Errors
    ///
    /// `result`'s own error, or that of the flush. With `fua` also that a flush, or a durable
    /// write, has failed since the data could start.
    pub fn finish<T>(
        self,
        result: io::Result<T>,
    ) -> impl Future<Output = Result<T, WriteError>> + use<T> {
        let device = self.request.domain().clone();
        self.finish_with(result, move || ready(device.flush_device()))
    }

    /// Does [`finish`](Sequence::finish) with a flush of the caller's: see
    /// [`FlushDomain::flush_with`].
    ///
    /// # Errors
    ///
    /// The errors of [`finish`](Sequence::finish).
    pub fn finish_with<T, L, F>(
        self,
        result: io::Result<T>,
        mut lead: L,
    ) -> impl Future<Output = Result<T, WriteError>> + use<T, L, F>
    where
        L: FnMut() -> F,
        F: Future<Output = io::Result<()>>,
    {
        // Not in the future, which may be polled later: the data has ended now.
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

    /// Does [`finish`](Sequence::finish); the thread sleeps. For a thread that has one sequence at
    /// a time: see there.
    ///
    /// # Errors
    ///
    /// The errors of `finish`.
    pub fn finish_blocking<T>(self, result: io::Result<T>) -> Result<T, WriteError> {
        let domain = self.request.domain().clone();
        let ended = domain.wait(None, self.finish(result));
        ended.expect("a wait without deadline ends with its future")
    }

    /// Does [`finish`](Sequence::finish); the thread sleeps at most `limit`.
    ///
    /// # Errors
    ///
    /// The errors of `finish`, and [`WriteError::TimedOut`].
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
    /// Waits until the data of a request may start: at once, or after a flush if the flags have
    /// `preflush`. The request has data, whatever the flags say.
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

    /// Does [`begin`](FlushDomain::begin) with a flush of the caller's: see
    /// [`flush_with`](FlushDomain::flush_with).
    ///
    /// # Errors
    ///
    /// The errors of [`begin`](FlushDomain::begin).
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

    /// Does [`begin`](FlushDomain::begin); the thread sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `begin`.
    pub fn begin_blocking(&self, flags: Flags) -> Result<Sequence, FlushError> {
        let ended = self.wait(None, self.begin(flags));
        ended.expect("a wait without deadline ends with its future")
    }

    /// Does [`begin`](FlushDomain::begin); the thread sleeps at most `limit`.
    ///
    /// # Errors
    ///
    /// The errors of `begin`, and [`FlushError::TimedOut`].
    pub fn begin_timeout(&self, flags: Flags, limit: Duration) -> Result<Sequence, FlushError> {
        let ended = self.wait(Some(limit), self.begin(flags));
        ended.unwrap_or(Err(FlushError::TimedOut))
    }

    /// Does [`begin`](FlushDomain::begin) if the data may start now: the flags have no `preflush`,
    /// or there is nothing to flush.
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

    /// Does [`write_fua`](FlushDomain::write_fua) on a device that needs no flush for it: the
    /// device has durable writes, and `write` is one, or it has no volatile cache. No other flush
    /// or durable write may be under way; the call waits for those that other threads begin while
    /// `write` runs.
    ///
    /// # Errors
    ///
    /// The errors of `write_fua`; [`WriteError::WouldBlock`] if a flush is needed, or one is under
    /// way: then `write` has not run.
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
        // The write needs no flush after it.
        self.write_fua_blocking(write)
    }

    /// Runs `write`, and makes its data durable: by a flush after it, or, if the device has durable
    /// writes, by nothing; then `write` has to be a durable one. `write` must call nothing of this
    /// domain: that call would wait for its own end.
    ///
    /// # Errors
    ///
    /// The error of `write`, or of the flush.
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

    /// Does [`write_fua`](FlushDomain::write_fua); the thread sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `write_fua`.
    pub fn write_fua_blocking<T>(
        &self,
        write: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, WriteError> {
        let ended = self.wait(None, self.write_fua(write));
        ended.expect("a wait without deadline ends with its future")
    }

    /// Does [`write_fua`](FlushDomain::write_fua); the thread sleeps at most `limit`. Neither
    /// `write` nor a flush that this call carries out is interrupted.
    ///
    /// # Errors
    ///
    /// The errors of `write_fua`, and [`WriteError::TimedOut`].
    pub fn write_fua_timeout<T>(
        &self,
        write: impl FnOnce() -> io::Result<T>,
        limit: Duration,
    ) -> Result<T, WriteError> {
        let ended = self.wait(Some(limit), self.write_fua(write));
        ended.unwrap_or(Err(WriteError::TimedOut))
    }
}
