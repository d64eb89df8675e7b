//! The same steps as events of the `tracing` crate.
#![cfg(all(feature = "tracing", not(any(loom, shuttle))))]

mod support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex};
use inflight_workqueue::{Work, Workqueue};
use std::fmt::Debug;
use support::{bound, system};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the events' texts. Panics at those of items with this name.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

const PANICS: &str = "panics_in_the_subscriber";

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "inflight_workqueue"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        assert!(!text.0.contains(PANICS), "as the test wants it");
        self.0.lock().push(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn each_step_is_an_event() {
    let recorder = Recorder::default();
    tracing::subscriber::set_global_default(recorder.clone()).unwrap();
    let sys = system();
    let wq = bound(&sys);
    assert!(wq.queue(&Work::named("rescan", || ())).unwrap().is_queued());
    wq.flush_blocking().unwrap();
    let events = recorder.0.lock().clone();
    for step in ["queued", "activated", "started", "ended"] {
        let wanted = format!("message={step} queue=\"bound\" item=\"rescan\" cpu=");
        let is_there = events.iter().any(|event| event.starts_with(&wanted));
        assert!(is_there, "{wanted} in {events:?}");
    }
    // In the same test, because the subscriber is that of the process.
    a_subscriber_that_panics_stops_no_item(&wq);
}

/// The subscriber is the user's, and so are its panics: items run all the same.
fn a_subscriber_that_panics_stops_no_item(wq: &Workqueue) {
    assert_eq!(wq.spawn_named(PANICS, || 7).wait().unwrap(), 7);
    let ran = Arc::new(AtomicUsize::new(0));
    let work = Work::named(PANICS, {
        let ran = ran.clone();
        move || {
            ran.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(wq.queue(&work).unwrap().is_queued());
    work.flush_blocking().unwrap(); // false if it has ended by then
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    let (inner, own) = (wq.clone(), work.clone());
    let cancelled = wq.spawn(move || {
        let queued = inner.queue(&own).unwrap().is_queued();
        queued && own.cancel()
    });
    // Its event takes long, so another worker may have begun the work by then.
    let cancelled = cancelled.wait().unwrap();
    work.flush_blocking().unwrap();
    assert!(!work.is_pending());
    assert_eq!(ran.load(Ordering::Relaxed), 2 - usize::from(cancelled));
}
