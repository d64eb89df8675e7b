//! Any text is a machine or an error, and the pods of each scope split the CPUs of the machine.
#![no_main]

use inflight_topology::{Scope, Topology};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(topology) = Topology::synthetic(text) else {
        return;
    };
    for scope in Scope::ALL {
        let mut cpus: Vec<_> = topology.pods(scope).iter().flat_map(|p| p.cpus()).collect();
        cpus.sort_unstable();
        assert!(cpus.into_iter().eq(topology.cpus()), "{scope} of {text:?}");
    }
});
