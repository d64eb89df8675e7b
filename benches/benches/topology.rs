//! What knowing the machine costs: where am I, discovering it, and one decision.
#![allow(
    missing_docs,
    reason = "criterion_group! makes a public function without any"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use inflight_sync::rseq;
use inflight_topology::steering::{Steering, decide};
use inflight_topology::wake::{ShardLoad, Wake, WakeRules, WakeSource};
use inflight_topology::{Scope, Topology, current_cpu};

/// 256 CPUs: 2 nodes, 8 caches each, 8 cores of 2 threads each.
const LARGE: &str = "numa:2 cache:8 core:8 smt:2";

fn where_am_i(c: &mut Criterion) {
    let mut group = c.benchmark_group("topology/where am I");
    let area = if rseq::cpu_id().is_some() {
        "current_cpu, with rseq"
    } else {
        "current_cpu, without rseq"
    };
    group.bench_function(area, |b| b.iter(current_cpu));
    inflight_sync::cpu::set_current_for_thread(Some(3));
    group.bench_function("current_cpu, set by a test", |b| b.iter(current_cpu));
    assert_eq!(current_cpu(), 3);
    inflight_sync::cpu::set_current_for_thread(None);
    group.bench_function("rseq alone", |b| b.iter(rseq::cpu_id));
    #[cfg(target_os = "linux")]
    group.bench_function("sched_getcpu", |b| {
        b.iter(|| {
            // SAFETY: sched_getcpu has no preconditions and touches no memory of ours.
            unsafe { libc::sched_getcpu() }
        });
    });
}

fn discovery(c: &mut Criterion) {
    let mut group = c.benchmark_group("topology/discovery");
    group.sample_size(20);
    let here = Topology::discover().expect("a CPU");
    let name = format!("this machine, {} CPUs", here.cpus().len());
    group.bench_function(name, |b| b.iter(|| Topology::discover().expect("a CPU")));

    let root = tempfile::tempdir().expect("a temporary directory");
    let large = Topology::synthetic(LARGE).expect("a good description");
    large.write_sysfs(root.path()).expect("a tree");
    let recorded = || Topology::from_sysfs(root.path()).expect("CPUs");
    for scope in Scope::ALL {
        assert_eq!(recorded().pods(scope), large.pods(scope));
    }
    group.bench_function("a recorded tree, 256 CPUs", |b| b.iter(recorded));
    group.bench_function("a description, 256 CPUs", |b| {
        b.iter(|| Topology::synthetic(black_box(LARGE)).expect("a good description"));
    });
}

fn questions(c: &mut Criterion) {
    let mut group = c.benchmark_group("topology/questions");
    let topo = Topology::synthetic(LARGE).expect("a good description");
    group.bench_function("pod_of", |b| {
        b.iter(|| topo.pod_of(black_box(Scope::Cache), black_box(200)));
    });
    group.bench_function("shares_cache", |b| {
        b.iter(|| topo.shares_cache(black_box(3), black_box(200)));
    });
    for (name, observer) in [("same cache", 65), ("other cache", 3)] {
        group.bench_function(format!("decide, {name}"), |b| {
            b.iter(|| {
                decide(
                    black_box(observer),
                    black_box(64),
                    Steering::SameCache,
                    &topo,
                    true,
                )
            });
        });
    }
    let source = WakeSource::BoundWorker(ShardLoad::new(0, 1));
    group.bench_function("place, stacked", |b| {
        b.iter(|| {
            let wake = Wake::new(black_box(source), black_box(64), black_box(64));
            wake.place(WakeRules::default(), &topo, |_| false)
        });
    });
    group.bench_function("place, nothing idle", |b| {
        b.iter(|| {
            let wake = Wake::new(WakeSource::Thread, black_box(3), black_box(64));
            wake.place(WakeRules::default(), &topo, |_| false)
        });
    });
}

criterion_group!(benches, where_am_i, discovery, questions);
criterion_main!(benches);
