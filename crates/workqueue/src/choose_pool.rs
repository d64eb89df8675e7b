//! From attributes and the machine to pools: the pool of an item that is queued on a CPU.

use crate::attrs::{Attrs, HIGHPRI, Mode};
use crate::pool_attrs::{PoolAttrs, Settings, non_empty};
use std::collections::HashMap;

/// The pools of a queue, and which of them each CPU uses.
#[derive(Debug, Default)]
pub(crate) struct PodMap {
    pub(crate) pools: Vec<PoolAttrs>,
    /// Index into `pools` by CPU number; `None` for numbers that no CPU has.
    by_cpu: Vec<Option<u32>>,
}

impl PodMap {
    pub(crate) fn new(settings: &Settings, mode: Mode, attrs: &Attrs, high: bool) -> Self {
        let nice = if high { HIGHPRI } else { attrs.get_nice() };
        let topology = &settings.topology;
        let (scope, effective) = (settings.scope(attrs), settings.effective(attrs));
        // The usable part of the CPU's pod, or else all usable CPUs.
        let unbound = |cpu| {
            let pod = topology.pod_of(scope, cpu);
            let pod = pod.filter(|_| mode != Mode::Ordered);
            let cpus = pod.and_then(|pod| non_empty(pod.cpus().intersection(&effective)));
            let cpus = cpus.unwrap_or_else(|| effective.clone());
            let strict = attrs.is_strict();
            PoolAttrs {
                cpu: None,
                allowed: if strict { &cpus } else { &effective }.clone(),
                cpus,
                strict,
                nice,
                bh: false,
            }
        };
        // Also for CPUs that may come later.
        let cpus = topology.cpus().union(topology.possible());
        let mut pools = Vec::new();
        let mut known = HashMap::new();
        let mut by_cpu = vec![None; cpus.last().map_or(0, |last| last + 1)];
        for cpu in &cpus {
            let pool = if mode.is_bound() {
                PoolAttrs::of_cpu(cpu, nice, mode == Mode::Bh)
            } else {
                unbound(cpu)
            };
            let index = *known.entry(pool.clone()).or_insert_with(|| {
                pools.push(pool);
                pools.len() - 1
            });
            by_cpu[cpu] = u32::try_from(index).ok();
        }
        Self { pools, by_cpu }
    }

    /// The pool for an item queued on `cpu`. A number that no CPU has uses the pool of another CPU.
    pub(crate) fn index_of(&self, cpu: usize) -> usize {
        match self.by_cpu.get(cpu).copied().flatten() {
            Some(index) => index as usize,
            None => cpu % self.pools.len(),
        }
    }

    pub(crate) fn cpus(&self) -> usize {
        self.by_cpu.len()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
