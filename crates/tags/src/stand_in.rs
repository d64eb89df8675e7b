//! Which hardware queue stands in for one all of whose CPUs are gone.

use crate::queue_kind::QueueKind;
use crate::shared::Shared;
use crate::tag_maps::TagMaps;

impl TagMaps {
    /// The hardware queue itself, or the one that stands in for it while it is inactive.
    #[inline]
    pub(crate) fn stand_in(&self, hw_queue: usize) -> usize {
        if self.gate.state().has_inactive_queue() {
            self.active_queues.stand_in(hw_queue)
        } else {
            hw_queue
        }
    }
}

impl<T> Shared<T> {
    /// D1 and D2, E1 and E2, for every hardware queue. Under the lock for changes of size.
    pub(crate) fn update_active_queues(&self) {
        let bitmaps: &TagMaps = &self.bitmaps;
        let n = bitmaps.size.hw_queues();
        let (mut mapped, mut served) = (vec![false; n], vec![false; n]);
        {
            let gone = bitmaps.active_queues.gone.lock();
            for cpu in self.cpu_map.cpus() {
                for kind in QueueKind::ALL {
                    let hw_queue = self.cpu_map.hw_queue_of(kind, cpu);
                    mapped[hw_queue] = true;
                    served[hw_queue] |= !gone.contains(&cpu);
                }
            }
        }
        let is_active = |hw_queue: &usize| served[*hw_queue] || !mapped[*hw_queue];
        let all_serve = (0..n).all(|hw_queue| is_active(&hw_queue));
        if !all_serve {
            // Before the words of the queues: who finds one, and drains, must know that submitters
            // look for it.
            bitmaps.gate.set_inactive_queue(true);
        }
        let mut returned = false;
        for hw_queue in 0..bitmaps.layout.hw_queues {
            let by = if hw_queue >= n || is_active(&hw_queue) {
                hw_queue
            } else {
                // The next one that has a CPU; of its kind, if there is one.
                let others = (hw_queue + 1..n).chain(0..hw_queue);
                let mut others = others.filter(|&by| served[by]);
                let kind = bitmaps.kind_of(hw_queue);
                let alike = others.clone().find(|&by| bitmaps.kind_of(by) == kind);
                alike.or_else(|| others.next()).unwrap_or(hw_queue)
            };
            returned |= bitmaps.active_queues.set_stand_in(hw_queue, by);
        }
        if all_serve {
            bitmaps.gate.set_inactive_queue(false);
        }
        // D2.
        bitmaps.gate.publish();
        if returned {
            // E2.
            bitmaps.gate.drained().notify_all();
        }
    }

    /// Which hardware queues are active.
    fn active(&self) -> Vec<bool> {
        let n = self.bitmaps.size.hw_queues();
        (0..n)
            .map(|hw_queue| self.bitmaps.stand_in(hw_queue) == hw_queue)
            .collect()
    }

    /// Which hardware queues turn active or inactive by a change of the map or of who is there.
    /// Under the lock for changes of size.
    pub(crate) fn queues_changed_by(&self, change: impl FnOnce()) -> Vec<usize> {
        let before = self.active();
        change();
        self.update_active_queues();
        let after = self.active();
        (0..before.len())
            .filter(|&hw_queue| before[hw_queue] != after[hw_queue])
            .collect()
    }
}
