//! One work against the sequential reference model, over random histories.
//!
//! The test holds the only worker of the pool by hand, so each step has one possible outcome: a
//! plug keeps what is queued pending, and the work's own runs end when the test says so.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread;
use inflight_workqueue::{NotDisabled, Queued, Work, Workqueue, WorkqueueSystem};
use proptest::prelude::*;
use support::{Level, system};

#[derive(Clone, Copy, Debug)]
enum Op {
    Queue(usize),
    Plug,
    Unplug,
    Finish,
    Cancel,
    CancelSync,
    Disable,
    DisableSync,
    Enable,
    Flush,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..2usize).prop_map(Op::Queue),
        3 => Just(Op::Plug),
        3 => Just(Op::Unplug),
        4 => Just(Op::Finish),
        2 => Just(Op::Cancel),
        2 => Just(Op::CancelSync),
        1 => Just(Op::Disable),
        1 => Just(Op::DisableSync),
        3 => Just(Op::Enable),
        2 => Just(Op::Flush),
    ]
}

/// What the work's state must be.
#[derive(Debug, Default)]
struct Model {
    plugged: bool,
    pending: bool,
    running: bool,
    depth: u32,
    queued: u64,
    runs: u64,
    cancelled: u64,
}

impl Model {
    fn queue(&mut self) -> Queued {
        if self.depth > 0 {
            return Queued::Disabled;
        }
        if self.pending {
            return Queued::AlreadyPending;
        }
        self.pending = true;
        self.queued += 1;
        Queued::Queued
    }

    fn cancel(&mut self) -> bool {
        self.cancelled += u64::from(self.pending);
        std::mem::take(&mut self.pending)
    }

    /// Whether the pending instance begins now.
    fn begins(&mut self) -> bool {
        let begins = self.pending && !self.running && !self.plugged;
        if begins {
            self.pending = false;
            self.running = true;
            self.runs += 1;
        }
        begins
    }
}

struct Rig {
    _sys: WorkqueueSystem,
    queues: [Workqueue; 2],
    work: Work,
    begun: Level,
    may_end: Level,
    plug: Option<(Work, Level)>,
    model: Model,
}

impl Rig {
    fn new() -> Self {
        let sys = system();
        let queue = |name| sys.workqueue(name).bound().build().unwrap();
        let queues = [queue("one"), queue("two")];
        let (begun, may_end) = (Level::new(), Level::new());
        let work = Work::new({
            let (begun, may_end) = (begun.clone(), may_end.clone());
            move || {
                begun.raise();
                may_end.wait_silently(begun.get());
            }
        });
        Self {
            _sys: sys,
            queues,
            work,
            begun,
            may_end,
            plug: None,
            model: Model::default(),
        }
    }

    /// Waits for the run that the model says begins.
    fn settle(&mut self) {
        if self.model.begins() {
            self.begun.wait(usize::try_from(self.model.runs).unwrap());
        }
    }

    fn finish(&mut self) {
        self.may_end.raise();
        self.model.running = false;
        let again = self.model.begins();
        if again {
            self.begun.wait(usize::try_from(self.model.runs).unwrap());
        } else if !self.model.pending {
            // Whether there was still something to wait for depends on who is faster.
            let _ = self.work.flush().unwrap();
        }
    }

    fn plug(&mut self) {
        let (begun, open) = (Level::new(), Level::new());
        let plug = Work::new({
            let (begun, open) = (begun.clone(), open.clone());
            move || {
                begun.raise();
                open.wait_silently(1);
            }
        });
        assert!(self.queues[0].queue_on(0, &plug).unwrap().is_queued());
        begun.wait(1);
        self.plug = Some((plug, open));
        self.model.plugged = true;
    }

    fn unplug(&mut self) {
        if let Some((plug, open)) = self.plug.take() {
            open.raise();
            let _ = plug.flush().unwrap();
            self.model.plugged = false;
            self.settle();
        }
    }

    /// A cancel_sync that has to wait: nobody can queue meanwhile, and it ends with the run.
    fn cancel_sync_while_running(&mut self) {
        let canceller = thread::spawn({
            let work = self.work.clone();
            move || work.cancel_sync().unwrap()
        });
        // It is at work once queueing is refused; until then what is queued is taken back again.
        if self.model.depth == 0 {
            while self.queues[0].queue_on(0, &self.work).unwrap() != Queued::Disabled {
                let taken = self.work.cancel();
                self.model.queued += 1;
                self.model.cancelled += 1;
                if !taken {
                    break; // the canceller has taken it
                }
            }
        }
        self.may_end.raise();
        canceller.join().unwrap();
        self.model.running = false;
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Queue(n) => {
                let expected = self.model.queue();
                assert_eq!(self.queues[n].queue_on(0, &self.work), Ok(expected));
                self.settle();
            }
            Op::Plug if !self.model.plugged && !self.model.running => self.plug(),
            Op::Unplug => self.unplug(),
            Op::Finish if self.model.running => self.finish(),
            Op::Cancel => assert_eq!(self.work.cancel(), self.model.cancel()),
            Op::CancelSync if self.model.running && !self.model.pending => {
                self.cancel_sync_while_running();
            }
            Op::CancelSync if !self.model.running => {
                assert_eq!(self.work.cancel_sync(), Ok(self.model.cancel()));
            }
            Op::Disable => {
                self.model.depth += 1;
                assert_eq!(self.work.disable(), Ok(self.model.cancel()));
            }
            Op::DisableSync if !self.model.running => {
                self.model.depth += 1;
                assert_eq!(self.work.disable_sync(), Ok(self.model.cancel()));
            }
            Op::Enable => {
                let expected = match self.model.depth {
                    0 => Err(NotDisabled),
                    depth => Ok(depth == 1),
                };
                self.model.depth = self.model.depth.saturating_sub(1);
                assert_eq!(self.work.enable(), expected);
            }
            Op::Flush if !self.model.running && !self.model.pending => {
                assert_eq!(self.work.flush(), Ok(false));
            }
            Op::Plug | Op::Finish | Op::CancelSync | Op::DisableSync | Op::Flush => {}
        }
    }

    fn end(mut self) {
        self.unplug();
        while self.model.running {
            self.finish();
        }
        self.queues.iter().for_each(|wq| wq.flush().unwrap());
        let stats = self.queues.each_ref().map(Workqueue::stats);
        let sum =
            |f: fn(&inflight_workqueue::WorkqueueStats) -> u64| stats.iter().map(f).sum::<u64>();
        // The plugs are queued and run too.
        let plugs = sum(|s| s.queued) - self.model.queued;
        assert_eq!(sum(|s| s.completed), self.model.runs + plugs);
        assert_eq!(sum(|s| s.started), sum(|s| s.completed));
        assert_eq!(sum(|s| s.cancelled), self.model.cancelled);
        assert_eq!(self.begun.get() as u64, self.model.runs);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_work_behaves_like_its_model(ops in proptest::collection::vec(op(), 0..60)) {
        let mut rig = Rig::new();
        for op in ops {
            rig.step(op);
        }
        rig.end();
    }
}
