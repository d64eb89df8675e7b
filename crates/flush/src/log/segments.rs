//! Makes the next segment and removes old ones, outside of the log's other locks. A commit that has
//! ended does it, before the next segment is needed.

use super::storage::Storage;
use crate::device::Device;
use inflight_sync::{Arc, Condvar, Mutex, MutexGuard};
use std::io;

/// The next segment, and the right to remove old ones.
pub(super) struct Segments {
    storage: Arc<dyn Storage>,
    size: u64,
    /// The last of all locks.
    next: Mutex<Next>,
    made: Condvar,
    /// Held by the thread that makes and removes. Used only with `try_lock`, so no thread waits for
    /// it.
    upkeep: Mutex<()>,
}

struct Next {
    number: u64,
    stage: Stage,
}

enum Stage {
    /// Nobody has begun to make it.
    None,
    Making,
    Made(Arc<dyn Device>),
    /// It could not be made. It is tried again when it is needed.
    Refused,
}

impl Segments {
    /// `made`: the next segment, if it was made before the log was stopped.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        size: u64,
        number: u64,
        made: Option<Arc<dyn Device>>,
    ) -> Self {
        let stage = made.map_or(Stage::None, Stage::Made);
        Self {
            storage,
            size,
            next: Mutex::new(Next { number, stage }),
            made: Condvar::new(),
            upkeep: Mutex::new(()),
        }
    }

    /// The next segment, which is zeros and has room for `least` bytes, and its number. It is made
    /// now only if it has not been made ahead.
    pub(super) fn take(&self, least: u64) -> io::Result<(u64, Arc<dyn Device>)> {
        let mut next = self.next.lock();
        while matches!(next.stage, Stage::Making) {
            self.made.wait(&mut next);
        }
        let number = next.number;
        let made = match std::mem::replace(&mut next.stage, Stage::None) {
            Stage::Made(segment) if segment.len()? >= least => Some(segment),
            // Made for shorter records.
            Stage::Made(_) => {
                self.storage.remove(number)?;
                None
            }
            _ => None,
        };
        let segment = match made {
            Some(segment) => segment,
            None => self.storage.create(number, self.size.max(least))?,
        };
        next.number += 1;
        Ok((number, segment))
    }

    /// The right to remove and to make, unless another thread has it.
    pub(super) fn try_upkeep(&self) -> Option<MutexGuard<'_, ()>> {
        self.upkeep.try_lock()
    }

    /// Makes the next segment if it is not made yet.
    pub(super) fn make_next(&self) -> io::Result<()> {
        let number = {
            let mut next = self.next.lock();
            if !matches!(next.stage, Stage::None) {
                return Ok(());
            }
            next.stage = Stage::Making;
            next.number
        };
        let mut made = Making {
            segments: self,
            made: None,
        };
        made.made = Some(self.storage.create(number, self.size)?);
        Ok(())
    }

    /// Removes a segment. It does not come back.
    pub(super) fn remove(&self, number: u64) -> io::Result<()> {
        self.storage.remove(number)
    }
}

/// Notes the result of making the next segment, also after a panic.
struct Making<'a> {
    segments: &'a Segments,
    made: Option<Arc<dyn Device>>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let stage = self.made.take().map_or(Stage::Refused, Stage::Made);
        self.segments.next.lock().stage = stage;
        self.segments.made.notify_all();
    }
}
