//! CPUs that leave: a hardware queue whose last CPU is gone is inactive, and can be drained.
//!
//! ```text
//! leave:     D1 mark the queue inactive    D2 heavy fence
//!            D3 wait on `drained` until none of its bits is set, or it serves again
//! submitter: A1 .. A3, then D4: the queue is inactive -> put back (B1), look again
//! return:    E1 unmark it                  E2 notify `drained`
//! ```
//!
//! PROTOCOL-freeze.md has the proof.

use crate::active_queues::SERIAL;
use crate::drain::DrainPass;
use crate::error::DrainError;
use crate::queue_kind::QueueKind;
use crate::shared::Shared;
use crate::tag_maps::TagMaps;
use std::time::Duration;

/// A drain of a hardware queue that has begun.
pub(crate) struct HwQueueDrain {
    hw_queue: usize,
    /// What says whose it is, as it was then.
    word: u64,
    pass: DrainPass,
}

impl<T> Shared<T> {
    /// D1 and D2, E1 and E2, for every hardware queue. Under the lock for changes of size.
    pub(crate) fn look_who_serves(&self) {
        let bitmaps: &TagMaps = &self.bitmaps;
        let n = bitmaps.size().hw_queues();
        let (mut mapped, mut served) = (vec![false; n], vec![false; n]);
        {
            let gone = bitmaps.active_queues().gone.lock();
            for cpu in self.map.cpus() {
                for kind in QueueKind::ALL {
                    let hw_queue = self.map.hw_queue_of(kind, cpu);
                    mapped[hw_queue] = true;
                    served[hw_queue] |= !gone.contains(&cpu);
                }
            }
        }
        let is_active = |hw_queue: &usize| served[*hw_queue] || !mapped[*hw_queue];
        let all_serve = (0..n).all(|hw_queue| is_active(&hw_queue));
        if !all_serve {
            // Before the marks of the queues: who finds one, and drains, must know that submitters
            // look for it.
            bitmaps.gate().set_short(true);
        }
        let mut returned = false;
        for hw_queue in 0..bitmaps.geometry().hw_queues {
            let by = if hw_queue >= n || is_active(&hw_queue) {
                hw_queue
            } else {
                // The next one that has a CPU; of its kind, if there is one.
                let others = (hw_queue + 1..n).chain(0..hw_queue);
                let mut others = others.filter(|&by| served[by]);
                let kind = bitmaps.kind_of(hw_queue);
                let alike = others.clone().find(|&by| bitmaps.kind_of(by) == kind);
                alike.or_else(|| others.next()).unwrap_or(hw_queue)
            };
            returned |= bitmaps.active_queues().serve_by(hw_queue, by);
        }
        if all_serve {
            bitmaps.gate().set_short(false);
        }
        // D2.
        bitmaps.gate().publish();
        if returned {
            // E2.
            bitmaps.gate().drained().notify_all();
        }
    }

    fn active(&self) -> Vec<bool> {
        let n = self.bitmaps.size().hw_queues();
        (0..n)
            .map(|hw_queue| self.bitmaps.stand_in(hw_queue) == hw_queue)
            .collect()
    }

    /// A CPU goes or comes. Which hardware queues have turned.
    pub(crate) fn set_online(&self, cpu: usize, online: bool) -> Vec<usize> {
        let _change = self.bitmaps.size().change();
        {
            let cpus = self.map.cpus();
            let mut gone = self.bitmaps.active_queues().gone.lock();
            let changed = if online {
                gone.remove(&cpu)
            } else {
                let is_last = cpus.iter().all(|c| *c == cpu || gone.contains(c));
                cpus.contains(&cpu) && !is_last && gone.insert(cpu)
            };
            if !changed {
                return vec![];
            }
        }
        self.turned_by(|| ())
    }

    /// Which hardware queues turn active or inactive by a change of the map or of who is there.
    /// Under the lock for changes of size.
    pub(crate) fn turned_by(&self, change: impl FnOnce()) -> Vec<usize> {
        let before = self.active();
        change();
        self.look_who_serves();
        let after = self.active();
        (0..before.len())
            .filter(|&hw_queue| before[hw_queue] != after[hw_queue])
            .collect()
    }

    /// D2.
    pub(crate) fn begin_drain(&self, hw_queue: usize) -> Result<HwQueueDrain, DrainError> {
        if hw_queue >= self.bitmaps.size().hw_queues() {
            return Err(DrainError::NoSuchHwQueue { hw_queue });
        }
        let word = self.bitmaps.active_queues().word(hw_queue);
        if word % SERIAL == hw_queue as u64 {
            return Err(DrainError::Active { hw_queue });
        }
        // Whoever did D1 may not have come to its D2 yet.
        self.bitmaps.gate().publish();
        Ok(HwQueueDrain {
            hw_queue,
            word,
            pass: DrainPass::of_hw_queue(&self.bitmaps, hw_queue),
        })
    }

    /// D3: whether it has come to an end.
    pub(crate) fn end_drain(&self, drain: &mut HwQueueDrain) -> Option<Result<(), DrainError>> {
        let hw_queue = drain.hw_queue;
        if self.bitmaps.active_queues().word(hw_queue) / SERIAL != drain.word / SERIAL {
            let there = hw_queue < self.bitmaps.size().hw_queues();
            let why = if there {
                DrainError::Active { hw_queue }
            } else {
                DrainError::NoSuchHwQueue { hw_queue }
            };
            return Some(Err(why));
        }
        // The bit first: whose it is was written before A2, and stays until its put.
        let counts = |table, tag| {
            !self.bitmaps.geometry().shared || self.slot(table, tag).hw_queue() == hw_queue
        };
        let busy = drain.pass.is_busy_with(&self.bitmaps, counts);
        (!busy).then_some(Ok(()))
    }

    pub(crate) fn try_drain(&self, hw_queue: usize) -> Result<(), DrainError> {
        let mut drain = self.begin_drain(hw_queue)?;
        let end = self.end_drain(&mut drain);
        end.unwrap_or(Err(DrainError::InUse { hw_queue }))
    }

    pub(crate) fn drain_blocking(&self, hw_queue: usize) -> Result<(), DrainError> {
        let mut drain = self.begin_drain(hw_queue)?;
        let mut end = None;
        self.bitmaps.gate().drained().wait_while(|| {
            end = self.end_drain(&mut drain);
            end.is_none()
        });
        end.expect("the wait is over when there is an end")
    }

    pub(crate) fn drain_timeout(
        &self,
        hw_queue: usize,
        timeout: Duration,
    ) -> Result<(), DrainError> {
        let mut drain = self.begin_drain(hw_queue)?;
        let clock = self.bitmaps.clock();
        let mut end = None;
        let drained = self.bitmaps.gate().drained();
        drained.wait_while_until(clock, clock.now() + timeout, || {
            end = self.end_drain(&mut drain);
            end.is_none()
        });
        end.unwrap_or(Err(DrainError::TimedOut { hw_queue }))
    }
}
