//! Any tree is a machine whose pods split its CPUs, or an error; damaged files are named.
//!
//! The input chooses files of a small machine and fills them with anything.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use inflight_topology::{Assumption, Scope, SysfsError, Topology};
use libfuzzer_sys::fuzz_target;

const CPU_FILES: [&str; 9] = [
    "online",
    "cpu_capacity",
    "topology/core_cpus_list",
    "topology/thread_siblings",
    "topology/physical_package_id",
    "cache/index0/level",
    "cache/index0/type",
    "cache/index0/shared_cpu_list",
    "cache/index1/shared_cpu_map",
];

const SHARED_FILES: [&str; 12] = [
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/distance",
    "sys/devices/system/node/node1/cpumap",
    "sys/devices/cpu_core/cpus",
    "sys/devices/cpu_atom/cpus",
    "sys/fs/cgroup/cpuset.cpus.effective",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
];

/// One tree for all inputs: a file that an input leaves out is removed again.
static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    };
    base.join(format!("inflight-tree-{}", std::process::id()))
});

fn path(number: u8) -> PathBuf {
    let number = usize::from(number);
    if let Some(shared) = SHARED_FILES.get(number) {
        return ROOT.join(shared);
    }
    let (cpu, file) = (number / CPU_FILES.len() % 4, number % CPU_FILES.len());
    ROOT.join(format!("sys/devices/system/cpu/cpu{cpu}"))
        .join(CPU_FILES[file])
}

fn damage_is_named(topology: &Topology) {
    for assumption in topology.assumptions() {
        if let Assumption::Unreadable { first, reason, .. } = assumption {
            assert!(
                first.starts_with(&*ROOT) && !reason.is_empty(),
                "{assumption}"
            );
        }
    }
}

fuzz_target!(|files: Vec<(u8, &[u8])>| {
    let _ = fs::remove_dir_all(&*ROOT);
    fs::create_dir_all(ROOT.join("sys/devices/system/cpu")).expect("a directory");
    for (number, content) in files {
        let file = path(number);
        let dir = file.parent().expect("below the root");
        fs::create_dir_all(dir).expect("a directory");
        fs::write(file, content).expect("a file");
    }
    match Topology::from_sysfs(&*ROOT) {
        Ok(topology) => {
            for scope in Scope::ALL {
                let mut cpus: Vec<_> = topology
                    .pods(scope)
                    .iter()
                    .flat_map(|pod| pod.cpus())
                    .collect();
                cpus.sort_unstable();
                assert!(
                    cpus.into_iter().eq(topology.cpus()),
                    "{scope} of {topology}"
                );
            }
            damage_is_named(&topology);
        }
        Err(SysfsError::BadFile { file, .. }) => assert!(file.starts_with(&*ROOT)),
        Err(error) => assert_eq!(error, SysfsError::NoCpus { root: ROOT.clone() }),
    }
});
