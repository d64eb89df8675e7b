//! What is asked of discovery.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{env, fs, thread};

use inflight_topology::{Assumption, CpuSet, Scope, Topology};

use crate::{machine, record};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// How often a CPU goes down and comes back while discovery runs.
const CYCLES: usize = 12;

pub(crate) fn run() -> Outcome {
    match env::var("task").as_deref() {
        Ok("offline-loop") => offline_loop(3)?,
        Ok("offline") => {
            set_online(3, false)?;
            set_online(5, false)?;
        }
        Ok("cpuset") => enter_cpuset("1-2")?,
        Ok("cpuset-v1") => enter_cpuset_v1("1-2")?,
        Ok(other) => return Err(format!("no task is called {other}").into()),
        Err(_) => {}
    }
    tell(&Topology::discover()?);
    record::tell()
}

/// The facts the script compares.
fn tell(topo: &Topology) {
    for (name, cpus) in [
        ("cpus", topo.cpus()),
        ("online", topo.online()),
        ("possible", topo.possible()),
        ("isolated", topo.isolated()),
        ("allowed", topo.allowed()),
    ] {
        let text = if cpus.is_empty() {
            "none".to_owned()
        } else {
            cpus.to_string()
        };
        println!("fact {name} {text}");
    }
    for scope in [Scope::Smt, Scope::CacheShard, Scope::Cache, Scope::Numa] {
        let pods: Vec<String> = topo
            .pods(scope)
            .iter()
            .map(|pod| pod.cpus().to_string())
            .collect();
        println!("fact {scope} {}", pods.join(" "));
    }
    let assumed: Vec<&Assumption> = surprises(topo).collect();
    println!("fact assumed {}", assumed.len());
    for assumption in assumed {
        println!("note assumed: {assumption}");
    }
}

/// What had to be assumed, but for one thing: a PC's kernel does not say how fast its CPUs are.
fn surprises(topo: &Topology) -> impl Iterator<Item = &Assumption> {
    let expected = |assumption: &&Assumption| matches!(assumption, Assumption::SpeedUnknown { .. });
    topo.assumptions().iter().filter(move |a| !expected(a))
}

/// Shuts this process into a few CPUs, as a container does.
fn enter_cpuset(cpus: &str) -> Outcome {
    let top = "/sys/fs/cgroup";
    fs::write(format!("{top}/cgroup.subtree_control"), "+cpuset")?;
    fs::create_dir(format!("{top}/part"))?;
    fs::write(format!("{top}/part/cpuset.cpus"), cpus)?;
    fs::write(format!("{top}/part/cgroup.procs"), "1")?;
    Ok(())
}

fn enter_cpuset_v1(cpus: &str) -> Outcome {
    let top = "/cpuset";
    machine::mount_cpuset_v1(top)?;
    fs::create_dir(format!("{top}/part"))?;
    fs::write(format!("{top}/part/cpuset.cpus"), cpus)?;
    fs::write(format!("{top}/part/cpuset.mems"), "0")?;
    fs::write(format!("{top}/part/cgroup.procs"), "1")?;
    Ok(())
}

/// Discovers for as long as another thread takes `cpu` down and up. Discovery never pauses, so that
/// each of these falls into one; the other thread waits until that one has ended.
fn offline_loop(cpu: usize) -> Outcome {
    let whole = Topology::discover()?.cpus().clone();
    // Only hints: each may be seen a round late.
    let (rounds, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut seen = Seen::default();
    let switched = thread::scope(|scope| {
        let switcher = scope.spawn(|| {
            let result = switch(cpu, &rounds);
            done.store(true, Ordering::Relaxed);
            result
        });
        while !done.load(Ordering::Relaxed) {
            seen.look(&whole, cpu);
            rounds.store(seen.rounds, Ordering::Relaxed);
        }
        switcher.join()
    });
    switched.map_err(|_| "the switching thread panicked")??;
    let Seen {
        rounds,
        with,
        without,
        unsteady,
        wrong,
    } = seen;
    println!(
        "note {rounds} discoveries while CPU {cpu} went down and up {CYCLES} times: \
         {with} with it, {without} without, {unsteady} unsteady"
    );
    println!("fact loop-wrong {wrong}");
    println!("fact loop-with {}", with > 0);
    println!("fact loop-without {}", without > 0);
    Ok(())
}

fn switch(cpu: usize, rounds: &AtomicUsize) -> Result<(), String> {
    for _ in 0..CYCLES {
        for online in [false, true] {
            set_online(cpu, online)?;
            // The round under way began before; the one after it sees the new state from its start.
            let enough = rounds.load(Ordering::Relaxed) + 2;
            while rounds.load(Ordering::Relaxed) < enough {
                thread::yield_now();
            }
        }
    }
    Ok(())
}

fn set_online(cpu: usize, online: bool) -> Result<(), String> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&file, if online { "1" } else { "0" }).map_err(|error| format!("{file}: {error}"))
}

/// What the discoveries of the loop found.
#[derive(Default)]
struct Seen {
    rounds: usize,
    with: usize,
    without: usize,
    unsteady: usize,
    wrong: usize,
}

impl Seen {
    /// One discovery. The CPU that moves may be there or not, and may be named as unsteady; about
    /// all others everything is known, and each is in one pod per scope.
    fn look(&mut self, whole: &CpuSet, moving: usize) {
        self.rounds += 1;
        if let Err(complaint) = self.check(whole, moving) {
            self.wrong += 1;
            println!("note round {}: {complaint}", self.rounds);
        }
    }

    fn check(&mut self, whole: &CpuSet, moving: usize) -> Outcome {
        let topo = Topology::discover()?;
        let cpus = topo.cpus();
        if cpus.contains(moving) {
            self.with += 1;
        } else {
            self.without += 1;
        }
        let moving = CpuSet::from([moving]);
        if cpus.union(&moving) != *whole {
            return Err(format!("found CPUs {cpus} of {whole}").into());
        }
        for assumption in surprises(&topo) {
            match assumption {
                Assumption::Unsteady { cpus } if *cpus == moving => self.unsteady += 1,
                other => return Err(format!("assumed: {other}").into()),
            }
        }
        for scope in Scope::ALL {
            let pods = topo.pods(scope);
            let members = pods.iter().map(|pod| pod.cpus().len()).sum::<usize>();
            let all = pods
                .iter()
                .fold(CpuSet::new(), |all, pod| all.union(pod.cpus()));
            if all != *cpus || members != cpus.len() {
                return Err(format!("the pods of scope {scope} are no partition").into());
            }
        }
        Ok(())
    }
}
