//! Works on queues of each kind of a random machine, against the sequential model of a work.
//!
//! A frozen system keeps what has not begun pending, and runs end when an operation says
//! so; so each step has one possible outcome.

use crate::support::{Level, until};
use inflight_sync::thread;
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{
    Attrs, DisableError, Frozen, NotDisabled, Queued, Share, Work, Workqueue, WorkqueueSystem,
};

/// One call of one of the works, or one thing that happens. Numbers are taken modulo what is there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// On this queue and CPU.
    Queue(u8, u8),
    Finish,
    Cancel,
    CancelSync,
    Disable,
    DisableSync,
    Enable,
    Flush,
    Freeze,
    Thaw,
    /// Of this queue: a scope, whether strict, and a mask.
    Attrs(u8, u8, bool, u16),
    /// Of this queue. All works have room there.
    Max(u8, u8),
}

const WORKS: usize = 3;

/// So many instances of theirs there may be at once: each work runs, and is queued again.
const INSTANCES: usize = 2 * WORKS;

/// The number of a work's own queue, behind those that all share.
const OWN: usize = 3;

/// What a work's state must be.
#[derive(Clone, Copy, Debug, Default)]
struct Model {
    /// The queue that it waits in, and the one it runs for.
    pending: Option<usize>,
    running: Option<usize>,
    /// It is pending in a frozen queue.
    held: bool,
    depth: u32,
    runs: usize,
}

impl Model {
    fn queue(&mut self, queue: usize, frozen: bool) -> Queued {
        if self.depth > 0 {
            return Queued::Disabled;
        }
        if self.pending.is_some() {
            return Queued::AlreadyPending;
        }
        // A work's own queue is not freezable.
        (self.pending, self.held) = (Some(queue), frozen && queue != OWN);
        Queued::Queued
    }

    fn cancel(&mut self) -> bool {
        self.held = false;
        self.pending.take().is_some()
    }

    fn disable(&mut self) -> bool {
        self.depth += 1;
        self.cancel()
    }

    fn enable(&mut self) -> Result<bool, NotDisabled> {
        self.depth = self.depth.checked_sub(1).ok_or(NotDisabled)?;
        Ok(self.depth == 0)
    }

    fn begin(&mut self) {
        if self.pending.is_some() && !self.held && self.running.is_none() {
            self.running = self.pending.take();
            self.runs += 1;
        }
    }
}

struct Subject {
    work: Work,
    begun: Level,
    may_end: Level,
    model: Model,
    /// An ordered queue would let no other work run beside this one.
    ordered: Workqueue,
}

impl Subject {
    fn new(sys: &WorkqueueSystem) -> Self {
        let (begun, may_end) = (Level::new(), Level::new());
        let work = Work::new({
            let (begun, may_end) = (begun.clone(), may_end.clone());
            move || {
                begun.raise();
                may_end.wait(begun.get());
            }
        });
        let ordered = sys.workqueue("ordered").ordered();
        Self {
            work,
            begun,
            may_end,
            model: Model::default(),
            ordered: ordered.build().unwrap(),
        }
    }

    /// It runs if the model says so, and is in the model's state.
    fn settle(&mut self) {
        self.model.begin();
        let model = (self.model.pending.is_some(), self.model.running.is_some());
        let state = || (self.work.is_pending(), self.work.is_running());
        let agree = || self.begun.get() >= self.model.runs && state() == model;
        until(agree, || format!("{:?}, not {:?}", state(), self.model));
        assert_eq!(self.begun.get(), self.model.runs, "it runs too often");
    }

    fn finish(&mut self) {
        self.may_end.raise();
        self.model.running = None;
        self.settle();
    }

    /// A call that takes the pending instance back and has to wait for the running one. Nobody can
    /// queue meanwhile.
    fn wait_disabled<R: Send + 'static>(&mut self, call: fn(&Work) -> R) -> R {
        let waits = Level::new();
        let caller = thread::spawn({
            let (work, waits) = (self.work.clone(), waits.clone());
            move || {
                let answer = call(&work);
                waits.raise();
                answer
            }
        });
        // It has begun once queueing is refused and nothing is pending; what is queued until then
        // is taken back.
        let enabled = self.model.depth == 0;
        let refused = || match self.ordered.queue(&self.work).unwrap() {
            Queued::AlreadyPending => false,
            Queued::Queued => !self.work.cancel(), // the caller has taken it
            Queued::Disabled => !self.work.is_pending(),
        };
        until(|| !enabled || refused(), || "it never begins".to_owned());
        assert_eq!(waits.get(), 0, "it does not wait for the run");
        self.model.cancel();
        self.finish();
        caller.join().unwrap()
    }

    /// A flush waits for the instances of now.
    fn flush(&mut self) {
        let returned = Level::new();
        let flusher = thread::spawn({
            let (work, returned) = (self.work.clone(), returned.clone());
            move || {
                work.flush_blocking().unwrap();
                returned.raise();
            }
        });
        while self.model.running.is_some() {
            thread::yield_now();
            assert_eq!(returned.get(), 0, "a flush leaves a run behind");
            self.finish();
        }
        flusher.join().unwrap();
    }
}

struct World {
    topology: Topology,
    queues: Vec<Workqueue>,
    subjects: Vec<Subject>,
    frozen: Option<Frozen>,
    sys: WorkqueueSystem,
}

/// Each call's answer and each work's state are those of its model.
pub(crate) fn works_behave_like_their_models(machine: &str, ops: &[(u8, Op)]) {
    let mut world = World::new(machine);
    for (work, op) in ops {
        world.step(usize::from(*work) % WORKS, *op);
        world.settle();
    }
    world.finish();
}

impl World {
    fn new(machine: &str) -> Self {
        let topology = Topology::synthetic(machine).unwrap();
        let builder = WorkqueueSystem::builder().topology(topology.clone());
        let sys = builder.sampling(false).build().unwrap();
        let unbound = |share| {
            let unbound = sys.workqueue("unbound").unbound(Attrs::new());
            unbound.max_active(8).min_active(INSTANCES).share(share)
        };
        let bound = sys.workqueue("bound").bound().freezable().build();
        let queues = [Share::Lend, Share::PerNode].map(unbound).into_iter();
        let queues = queues.map(|queue| queue.freezable().build());
        Self {
            queues: std::iter::once(bound)
                .chain(queues)
                .map(Result::unwrap)
                .collect(),
            subjects: (0..WORKS).map(|_| Subject::new(&sys)).collect(),
            frozen: None,
            topology,
            sys,
        }
    }

    /// The last one is the work's own.
    fn queue(&self, of: usize, n: u8) -> Workqueue {
        let queue = self.queues.get(usize::from(n) % (OWN + 1));
        queue.unwrap_or(&self.subjects[of].ordered).clone()
    }

    /// Each work is in its model's state, and counts for the queue it was queued on.
    fn settle(&mut self) {
        self.subjects.iter_mut().for_each(Subject::settle);
        for (n, queue) in self.queues.iter().enumerate() {
            let (mut active, mut inactive) = (0, 0);
            for model in self.subjects.iter().map(|me| me.model) {
                let pending = model.pending == Some(n);
                active += usize::from(model.running == Some(n));
                active += usize::from(pending && !model.held);
                inactive += usize::from(pending && model.held);
            }
            let stats = || (queue.stats().active, queue.stats().inactive);
            let or = || format!("{:?}, not {active} and {inactive}", stats());
            until(|| stats() == (active, inactive), or);
        }
    }

    fn step(&mut self, of: usize, op: Op) {
        let (frozen, queue) = (self.frozen.is_some(), |n| self.queue(of, n));
        let cpus = self.topology.cpus();
        match op {
            Op::Queue(n, cpu) => {
                let (queue, cpu) = (queue(n), usize::from(cpu) % cpus.len());
                let me = &mut self.subjects[of];
                let expected = me.model.queue(usize::from(n) % (OWN + 1), frozen);
                assert_eq!(queue.queue_on(cpu, &me.work).unwrap(), expected);
            }
            Op::Freeze if !frozen => {
                self.frozen = Some(self.sys.freeze());
                self.subjects.iter_mut().for_each(|me| {
                    me.model.held = me.model.pending.is_some_and(|queue| queue != OWN);
                });
            }
            Op::Freeze => {}
            Op::Thaw => {
                self.frozen = None;
                self.subjects
                    .iter_mut()
                    .for_each(|me| me.model.held = false);
            }
            Op::Attrs(n, scope, strict, mask) => {
                let scope = Scope::ALL[usize::from(scope) % Scope::ALL.len()];
                let mask = cpus
                    .iter()
                    .filter(|cpu| mask >> (cpu % 16) & 1 == 1)
                    .collect();
                let attrs = Attrs::new().scope(scope).strict(strict).cpumask(mask);
                let (queue, bound) = (queue(n), &self.queues[0]);
                assert_eq!(queue.set_attrs(attrs).is_ok(), queue.name() != bound.name());
            }
            Op::Max(n, max) => {
                let done = queue(n).set_max_active(INSTANCES + usize::from(max % 6));
                assert_eq!(done.is_ok(), queue(n).name() != "ordered");
            }
            call => self.subjects[of].call(call),
        }
    }

    fn finish(mut self) {
        self.frozen = None;
        for me in &mut self.subjects {
            me.model.held = false;
            me.settle();
            while me.model.running.is_some() {
                me.finish();
            }
        }
        let own = self.subjects.iter().map(|me| &me.ordered);
        let completed = own.chain(&self.queues).map(|queue| {
            queue.flush_blocking().unwrap();
            queue.stats().completed as usize
        });
        let runs = self.subjects.iter().map(|me| me.model.runs);
        assert_eq!(completed.sum::<usize>(), runs.sum::<usize>());
    }
}

impl Subject {
    fn call(&mut self, op: Op) {
        match op {
            Op::Finish if self.model.running.is_some() => self.finish(),
            Op::Cancel => assert_eq!(self.work.cancel(), self.model.cancel()),
            Op::CancelSync if self.model.running.is_some() => {
                let pending = self.model.pending.is_some();
                let was_pending = self.wait_disabled(Work::cancel_sync_blocking).unwrap();
                assert!(was_pending || !pending, "what was pending is taken back");
            }
            Op::CancelSync => assert_eq!(self.work.cancel_sync_blocking(), Ok(self.model.cancel())),
            Op::Disable => assert_eq!(self.work.disable(), Ok(self.model.disable())),
            Op::DisableSync if self.model.running.is_some() => {
                let pending = self.model.pending.is_some();
                let done: Result<bool, DisableError> =
                    self.wait_disabled(Work::disable_sync_blocking);
                assert!(done.unwrap() || !pending, "what was pending is taken back");
                self.model.disable();
            }
            Op::DisableSync => {
                assert_eq!(self.work.disable_sync_blocking(), Ok(self.model.disable()))
            }
            Op::Enable => assert_eq!(self.work.enable(), self.model.enable()),
            // A flush of what a frozen system holds would wait for ever.
            Op::Flush if self.model.held => {}
            Op::Flush if self.model.running.is_some() => self.flush(),
            Op::Flush => assert_eq!(self.work.flush_blocking(), Ok(false)),
            _ => {}
        }
    }
}

/// Whatever fails, nobody is left behind who would hold up the end of the system.
impl Drop for World {
    fn drop(&mut self) {
        self.frozen = None;
        for me in &self.subjects {
            me.work.cancel();
            (0..me.begun.get() + 2).for_each(|_| me.may_end.raise());
        }
    }
}
