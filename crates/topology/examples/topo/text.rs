//! The scopes in the layout in which Linux's workqueue tool dumps its "Affinity Scopes".
//!
//! One difference: masks of machines with more than 32 CPUs are ordinary comma groups.

use std::fmt::Write;

use inflight_topology::{CpuSet, Scope, Topology};

/// The scope a queue has when it asks for none.
const DEFAULT: Scope = Scope::Cache;

pub(crate) fn scopes(topo: &Topology) -> String {
    let mut out = title("Affinity Scopes");
    line(&mut out, "wq_unbound_cpumask", topo.cpus().to_mask_string());
    for scope in Scope::ALL {
        out.push('\n');
        one_scope(&mut out, topo, scope);
    }
    out.push('\n');
    out.push_str(&title("CPUs"));
    line(&mut out, "usable", topo.cpus());
    line(&mut out, "online", topo.online());
    line(&mut out, "possible", topo.possible());
    line(&mut out, "isolated", topo.isolated());
    line(&mut out, "allowed", topo.allowed());
    let classes = topo.speed_classes();
    for (rank, class) in classes.iter().enumerate().filter(|_| classes.len() > 1) {
        line(&mut out, &format!("speed[{rank}]"), class);
    }
    if !topo.assumptions().is_empty() {
        out.push('\n');
        out.push_str(&title("Assumptions"));
        for assumption in topo.assumptions() {
            out.push_str(&format!("{assumption}\n"));
        }
    }
    out
}

fn title(text: &str) -> String {
    format!("{text}\n{}\n", "=".repeat(text.len()))
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    writeln!(out, "{name}={value}").expect("a String takes everything");
}

fn one_scope(out: &mut String, topo: &Topology, scope: Scope) {
    let default = if scope == DEFAULT { " (default)" } else { "" };
    let pods = topo.pods(scope);
    // Minus one: of no node, in no pod.
    let or_none = |number: Option<usize>| number.map_or("-1".to_owned(), |n| n.to_string());
    let cpus = pods
        .iter()
        .map(|pod| (pod.id(), pod.cpus().to_mask_string()));
    let nodes = pods.iter().map(|pod| (pod.id(), or_none(pod.node())));
    let all: &CpuSet = topo.possible();
    let pod_of = all.iter().map(|cpu| {
        let pod = topo.pod_of(scope, cpu).map(|pod| pod.id());
        (cpu, or_none(pod))
    });
    out.push_str(&format!(
        "{}{default}\n  nr_pods  {}\n  pod_cpus {}\n  pod_node {}\n  cpu_pod  {}\n",
        scope.name().to_uppercase(),
        pods.len(),
        indexed(cpus),
        indexed(nodes),
        indexed(pod_of),
    ));
}

/// `[0]=a [1]=b`
fn indexed(values: impl Iterator<Item = (usize, String)>) -> String {
    let items: Vec<String> = values
        .map(|(index, value)| format!("[{index}]={value}"))
        .collect();
    items.join(" ")
}
