//! A small engine on a machine that changes: one done list and one worker for each cache,
//! completions sent where the submitter's cache is, and a new plan when CPUs leave.
//!
//! ```console
//! $ cargo run --release -p inflight-topology --example pods
//! ```
//!
//! The machine is played: a recorded tree of which a CPU goes offline. On a real one
//! `Topology::discover` takes the place of `Topology::from_sysfs`, and the rest stays.

use std::error::Error;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use inflight_topology::steering::{Decision, Steering, decide};
use inflight_topology::{PinError, Refresh, Scope, Topology, set_current_cpu_for_thread};

/// What is derived from one snapshot: it is thrown away with it.
struct Plan {
    topo: Topology,
    /// By the id of a cache pod. A done list for each cache goes with `Steering::SameCache`: any
    /// CPU of the pod is as good as the submitter's. `Steering::SameCpu` wants one for each CPU.
    lists: Vec<mpsc::Sender<usize>>,
    workers: Vec<thread::JoinHandle<usize>>,
}

impl Plan {
    fn new(topo: &Topology) -> Self {
        let mut plan = Self {
            topo: topo.clone(),
            lists: Vec::new(),
            workers: Vec::new(),
        };
        for pod in topo.pods(Scope::Cache) {
            let (list, inbox) = mpsc::channel();
            let (topo, cpus) = (topo.clone(), pod.cpus().clone());
            plan.lists.push(list);
            plan.workers.push(thread::spawn(move || {
                // The guard belongs to this thread, and lives as long as it. Threads started from
                // here would inherit the pinning: start them elsewhere.
                let guard = match topo.pin_current_thread(&cpus) {
                    Ok(guard) => Some(guard),
                    // A played machine, or a system that cannot: work unpinned.
                    Err(PinError::NotThisMachine { .. } | PinError::Unsupported { .. }) => None,
                    Err(error) => {
                        eprintln!("worker of CPUs {cpus} runs unpinned: {error}");
                        None
                    }
                };
                let done = inbox.iter().count();
                // A worker that lives on would ask from time to time whether it is still held.
                let check = guard.map(|guard| guard.revalidate());
                if let Some(Err(error)) = check {
                    eprintln!("worker of CPUs {cpus}: {error}");
                }
                done
            }));
        }
        plan
    }

    /// Completes a request, seen on CPU `observer`. True if it runs here.
    fn complete(&self, observer: usize, submitter: usize, request: usize) -> bool {
        match decide(observer, submitter, Steering::SameCache, &self.topo, true) {
            Decision::Inline(_) => true,
            Decision::Redirect { cpu, .. } => {
                // A redirect names a CPU. One that is isolated is in no pod, and has no done list.
                let pod = self.topo.pod_of(Scope::Cache, cpu);
                let sent = pod.is_some_and(|pod| self.lists[pod.id()].send(request).is_ok());
                !sent
            }
        }
    }

    /// Closes the done lists and waits for the workers; how much each of them did.
    fn stop(self) -> Vec<usize> {
        drop(self.lists);
        let joined = self.workers.into_iter().map(thread::JoinHandle::join);
        joined.map(|done| done.unwrap_or(0)).collect()
    }
}

/// One round of requests: submitted on every CPU of the first snapshot, all seen on CPU 0.
fn round(plan: &Plan, submitters: &Topology) -> usize {
    set_current_cpu_for_thread(Some(0));
    let here = inflight_topology::current_cpu();
    let requests = submitters.cpus().iter().enumerate();
    let inline = requests.filter(|&(request, cpu)| plan.complete(here, cpu, request));
    let inline = inline.count();
    set_current_cpu_for_thread(None);
    inline
}

/// What came of the requests of one round.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    version: u64,
    inline: usize,
    /// By cache.
    sent: Vec<usize>,
}

fn run() -> Result<Vec<Outcome>, Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    Topology::synthetic("cache:2 core:2")?.write_sysfs(root.path())?;
    let first = Topology::from_sysfs(root.path())?;
    // The newest snapshot, in one place. A thread of its own, not pinned, would refresh it every
    // ten seconds: what a pinned thread sees is a machine of its own CPUs.
    let newest = Arc::new(Mutex::new(first.clone()));
    let mut results = Vec::new();
    for event in ["nothing", "CPU 3 goes offline"] {
        if event != "nothing" {
            fs::write(root.path().join("sys/devices/system/cpu/online"), "0-2\n")?;
        }
        let topo = {
            let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
            if let Refresh::Changed(changed) = newest.refresh()? {
                *newest = changed;
            }
            newest.clone()
        };
        let plan = Plan::new(&topo);
        let inline = round(&plan, &first);
        results.push(Outcome {
            version: topo.version(),
            inline,
            sent: plan.stop(),
        });
    }
    Ok(results)
}

fn main() -> Result<(), Box<dyn Error>> {
    for outcome in run()? {
        let Outcome {
            version,
            inline,
            sent,
        } = outcome;
        println!("snapshot {version}: {inline} ran where they were seen, {sent:?} in the lists");
    }
    Ok(())
}

#[test]
fn requests_of_a_cpu_that_left_run_where_they_are_seen() {
    let outcomes = run().expect("a played machine");
    let expected =
        [(1, 2, vec![0, 2]), (2, 3, vec![0, 1])].map(|(version, inline, sent)| Outcome {
            version,
            inline,
            sent,
        });
    assert_eq!(outcomes, expected);
}
