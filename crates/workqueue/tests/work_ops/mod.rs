//! Operations on one work, run against the sequential reference model.
//!
//! One interpreter for the property tests and for the fuzz target, which includes this file by
//! path. It holds the only worker of the pool and the clock itself, so each step has one possible
//! outcome: a plug keeps what is queued pending, and the work's own runs end when an operation says
//! so.

use crate::support::{Level, four_cpus, plug};
use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_workqueue::{
    DelayedWork, DisableError, Modified, NotDisabled, Queued, WaitError, Work, Workqueue,
    WorkqueueSystem,
};
use std::time::Duration;

/// The two kinds of work. A plain one has no delays.
pub(crate) trait Subject: Clone + Send + 'static {
    /// One if it can wait for a time, else zero.
    const DELAYS: u64;
    fn new(f: impl Fn() + Send + Sync + 'static) -> Self;
    fn queue(&self, wq: &Workqueue, delay: u64) -> Queued;
    fn modify(&self, wq: &Workqueue, delay: u64) -> Option<Modified>;
    fn cancel(&self) -> bool;
    fn cancel_sync(&self) -> Result<bool, WaitError>;
    fn disable(&self) -> Result<bool, DisableError>;
    fn disable_sync(&self) -> Result<bool, DisableError>;
    fn enable(&self) -> Result<bool, NotDisabled>;
    fn flush(&self) -> bool;
    fn state(&self) -> (bool, bool);
}

macro_rules! subject {
    ($kind:ty, $delays:expr, $queue:expr, $modify:expr) => {
        impl Subject for $kind {
            const DELAYS: u64 = $delays;
            fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
                <$kind>::new(f)
            }
            fn queue(&self, wq: &Workqueue, delay: u64) -> Queued {
                $queue(wq, self, Duration::from_millis(delay))
            }
            fn modify(&self, wq: &Workqueue, delay: u64) -> Option<Modified> {
                $modify(wq, self, Duration::from_millis(delay))
            }
            fn cancel(&self) -> bool {
                self.cancel()
            }
            fn cancel_sync(&self) -> Result<bool, WaitError> {
                self.cancel_sync_blocking()
            }
            fn disable(&self) -> Result<bool, DisableError> {
                self.disable()
            }
            fn disable_sync(&self) -> Result<bool, DisableError> {
                self.disable_sync_blocking()
            }
            fn enable(&self) -> Result<bool, NotDisabled> {
                self.enable()
            }
            fn flush(&self) -> bool {
                self.flush_blocking().unwrap()
            }
            fn state(&self) -> (bool, bool) {
                (self.is_pending(), self.is_running())
            }
        }
    };
}

subject!(
    Work,
    0,
    |wq: &Workqueue, work, _| wq.queue_on(0, work).unwrap(),
    |_: &Workqueue, _: &Work, _| None
);
subject!(
    DelayedWork,
    1,
    |wq: &Workqueue, work, delay| wq.queue_delayed_on(0, work, delay).unwrap(),
    |wq: &Workqueue, work, delay| Some(wq.mod_delayed_on(0, work, delay).unwrap())
);

/// One call, or one thing that happens. Numbers are taken modulo what makes sense.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Op {
    /// On this queue, after so many ms.
    Queue(u8, u8),
    Modify(u8, u8),
    Advance(u8),
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

/// What the work's state must be.
#[derive(Debug, Default)]
struct Model {
    plugged: bool,
    now: u64,
    pending: bool,
    /// It is pending, and waits for this time.
    due: Option<u64>,
    running: bool,
    depth: u32,
    queued: u64,
    runs: u64,
    cancelled: u64,
}

impl Model {
    /// It becomes pending, after so many ms.
    fn set(&mut self, delay: u64) {
        self.pending = true;
        if delay > 0 {
            self.due = Some(self.now + delay);
        } else {
            self.queued += 1;
        }
    }

    fn queue(&mut self, delay: u64) -> Queued {
        if self.depth > 0 {
            return Queued::Disabled;
        }
        if self.pending {
            return Queued::AlreadyPending;
        }
        self.set(delay);
        Queued::Queued
    }

    fn modify(&mut self, delay: u64) -> Modified {
        if self.depth > 0 {
            return Modified::Disabled;
        }
        let was_pending = self.cancel();
        self.set(delay);
        if was_pending {
            Modified::Moved
        } else {
            Modified::Queued
        }
    }

    /// Its time has come, or is made now.
    fn expire(&mut self, at: u64) {
        self.queued += u64::from(self.due.take_if(|due| *due <= at).is_some());
    }

    fn cancel(&mut self) -> bool {
        let in_queue = self.pending && self.due.take().is_none();
        self.cancelled += u64::from(in_queue);
        std::mem::take(&mut self.pending)
    }

    /// Whether the pending instance begins now.
    fn begins(&mut self) -> bool {
        let begins = self.pending && self.due.is_none() && !self.running && !self.plugged;
        if begins {
            self.pending = false;
            self.running = true;
            self.runs += 1;
        }
        begins
    }
}

struct Rig<S> {
    _sys: WorkqueueSystem,
    clock: Clock,
    queues: [Workqueue; 2],
    work: S,
    begun: Level,
    may_end: Level,
    plugs: u64,
    plug: Option<Level>,
    model: Model,
}

impl<S: Subject> Rig<S> {
    fn new() -> Self {
        let clock = Clock::manual();
        let builder = WorkqueueSystem::builder()
            .topology(four_cpus())
            .clock(clock.clone());
        let sys = builder.build().unwrap();
        let queue = |name| sys.workqueue(name).bound().build().unwrap();
        let queues = [queue("one"), queue("two")];
        let (begun, may_end) = (Level::new(), Level::new());
        let work = S::new({
            let (begun, may_end) = (begun.clone(), may_end.clone());
            move || {
                begun.raise();
                may_end.wait_silently(begun.get());
            }
        });
        Self {
            _sys: sys,
            clock,
            queues,
            work,
            begun,
            may_end,
            plugs: 0,
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
        } else {
            self.ended();
        }
    }

    /// Waits for the end of a run that no other follows.
    fn ended(&self) {
        while self.work.state().1 {
            thread::yield_now();
        }
    }

    fn plug(&mut self) {
        self.plug = Some(plug(&self.queues[0]));
        self.plugs += 1;
        self.model.plugged = true;
    }

    fn unplug(&mut self) {
        if let Some(open) = self.plug.take() {
            open.raise();
            self.model.plugged = false;
            self.settle();
        }
    }

    fn queued(&self) -> u64 {
        self.queues.iter().map(|wq| wq.stats().queued).sum()
    }

    fn advance(&mut self, ms: u64) {
        self.model.now += ms;
        self.model.expire(self.model.now);
        self.clock.advance(Duration::from_millis(ms));
        while self.queued() < self.model.queued + self.plugs {
            thread::yield_now();
        }
        self.settle();
    }

    /// A flush of what waits for its time: it runs now, and the flush ends with it.
    fn flush_now(&mut self) {
        let flusher = thread::spawn({
            let work = self.work.clone();
            move || work.flush()
        });
        self.model.expire(u64::MAX);
        self.settle();
        self.may_end.raise();
        self.model.running = false;
        assert!(flusher.join().unwrap());
    }

    /// A cancel_sync that has to wait: nobody can queue meanwhile, and it ends with the run.
    fn cancel_sync_while_running(&mut self) {
        let canceller = thread::spawn({
            let work = self.work.clone();
            move || work.cancel_sync().unwrap()
        });
        // It is at work once queueing is refused; until then what is queued is taken back again.
        if self.model.depth == 0 {
            while self.work.queue(&self.queues[0], 0) != Queued::Disabled {
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
        self.apply(op);
        let expected = (self.model.pending, self.model.running);
        assert_eq!(self.work.state(), expected, "after {op:?}");
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Queue(n, delay) => {
                let (n, delay) = (usize::from(n) % 2, u64::from(delay % 5) * S::DELAYS);
                let expected = self.model.queue(delay);
                assert_eq!(self.work.queue(&self.queues[n], delay), expected);
                self.settle();
            }
            Op::Modify(n, delay) if S::DELAYS > 0 => {
                let (n, delay) = (usize::from(n) % 2, u64::from(delay % 5));
                let expected = self.model.modify(delay);
                assert_eq!(self.work.modify(&self.queues[n], delay), Some(expected));
                self.settle();
            }
            Op::Advance(ms) => self.advance(u64::from(ms % 4)),
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
            Op::Flush if self.model.due.is_some() && !self.model.running && !self.model.plugged => {
                self.flush_now();
            }
            Op::Flush if !self.model.running && !self.model.pending => {
                assert!(!self.work.flush());
            }
            Op::Modify(..)
            | Op::Plug
            | Op::Finish
            | Op::CancelSync
            | Op::DisableSync
            | Op::Flush => {}
        }
    }

    fn end(mut self) {
        self.unplug();
        self.model.cancel();
        self.work.cancel();
        while self.model.running {
            self.finish();
        }
        self.queues
            .iter()
            .for_each(|wq| wq.flush_blocking().unwrap());
        let stats = self.queues.each_ref().map(Workqueue::stats);
        let sum =
            |f: fn(&inflight_workqueue::WorkqueueStats) -> u64| stats.iter().map(f).sum::<u64>();
        // The plugs are queued and run too.
        let plugs = self.plugs;
        assert_eq!(sum(|s| s.queued), self.model.queued + plugs);
        assert_eq!(sum(|s| s.completed), self.model.runs + plugs);
        assert_eq!(sum(|s| s.started), sum(|s| s.completed));
        assert_eq!(sum(|s| s.cancelled), self.model.cancelled);
        assert_eq!(self.begun.get() as u64, self.model.runs);
    }
}

/// Each call's answer and the work's state are those of the model, and all adds up at the end.
pub(crate) fn behaves_like_its_model<S: Subject>(ops: &[Op]) {
    let mut rig = Rig::<S>::new();
    for op in ops {
        rig.step(*op);
    }
    rig.end();
}
