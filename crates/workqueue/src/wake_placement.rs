//! The CPU for woken work, in queues with wake rules. The rules are those of
//! [`topology::wake`](inflight_topology::wake); this provides their inputs.

use crate::current;
use crate::worker_pool::WorkerPool;
use crate::workqueue_inner::{Count, WorkqueueInner};
use inflight_topology::wake::{ShardLoad, Wake, WakeSource};

impl WorkerPool {
    /// The load that the pool published last.
    fn told(&self) -> ShardLoad {
        let load = self.hint.load();
        ShardLoad::new(load.waiting as u32, load.awake as u32)
    }
}

impl WorkqueueInner {
    /// The load of the pool for items that are queued on that CPU. Zero if there is no pool yet.
    pub(crate) fn load_on(&self, cpu: usize) -> ShardLoad {
        let pwq = self.known_pwq(cpu);
        pwq.map_or_else(ShardLoad::default, |pwq| pwq.pool.told())
    }

    /// The CPU for work that continues what was done on `previous`, and is woken on `waker`.
    pub(crate) fn place(&self, waker: usize, previous: usize) -> usize {
        let Some(rules) = self.flags.wake_rules else {
            return previous;
        };
        let source = current::with_running(|_, context| {
            let own = context.load()?;
            Some(WakeSource::BoundWorker(own))
        });
        let source = source.flatten().unwrap_or(WakeSource::Interrupt);
        let load = |cpu| {
            let load = self.load_on(cpu);
            load.queued() as usize + load.active() as usize
        };
        let wake = Wake::new(source, waker, previous).loads(load(waker), load(previous));
        // Whether an item queued there would run at once, as far as is known.
        let has_room = |cpu| {
            self.known_pwq(cpu).is_none_or(|pwq| {
                let load = pwq.pool.told();
                load.queued() == 0 && (load.active() as usize) < pwq.pool.attrs.target()
            })
        };
        let place = wake.place(rules, self.shared.machine(), has_room);
        if place.cpu != previous {
            self.counted(Count::Placed);
        }
        place.cpu
    }
}

impl current::Context {
    /// Of a worker of one CPU, with the item that it runs. `None` for others, and for guests.
    fn load(&self) -> Option<ShardLoad> {
        self.pool.attrs.cpu?;
        let told = self.pool.told();
        let batch = &self.shared.batch;
        let rest = batch.end().wrapping_sub(batch.next());
        Some(ShardLoad::new(told.queued() + rest, told.active()))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::current;
    use crate::test_support::{Rigged, end, hold};
    use inflight_topology::wake::WakeRules;

    /// What a worker has taken with the item that it runs is still to be done on its CPU.
    #[test]
    fn the_rest_of_a_batch_counts_as_queued() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("rules").bound();
        let wq = wq.wake_rules(WakeRules::default()).build().unwrap();
        let held = hold(&wq, 0);
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        pool.lock().core.set_batching(true);
        let queued = || {
            let load = current::with_running(|_, context| context.load());
            load.flatten().map(|load| load.queued())
        };
        let items = [(); 3].map(|()| wq.spawn_on(0, queued));
        end(held);
        let queued = items.map(|item| item.wait().unwrap());
        assert_eq!(queued, [Some(2), Some(1), Some(0)]);
    }
}
