//! Attribute changes: where the items of an unbound queue run.
//!
//! A pwq never changes its pool. New pools get pwqs, and those no longer used are retired: the
//! items in them end there. In an ordered queue the new one is plugged until then.

use super::{Control, WorkqueueInner};
use crate::attrs::{Attrs, Mode};
use crate::choose_pool::PodMap;
use crate::error::AttrsError;
use crate::pool_attrs::Settings;
use crate::pwq::{Pwq, RETIRED};
use crate::worker_pool::QueueDeferred;
use inflight_sync::{Arc, MutexGuard};
use inflight_topology::Topology;

/// A prepared change: it cannot fail any more. Dropping it changes nothing.
pub(crate) struct AttrsChange<'a> {
    wq: &'a Arc<WorkqueueInner>,
    control: MutexGuard<'a, Control>,
    /// How many pwqs the queue had before.
    before: usize,
    attrs: Attrs,
    pods: PodMap,
    /// For each pool of `pods`.
    pwqs: Vec<Arc<Pwq>>,
}

impl WorkqueueInner {
    /// Makes the pwqs, and workers if the queue is in use. `None`: it has left its pools.
    pub(crate) fn prepare<'a>(
        self: &'a Arc<Self>,
        attrs: Attrs,
        settings: &Settings,
        deferred: &mut QueueDeferred,
    ) -> Result<Option<AttrsChange<'a>>, AttrsError> {
        let mut control = self.control.lock();
        if control.detached {
            return Ok(None);
        }
        let pods = PodMap::new(settings, self.mode, &attrs, self.flags.highpri);
        let before = control.pwqs.len();
        let pwqs = self.prepare_pwqs(&mut control, &pods, &settings.topology, deferred);
        let mut change = AttrsChange {
            wq: self,
            control,
            before,
            attrs,
            pods,
            pwqs: Vec::new(),
        };
        change.pwqs = pwqs?;
        Ok(Some(change))
    }

    fn prepare_pwqs(
        self: &Arc<Self>,
        control: &mut Control,
        pods: &PodMap,
        machine: &Topology,
        deferred: &mut QueueDeferred,
    ) -> Result<Vec<Arc<Pwq>>, AttrsError> {
        let mut pwqs = Vec::new();
        let (shut_down, rescued) = (control.shut_down, self.rescuer.is_some());
        for attrs in &pods.pools {
            let pwq = self.pwq_in(control, attrs, machine, |pwq| self.may_use_again(pwq))?;
            // Callers of `queue` start the first worker; a queue in use needs one now.
            let in_use = self.is_in_use(control);
            if in_use && !shut_down {
                let has_worker = pwq.pool.create_first(rescued);
                has_worker.map_err(|e| AttrsError::NoWorker(e.kind()))?;
            }
            pwqs.push(pwq);
        }
        self.host.introduce_newcomers(deferred);
        Ok(pwqs)
    }

    fn is_in_use(&self, control: &Control) -> bool {
        let idle = |pwq: &Arc<Pwq>| pwq.lock().core.pwq(pwq.index).is_idle();
        !control.pwqs.iter().all(idle)
    }
}

impl AttrsChange<'_> {
    pub(crate) fn commit(mut self, settings: &Settings, deferred: &mut QueueDeferred) {
        let wq = self.wq;
        let is_ordered = wq.mode == Mode::Ordered;
        let old: Vec<_> = self
            .control
            .pwqs
            .iter()
            .filter(|pwq| !self.pwqs.iter().any(|new| Arc::ptr_eq(new, pwq)))
            .filter(|pwq| pwq.flags() & RETIRED == 0)
            .cloned()
            .collect();
        for pwq in &self.pwqs {
            let mut state = pwq.lock();
            // Also for a pwq that both the old map and the new one use.
            state.core.pwq_mut(pwq.index).unmanaged = wq.is_unmanaged(&self.attrs);
            let returns = pwq.flags() & RETIRED != 0;
            state.users += usize::from(returns);
            if is_ordered && !old.is_empty() {
                // Until the old one, which has it as its successor, is idle.
                state.core.set_stopped(pwq.index, |pwq| pwq.plugged = true);
            } else if returns {
                pwq.open_again(&mut state);
            }
        }
        if !is_ordered || old.is_empty() {
            self.publish();
        }
        for pwq in &old {
            if is_ordered {
                *pwq.successor.lock() = Some(self.pwqs[0].clone());
            }
            pwq.change(true, deferred, |state| {
                pwq.set_flag(RETIRED, true);
                state.core.pwq_mut(pwq.index).retired = true;
                state.users -= 1;
                if is_ordered {
                    // The only old pwq. If another item has gone to the new pwq on one CPU, an item
                    // queued after it on another CPU finds this lock held, or the pwq retired.
                    self.publish();
                }
            });
        }
        if is_ordered {
            // Only now: a caller that still has this pwq for a CPU from an earlier map must not
            // come before items that others have queued on the pwq retired just now.
            for pwq in &self.pwqs {
                let mut state = pwq.lock();
                if pwq.flags() & RETIRED != 0 {
                    pwq.open_again(&mut state);
                }
            }
        }
        std::mem::swap(&mut self.control.attrs, &mut self.attrs);
        std::mem::swap(&mut self.control.pods, &mut self.pods);
        self.before = self.control.pwqs.len();
        if wq.mode == Mode::Unbound {
            self.control.count_cpus(settings);
            wq.apply(&self.control, deferred);
        }
        deferred.retired.extend(old);
    }

    /// From now on items use the new pwqs, CPU by CPU.
    fn publish(&self) {
        for cpu in 0..self.wq.by_cpu.len() {
            let at = self.pods.index_of(cpu);
            self.wq.set_pwq(cpu, Some(&self.pwqs[at]));
        }
    }
}

impl Drop for AttrsChange<'_> {
    fn drop(&mut self) {
        for pwq in self.control.pwqs.split_off(self.before) {
            pwq.remove();
        }
    }
}
