//! Whoever runs the items of BH queues on its own thread.

use crate::attrs::HIGHPRI;
use crate::error::{PollerError, QueueError};
use crate::layout::{Cpus, Place};
use crate::pool::Notify;
use crate::pools::Lease;
use crate::system::Shared;
use crate::worker::{self, Seen};
use inflight_sync::{Arc, cpu};
use std::fmt;
use std::time::Duration;

/// So many items a poll runs that has no reason to choose another number.
pub const BH_BUDGET: usize = 10;

/// A poll that has run for so long does not begin another item.
const TIME: Duration = Duration::from_millis(2);

/// A poller that has been called and does not come for so long is late: a thread runs what waits.
/// By the system's clock.
pub const BH_PATIENCE: Duration = Duration::from_millis(10);

/// What a poll has done.
///
/// ```
/// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
/// let mut poller = sys.bh_poller(0, || ())?;
/// let polled = poller.poll(10);
/// assert_eq!((polled.ran, polled.more), (0, false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "if more waits, nobody calls again"]
pub struct Polled {
    /// So many items it has run.
    pub ran: usize,
    /// More wait. The poller is not told of them: it is to poll again, within [`BH_PATIENCE`].
    pub more: bool,
}

/// Runs the items of one CPU's BH queues, of all of them, on the thread that calls
/// [`poll`](BhPoller::poll): an event loop, for instance, that is pinned to that CPU.
///
/// As long as it comes in time nobody else runs them, and no thread is made for them. It is told by
/// the function given to [`bh_poller`](crate::WorkqueueSystem::bh_poller) when there is something
/// to run, once until it has polled. If it then does not poll for [`BH_PATIENCE`], or when it is
/// dropped, the thread `inflight/bh:N` of the CPU runs what waits, until the poller comes again.
/// So a poller may even wait for its own items: it only loses time. Once the system ends, the
/// thread runs all that is left.
///
/// Items run one at a time, those of [`highpri`](crate::WorkqueueBuilder::highpri) queues (from a
/// thread: beside the others) first, each kind in the order in which it was queued on that CPU. A
/// work that runs somewhere else when it is queued runs there again, as for every queue.
///
/// # What an item may not do
///
/// It may not sleep. [`blocking`](crate::blocking), and each wait of this library that would
/// sleep, panic in it; the panic is the item's, and counted. To flush, drain or destroy a queue,
/// [`flush`](crate::Work::flush), [`cancel_sync`](crate::Work::cancel_sync),
/// [`disable_sync`](crate::Work::disable_sync) and [`JoinHandle::wait`](crate::JoinHandle::wait)
/// are [`WouldDeadlock`](crate::WouldDeadlock) there, whether they would have to wait or not. Other
/// sleep is not noticed, and holds up the loop.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use std::sync::mpsc;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let (call, called) = mpsc::channel(); // in an event loop: an eventfd
/// let mut poller = sys.bh_poller(0, move || drop(call.send(())))?;
///
/// let done = sys.workqueue("done").bh().build()?;
/// let sum = done.spawn_on(0, || 1 + 2);
/// called.recv()?;
/// while poller.poll(10).more {}
/// assert_eq!(sum.wait()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BhPoller {
    cpu: usize,
    /// Of high priority, and the other.
    seats: Vec<Seat>,
}

struct Seat {
    pool: Arc<Lease>,
    number: usize,
    seen: Arc<Seen>,
}

impl BhPoller {
    pub(crate) fn new(
        system: &Arc<Shared>,
        cpu: usize,
        notify: &Notify,
    ) -> Result<Self, PollerError> {
        if !system.env().has_cpu(cpu) {
            return Err(PollerError::NoSuchCpu(cpu));
        }
        // Whoever is seated can be late.
        match system.env().timekeeper.ready(system.env()) {
            Err(QueueError::NoTimer(kind)) => return Err(PollerError::NoTimer(kind)),
            ready => drop(ready.map_err(|_| PollerError::ShutDown)?),
        }
        let mut seats = Vec::new();
        for nice in [HIGHPRI, 0] {
            let place = Place {
                cpus: Cpus::One(cpu),
                nice,
                bh: true,
            };
            let pool = system.pool(&place, true).expect("it needs no thread");
            let seen = Seen::new(system.env());
            // Who has the first has both.
            let number = pool.seat_poller(notify, &seen);
            let number = number.ok_or(PollerError::Taken(cpu))?;
            seats.push(Seat { pool, number, seen });
        }
        let poller = Self { cpu, seats };
        // P8
        if system.is_shut() {
            return Err(PollerError::ShutDown);
        }
        Ok(poller)
    }

    /// The CPU whose items it runs.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// assert_eq!(sys.bh_poller(0, || ())?.cpu(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Runs up to `budget` items on the calling thread, and begins none once 2 ms have passed by
    /// the system's clock. [`BH_BUDGET`] is a good budget. What the items queue, they queue on the
    /// poller's CPU.
    ///
    /// While the thread of the CPU runs an item nothing is run; from then on the thread leaves the
    /// rest to the poller, which is told of it. Inside a BH item nothing is run either.
    ///
    /// The items' CPU time is the caller's, and not counted for the queues.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # let mut poller = sys.bh_poller(0, || ())?;
    /// # let done = sys.workqueue("done").bh().build()?;
    /// let items: Vec<_> = (0..3).map(|n| done.spawn_on(0, move || n)).collect();
    /// let first = poller.poll(2);
    /// assert!(first.ran <= 2); // fewer if this thread was held up for 10 ms
    /// # while poller.poll(2).more {}
    /// # for (n, item) in items.into_iter().enumerate() { assert_eq!(item.wait()?, n) }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll(&mut self, budget: usize) -> Polled {
        if worker::may_not_sleep() {
            return Polled::default();
        }
        let before = cpu::swap_current_for_thread(Some(self.cpu));
        let clock = self.seats[0].pool.env().clock.clone();
        let end = clock.now() + TIME;
        let mut here = [false; 2];
        let mut polled = Polled::default();
        while polled.ran < budget && (polled.ran == 0 || clock.now() < end) {
            let seats = self.seats.iter().zip(&mut here);
            let next = seats
                .map(|(seat, here)| (seat, seat.pool.poll_next(here)))
                .find_map(|(seat, entry)| Some((seat, entry?)));
            let Some((seat, entry)) = next else { break };
            worker::run_polled(&seat.pool, seat.number, &seat.seen, entry);
            polled.ran += 1;
        }
        for (seat, here) in self.seats.iter().zip(here) {
            // Who has not come is called as before.
            polled.more |= if here {
                seat.pool.poll_ends()
            } else {
                seat.pool.waits_for_poller()
            };
        }
        cpu::swap_current_for_thread(before);
        polled
    }
}

impl Drop for BhPoller {
    fn drop(&mut self) {
        for seat in &self.seats {
            seat.pool.unseat_poller();
        }
    }
}

impl fmt::Debug for BhPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BhPoller")
            .field("cpu", &self.cpu)
            .finish_non_exhaustive()
    }
}
