//! Changes of what a queue takes and lets run: limits, freeze, drain, its end.

use super::{ActiveLimit, Control, Flags, Share, WorkqueueInner};
use crate::attrs::{Kind, Mode};
use crate::error::{AttrsError, MinActiveError};
use crate::future::Unfinished;
use crate::nr_active::{NrActive, default_min_active, node_shares};
use crate::pool_attrs::{PodMap, Settings};
use crate::pwq::{DESTROYED, DRAINING, Pwq, RETIRED, SHUT_DOWN};
use crate::rescuer::Rescuer;
use crate::system_inner::SystemInner;
use crate::worker_pool::{Later, WorkerPool};
use inflight_sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex};
use inflight_topology::Topology;
use std::ptr;

impl WorkqueueInner {
    pub(crate) fn new(
        name: String,
        kind: &Kind,
        flags: Flags,
        limit: ActiveLimit,
        rescuer: Option<Arc<Rescuer>>,
        system: &Arc<SystemInner>,
        settings: &Settings,
    ) -> Arc<Self> {
        let (mode, attrs) = (kind.mode(), kind.attrs());
        let pods = PodMap::new(settings, mode, &attrs, flags.highpri);
        let cpus = pods.cpus();
        let mut control = Control {
            attrs,
            limit,
            pods,
            pwqs: Vec::new(),
            nr_active: Vec::new(),
            nodes: Vec::new(),
            frozen: flags.freezable && settings.is_frozen(),
            draining: 0,
            destroyed: false,
            destroying: 0,
            shut_down: false,
            abandoned: false,
            detached: false,
            counting: false,
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
            name,
            mode,
            flags,
            system: system.clone(),
            number: system.shared().metering.number(),
            by_cpu: (0..cpus).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            control: Mutex::new(control),
            busy: AtomicUsize::new(0),
            idle: Event::new(),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            cpu_time_ns: AtomicU64::new(0),
            last_panic: Mutex::default(),
            rescuer,
            unfinished: Unfinished::default(),
        })
    }

    /// Makes the pwqs of an unbound queue: its pools help each other, so all of them are there.
    pub(crate) fn make_pwqs(self: &Arc<Self>) -> Result<(), crate::error::QueueError> {
        if self.mode.is_bound() {
            return Ok(());
        }
        for cpu in 0..self.by_cpu.len() {
            self.pwq_of(cpu)?;
        }
        Ok(())
    }

    /// The limit that the pwq of a pool shares.
    pub(super) fn nr_active_of(&self, control: &Control, pool: &WorkerPool) -> Arc<NrActive> {
        let nodeless = control.nr_active.len() - 1;
        let node = match control.limit.share {
            Share::Lend => None,
            Share::PerNode => node_of(&self.shared().machine(), pool),
        };
        let at = node.and_then(|node| control.nodes.iter().position(|(n, _)| *n == node));
        control.nr_active[at.unwrap_or(nodeless)].clone()
    }

    pub(crate) fn max_active(&self) -> usize {
        self.control.lock().limit.max_active
    }

    /// Whether the queue lets one item of that pwq's limit run at a time.
    pub(crate) fn has_one_slot(&self, pwq: &Pwq) -> bool {
        match pwq.nr_active() {
            Some(nr_active) => nr_active.level().1 == 1,
            None => self.mode != Mode::Bh && self.max_active() == 1,
        }
    }

    pub(crate) fn set_max_active(&self, max_active: usize) {
        let mut later = Later::default();
        let mut control = self.control.lock();
        let lowered = max_active < control.limit.max_active;
        control.limit.max_active = max_active;
        if let Some(min_active) = &mut control.limit.min_active {
            *min_active = (*min_active).min(max_active);
        }
        self.apply(&control, lowered, &mut later);
    }

    pub(crate) fn set_min_active(&self, min_active: usize) -> Result<(), MinActiveError> {
        let mut later = Later::default();
        let mut control = self.control.lock();
        if self.mode != Mode::Unbound || control.limit.share != Share::PerNode {
            return Err(MinActiveError::NotPerNode);
        }
        let max_active = control.limit.max_active;
        if !(1..=max_active).contains(&min_active) {
            return Err(MinActiveError::OutOfRange {
                asked: min_active,
                max_active,
            });
        }
        control.limit.min_active = Some(min_active);
        self.apply(&control, true, &mut later);
        Ok(())
    }

    /// The limits are what `control` says. What waited for more goes on; what workers have not
    /// begun goes back if there may be fewer.
    pub(super) fn apply(&self, control: &Control, lowered: bool, later: &mut Later) {
        control.apply_limit();
        for pwq in &control.pwqs {
            if pwq.nr_active().is_none() {
                pwq.set_max(control.limit.max_active, lowered, later);
            } else if lowered {
                pwq.recall(later);
            }
        }
        for nr_active in &control.nr_active {
            while let Some(id) = nr_active.next() {
                later.slots.push((nr_active.clone(), id));
            }
        }
    }

    /// *freeze*: when this returns nothing begins that has not begun. And *thaw*.
    pub(crate) fn set_frozen(&self, frozen: bool, later: &mut Later) {
        let mut control = self.control.lock();
        control.frozen = frozen;
        for pwq in &control.pwqs {
            pwq.set_frozen(frozen, later);
        }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.control.lock().frozen
    }

    /// A pwq has become busy. Its pool's lock is held.
    pub(super) fn pwq_is_busy(&self) {
        // Relaxed: whoever brings the count to 0 has seen this, by the pool's lock.
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// A pwq that is counted has become idle.
    pub(crate) fn pwq_is_idle(self: &Arc<Self>) {
        // Ordering: Release, pairs with the Acquire in `is_idle`: who waits sees what all of them
        // did.
        if self.busy.fetch_sub(1, Ordering::Release) == 1 {
            self.is_idle_now();
        }
    }

    fn is_idle_now(self: &Arc<Self>) {
        self.idle.notify_all();
        let (abandoned, destroyed, shut_down) = {
            let control = self.control.lock();
            let destroyed = control.destroyed && control.destroying == 0;
            (control.abandoned, destroyed, control.shut_down)
        };
        // If it was idle before that was said, it may not be any more.
        if !self.is_idle() {
            return;
        }
        if abandoned {
            self.detach();
        }
        if destroyed {
            let this = self.clone();
            self.shared().apart(move || this.finish_destroy());
        }
        if shut_down {
            self.system.queue_is_idle();
        }
    }

    /// Whether nothing is in flight. The pwqs are counted.
    pub(crate) fn is_idle(&self) -> bool {
        // Ordering: Acquire, pairs with `pwq_is_idle`.
        self.busy.load(Ordering::Acquire) == 0
    }

    /// Changes what the queue takes. While that is not everything its pwqs are counted in `busy`,
    /// which includes the caller until this returns.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Control)) {
        let mut control = self.control.lock();
        change(&mut control);
        let counts =
            control.draining > 0 || control.destroyed || control.shut_down || control.abandoned;
        let begins = counts && !control.counting;
        let ends = control.counting && !counts;
        if begins {
            self.pwq_is_busy();
        }
        control.counting = counts;
        let flags = control.flags();
        for pwq in &control.pwqs {
            let mut state = pwq.lock();
            for flag in [DRAINING, DESTROYED, SHUT_DOWN] {
                pwq.set_flag(flag, flags & flag != 0);
            }
            let pwq_state = state.core.pwq_mut(pwq.index());
            pwq_state.counted = counts;
            if begins && !pwq_state.is_idle() {
                self.pwq_is_busy();
            } else if ends && !pwq_state.is_idle() {
                // Its end tells nobody any more. Relaxed: nor does anybody wait.
                self.busy.fetch_sub(1, Ordering::Relaxed);
            }
        }
        drop(control);
        if begins {
            self.pwq_is_idle();
        }
    }

    /// *drain* begins: only the queue's own items may queue. Ends with
    /// [`end_drain`](WorkqueueInner::end_drain).
    pub(crate) fn begin_drain(self: &Arc<Self>) {
        self.change(|control| control.draining += 1);
    }

    pub(crate) fn end_drain(self: &Arc<Self>) {
        self.change(|control| control.draining -= 1);
    }

    /// The queue takes nothing more, but from its own items until it is empty. Ends with
    /// [`end_destroy`](WorkqueueInner::end_destroy).
    pub(crate) fn begin_destroy(self: &Arc<Self>) {
        self.change(|control| {
            control.destroyed = true;
            control.destroying += 1;
        });
    }

    /// One waits no more. If the queue is not empty, the last item finds nobody who waits.
    pub(crate) fn end_destroy(&self) {
        self.control.lock().destroying -= 1;
        if self.is_idle() {
            self.finish_destroy();
        }
    }

    /// It is empty, and takes nothing more.
    fn finish_destroy(&self) {
        self.unfinished.end(crate::error::QueueError::Destroyed);
        self.dismiss_rescuer();
    }

    /// The system takes nothing more.
    pub(crate) fn shut_down(self: &Arc<Self>) {
        self.change(|control| control.shut_down = true);
    }

    /// The last handle has gone.
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.change(|control| control.abandoned = true);
        // If it was counted before, nobody has asked.
        if self.is_idle() {
            self.detach();
        }
    }

    /// Nobody has a handle and nothing is in flight: the queue leaves its pools.
    fn detach(&self) {
        let pwqs = {
            let mut control = self.control.lock();
            control.detached = true;
            (0..self.by_cpu.len()).for_each(|cpu| self.set_pwq(cpu, None));
            std::mem::take(&mut control.pwqs)
        };
        for pwq in pwqs {
            let mut state = pwq.lock();
            if pwq.flags() & RETIRED == 0 {
                WorkerPool::remove_user(&mut state);
            }
            drop(state);
            pwq.remove();
        }
        self.dismiss_rescuer();
    }

    pub(crate) fn dismiss_rescuer(&self) {
        if let Some(rescuer) = &self.rescuer {
            rescuer.stop();
        }
    }

    /// Waits until the queue is idle, while it is counted.
    pub(crate) fn wait_idle(&self) {
        self.idle.wait_while(|| !self.is_idle());
    }

    /// `false`: the deadline has passed.
    pub(crate) fn wait_idle_until(&self, deadline: Instant) -> bool {
        let clock = &self.shared().clock;
        self.idle
            .wait_while_until(clock, deadline, || !self.is_idle())
    }

    pub(crate) async fn idle(self: Arc<Self>) {
        self.idle.listen_while(|| !self.is_idle()).await;
    }

    /// The machine has changed, or the CPUs of the queue: the parts of nodes are others.
    pub(super) fn split_anew(&self, control: &mut Control, settings: &Settings, later: &mut Later) {
        if self.mode == Mode::Unbound {
            control.count_cpus(settings);
            self.apply(control, false, later);
        }
    }

    /// Slots in use and slots, of each node and of pools without one; or of all, for an exact
    /// limit.
    pub(crate) fn levels(&self) -> Vec<(usize, usize)> {
        let control = self.control.lock();
        let mut levels = control.nr_active.iter().map(|nr_active| nr_active.level());
        match control.limit.share {
            Share::Lend => levels.next_back().into_iter().collect(),
            Share::PerNode => levels.collect(),
        }
    }

    /// The least that each node has, if nodes have parts.
    pub(crate) fn min_active(&self) -> Option<usize> {
        let control = self.control.lock();
        let per_node = self.mode == Mode::Unbound && control.limit.share == Share::PerNode;
        per_node.then(|| control.min_active())
    }

    pub(crate) fn check_unbound(&self) -> Result<(), AttrsError> {
        if self.mode.is_bound() {
            return Err(AttrsError::NotUnbound);
        }
        Ok(())
    }
}

impl Control {
    /// What a pwq says to those who queue.
    pub(super) fn flags(&self) -> u8 {
        let flags = [
            (self.draining > 0, DRAINING),
            (self.destroyed, DESTROYED),
            (self.shut_down, SHUT_DOWN),
        ];
        flags
            .into_iter()
            .fold(0, |all, (set, flag)| if set { all | flag } else { all })
    }

    fn min_active(&self) -> usize {
        let max = self.limit.max_active;
        self.limit
            .min_active
            .unwrap_or_else(|| default_min_active(max))
            .min(max)
    }

    /// Tells the limits that pwqs share.
    fn apply_limit(&self) {
        let Some((nodeless, nodes)) = self.nr_active.split_last() else {
            return;
        };
        let cpus: Vec<_> = self.nodes.iter().map(|(_, cpus)| *cpus).collect();
        let shares = node_shares(self.limit.max_active, self.min_active(), &cpus);
        nodeless.set_max(shares.nodeless);
        for (nr_active, share) in nodes.iter().zip(shares.nodes) {
            nr_active.set_max(share);
        }
    }

    /// How many CPUs the queue may use on each node, if the machine has had several.
    fn count_cpus(&mut self, settings: &Settings) {
        let usable = settings.effective(&self.attrs);
        for (node, cpus) in &mut self.nodes {
            let on_it = |cpu: &usize| settings.topology.node_of(*cpu) == Some(*node);
            *cpus = usable.iter().filter(on_it).count();
        }
    }
}

/// The node that has all CPUs of a pool.
fn node_of(topology: &Topology, pool: &WorkerPool) -> Option<usize> {
    let cpus = pool.attrs().cpus();
    let node = topology.node_of(cpus.first()?)?;
    let all = cpus.iter().all(|cpu| topology.node_of(cpu) == Some(node));
    all.then_some(node)
}
