//! Writing and flushing, alone or for others.

use super::flush_shared::{device_error, flush_shared};
use super::group::{Durability, Key, Next};
use super::writer::{Batch, Writer};
use super::{Inner, Log, LogError, Lsn, POISONED, State};
use crate::device::Device;
use crate::domain::wait_until;
use crate::error::DeviceError;
use inflight_sync::atomic::Ordering;
use inflight_sync::time::Instant;
use inflight_sync::wait::{Notify, notify_each};
use inflight_sync::{Mutex, MutexGuard, Parker, thread};
use std::future::{Future, poll_fn};
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

/// A commit that waits in the group. Leaves it when dropped; if it was to lead, another one leads.
struct Member {
    log: Log,
    key: Key,
}

impl Member {
    fn poll_next(&self, cx: &Context<'_>) -> Poll<Next> {
        // Cloning and dropping a waker may run anything, so not under the lock.
        let notify = Notify::Task(cx.waker().clone());
        let looked = self.log.inner.state.lock().group.look(self.key, notify);
        looked.0
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let inner = &self.log.inner;
        let now = inner.clock.now();
        let (told, own) = inner.state.lock().group.leave(now, self.key);
        drop(own);
        notify_each(told);
    }
}

/// Counts a commit while it is under way.
struct UnderWay<'a> {
    inner: &'a Inner,
    /// It has been made durable.
    flushed: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.inner.state.lock().pace.commit_ends(self.flushed);
    }
}

/// The leader steps down however it ends.
struct Leading<'a>(&'a Inner);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let now = self.0.clock.now();
        let told = {
            let mut state = self.0.state.lock();
            state.counters.leaders += 1;
            state.group.step_down(now)
        };
        notify_each(told);
    }
}

/// A lock under which the device is used. A failure, or a panic of the device, is noted before the
/// lock is released, so the next holder sees it.
struct Using<'a, T> {
    log: &'a Inner,
    guard: MutexGuard<'a, T>,
    was_panicking: bool,
}

impl<'a, T> Using<'a, T> {
    fn lock(log: &'a Inner, lock: &'a Mutex<T>) -> Self {
        Self {
            log,
            guard: lock.lock(),
            was_panicking: thread::panicking(),
        }
    }
}

impl<T> Drop for Using<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.log.fail(DeviceError::UNHEARD);
        }
    }
}

/// Whether one write may make durable what it writes, and for whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durably {
    No,
    ForOne,
    ForGroup,
}

/// However the commit ends, ends the members that are served, or all if the log has failed.
struct Settling<'a>(&'a Inner);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let now = self.0.clock.now();
        let told = self.0.state.lock().group.settle(now);
        notify_each(told);
    }
}

impl Log {
    /// Waits until all records up to `lsn` are written, or durable. Other records appended before
    /// are written with them.
    ///
    /// A leading commit carries out writes and a flush for all waiting commits; its poll blocks
    /// meanwhile. With [`GroupMode::Off`](super::GroupMode), and with `Auto` while it does not
    /// group, each commit writes and flushes in its poll, and its poll waits for those of others.
    /// So commits that one thread polls do not share flushes.
    ///
    /// Poll the future until it is ready, or drop it: one that is to lead and is not polled keeps
    /// all others waiting.
    ///
    /// # Errors
    ///
    /// If a write or a flush fails, or has failed before; if nothing was appended at `lsn`.
    ///
    /// # Panics
    ///
    /// With the first panic of a waker of another commit, after all are woken.
    ///
    /// # Fairness
    ///
    /// All commits whose records are in one flush are released together. Of the others the one that
    /// has waited longest leads the next.
    ///
    /// # Cancel safety
    ///
    /// A dropped future stops waiting; its record may still be written.
    ///
    /// ```
    /// # use inflight_flush::{Power, log::{Durability, LogOptions, MemoryStorage}};
    /// let (log, _) = LogOptions::new().open(MemoryStorage::new(&Power::new()))?;
    /// let lsn = log.try_append(b"record")?;
    /// inflight_sync::block_on(log.commit(lsn, Durability::Flushed))?;
    /// assert!(log.durable() >= lsn);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit(
        &self,
        lsn: Lsn,
        durability: Durability,
    ) -> impl Future<Output = Result<(), LogError>> + Send + use<> {
        let log = self.clone();
        async move {
            // Ordering: Acquire, pairs with the Release in `publish`: a commit that finds its
            // record durable without a lock sees what the flush has done.
            let word = log.inner.durable.load(Ordering::Acquire);
            if word & POISONED == 0 && lsn.0 <= word {
                return Ok(());
            }
            log.commit_slow(lsn, durability).await
        }
    }

    async fn commit_slow(self, lsn: Lsn, durability: Durability) -> Result<(), LogError> {
        let inner = &self.inner;
        let now = inner.clock.now();
        let (key, back) = {
            let mut state = inner.state.lock();
            let end = Lsn(state.end());
            if lsn > end {
                return Err(LogError::NotAppended { lsn, end });
            }
            state.pace.commit_begins(now);
            state.counters.commits += 1;
            let grouped = state.pace.groups(inner.options.mode);
            let key = grouped.then(|| state.group.join(now, lsn.0, durability));
            let back = state.pace.all_are_back();
            (key, back.then(|| state.gathering.take()).flatten())
        };
        if let Some(leader) = back {
            leader.unpark();
        }
        let mut under_way = UnderWay {
            inner,
            flushed: false,
        };
        let ended = match key {
            None => inner.commit_alone(lsn.0, durability),
            Some(key) => {
                let member = Member {
                    log: self.clone(),
                    key,
                };
                loop {
                    match poll_fn(|cx| member.poll_next(cx)).await {
                        Next::Lead => {
                            inner.woken(now, key);
                            inner.lead();
                        }
                        Next::Ended(ended) => break ended,
                    }
                }
            }
        };
        under_way.flushed = ended.is_ok() && durability == Durability::Flushed;
        inner.upkeep();
        let after = inner.clock.now();
        let mut state = inner.state.lock();
        state.counters.wait_time.record(after - now);
        ended.map_err(LogError::Poisoned)
    }

    /// Commits as [`commit`](Log::commit); the thread sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `commit`.
    pub fn commit_blocking(&self, lsn: Lsn, durability: Durability) -> Result<(), LogError> {
        let ended = self.wait(None, self.commit(lsn, durability));
        ended.expect("a wait without deadline ends with its future")
    }

    /// Returns `Ok` if all records up to `lsn` are written, or durable, already.
    ///
    /// # Errors
    ///
    /// [`LogError::WouldBlock`] if they are not. Nothing is written or flushed for this call.
    /// Otherwise the errors of [`commit`](Log::commit).
    ///
    /// ```
    /// # use inflight_flush::{Power, log::{Durability, LogError, LogOptions, MemoryStorage}};
    /// let (log, _) = LogOptions::new().open(MemoryStorage::new(&Power::new()))?;
    /// let lsn = log.try_append(b"record")?;
    /// assert_eq!(log.try_commit(lsn, Durability::Buffered), Err(LogError::WouldBlock));
    /// log.commit_blocking(lsn, Durability::Buffered)?;
    /// assert_eq!(log.try_commit(lsn, Durability::Buffered), Ok(()));
    /// assert_eq!(log.try_commit(lsn, Durability::Flushed), Err(LogError::WouldBlock));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_commit(&self, lsn: Lsn, durability: Durability) -> Result<(), LogError> {
        let state = self.inner.state.lock();
        let end = Lsn(state.end());
        if let Some(error) = state.group.failed() {
            Err(LogError::Poisoned(error))
        } else if lsn > end {
            Err(LogError::NotAppended { lsn, end })
        } else if state.group.reached(lsn.0, durability) {
            Ok(())
        } else {
            Err(LogError::WouldBlock)
        }
    }

    /// Commits as [`commit`](Log::commit); the thread sleeps at most `limit`, unless this commit
    /// writes and flushes itself: a device is not interrupted. One that does not group may also
    /// wait for the write and the flush of another commit.
    ///
    /// # Errors
    ///
    /// The errors of `commit`, and [`LogError::TimedOut`].
    pub fn commit_timeout(
        &self,
        lsn: Lsn,
        durability: Durability,
        limit: Duration,
    ) -> Result<(), LogError> {
        let ended = self.wait(Some(limit), self.commit(lsn, durability));
        ended.unwrap_or(Err(LogError::TimedOut))
    }

    pub(super) fn wait<F: Future>(&self, limit: Option<Duration>, future: F) -> Option<F::Output> {
        let clock = &self.inner.clock;
        let deadline = limit.map(|limit| clock.now() + limit);
        wait_until(clock, deadline, || None, || (), future)
    }
}

impl Inner {
    /// Writes and flushes for all members.
    fn lead(&self) {
        let _leading = Leading(self);
        self.gather();
        // A failure is noted in the state, and ends all members when the leader steps down.
        let _ = self.write_and_flush();
    }

    /// A member that joined at `joined` begins to lead. If it was woken for that, the device was
    /// idle meanwhile; this time decides whether sharing pays.
    fn woken(&self, joined: Instant, key: Key) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let told = state.group.told(key);
        if told > joined {
            state.pace.woken(now - told);
        }
    }

    /// Waits for other commits, if the options say so and it pays.
    fn gather(&self) {
        let most = self.options.max_delay;
        if most.is_zero() {
            return;
        }
        let parker = Parker::current();
        let limit = {
            let mut state = self.state.lock();
            let delay = state.pace.delay(most, self.options.min_siblings);
            let Some(limit) = delay else { return };
            state.gathering = Some(parker.unparker());
            state.counters.delays += 1;
            limit
        };
        let end = self.clock.now() + limit;
        while parker.park_until(&self.clock, end) {
            if self.state.lock().gathering.is_none() {
                return;
            }
        }
        self.state.lock().gathering = None;
    }

    fn write_and_flush(&self) -> Result<(), DeviceError> {
        let (end, wanted) = {
            let group = &self.state.lock().group;
            let end = group.end_of(self.options.max_members);
            (end, group.wanted(end))
        };
        let durably = match wanted {
            Some(Durability::Flushed) => Durably::ForGroup,
            _ => Durably::No,
        };
        self.write_out(durably, end)?;
        let flushing = Using::lock(self, &self.flushing);
        {
            let mut state = self.state.lock();
            let cover = state.group.written;
            // Read again: a member that needs more may have joined during the write.
            let wanted = state.group.wanted(cover);
            if state.group.durable >= cover || wanted != Some(Durability::Flushed) {
                return Ok(());
            }
            state.count_group(cover);
        }
        self.flush_written(&flushing, |state| state.counters.flushes += 1)
    }

    /// A commit that waits for no leader.
    fn commit_alone(&self, lsn: u64, durability: Durability) -> Result<(), DeviceError> {
        let _settling = Settling(self);
        let durably = match durability {
            Durability::Flushed => Durably::ForOne,
            Durability::Buffered => Durably::No,
        };
        while !self.reached(lsn, Durability::Buffered)? {
            self.write_out(durably, u64::MAX)?;
        }
        if durability == Durability::Buffered {
            return Ok(());
        }
        let flushing = Using::lock(self, &self.flushing);
        // Another commit may have flushed meanwhile.
        if self.reached(lsn, durability)? {
            return Ok(());
        }
        self.flush_written(&flushing, |state| state.counters.flushes_alone += 1)
    }

    fn reached(&self, lsn: u64, durability: Durability) -> Result<bool, DeviceError> {
        let state = self.state.lock();
        let failed = state.group.failed();
        failed.map_or_else(|| Ok(state.group.reached(lsn, durability)), Err)
    }

    /// Writes what was appended up to `end`, durably if that is wanted and takes only one write.
    fn write_out(&self, durably: Durably, end: u64) -> Result<(), DeviceError> {
        let mut writing = Using::lock(self, &self.writer);
        let written = self.write_batch(&mut writing.guard, durably, end);
        // Before the lock is released: no one may write behind a hole.
        written.inspect_err(|&error| self.fail(error))
    }

    fn write_batch(
        &self,
        writer: &mut Writer,
        durably: Durably,
        end: u64,
    ) -> Result<(), DeviceError> {
        let batch = {
            let mut state = self.state.lock();
            if let Some(error) = state.group.failed() {
                return Err(error);
            }
            state.take(self.options.max_group, end)
        };
        if batch.bytes.is_empty() {
            return Ok(());
        }
        let segment = writer.segment();
        let fits = writer.frames_that_fit(&batch);
        // The system may report a loss to others who share the domain, not to a durable write.
        let fua = durably != Durably::No
            && segment.caps().native_fua
            && self.options.log_domain.is_none()
            && batch.first <= batch.durable
            && fits == Some(1);
        let flushes = fua || batch.flush_before || fits.is_none();
        let flushing = flushes.then(|| Using::lock(self, &self.flushing));
        if batch.flush_before {
            self.flush_before(&*segment)?;
        }
        let started = self.clock.now();
        let mut at = 0;
        loop {
            let written = writer.write(&batch, at, fua);
            at = written.map_err(|error| self.failed(&error))?;
            self.wrote(writer, &batch, at);
            if at == batch.bytes.len() {
                break;
            }
            let flushing = flushing
                .as_ref()
                .expect("a batch that does not fit is flushed");
            self.next_segment(writer, &batch, at, flushing)?;
        }
        if fua {
            let took = self.clock.now() - started;
            self.state.lock().counters.flush_time.record(took);
            let cover = batch.end();
            self.flushed(started, cover, |state| {
                state.counters.fua_writes += 1;
                if durably == Durably::ForGroup {
                    state.count_group(cover);
                }
            });
        }
        Ok(())
    }

    /// The batch was written up to `at`, by calls that have returned.
    fn wrote(&self, writer: &mut Writer, batch: &Batch, at: usize) {
        let mut state = self.state.lock();
        let end = batch.first + at as u64;
        state.group.written = end;
        if at > 0 {
            // If nothing fitted, no frame has the batch's tail yet.
            state.tails.wrote(end, batch.tail);
        }
        state.segment = writer.segment();
        state.counters.buffers = writer.frames();
        if writer.wants_next() {
            state.wants_next = true;
            state.note_upkeep(self);
        }
    }

    /// Flushes the segment, which is full, and continues in the next one.
    fn next_segment(
        &self,
        writer: &mut Writer,
        batch: &Batch,
        at: usize,
        flushing: &Using<'_, ()>,
    ) -> Result<(), DeviceError> {
        self.flush_full_segment(flushing)?;
        let next = self.segments.take(writer.least(batch, at));
        let next = next.inspect_err(|_| self.state.lock().counters.failed_creations += 1);
        let base = batch.first + at as u64;
        let begun = next.and_then(|next| {
            let number = next.0;
            writer.begin_segment(next, base, batch.tail)?;
            Ok(number)
        });
        let number = begun.map_err(|error| self.failed(&error))?;
        self.state.lock().segments.push_back((number, base));
        Ok(())
    }

    /// Marks the log as failed. Called while `flushing` may be held, which is released before the
    /// writer's lock, so its next holder sees the failure too.
    fn failed(&self, error: &io::Error) -> DeviceError {
        let error = DeviceError::from(error);
        self.fail(error);
        error
    }

    /// The flush before a buffer, when all buffers before it are written: of the data's device if
    /// it is another one, else of the log's.
    fn flush_before(&self, segment: &dyn Device) -> Result<(), DeviceError> {
        let flushed = match &self.options.data_domain {
            // An earlier flush that failed may have lost data that this one no longer sees.
            Some(data) => {
                device_error(data.flush_blocking()).and_then(|()| data.poison().map_or(Ok(()), Err))
            }
            None => self.flush_log(segment),
        };
        flushed.inspect_err(|&error| self.fail(error))?;
        self.state.lock().counters.flushes_before += 1;
        Ok(())
    }

    /// Makes durable what was written by calls that had returned before the flush is issued.
    ///
    /// Invariant: there is one flush at a time, and its result is known before the next one begins.
    /// A system reports a loss once: of two flushes at a time one could succeed without the lost
    /// data.
    fn flush_written(
        &self,
        _flushing: &Using<'_, ()>,
        count: impl FnOnce(&mut State),
    ) -> Result<(), DeviceError> {
        // What was written before is in this segment, or in one that was flushed when it was full.
        let (failed, cover, segment) = {
            let state = self.state.lock();
            let group = &state.group;
            (group.failed(), group.written, state.segment.clone())
        };
        if let Some(error) = failed {
            return Err(error);
        }
        let started = self.clock.now();
        let flushed = self.flush_log(&*segment);
        flushed.inspect_err(|&error| self.fail(error))?;
        self.flushed(started, cover, count);
        Ok(())
    }

    /// Makes durable what is in the present segment, which is full.
    fn flush_full_segment(&self, _flushing: &Using<'_, ()>) -> Result<(), DeviceError> {
        let (cover, segment) = {
            let state = self.state.lock();
            let cover = state.group.written;
            if state.group.durable == cover {
                return Ok(());
            }
            (cover, state.segment.clone())
        };
        let flushed = self.flush_log(&*segment);
        flushed.inspect_err(|&error| self.fail(error))?;
        let mut state = self.state.lock();
        state.counters.flushes_of_full_segments += 1;
        self.durable_up_to(&mut state, cover);
        Ok(())
    }

    /// A flush of the log's device, shared with the other users of its domain.
    fn flush_log(&self, segment: &dyn Device) -> Result<(), DeviceError> {
        let started = self.clock.now();
        flush_shared(&self.domain, self.failed_before, segment)?;
        let took = self.clock.now() - started;
        self.state.lock().counters.flush_time.record(took);
        Ok(())
    }

    /// A flush, or a durable write, has ended: the log is durable up to `cover`. Counted before
    /// that becomes visible, because a member that finds its record durable may leave the group.
    fn flushed(&self, started: Instant, cover: u64, count: impl FnOnce(&mut State)) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        count(&mut state);
        let waiting = state.group.waiting_beyond(cover);
        state.pace.flushed(now, now - started, waiting);
        self.durable_up_to(&mut state, cover);
    }

    fn durable_up_to(&self, state: &mut State, cover: u64) {
        let durable = state.group.durable.max(cover);
        state.group.durable = durable;
        state.tails.flushed(durable);
        if state.obsolete_segment().is_some() {
            state.note_upkeep(self);
        }
        if state.group.failed().is_none() {
            self.publish(durable);
        }
    }

    /// Publishes up to where the log is durable, for commits that do not take the lock; `u64::MAX`
    /// if it has failed. Called under the lock, so the position never decreases.
    fn publish(&self, durable: u64) {
        // Ordering: Release, pairs with the Acquire in `commit`.
        self.durable.store(durable, Ordering::Release);
    }

    /// The log has failed. The caller ends the members when it holds no lock.
    fn fail(&self, error: DeviceError) {
        let mut state = self.state.lock();
        state.group.fail(error);
        self.publish(u64::MAX);
    }
}
