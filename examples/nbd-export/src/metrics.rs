//! The counters as a page for Prometheus.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use inflight::flush::Histogram;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::adapter;
use crate::server::Shared;

/// Answers every request on the address with the page, on a thread of its own.
pub(crate) fn serve(address: &str, shared: &Arc<Shared>) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("--metrics {address}"))?;
    let recorder = PrometheusBuilder::new().install_recorder();
    let recorder = recorder.context("installing the recorder of metrics")?;
    adapter::describe_metrics();
    let shared = Arc::downgrade(shared);
    let answer = move || {
        for stream in listener.incoming() {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let Ok(mut stream) = stream else { continue };
            let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
            let _ = stream.set_write_timeout(Some(Duration::from_secs(2)));
            // What is asked for does not matter: there is one page.
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let page = page(&shared, &recorder);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                page.len()
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(page.as_bytes());
        }
    };
    let thread = thread::Builder::new().name("nbd-metrics".to_owned());
    thread.spawn(answer).context("starting a thread")?;
    Ok(())
}

fn page(shared: &Shared, recorder: &PrometheusHandle) -> String {
    shared.tags.record_metrics();
    shared.workers.record_metrics();
    for export in &shared.exports {
        export.tenant.record_metrics();
    }
    let mut page = recorder.render();
    own(shared, &mut page).expect("a string takes everything");
    page
}

fn own(shared: &Shared, page: &mut String) -> std::fmt::Result {
    writeln!(page, "# TYPE nbd_clients gauge")?;
    writeln!(
        page,
        "nbd_clients {}",
        shared.clients.load(Ordering::Relaxed)
    )?;
    writeln!(page, "# TYPE nbd_registered_transfers_total counter")?;
    writeln!(
        page,
        "nbd_registered_transfers_total {}",
        shared.with_registered.load(Ordering::Relaxed)
    )?;
    writeln!(page, "# TYPE nbd_completions_total counter")?;
    for (cpu, count) in shared.tags.completer().counters() {
        writeln!(page, "nbd_completions_total{{cpu={cpu:?}}} {count}")?;
    }
    for export in &shared.exports {
        let name = &export.described.name;
        let stats = &export.stats;
        let waiting = stats.waiting.load(Ordering::Relaxed);
        writeln!(page, "nbd_waiting{{export={name:?}}} {waiting}")?;
        for (what, counter) in [
            ("reads_total", &stats.reads),
            ("writes_total", &stats.writes),
            ("read_bytes_total", &stats.read_bytes),
            ("written_bytes_total", &stats.written_bytes),
            ("other_requests_total", &stats.other),
            ("errors_total", &stats.errors),
        ] {
            let value = counter.load(Ordering::Relaxed);
            writeln!(page, "nbd_{what}{{export={name:?}}} {value}")?;
        }
        let flushes = export.domain.counters();
        for (what, value) in [
            ("requested_total", flushes.requested()),
            ("issued_total", flushes.issued),
            ("merged_total", flushes.merged),
            ("errors_total", flushes.errors),
        ] {
            writeln!(page, "nbd_flush_{what}{{export={name:?}}} {value}")?;
        }
        histogram(page, "nbd_flush_seconds", name, &flushes.flush_time)?;
        histogram(page, "nbd_flush_wait_seconds", name, &flushes.wait_time)?;
    }
    Ok(())
}

fn histogram(page: &mut String, what: &str, export: &str, times: &Histogram) -> std::fmt::Result {
    for (bound, count) in times.cumulative() {
        let bound = bound.map_or("+Inf".to_owned(), |b| b.as_secs_f64().to_string());
        writeln!(
            page,
            "{what}_bucket{{export={export:?},le=\"{bound}\"}} {count}"
        )?;
    }
    let sum = times.total().as_secs_f64();
    writeln!(page, "{what}_sum{{export={export:?}}} {sum}")?;
    writeln!(page, "{what}_count{{export={export:?}}} {}", times.count())
}
