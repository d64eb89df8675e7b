//! The workqueue that seals and checks blocks, and where it does so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inflight::topology::{Scope, Topology, current_cpu};
use inflight::workqueue::{JoinHandle, Workqueue};
use serde::Serialize;

/// Where the checksums of a run are made.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    queue: Workqueue,
    pods: Arc<Pods>,
}

/// The groups of CPUs of the queue's scope, and what each has done. Relaxed: statistics.
#[derive(Debug)]
struct Pods {
    /// By CPU.
    pod_of: Vec<usize>,
    /// In ns, by pod.
    busy: Vec<AtomicU64>,
    cpus: Vec<usize>,
    made: AtomicU64,
    elsewhere: AtomicU64,
}

/// What the checksums of a run were and where they ran.
#[derive(Debug, Serialize)]
pub(crate) struct CheckReport {
    scope: &'static str,
    strict: bool,
    made: u64,
    /// In another pod than that of the CPU whose job asked.
    repatriations: u64,
    /// By a worker of another pod than their own, because that was better: the library's count.
    taken: u64,
    /// By pod, of the time of its CPUs.
    pod_busy_percent: Vec<f64>,
}

impl Pods {
    fn new(topology: &Topology, scope: Scope) -> Self {
        let pods = topology.pods(scope);
        let mut pod_of = vec![0; topology.cpus().last().map_or(0, |last| last + 1)];
        for pod in pods {
            pod.cpus().iter().for_each(|cpu| pod_of[cpu] = pod.id());
        }
        Self {
            pod_of,
            busy: pods.iter().map(|_| AtomicU64::new(0)).collect(),
            cpus: pods.iter().map(|pod| pod.cpus().len()).collect(),
            made: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
        }
    }

    fn here(&self) -> usize {
        self.pod_of.get(current_cpu()).copied().unwrap_or(0)
    }

    /// Runs `f`, asked for by a job in that pod.
    fn run<T>(&self, home: usize, f: impl FnOnce() -> T) -> T {
        let (here, began) = (self.here(), Instant::now());
        let result = f();
        let busy = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.busy[here].fetch_add(busy, Ordering::Relaxed);
        self.made.fetch_add(1, Ordering::Relaxed);
        let moved = u64::from(here != home);
        self.elsewhere.fetch_add(moved, Ordering::Relaxed);
        result
    }
}

impl Checks {
    pub(crate) fn new(queue: Workqueue, topology: &Topology, scope: Scope) -> Self {
        let pods = Arc::new(Pods::new(topology, scope));
        Self { queue, pods }
    }

    pub(crate) fn spawn<T, F>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (pods, home) = (Arc::clone(&self.pods), self.pods.here());
        self.queue.spawn(move || pods.run(home, f))
    }

    pub(crate) fn report(&self, scope: Scope, strict: bool, elapsed: Duration) -> CheckReport {
        let share = |(busy, cpus): (&AtomicU64, &usize)| {
            let time = Duration::from_nanos(busy.load(Ordering::Relaxed)).as_secs_f64();
            let all = elapsed.as_secs_f64() * *cpus as f64;
            (time / all.max(1e-9) * 1e3).round() / 10.0
        };
        CheckReport {
            scope: scope.name(),
            strict,
            made: self.pods.made.load(Ordering::Relaxed),
            repatriations: self.pods.elsewhere.load(Ordering::Relaxed),
            taken: self.queue.stats().stolen,
            pod_busy_percent: self
                .pods
                .busy
                .iter()
                .zip(&self.pods.cpus)
                .map(share)
                .collect(),
        }
    }
}

impl CheckReport {
    /// One row of the table.
    pub(crate) fn row(&self) -> String {
        let strict = if self.strict { " strict" } else { "" };
        let mut row = format!(
            "{}{strict}: {} checksums, {} repatriations, {} taken; pods busy %",
            self.scope, self.made, self.repatriations, self.taken
        );
        for percent in &self.pod_busy_percent {
            row += &format!(" {percent:.1}");
        }
        row
    }
}
