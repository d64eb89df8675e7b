//! Several records that count together.

use super::frame::Kind;
use super::{Durability, Log, LogError, Lsn};
use std::ops::Range;
use std::time::Duration;

/// Records that are found again all together or not at all: the result of [`Log::checkpoint`].
///
/// Its first buffer is written after a flush [of the data](Log::set_tail), and a flush follows its
/// commit: two flushes, for any number of buffers between, and one for each segment that they fill.
/// If it is dropped without a commit, its records do not count.
///
/// ```
/// use inflight_flush::{Power, log::{LogOptions, MemoryStorage}};
/// let storage = MemoryStorage::new(&Power::new());
/// let (log, _) = LogOptions::new().open(storage.clone())?;
/// let mut checkpoint = log.checkpoint();
/// for block in 0..100_u8 {
///     checkpoint.append_blocking(&[block; 4000])?;
/// }
/// checkpoint.commit_blocking()?;
/// let mut unfinished = log.checkpoint();
/// unfinished.append_blocking(b"does not count")?;
/// let (_, found) = LogOptions::new().open(storage.restart(&Power::new(), 0))?;
/// assert_eq!(found.records.len(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped without a commit, its records do not count"]
pub struct Checkpoint {
    log: Log,
    number: u32,
    begin: Option<Lsn>,
}

impl Log {
    /// Begins a checkpoint. Other callers may append meanwhile, and begin checkpoints of their own.
    pub fn checkpoint(&self) -> Checkpoint {
        let number = {
            let mut state = self.inner.state.lock();
            // 0 says that a record belongs to none.
            state.last_checkpoint = state.last_checkpoint.wrapping_add(1).max(1);
            state.last_checkpoint
        };
        Checkpoint {
            log: self.clone(),
            number,
            begin: None,
        }
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        let mut state = self.log.inner.state.lock();
        let range = state.checkpoints.get(&self.number);
        if range.is_some_and(|range| range.end.is_none()) {
            state.checkpoints.remove(&self.number);
        }
        state.forget_durable_checkpoints();
    }
}

impl Checkpoint {
    /// Appends a record, and waits for room as [`Log::append`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Log::append`].
    pub async fn append(&mut self, record: &[u8]) -> Result<Lsn, LogError> {
        let (log, number) = (self.log.clone(), self.number);
        let first = self.begin.is_none();
        let appended = log.append_when_there_is_room(Kind::Data, number, record, first);
        let lsn = appended.await?;
        self.begin.get_or_insert(lsn);
        Ok(lsn)
    }

    /// Appends a record if there is room now.
    ///
    /// # Errors
    ///
    /// The errors of [`Log::try_append`].
    ///
    /// ```
    /// # use inflight_flush::{Power, log::{LogOptions, MemoryStorage}};
    /// let (log, _) = LogOptions::new().open(MemoryStorage::new(&Power::new()))?;
    /// let mut checkpoint = log.checkpoint();
    /// checkpoint.try_append(b"block 7")?;
    /// checkpoint.commit_blocking()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_append(&mut self, record: &[u8]) -> Result<Lsn, LogError> {
        let first = self.begin.is_none();
        let lsn = self
            .log
            .append_kind(Kind::Data, self.number, record, first)?;
        self.begin.get_or_insert(lsn);
        Ok(lsn)
    }

    /// Appends as [`append`](Checkpoint::append); the thread sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `append`.
    pub fn append_blocking(&mut self, record: &[u8]) -> Result<Lsn, LogError> {
        let log = self.log.clone();
        let ended = log.wait(None, self.append(record));
        ended.expect("a wait without deadline ends with its future")
    }

    /// Appends as [`append`](Checkpoint::append); the thread sleeps at most `limit`.
    ///
    /// # Errors
    ///
    /// The errors of `append`, and [`LogError::TimedOut`].
    pub fn append_timeout(&mut self, record: &[u8], limit: Duration) -> Result<Lsn, LogError> {
        let log = self.log.clone();
        let ended = log.wait(Some(limit), self.append(record));
        ended.unwrap_or(Err(LogError::TimedOut))
    }

    /// Makes the checkpoint durable. Returns the positions of its first record and of its end.
    ///
    /// # Errors
    ///
    /// The errors of [`Log::commit`]; then the checkpoint may count or not.
    pub async fn commit(self) -> Result<Range<Lsn>, LogError> {
        let (log, number) = (&self.log, self.number);
        let first = self.begin.is_none();
        let end = log.append_when_there_is_room(Kind::Commit, number, &[], first);
        let end = end.await?;
        log.commit(end, Durability::Flushed).await?;
        Ok(self.begin.unwrap_or(end)..end)
    }

    /// Commits as [`commit`](Checkpoint::commit); the thread sleeps.
    ///
    /// # Errors
    ///
    /// The errors of `commit`.
    pub fn commit_blocking(self) -> Result<Range<Lsn>, LogError> {
        let log = self.log.clone();
        let ended = log.wait(None, self.commit());
        ended.expect("a wait without deadline ends with its future")
    }

    /// Commits as [`commit`](Checkpoint::commit); the thread sleeps at most `limit`.
    ///
    /// # Errors
    ///
    /// The errors of `commit`, and [`LogError::TimedOut`].
    pub fn commit_timeout(self, limit: Duration) -> Result<Range<Lsn>, LogError> {
        let log = self.log.clone();
        let ended = log.wait(Some(limit), self.commit());
        ended.unwrap_or(Err(LogError::TimedOut))
    }
}
