//! Tags, flushes and queues on one page: what a Prometheus server would be told of a small engine.
//!
//! `cargo run -p inflight --example metrics`; a program of yours needs the feature `metrics` of
//! `inflight`, and answers a scrape with the text printed here.

use inflight::prelude::*;
use metrics_exporter_prometheus::PrometheusBuilder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    inflight::tags::describe_metrics();
    WorkqueueSystem::describe_metrics();

    let set = TagSet::builder().depth(8).build(|_hwq, _tag| 0_u64)?;
    let disk = set.add_tenant("disk0")?;
    let system = WorkqueueSystem::builder().cpu_time(true).build()?;
    let checks = system.workqueue("check").unbound(Attrs::new());
    let checks = checks.max_active(4).build()?;
    // What is checked completes on the CPU that submitted it.
    let done = system.workqueue("done").bound().highpri().build()?;
    let completions = set
        .completions(system.topology())
        .sink(WorkqueueSink::new(&done))
        .build(drop::<Tag<u64>>);
    for block in 0..100 {
        let token = disk.alloc_blocking()?.into_token(); // waits while 8 blocks are being checked
        let completions = completions.clone();
        drop(checks.spawn(move || completions.complete(token, |sum| *sum = (0..=block).sum())));
    }
    checks.flush_blocking()?;
    done.flush_blocking()?;

    // What the handler of a scrape does.
    set.record_metrics("disks");
    disk.record_metrics("disks");
    completions.record_metrics("disks");
    system.record_metrics();
    print!("{}", prometheus.render());
    Ok(())
}
