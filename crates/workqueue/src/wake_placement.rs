//! On which CPU work goes on that something has woken: for queues with wake rules only. The rules
//! are those of [`topology::wake`](inflight_topology::wake); this is what they ask for.

use crate::current;
use crate::worker_pool::WorkerPool;
use crate::workqueue_inner::{Count, WorkqueueInner};
use inflight_topology::wake::{ShardLoad, Wake, WakeSource};

impl WorkerPool {
    /// What it has said last of what it has to do.
    fn told(&self) -> ShardLoad {
        let load = self.hint.load();
        ShardLoad::new(load.waiting as u32, load.awake as u32)
    }
}

impl WorkqueueInner {
    /// What the pool has to do that runs what is queued on that CPU. Nothing, if there is none yet.
    pub(crate) fn load_on(&self, cpu: usize) -> ShardLoad {
        let pwq = self.known_pwq(cpu);
        pwq.map_or_else(ShardLoad::default, |pwq| pwq.pool.told())
    }

    /// Whether an item that is queued on that CPU would run at once, as far as is known.
    fn has_room_on(&self, cpu: usize) -> bool {
        self.known_pwq(cpu).is_none_or(|pwq| {
            let load = pwq.pool.told();
            load.queued() == 0 && (load.active() as usize) < pwq.pool.attrs.target()
        })
    }

    /// The CPU for what goes on with what was done on `previous`, and is woken on `waker`.
    pub(crate) fn place(&self, waker: usize, previous: usize) -> usize {
        let Some(rules) = self.flags.wake_rules else {
            return previous;
        };
        let source = current::with_running(|_, _, context| {
            let own = context.load()?;
            Some(WakeSource::BoundWorker(own))
        });
        let source = source.flatten().unwrap_or(WakeSource::Interrupt);
        let load = |cpu| {
            let load = self.load_on(cpu);
            load.queued() as usize + load.active() as usize
        };
        let wake = Wake::new(source, waker, previous).loads(load(waker), load(previous));
        let place = wake.place(rules, self.shared.machine(), |cpu| self.has_room_on(cpu));
        if place.cpu != previous {
            self.counted(Count::Placed, 1);
        }
        place.cpu
    }
}

impl current::Context {
    /// What the calling worker of one CPU has to do, the item that it runs included. `None` for any
    /// other thread, and for a guest of the pool.
    fn load(&self) -> Option<ShardLoad> {
        self.pool.attrs.cpu?;
        let told = self.pool.told();
        let batch = &self.shared.batch;
        let rest = batch.end().wrapping_sub(batch.next());
        Some(ShardLoad::new(told.queued() + rest, told.active()))
    }
}
