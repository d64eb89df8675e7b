//! Ours and the rivals.

use super::{Messenger, Target, Worker};
use crate::Part::{self, Ours, Rival, Variant};
use crate::machine;
use inflight_topology::wake::WakeRules;
use inflight_topology::{Scope, current_cpu};
use inflight_workqueue::{Attrs, Work, Workqueue, WorkqueueSystem};
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// One of those compared.
#[derive(Debug)]
pub struct Contender {
    /// What tables call it.
    pub name: &'static str,
    /// Ours or a rival.
    pub part: Part,
    /// What has the workers.
    pub target: Box<dyn Target>,
}

/// Pools have a thread for each CPU. Channels are there twice: with a thread and a channel for
/// each worker, and with one channel and a thread for each CPU.
#[must_use]
pub fn contenders() -> Vec<Contender> {
    let threads = machine::cpus();
    let one = |name, part, target| Contender { name, part, target };
    vec![
        one("unbound", Ours, Queue::of(Kind::Unbound)),
        one("bound", Variant, Queue::of(Kind::Bound)),
        one("bound, spread", Variant, Queue::of(Kind::Spread)),
        one("bound, placed", Variant, Queue::of(Kind::Placed)),
        one("tokio, a task each", Rival, Box::new(Tokio::new(threads))),
        one("rayon", Rival, Box::new(Rayon::new(threads))),
        one("crossbeam, a thread each", Rival, Box::new(Crossbeam::EACH)),
        one(
            "crossbeam, shared",
            Rival,
            Box::new(Crossbeam::shared(threads)),
        ),
        one("flume, a thread each", Rival, Box::new(Flume::EACH)),
        one("flume, shared", Rival, Box::new(Flume::shared(threads))),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Unbound,
    Bound,
    Spread,
    Placed,
}

/// A work for each worker.
struct Queue {
    wq: Workqueue,
    kind: Kind,
    _system: WorkqueueSystem,
}

impl Queue {
    fn of(kind: Kind) -> Box<Self> {
        let system = WorkqueueSystem::builder().build().expect("a topology");
        let draft = system.workqueue("wakeup");
        let builder = match kind {
            Kind::Unbound => draft.unbound(Attrs::new().scope(Scope::System)),
            Kind::Bound | Kind::Spread => draft.bound(),
            Kind::Placed => draft.bound().wake_rules(WakeRules::default()),
        };
        Box::new(Self {
            wq: builder.build().expect("a good name"),
            kind,
            _system: system,
        })
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

struct Works<'a>(&'a Queue, Vec<Work>);

impl Target for Queue {
    fn messenger(&self, workers: &[Arc<Worker>]) -> Box<dyn Messenger + '_> {
        let work = |worker: &Arc<Worker>| {
            let worker = worker.clone();
            Work::new(move || worker.run())
        };
        Box::new(Works(self, workers.iter().map(work).collect()))
    }
}

impl Messenger for Works<'_> {
    fn wake(&mut self, worker: usize) {
        let Self(queue, works) = self;
        let queued = match queue.kind {
            Kind::Unbound | Kind::Bound => queue.wq.queue(&works[worker]),
            Kind::Placed => queue.wq.queue_near(current_cpu(), &works[worker]),
            Kind::Spread => {
                let cpu = machine::cpu(worker);
                queue.wq.queue_on(cpu, &works[worker])
            }
        };
        assert!(queued.expect("the queue is open").is_queued());
    }
}

impl Drop for Works<'_> {
    fn drop(&mut self) {
        // The last answer comes before the end of its run.
        self.0.wq.flush_blocking().expect("nobody waits for itself");
    }
}

#[derive(Debug)]
struct Tokio(tokio::runtime::Runtime);

impl Tokio {
    fn new(threads: usize) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).build();
        Self(runtime.expect("threads can be had"))
    }
}

/// Each task waits to be notified.
struct Tasks(Vec<(Arc<tokio::sync::Notify>, tokio::task::JoinHandle<()>)>);

impl Target for Tokio {
    fn messenger(&self, workers: &[Arc<Worker>]) -> Box<dyn Messenger + '_> {
        let task = |worker: &Arc<Worker>| {
            let (worker, notify) = (worker.clone(), Arc::new(tokio::sync::Notify::new()));
            let notified = notify.clone();
            let task = self.0.spawn(async move {
                loop {
                    notified.notified().await;
                    worker.run();
                }
            });
            (notify, task)
        };
        Box::new(Tasks(workers.iter().map(task).collect()))
    }
}

impl Messenger for Tasks {
    fn wake(&mut self, worker: usize) {
        self.0[worker].0.notify_one();
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, task)| task.abort());
    }
}

#[derive(Debug)]
struct Rayon(rayon::ThreadPool);

impl Rayon {
    fn new(threads: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        Self(pool.expect("threads can be had"))
    }
}

struct Closures<'a>(&'a rayon::ThreadPool, Vec<Arc<Worker>>);

impl Target for Rayon {
    fn messenger(&self, workers: &[Arc<Worker>]) -> Box<dyn Messenger + '_> {
        Box::new(Closures(&self.0, workers.into()))
    }
}

impl Messenger for Closures<'_> {
    fn wake(&mut self, worker: usize) {
        let worker = self.1[worker].clone();
        self.0.spawn(move || worker.run());
    }
}

/// A channel's sending half, whose messages are workers that are to run.
trait Channel: Clone + Send + Sync + fmt::Debug + 'static {
    fn send(&self, worker: Arc<Worker>);

    /// A channel with this many receiving threads.
    fn with_threads(threads: usize) -> (Self, Vec<JoinHandle<()>>);
}

type Job = Arc<Worker>;

fn threads(n: usize, body: impl Fn() + Clone + Send + 'static) -> Vec<JoinHandle<()>> {
    let spawn = |_| {
        let body = body.clone();
        thread::spawn(body)
    };
    (0..n).map(spawn).collect()
}

impl Channel for crossbeam::channel::Sender<Job> {
    fn send(&self, worker: Job) {
        self.send(worker).expect("threads are there");
    }

    fn with_threads(n: usize) -> (Self, Vec<JoinHandle<()>>) {
        let (send, receive) = crossbeam::channel::unbounded::<Job>();
        (
            send,
            threads(n, move || receive.iter().for_each(|worker| worker.run())),
        )
    }
}

impl Channel for flume::Sender<Job> {
    fn send(&self, worker: Job) {
        self.send(worker).expect("threads are there");
    }

    fn with_threads(n: usize) -> (Self, Vec<JoinHandle<()>>) {
        let (send, receive) = flume::unbounded::<Job>();
        (
            send,
            threads(n, move || receive.iter().for_each(|worker| worker.run())),
        )
    }
}

type Crossbeam = Channels<crossbeam::channel::Sender<Job>>;
type Flume = Channels<flume::Sender<Job>>;

/// One channel for all workers, or `None` for one each.
#[derive(Debug)]
struct Channels<C>(Option<C>);

impl<C: Channel> Channels<C> {
    const EACH: Self = Self(None);

    fn shared(threads: usize) -> Self {
        Self(Some(C::with_threads(threads).0))
    }
}

struct Senders<C: Channel> {
    workers: Vec<Job>,
    /// One, or one for each worker.
    senders: Vec<C>,
    threads: Vec<JoinHandle<()>>,
}

impl<C: Channel> Target for Channels<C> {
    fn messenger(&self, workers: &[Job]) -> Box<dyn Messenger + '_> {
        let (senders, threads) = match &self.0 {
            Some(shared) => (vec![shared.clone()], vec![]),
            None => {
                let own = workers.iter().map(|_| C::with_threads(1));
                let (senders, threads): (Vec<_>, Vec<_>) = own.unzip();
                (senders, threads.into_iter().flatten().collect())
            }
        };
        Box::new(Senders {
            workers: workers.into(),
            senders,
            threads,
        })
    }
}

impl<C: Channel> Messenger for Senders<C> {
    fn wake(&mut self, worker: usize) {
        let sender = self.senders.get(worker).unwrap_or(&self.senders[0]);
        sender.send(self.workers[worker].clone());
    }
}

impl<C: Channel> Drop for Senders<C> {
    fn drop(&mut self) {
        self.senders.clear();
        let join = |thread: JoinHandle<()>| thread.join().expect("workers do not panic");
        self.threads.drain(..).for_each(join);
    }
}
