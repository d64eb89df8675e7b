//! Which pwq an item goes to: that of the CPU it is queued on. Pwqs are made on first use.
//!
//! [`PodMap`](crate::choose_pool::PodMap) says which CPUs share a pwq. If wake rules choose the
//! CPU, `wake_placement` applies them first.

use super::{Control, WorkqueueInner};
use crate::attrs::Mode;
use crate::error::QueueError;
use crate::nr_active::Limit;
use crate::pool_attrs::PoolAttrs;
use crate::pwq::{Pwq, RETIRED};
use crate::submitters;
use inflight_sync::atomic::Ordering;
use inflight_sync::{Arc, cpu};
use inflight_topology::Topology;
use std::ptr;

impl WorkqueueInner {
    /// The CPU for an item that is queued without naming one.
    #[inline]
    pub(crate) fn here(&self) -> usize {
        let cpu = cpu::current();
        if self.mode == Mode::Unbound {
            submitters::note(&self.shared.submitters, cpu);
        }
        cpu
    }

    #[inline]
    pub(crate) fn pwq_of(self: &Arc<Self>, cpu: usize) -> Result<&Pwq, QueueError> {
        match self.known_pwq(cpu) {
            Some(pwq) => Ok(pwq),
            None => self.make_pwq(cpu),
        }
    }

    #[inline]
    pub(crate) fn known_pwq(&self, cpu: usize) -> Option<&Pwq> {
        // Ordering: Acquire, pairs with the Release in `set_pwq`.
        let pwq = self.by_cpu.get(cpu)?.load(Ordering::Acquire);
        // SAFETY: the pwq lives in `control` until the queue is detached; then there is no handle
        // and nothing is in flight.
        unsafe { pwq.as_ref() }
    }

    pub(super) fn set_pwq(&self, cpu: usize, pwq: Option<&Arc<Pwq>>) {
        let pwq = pwq.map_or(ptr::null(), Arc::as_ptr);
        // Ordering: Release, pairs with the Acquire in `known_pwq`.
        self.by_cpu[cpu].store(pwq.cast_mut(), Ordering::Release);
    }

    /// Makes the pwq of a CPU that has none yet, or finds one for a number that no CPU has.
    #[cold]
    fn make_pwq(self: &Arc<Self>, cpu: usize) -> Result<&Pwq, QueueError> {
        let mut control = self.control.lock();
        let at = control.pods.index_of(cpu);
        let attrs = control.pods.pools[at].clone();
        let in_use = |pwq: &Pwq| pwq.flags() & RETIRED == 0;
        let pwq = self.pwq_in(&mut control, &attrs, self.shared.machine(), in_use)?;
        for other in 0..self.by_cpu.len() {
            if control.pods.index_of(other) == at {
                self.set_pwq(other, Some(&pwq));
            }
        }
        let pwq = Arc::as_ptr(&pwq);
        // SAFETY: it is in `control` now; see `known_pwq`.
        Ok(unsafe { &*pwq })
    }

    /// The pwq in that pool, if there is one that `may` be used, or a new one.
    pub(super) fn pwq_in(
        self: &Arc<Self>,
        control: &mut Control,
        attrs: &PoolAttrs,
        machine: &Topology,
        may: impl Fn(&Pwq) -> bool,
    ) -> Result<Arc<Pwq>, QueueError> {
        let mut pwqs = control.pwqs.iter();
        if let Some(known) = pwqs.find(|pwq| pwq.pool.attrs == *attrs && may(pwq)) {
            return Ok(known.clone());
        }
        let pool = self.host.pool(attrs, machine);
        let limit = match self.mode {
            Mode::Unbound => Limit::Shared(Self::nr_active_of(control, pool.pod.node)),
            Mode::Bound | Mode::Bh | Mode::Ordered => Limit::own(control.limit.max_active),
        };
        let unmanaged = self.is_unmanaged(&control.attrs);
        let mut state = pool.lock();
        let pwq = Pwq::new(self, &pool, &mut state, limit, unmanaged)?;
        let core = state.core.pwq_mut(pwq.index);
        (core.frozen, core.counted) = (control.frozen, control.counting);
        pwq.set_flag(control.flags(), true);
        drop(state);
        control.pwqs.push(pwq.clone());
        Ok(pwq)
    }
}
