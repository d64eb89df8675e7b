//! Changes of where the items of an unbound queue run.
//!
//! A pwq never changes its pool. The new pools get pwqs of their own, and those that are not used
//! any more are retired: what is in them ends where it was to. An ordered queue's new pwq is
//! plugged until the old one is idle.

use super::{Control, WorkqueueInner};
use crate::attrs::{Attrs, Mode};
use crate::choose_pool::PodMap;
use crate::error::AttrsError;
use crate::pool_attrs::Settings;
use crate::pwq::{Pwq, RETIRED};
use crate::worker_pool::QueueDeferred;
use inflight_sync::{Arc, MutexGuard};
use inflight_topology::Topology;

/// A change that is prepared: nothing can refuse it any more, and nothing else changes the queue
/// meanwhile. If it is dropped, nothing has changed.
pub(crate) struct AttrsChange<'a> {
    wq: &'a Arc<WorkqueueInner>,
    control: MutexGuard<'a, Control>,
    /// So many of its pwqs the queue had before.
    before: usize,
    attrs: Attrs,
    pods: PodMap,
    /// Of each pool of `pods`.
    pwqs: Vec<Arc<Pwq>>,
    settings: Settings,
}

impl WorkqueueInner {
    /// Makes what the change needs: pwqs, and a worker of each pool that has something to do at
    /// once. Nothing changes in a queue that has left its pools.
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
            settings: settings.clone(),
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
            let known = control
                .pwqs
                .iter()
                .find(|pwq| pwq.pool.attrs == *attrs && self.may_use_again(pwq));
            let pwq = match known {
                Some(known) => known.clone(),
                None => self.add_pwq(control, attrs, machine)?,
            };
            // Who queues later makes the first worker itself; a queue in use is to go on.
            let in_use = self.is_in_use(control);
            if in_use && !shut_down {
                let has_worker = pwq.pool.ensure_worker(rescued);
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
    /// From now on every item goes the new way.
    pub(crate) fn commit(mut self, deferred: &mut QueueDeferred) {
        let wq = self.wq;
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
            // Also of one that serves the new map as it has served the old one.
            state.core.pwq_mut(pwq.index).unmanaged = wq.is_unmanaged(&self.attrs);
            let returns = pwq.flags() & RETIRED != 0;
            state.users += usize::from(returns);
            if wq.must_plug(&old) {
                pwq.plug(&mut state);
            } else if returns {
                pwq.open_again(&mut state);
            }
        }
        let is_ordered = wq.mode == Mode::Ordered;
        if !is_ordered || old.is_empty() {
            self.publish();
        }
        for pwq in &old {
            if is_ordered {
                pwq.set_successor(&self.pwqs[0]);
            }
            pwq.change(true, deferred, |state| {
                pwq.set_flag(RETIRED, true);
                state.core.pwq_mut(pwq.index).retired = true;
                state.users -= 1;
                if is_ordered {
                    // The only old one. What is queued for a CPU after what has gone the new way
                    // for another one finds this lock held, or the pwq retired.
                    self.publish();
                }
            });
        }
        if is_ordered {
            // Only now: who still has it for a CPU from before must not come before what others
            // have queued on the one that has just been retired.
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
        wq.split_anew(&mut self.control, &self.settings, deferred);
        deferred.retired.extend(old);
    }

    /// Items go the new way from now on, CPU by CPU.
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
