//! The machine as JSON, for other programs.

use inflight_topology::{CpuSet, Scope, Topology};
use serde::Serialize;

#[derive(Serialize)]
struct Machine<'a> {
    /// How many CPUs are usable; they are the ones in pods.
    cpus: usize,
    scopes: Scopes,
    usable: Vec<usize>,
    online: Vec<usize>,
    possible: Vec<usize>,
    isolated: Vec<usize>,
    allowed: Vec<usize>,
    nodes: &'a [usize],
    /// From the slowest; one on most machines.
    speed_classes: Vec<Vec<usize>>,
    this_machine: bool,
    /// One sentence for each thing the machine did not say about itself.
    assumptions: Vec<String>,
}

/// In the order of [`Scope::ALL`].
#[derive(Serialize)]
struct Scopes {
    cpu: Pods,
    smt: Pods,
    cache_shard: Pods,
    cache: Pods,
    numa: Pods,
    system: Pods,
}

#[derive(Serialize)]
struct Pods {
    /// The CPUs of each pod.
    pods: Vec<Vec<usize>>,
    /// The memory node of each pod; none for the whole system.
    nodes: Vec<Option<usize>>,
}

/// One line.
pub(crate) fn text(topo: &Topology) -> Result<String, serde_json::Error> {
    let [cpu, smt, cache_shard, cache, numa, system] = Scope::ALL.map(|scope| Pods {
        pods: topo
            .pods(scope)
            .iter()
            .map(|pod| list(pod.cpus()))
            .collect(),
        nodes: topo.pods(scope).iter().map(|pod| pod.node()).collect(),
    });
    let machine = Machine {
        cpus: topo.cpus().len(),
        scopes: Scopes {
            cpu,
            smt,
            cache_shard,
            cache,
            numa,
            system,
        },
        usable: list(topo.cpus()),
        online: list(topo.online()),
        possible: list(topo.possible()),
        isolated: list(topo.isolated()),
        allowed: list(topo.allowed()),
        nodes: topo.nodes(),
        speed_classes: topo.speed_classes().iter().map(list).collect(),
        this_machine: topo.is_this_machine(),
        assumptions: topo.assumptions().iter().map(ToString::to_string).collect(),
    };
    Ok(serde_json::to_string(&machine)? + "\n")
}

fn list(cpus: &CpuSet) -> Vec<usize> {
    cpus.iter().collect()
}
