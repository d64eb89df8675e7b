//! The limits of a queue, and how they change.

use super::{Control, Share, WorkqueueInner};
use crate::attrs::Mode;
use crate::error::MinActiveError;
use crate::nr_active::{NrActive, default_min_active, node_shares};
use crate::pool_attrs::Settings;
use crate::steal_policy::Pod;
use crate::worker_pool::{PoolState, QueueDeferred};
use crate::workqueue::checked_min_active;
use inflight_sync::Arc;

impl WorkqueueInner {
    /// The limit of the pools of that memory node, or of those without one.
    pub(super) fn nr_active_of(control: &Control, node: Option<usize>) -> Arc<NrActive> {
        let nodeless = control.nr_active.len() - 1;
        let node = match control.limit.share {
            Share::Lend => None,
            Share::PerNode => node,
        };
        let at = node.and_then(|node| control.nodes.iter().position(|(n, _)| *n == node));
        control.nr_active[at.unwrap_or(nodeless)].clone()
    }

    /// The shared limit of an item that is queued on that CPU, also if no item has been yet.
    pub(super) fn limit_of(&self, control: &Control, cpu: usize) -> Arc<NrActive> {
        let known = self.known_pwq(cpu).and_then(|pwq| pwq.nr_active.clone());
        known.unwrap_or_else(|| {
            let attrs = &control.pods.pools[control.pods.index_of(cpu)];
            Self::nr_active_of(control, Pod::new(self.shared.machine(), &attrs.cpus).node)
        })
    }

    pub(crate) fn max_active(&self) -> usize {
        self.control.lock().limit.max_active
    }

    pub(crate) fn set_max_active(&self, max_active: usize) {
        let mut deferred = QueueDeferred::default();
        let mut control = self.control.lock();
        control.limit.max_active = max_active;
        if let Some(min_active) = &mut control.limit.min_active {
            *min_active = (*min_active).min(max_active);
        }
        self.apply(&control, &mut deferred);
    }

    pub(crate) fn set_min_active(&self, min_active: usize) -> Result<(), MinActiveError> {
        let mut deferred = QueueDeferred::default();
        let mut control = self.control.lock();
        if self.mode != Mode::Unbound || control.limit.share != Share::PerNode {
            return Err(MinActiveError::NotPerNode);
        }
        let max_active = control.limit.max_active;
        checked_min_active(min_active, max_active)?;
        control.limit.min_active = Some(min_active);
        self.apply(&control, &mut deferred);
        Ok(())
    }

    /// Applies the limits in `control`, and takes back what workers have not begun.
    pub(super) fn apply(&self, control: &Control, deferred: &mut QueueDeferred) {
        control.apply_limit();
        for pwq in &control.pwqs {
            let max = control.limit.max_active;
            let set_max = |state: &mut PoolState| state.core.set_max(pwq.index, max);
            pwq.change(true, deferred, set_max);
        }
        for nr_active in &control.nr_active {
            while let Some(id) = nr_active.next() {
                deferred.slots.push((nr_active.clone(), id));
            }
        }
    }

    /// Slots in use and slots, by node (`None`: pools without one). Empty if it is not split.
    pub(crate) fn levels(&self) -> Vec<(Option<usize>, (usize, usize))> {
        let control = self.control.lock();
        if control.limit.share == Share::Lend || control.nodes.is_empty() {
            return Vec::new();
        }
        let nodes = control.nodes.iter().map(|(node, _)| Some(*node));
        let levels = control.nr_active.iter().map(|nr_active| nr_active.level());
        nodes.chain([None]).zip(levels).collect()
    }

    pub(crate) fn min_active(&self) -> Option<usize> {
        let control = self.control.lock();
        let per_node = self.mode == Mode::Unbound && control.limit.share == Share::PerNode;
        per_node.then(|| control.min_active())
    }
}

impl Control {
    fn min_active(&self) -> usize {
        let max = self.limit.max_active;
        self.limit
            .min_active
            .unwrap_or_else(|| default_min_active(max))
            .min(max)
    }

    pub(super) fn apply_limit(&self) {
        let Some((nodeless, nodes)) = self.nr_active.split_last() else {
            return;
        };
        let cpus: Vec<_> = self.nodes.iter().map(|(_, cpus)| *cpus).collect();
        let max_active = self.limit.max_active;
        nodeless.set_max(max_active);
        let shares = node_shares(max_active, self.min_active(), &cpus);
        for (nr_active, share) in nodes.iter().zip(shares) {
            nr_active.set_max(share);
        }
    }

    /// Counts the CPUs that the queue may use on each node, if the machine has had several.
    pub(super) fn count_cpus(&mut self, settings: &Settings) {
        let usable = settings.effective(&self.attrs);
        for (node, cpus) in &mut self.nodes {
            let on_it = |cpu: &usize| settings.topology.node_of(*cpu) == Some(*node);
            *cpus = usable.iter().filter(on_it).count();
        }
    }
}
