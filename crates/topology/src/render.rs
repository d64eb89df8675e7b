//! A topology written down as the tree it might have been read from.

use std::fs;
use std::io;
use std::path::Path;

use crate::{CpuSet, Scope, Topology};

impl Topology {
    /// Writes this topology as a tree that [`from_sysfs`](Topology::from_sysfs) reads as an equal
    /// one: `sys/devices/system/cpu` and `…/node` below `root`, and `proc/self/status` with the
    /// mask. Assumptions and nodes without usable CPUs are not in it.
    ///
    /// That makes a test of a described machine go through the reader, and a fixture of a
    /// machine nobody has. It is no recording: only what a topology knows is written, and what it
    /// [assumed](Topology::assumptions) is written as if it were so.
    ///
    /// # Errors
    ///
    /// Any error of the file system, with the files written so far left behind.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let root = tempfile::tempdir()?;
    /// let topo = Topology::synthetic("numa:2 core:4,2 smt:2 fast:0-3 offline:9")?;
    /// topo.write_sysfs(root.path())?;
    /// assert_eq!(Topology::from_sysfs(root.path())?, topo);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_sysfs(&self, root: impl AsRef<Path>) -> io::Result<()> {
        let system = root.as_ref().join("sys/devices/system");
        let status = format!("Cpus_allowed_list:\t{}", self.cpus());
        write(&root.as_ref().join("proc/self"), "status", &status)?;
        let cpu_dir = system.join("cpu");
        write(&cpu_dir, "possible", &self.possible().to_string())?;
        write(&cpu_dir, "online", &self.online().to_string())?;
        write(&cpu_dir, "isolated", &self.isolated().to_string())?;
        for cpu in self.cpus() {
            self.write_cpu(cpu, &cpu_dir.join(format!("cpu{cpu}")))?;
        }
        for (node, pod) in self.nodes().iter().zip(self.by_node()) {
            let dir = system.join(format!("node/node{node}"));
            write(&dir, "cpulist", &pod.to_string())?;
            let row: Option<Vec<String>> = self
                .nodes()
                .iter()
                .map(|&to| Some(self.node_distance(*node, to)?.to_string()))
                .collect();
            if let Some(row) = row {
                write(&dir, "distance", &row.join(" "))?;
            }
        }
        Ok(())
    }

    /// The CPUs of each node, in the order of the nodes.
    fn by_node(&self) -> impl Iterator<Item = CpuSet> {
        self.nodes().iter().map(|&node| {
            let here = |&cpu: &usize| self.node_of(cpu) == Some(node);
            self.cpus().iter().filter(here).collect()
        })
    }

    fn write_cpu(&self, cpu: usize, dir: &Path) -> io::Result<()> {
        let group = |scope| self.pod_of(scope, cpu).map(|pod| pod.cpus().to_string());
        let topology = dir.join("topology");
        write(
            &topology,
            "core_cpus_list",
            &group(Scope::Smt).unwrap_or_default(),
        )?;
        let package = self.node_of(cpu).unwrap_or_default();
        write(&topology, "physical_package_id", &package.to_string())?;
        let cache = dir.join("cache/index3");
        write(&cache, "level", "3")?;
        write(&cache, "type", "Unified")?;
        write(
            &cache,
            "shared_cpu_list",
            &group(Scope::Cache).unwrap_or_default(),
        )?;
        let rank = self.speed_of(cpu).map_or(0, |class| class.rank());
        write(dir, "cpu_capacity", &(rank + 1).to_string())
    }
}

/// Writes one file with the newline such files end with.
fn write(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join(name), format!("{text}\n"))
}
