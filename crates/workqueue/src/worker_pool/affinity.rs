//! Where the workers of a pool run.

use super::WorkerPool;
use crate::current::Context;
use inflight_sync::cpu;
use inflight_topology::PinGuard;

impl WorkerPool {
    /// Where the calling worker runs, and with which priority. Unless nothing has changed since it
    /// was `settled`.
    pub(crate) fn settle_worker(&self, settled: &mut Option<usize>) {
        let shared = &self.shared;
        shared.settle_if_moved(settled, || {
            shared.settle_thread(&self.attrs.allowed, self.attrs.nice);
            if let Some(cpu) = self.attrs.cpu {
                cpu::set_current_for_thread(Some(cpu));
            }
        });
    }

    /// The calling thread, a rescuer's, runs where the pool's workers do and queues as if it were
    /// one of them, until [`detach_rescuer`](WorkerPool::detach_rescuer).
    pub(crate) fn attach_rescuer(&self) -> Option<PinGuard> {
        if let Some(cpu) = self.attrs.cpu {
            cpu::set_current_for_thread(Some(cpu));
        }
        let topology = self.shared.machine();
        topology.pin_current_thread(&self.attrs.allowed).ok()
    }

    /// The end of [`attach_rescuer`](WorkerPool::attach_rescuer).
    pub(crate) fn detach_rescuer(&self, pinned: Option<PinGuard>) {
        drop(pinned);
        cpu::set_current_for_thread(None);
    }

    /// The calling worker, which begins to work, goes back to its CPUs if it was woken on others.
    /// From then on it runs where the system wants it again.
    pub(crate) fn repatriate(&self, context: &Context) {
        let cpus = &self.attrs.cpus;
        if self.shared.machine().pin_current_thread(cpus).is_ok() {
            context.repatriated.set(true);
        }
    }

    /// Whether the calling worker, which begins to work, was woken on CPUs of another pod.
    pub(crate) fn strays(&self) -> bool {
        let may_stray = self.attrs.may_have_siblings() && self.shared.topology.is_this_machine();
        may_stray && !self.attrs.cpus.contains(cpu::current())
    }
}
