//! A pool whose threads are those of the model: it has no worker.

use super::{Log, Touched, draw_all, system};
use inflight_sync::{Arc, thread};
use inflight_workqueue::unstable::ManualPool;
use inflight_workqueue::{Workqueue, WorkqueueSystem};

/// One pool without workers, and a queue.
pub(crate) struct Pool {
    pub(crate) sys: WorkqueueSystem,
    pub(crate) wq: Workqueue,
    pub(crate) pool: ManualPool,
    pub(crate) ordered: bool,
    pub(crate) log: Log,
    pub(crate) touched: Touched,
}

impl Pool {
    pub(crate) fn new(max_active: usize) -> Arc<Self> {
        let (sys, _) = system(1, 1);
        let wq = sys.workqueue("drawn").bound().freezable();
        let wq = wq.max_active(max_active).build().unwrap();
        Arc::new(Self {
            pool: wq.manual_pool(0),
            sys,
            wq,
            ordered: max_active == 1,
            log: Log::default(),
            touched: Touched::new(),
        })
    }

    /// An item that writes its number down. With one slot each sees what the one before did.
    pub(crate) fn item(self: &Arc<Self>, number: u32) {
        let this = self.clone();
        drop(self.wq.spawn(move || {
            if this.ordered {
                this.touched.touch();
            }
            this.log.add(number);
        }));
    }

    /// An item that queues another one, which its worker appends.
    pub(crate) fn appender(self: &Arc<Self>, number: u32, appended: u32) {
        let this = self.clone();
        drop(self.wq.spawn(move || {
            if this.ordered {
                this.touched.touch();
            }
            this.log.add(number);
            this.item(appended);
        }));
    }

    pub(crate) fn beside(
        self: &Arc<Self>,
        f: impl FnOnce(&Self) + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || f(&this))
    }

    /// All has run, and its numbers are these, in any order.
    pub(crate) fn assert_ran(&self, numbers: &[u32]) {
        draw_all(&[&self.pool]);
        let mut log = self.log.get();
        log.sort_unstable();
        assert_eq!(log, numbers);
        let stats = self.wq.stats();
        assert_eq!(stats.panicked, 0);
        assert_eq!(
            (stats.queued, stats.completed),
            (log.len() as u64, log.len() as u64)
        );
        assert_eq!((stats.active, stats.inactive), (0, 0));
    }
}
