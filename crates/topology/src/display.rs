//! What a log shows of a topology.

use std::fmt;

use crate::topology::Origin;
use crate::{CpuSet, Scope, Topology};

/// A few lines: the size of the machine, its caches, CPUs that are not in use, and what was
/// assumed.
///
/// ```
/// use inflight_topology::Topology;
///
/// let topo = Topology::synthetic("numa:2 core:6 smt:2 isolated:5 offline:23")?;
/// assert_eq!(topo.to_string(), "\
/// synthetic machine: 22 CPUs (0-4,6-22), 12 cores, 2 caches, 2 nodes
/// cache 0 on node 0: CPUs 0-4,12-17
/// cache 1 on node 1: CPUs 6-11,18-22
/// isolated: CPUs 5
/// not online: CPUs 23");
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |scope, name| {
            let pods = self.pods(scope).len();
            format!("{pods} {name}{}", if pods == 1 { "" } else { "s" })
        };
        write!(
            f,
            "{}: {} ({}), {}, {}, {}",
            self.origin(),
            count(Scope::Cpu, "CPU"),
            self.cpus(),
            count(Scope::Smt, "core"),
            count(Scope::Cache, "cache"),
            count(Scope::Numa, "node")
        )?;
        for pod in self.pods(Scope::Cache) {
            write!(f, "\ncache {}", pod.id())?;
            if let Some(node) = pod.node() {
                write!(f, " on node {node}")?;
            }
            write!(f, ": CPUs {}", pod.cpus())?;
        }
        for (name, cpus) in self.not_in_use() {
            if !cpus.is_empty() {
                write!(f, "\n{name}: CPUs {cpus}")?;
            }
        }
        for assumption in self.assumptions() {
            write!(f, "\nassumed: {assumption}")?;
        }
        Ok(())
    }
}

/// The sets and the caches; the tables they are looked up in would fill pages.
///
/// ```
/// use inflight_topology::Topology;
///
/// let text = format!("{:?}", Topology::synthetic("core:4")?);
/// assert!(text.starts_with("Topology { origin: \"synthetic machine\", version: 1, cpus: "));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caches: Vec<&CpuSet> = self.pods(Scope::Cache).iter().map(|p| p.cpus()).collect();
        f.debug_struct("Topology")
            .field("origin", &self.origin())
            .field("version", &self.version())
            .field("cpus", self.cpus())
            .field("online", self.online())
            .field("nodes", &self.nodes())
            .field("caches", &caches)
            .field("assumptions", &self.assumptions())
            .finish_non_exhaustive()
    }
}

impl Topology {
    fn origin(&self) -> &'static str {
        match self.inner().origin {
            Origin::ThisMachine => "this machine",
            Origin::Recorded(_) => "recorded machine",
            Origin::Synthetic => "synthetic machine",
        }
    }

    /// Why CPUs of the machine are not usable.
    fn not_in_use(&self) -> [(&'static str, CpuSet); 3] {
        let idle = self.online().difference(self.cpus());
        let isolated = idle.intersection(self.isolated());
        let closed = idle.difference(&isolated);
        // Off, or not there: a machine may have room for CPUs that it may get.
        let not_online = self.possible().difference(self.online());
        [
            ("isolated", isolated),
            ("closed to the thread", closed),
            ("not online", not_online),
        ]
    }
}
