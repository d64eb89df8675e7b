//! The counters as a page for Prometheus.

use std::fmt::{Display, Write as _};
use std::io::{Read, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use inflight::flush::{Counters, Histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::adapter;
use crate::export::Stats;
use crate::server::Shared;

/// How long nobody is let in after that has failed.
const PAUSE: Duration = Duration::from_millis(200);

/// Answers requests for `/metrics` on the address, on a thread of its own.
pub(crate) fn serve(address: &str, shared: &Arc<Shared>) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("--metrics {address}"))?;
    // The port may be one that the system has chosen.
    let bound = listener.local_addr()?;
    let recorder = PrometheusBuilder::new().install_recorder();
    let recorder = recorder.context("installing the recorder of metrics")?;
    adapter::describe_metrics();
    let told = shared;
    let shared = Arc::downgrade(told);
    let answer = move || {
        for stream in listener.incoming() {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let Ok(mut stream) = stream else {
                // As a rule all files are open that may be. The one who asks waits.
                thread::sleep(PAUSE);
                continue;
            };
            let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
            let _ = stream.set_write_timeout(Some(Duration::from_secs(2)));
            let request = first_line(&mut stream);
            let answer = answer(&request, || page(&shared, &recorder));
            let _ = stream.write_all(answer.as_bytes());
        }
    };
    let thread = thread::Builder::new().name("nbd-metrics".to_owned());
    thread.spawn(answer).context("starting a thread")?;
    told.log(&format!("metrics at http://{bound}/metrics"));
    Ok(())
}

/// The first line of a request, perhaps with more behind it. What has come of one that is too long
/// or does not end.
fn first_line(stream: &mut impl Read) -> Vec<u8> {
    let (mut request, mut len) = (vec![0; 4096], 0);
    while len < request.len() && !request[..len].contains(&b'\n') {
        match stream.read(&mut request[len..]) {
            Ok(0) | Err(_) => break,
            Ok(n) => len += n,
        }
    }
    request.truncate(len);
    request
}

/// The answer to a request, of which the first line is looked at.
fn answer(request: &[u8], page: impl FnOnce() -> String) -> String {
    let line = request.split(|&byte| byte == b'\n').next();
    let mut words = line.unwrap_or_default().split(|&byte| byte == b' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let path = target.split(|&byte| byte == b'?').next();
    let is_head = method == Some(b"HEAD");
    let (status, more, body) = if path != Some(b"/metrics") {
        let body = "The metrics are at /metrics\n";
        ("404 Not Found", "", body.to_owned())
    } else if method == Some(b"GET") || is_head {
        ("200 OK", "", page())
    } else {
        (
            "405 Method Not Allowed",
            "Allow: GET, HEAD\r\n",
            String::new(),
        )
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n{more}\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if is_head { head } else { head + &body }
}

fn page(shared: &Shared, recorder: &PrometheusHandle) -> String {
    for disk in shared.disks.all() {
        disk.tags.record_metrics();
    }
    shared.workers.record_metrics();
    for export in &shared.exports {
        export.tenant.record_metrics();
    }
    let mut page = recorder.render();
    own(shared, &mut page).expect("a string takes everything");
    page
}

/// The server's own figures.
fn own(shared: &Shared, page: &mut String) -> std::fmt::Result {
    let clients = shared.clients.load(Ordering::Relaxed);
    let registered = shared.with_registered.load(Ordering::Relaxed);
    let mut page = Page(page);
    page.family("nbd_clients", "gauge")?;
    page.sample("nbd_clients", &[], clients)?;
    page.family("nbd_registered_transfers_total", "counter")?;
    page.sample("nbd_registered_transfers_total", &[], registered)?;
    page.family("nbd_completions_total", "counter")?;
    for disk in shared.disks.all() {
        for (cpu, count) in disk.tags.completed() {
            let labels = [("cpu", cpu), ("set", disk.tags.name())];
            page.sample("nbd_completions_total", &labels, count)?;
        }
    }
    // All samples of a family stand together, whatever export they are of.
    for (name, kind, read) in STATS {
        page.family(name, kind)?;
        for export in &shared.exports {
            let value = read(&export.stats).load(Ordering::Relaxed);
            page.sample(name, &[("export", &export.described.name)], value)?;
        }
    }
    let flushes = shared.exports.iter().map(|export| {
        let name = &export.described.name[..];
        (name, export.domain.counters())
    });
    let flushes: Vec<_> = flushes.collect();
    for (name, read) in FLUSHES {
        page.family(name, "counter")?;
        for (export, counters) in &flushes {
            page.sample(name, &[("export", export)], read(counters))?;
        }
    }
    for (name, read) in TIMES {
        page.family(name, "histogram")?;
        for (export, counters) in &flushes {
            page.histogram(name, export, read(counters))?;
        }
    }
    Ok(())
}

type ReadStats = fn(&Stats) -> &AtomicU64;
const STATS: [(&str, &str, ReadStats); 9] = [
    ("nbd_export_clients", "gauge", |s| &s.clients),
    ("nbd_waiting", "gauge", |s| &s.waiting),
    ("nbd_reads_total", "counter", |s| &s.reads),
    ("nbd_writes_total", "counter", |s| &s.writes),
    ("nbd_read_bytes_total", "counter", |s| &s.read_bytes),
    ("nbd_written_bytes_total", "counter", |s| &s.written_bytes),
    ("nbd_other_requests_total", "counter", |s| &s.other),
    ("nbd_requeued_total", "counter", |s| &s.requeued),
    ("nbd_errors_total", "counter", |s| &s.errors),
];

type ReadCounters = fn(&Counters) -> u64;
const FLUSHES: [(&str, ReadCounters); 7] = [
    ("nbd_flush_requested_total", Counters::requested),
    ("nbd_flush_issued_total", |c| c.issued),
    ("nbd_flush_merged_total", |c| c.merged),
    ("nbd_flush_deferred_total", |c| c.deferred_by_data),
    ("nbd_flush_forced_total", |c| c.forced_by_timeout),
    ("nbd_flush_withdrawn_total", |c| c.withdrawn),
    ("nbd_flush_errors_total", |c| c.errors),
];

type ReadTimes = fn(&Counters) -> &Histogram;
const TIMES: [(&str, ReadTimes); 2] = [
    ("nbd_flush_seconds", |c| &c.flush_time),
    ("nbd_flush_wait_seconds", |c| &c.wait_time),
];

/// The text format of Prometheus.
struct Page<'a>(&'a mut String);

impl Page<'_> {
    /// Begins a group: what follows is of this name.
    fn family(&mut self, name: &str, kind: &str) -> std::fmt::Result {
        writeln!(self.0, "# TYPE {name} {kind}")
    }

    fn sample(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl Display,
    ) -> std::fmt::Result {
        self.0.push_str(name);
        for (n, (label, value)) in labels.iter().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            write!(self.0, "{before}{label}=\"{}\"", Escaped(value))?;
        }
        let end = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{end} {value}")
    }

    fn histogram(&mut self, name: &str, export: &str, times: &Histogram) -> std::fmt::Result {
        let export = ("export", export);
        for (bound, count) in times.cumulative() {
            let bound = bound.map_or("+Inf".to_owned(), |b| b.as_secs_f64().to_string());
            let bucket = format!("{name}_bucket");
            self.sample(&bucket, &[export, ("le", &bound)], count)?;
        }
        let sum = times.total().as_secs_f64();
        self.sample(&format!("{name}_sum"), &[export], sum)?;
        self.sample(&format!("{name}_count"), &[export], times.count())
    }
}

/// A label's value.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_request_may_come_in_parts() {
        let mut whole = b"GET /met"
            .chain(&b"rics HTTP/1.1\r\n"[..])
            .chain(&b"Host"[..]);
        assert_eq!(first_line(&mut whole), b"GET /metrics HTTP/1.1\r\n");
        assert_eq!(first_line(&mut &b"GET"[..]), b"GET", "no more comes");
        assert_eq!(first_line(&mut io::repeat(b'x')).len(), 4096);
    }

    #[test]
    fn there_is_one_page_and_it_can_only_be_read() {
        for (line, status, ends) in [
            ("GET /metrics HTTP/1.1", "200 OK", "\r\n\r\nthe page"),
            ("GET /metrics?name=x HTTP/1.1", "200 OK", "\r\n\r\nthe page"),
            ("HEAD /metrics HTTP/1.1", "200 OK", "\r\n\r\n"),
            ("POST /metrics HTTP/1.1", "405 ", "\r\n\r\n"),
            ("GET / HTTP/1.1", "404 ", "at /metrics\n"),
            ("HEAD /x HTTP/1.1", "404 ", "\r\n\r\n"),
            ("DELETE /metrics/x HTTP/1.1", "404 ", "at /metrics\n"),
            ("", "404 ", "at /metrics\n"),
        ] {
            let request = format!("{line}\r\nHost: x\r\n\r\n");
            let said = answer(request.as_bytes(), || "the page".to_owned());
            let expected = format!("HTTP/1.1 {status}");
            assert!(said.starts_with(&expected), "{line}: {said}");
            assert!(said.ends_with(ends), "{line}: {said}");
            let is_allowed = !said.contains("405 ") || said.contains("\r\nAllow: GET, HEAD\r\n");
            assert!(is_allowed, "{said}");
        }
    }
}
