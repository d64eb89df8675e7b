//! The life of a queue: creation, drain, destroy and shutdown.

use super::{ActiveLimit, Control, Flags, QueueHost, WorkqueueInner};
use crate::attrs::{Kind, Mode};
use crate::choose_pool::PodMap;
use crate::completion::Completion;
use crate::error::WaitError;
use crate::mayday_list::MaydayList;
use crate::nr_active::NrActive;
use crate::pool_attrs::Settings;
use crate::pwq::{DESTROYED, DRAINING, SHUT_DOWN};
use crate::unfinished::Unfinished;
use crate::worker_pool::WorkerPool;
use inflight_sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use inflight_sync::{Arc, Mutex};
use std::ptr;

impl WorkqueueInner {
    pub(crate) fn new(
        name: String,
        kind: &Kind,
        flags: Flags,
        limit: ActiveLimit,
        rescuer: Option<Arc<MaydayList<WorkerPool>>>,
        host: Arc<dyn QueueHost>,
        settings: &Settings,
    ) -> Arc<Self> {
        let (mode, attrs) = (kind.mode(), kind.attrs());
        let pods = PodMap::new(settings, mode, &attrs, flags.highpri);
        let cpus = pods.cpus();
        let mut control = Control {
            attrs,
            limit,
            pods,
            frozen: flags.freezable && settings.is_frozen(),
            ..Control::default()
        };
        if mode == Mode::Unbound {
            if settings.topology.nodes().len() > 1 {
                control.nodes = settings.topology.nodes().iter().map(|n| (*n, 0)).collect();
            }
            control.count_cpus(settings);
            control.nr_active = (0..=control.nodes.len())
                .map(|_| Arc::new(NrActive::new(limit.max_active)))
                .collect();
            control.apply_limit();
        }
        Arc::new(Self {
            shared: host.shared().clone(),
            name,
            mode,
            flags,
            number: host.shared().metering.number(),
            host,
            by_cpu: (0..cpus).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            control: Mutex::new(control),
            postpones: AtomicBool::new(false),
            busy: Completion::new(0),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            cpu_time_ns: Arc::default(),
            last_panic: Mutex::default(),
            rescuer,
            unfinished: Unfinished::default(),
        })
    }

    /// Makes all pwqs of an unbound queue, because its pools help each other.
    pub(crate) fn make_pwqs(self: &Arc<Self>) -> Result<(), crate::error::QueueError> {
        if self.mode.is_bound() {
            return Ok(());
        }
        for cpu in 0..self.by_cpu.len() {
            self.pwq_of(cpu)?;
        }
        Ok(())
    }

    pub(crate) fn pwq_is_idle(self: &Arc<Self>) {
        if self.busy.done() {
            self.is_idle_now();
        }
    }

    fn is_idle_now(self: &Arc<Self>) {
        let (abandoned, destroyed, shut_down) = {
            let control = self.control.lock();
            let destroyed = control.destroyed && control.destroying == 0;
            (control.abandoned, destroyed, control.shut_down)
        };
        // The queue may have become busy before the flags were set.
        if !self.is_idle() {
            return;
        }
        if abandoned {
            self.detach();
        }
        if destroyed {
            let this = self.clone();
            self.shared.apart(move || this.finish_destroy());
        }
        if shut_down {
            self.host.queue_is_idle();
        }
    }

    /// Whether nothing is in flight. Valid while the pwqs are counted.
    pub(crate) fn is_idle(&self) -> bool {
        self.busy.is_done()
    }

    /// Changes what the queue accepts. Unless that is all, its busy pwqs are counted in `busy`, and
    /// so is the caller until this returns.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Control)) {
        let mut control = self.control.lock();
        change(&mut control);
        let counts =
            control.draining > 0 || control.destroyed || control.shut_down || control.abandoned;
        let begins = counts && !control.counting;
        if begins {
            self.busy.add();
        }
        control.counting = counts;
        let flags = control.flags();
        for pwq in &control.pwqs {
            let mut state = pwq.lock();
            for flag in [DRAINING, DESTROYED, SHUT_DOWN] {
                pwq.set_flag(flag, flags & flag != 0);
            }
            let pwq_state = state.core.pwq_mut(pwq.index);
            let was_counted = std::mem::replace(&mut pwq_state.counted, counts);
            if pwq_state.is_idle() {
                continue;
            }
            if counts && !was_counted {
                self.busy.add();
            } else if was_counted && !counts {
                // No one waits any more, and this pwq will not report that it is idle.
                self.busy.done();
            }
        }
        let postpones = control.draining > 0 && !control.destroyed && !control.shut_down;
        // Relaxed: the lock of the timers orders this with the looks of the timer thread.
        let postponed = self.postpones.swap(postpones, Ordering::Relaxed);
        drop(control);
        if begins {
            self.pwq_is_idle();
        }
        if postponed && !postpones {
            self.shared.timers.end_postponement();
        }
    }

    pub(crate) fn postpones(&self) -> bool {
        // Relaxed: as in `change`.
        self.postpones.load(Ordering::Relaxed)
    }

    fn finish_destroy(&self) {
        self.unfinished.end(crate::error::QueueError::Destroyed);
        self.dismiss_rescuer();
    }

    pub(crate) fn shut_down(self: &Arc<Self>) {
        self.change(|control| control.shut_down = true);
    }

    pub(crate) fn abandon(self: &Arc<Self>) {
        self.change(|control| control.abandoned = true);
        // If the pwqs were counted already, the last one did not see `abandoned`.
        if self.is_idle() {
            self.detach();
        }
    }

    /// There is no handle and nothing is in flight: the queue leaves its pools.
    fn detach(&self) {
        let is_first = || !std::mem::replace(&mut self.control.lock().detached, true);
        #[cfg(feature = "metrics")]
        let is_first = || {
            let ends = || is_first().then(|| (self.stats(), self.limit()));
            self.shared.ended_queues.add(&self.name, ends)
        };
        if !is_first() {
            return;
        }
        let pwqs = {
            let mut control = self.control.lock();
            (0..self.by_cpu.len()).for_each(|cpu| self.set_pwq(cpu, None));
            std::mem::take(&mut control.pwqs)
        };
        pwqs.iter().for_each(|pwq| pwq.remove());
        self.dismiss_rescuer();
    }

    pub(crate) fn dismiss_rescuer(&self) {
        if let Some(rescuer) = &self.rescuer {
            rescuer.inbox.stop();
        }
    }

    /// Waits until the queue is idle. Only while the pwqs are counted.
    pub(crate) async fn idle(self: Arc<Self>) -> Result<(), WaitError> {
        self.busy.wait_unless(|| self.refuse_own_item()).await
    }
}

/// *drain*: while it exists, only the queue's own items may queue.
pub(crate) struct Drain(Arc<WorkqueueInner>);

impl Drain {
    pub(crate) fn begin(wq: &Arc<WorkqueueInner>) -> Self {
        wq.change(|control| control.draining += 1);
        Self(wq.clone())
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.0.change(|control| control.draining -= 1);
    }
}

/// The queue accepts only its own items, until a thread that waits for its end finds it empty.
pub(crate) struct Destroy(Arc<WorkqueueInner>);

impl Destroy {
    pub(crate) fn begin(wq: &Arc<WorkqueueInner>) -> Self {
        wq.change(|control| {
            control.destroyed = true;
            control.destroying += 1;
        });
        Self(wq.clone())
    }
}

impl Drop for Destroy {
    /// If the queue is not empty, its last item ends the futures.
    fn drop(&mut self) {
        self.0.control.lock().destroying -= 1;
        if self.0.is_idle() {
            self.0.finish_destroy();
        }
    }
}

impl Control {
    /// The flags that a pwq shows to callers of `queue`.
    pub(super) fn flags(&self) -> u8 {
        let said = |so: bool, flag| if so { flag } else { 0 };
        said(self.draining > 0, DRAINING)
            | said(self.destroyed, DESTROYED)
            | said(self.shut_down, SHUT_DOWN)
    }
}
