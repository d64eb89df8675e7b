//! The CPUs and the priority of a pool's workers.

use super::WorkerPool;
use crate::current::Context;
use inflight_sync::cpu;

impl WorkerPool {
    /// Sets the CPUs and the priority of the calling worker, unless nothing has changed.
    pub(crate) fn settle_worker(&self, settled: &mut Option<usize>) {
        let shared = &self.shared;
        shared.settle_if_moved(settled, || {
            shared.settle_thread(&self.attrs.allowed, self.attrs.nice);
            if let Some(cpu) = self.attrs.cpu {
                cpu::set_current_for_thread(Some(cpu));
            }
        });
    }

    /// The calling worker moves back to its CPUs. Then the system may run it anywhere again.
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
