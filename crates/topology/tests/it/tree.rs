//! Writes the trees that the recorded-machine tests read.

use std::fs;
use std::path::{Path, PathBuf};

use inflight_topology::Topology;
use tempfile::TempDir;

/// A tree in a temporary directory, in the shape of a root file system.
pub(crate) struct Tree {
    dir: TempDir,
}

impl Tree {
    /// A tree with a list of online CPUs, all of which are possible.
    pub(crate) fn new(online: &str) -> Self {
        let tree = Self {
            dir: TempDir::new().expect("a temporary directory"),
        };
        tree.write("cpu/online", online);
        tree.write("cpu/possible", "0-65535");
        tree
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn topology(&self) -> Topology {
        Topology::from_sysfs(self.root()).expect("the tree describes a CPU")
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.root().join("sys/devices/system").join(file)
    }

    /// Writes a file below `sys/devices/system`, with the newline such files end with.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
        fs::write(path, format!("{text}\n")).expect("a file");
    }

    pub(crate) fn remove(&self, file: &str) {
        fs::remove_file(self.path(file)).expect("a file to remove");
    }

    /// The `topology` directory of a CPU, and a speed like that of all others.
    pub(crate) fn core(&self, cpu: usize, siblings: &str, package: i64) {
        self.write(
            &format!("cpu/cpu{cpu}/topology/thread_siblings_list"),
            siblings,
        );
        self.write(
            &format!("cpu/cpu{cpu}/topology/physical_package_id"),
            &package.to_string(),
        );
        self.write(&format!("cpu/cpu{cpu}/cpu_capacity"), "1024");
    }

    /// One `cache/index` directory of a CPU.
    pub(crate) fn cache(&self, cpu: usize, index: usize, level: u32, kind: &str, shared: &str) {
        let dir = format!("cpu/cpu{cpu}/cache/index{index}");
        self.write(&format!("{dir}/level"), &level.to_string());
        self.write(&format!("{dir}/type"), kind);
        self.write(&format!("{dir}/shared_cpu_list"), shared);
    }

    pub(crate) fn node(&self, node: usize, cpus: &str) {
        self.write(&format!("node/node{node}/cpulist"), cpus);
    }
}
