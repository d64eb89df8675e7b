//! Writes a topology as the tree that it could have been read from.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::place::Place;
use crate::{CpuSet, Topology};

impl Topology {
    /// Writes this topology as a tree that [`from_sysfs`](Topology::from_sysfs) reads as an equal
    /// one: `sys/devices/system/cpu` and `…/node` below `root`, `proc/self/status` with the mask,
    /// and a control group if one limits the CPUs. Assumptions, and nodes without CPUs, are not in
    /// it.
    ///
    /// With it a test can pass a synthetic machine through the reader, or keep one as a fixture. It
    /// is not a recording: only what the topology knows is written, and what it
    /// [assumed](Topology::assumptions) is written as if it were known.
    ///
    /// # Errors
    ///
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if there is a `sys` or `proc` below `root`:
    /// two trees in one place would be a third machine. Else any error of the file system, with the
    /// files written so far left behind.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let root = tempfile::tempdir()?;
    /// let topo = Topology::synthetic("numa:2 core:4,2 smt:2 fast:0-3 offline:9")?;
    /// topo.write_sysfs(root.path())?;
    /// assert_eq!(Topology::from_sysfs(root.path())?, topo);
    /// assert!(topo.write_sysfs(root.path()).is_err()); // something is there already
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_sysfs(&self, root: impl AsRef<Path>) -> io::Result<()> {
        let root = root.as_ref();
        for name in ["sys", "proc"] {
            if root.join(name).symlink_metadata().is_ok() {
                let what = format!("{} exists already", root.join(name).display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
        }
        let status = format!("Cpus_allowed_list:\t{}", self.cpus());
        write(&root.join("proc/self"), "status", &status)?;
        if self.allowed() != self.online() {
            self.write_group(root)?;
        }
        let system = root.join("sys/devices/system");
        let cpu_dir = system.join("cpu");
        write(&cpu_dir, "possible", &self.possible().to_string())?;
        write(&cpu_dir, "online", &self.online().to_string())?;
        write(&cpu_dir, "isolated", &self.isolated().to_string())?;
        let cores = self.members(|place| place.core);
        let caches = self.members(|place| place.cache);
        for (cpu, place) in self.model().places.iter() {
            let dir = cpu_dir.join(format!("cpu{cpu}"));
            let rank = self.speed_of(cpu).map_or(0, |class| class.rank());
            write(&dir, "cpu_capacity", &(rank + 1).to_string())?;
            let topology = dir.join("topology");
            write(&topology, "core_cpus_list", &cores[&place.core].to_string())?;
            write(&topology, "physical_package_id", &place.node.to_string())?;
            let cache = dir.join("cache/index3");
            write(&cache, "level", "3")?;
            write(&cache, "type", "Unified")?;
            write(&cache, "shared_cpu_list", &caches[&place.cache].to_string())?;
        }
        self.write_nodes(&system.join("node"))
    }

    fn write_nodes(&self, dir: &Path) -> io::Result<()> {
        let mut nodes = self.members(|place| place.node);
        // A node may have memory only, or CPUs that are all offline.
        for &(node, _) in self.model().distances.keys() {
            nodes.entry(node).or_default();
        }
        for (&from, cpus) in &nodes {
            let dir = dir.join(format!("node{from}"));
            write(&dir, "cpulist", &cpus.to_string())?;
            let row: Option<Vec<String>> = nodes
                .keys()
                .map(|&to| Some(self.node_distance(from, to)?.to_string()))
                .collect();
            if let Some(row) = row {
                write(&dir, "distance", &row.join(" "))?;
            }
        }
        Ok(())
    }

    /// A control group of the second version that allows what is allowed.
    fn write_group(&self, root: &Path) -> io::Result<()> {
        let own = root.join("proc/self");
        write(&own, "cgroup", "0::/")?;
        let mount = "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        write(&own, "mountinfo", mount)?;
        let group = root.join("sys/fs/cgroup");
        write(&group, "cpuset.cpus.effective", &self.allowed().to_string())
    }

    /// The described CPUs of each core, cache or node.
    fn members(&self, whole: impl Fn(Place) -> usize) -> BTreeMap<usize, CpuSet> {
        let mut members: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for (cpu, place) in self.model().places.iter() {
            members.entry(whole(place)).or_default().insert(cpu);
        }
        members
    }
}

/// Writes one file with the newline such files end with.
fn write(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join(name), format!("{text}\n"))
}
