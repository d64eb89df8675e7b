//! What a recorder of the `metrics` crate is told of tags and queues.
#![cfg(not(any(loom, shuttle)))]

use inflight::flush::log::{Durability, LogOptions, MemoryStorage};
use inflight::flush::{FlushDomain, MemoryDevice, Power};
use inflight::prelude::*;
use inflight::sync::atomic::{AtomicBool, Ordering};
use inflight::sync::fault::Faults;
use inflight::sync::time::Clock;
use inflight::sync::{Arc, Mutex, cpu, thread};
use inflight::tags::steering::{CompletionSink, DoneListHandle, Runner};
use inflight::topology::Topology;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;
use std::time::Duration;

/// Each figure by its name and labels, with its unit and description.
fn told(snapshotter: &Snapshotter) -> BTreeMap<String, (String, bool)> {
    let figures = snapshotter.snapshot().into_vec().into_iter();
    let figures = figures.map(|(key, unit, description, value)| {
        let mut name = key.key().name().to_owned();
        for label in key.key().labels() {
            name += &format!(" {}={}", label.key(), label.value());
        }
        let value = match value {
            DebugValue::Counter(n) => n.to_string(),
            DebugValue::Gauge(level) => format!("{level}"),
            DebugValue::Histogram(_) => panic!("there are none"),
        };
        (name, (value, unit.is_some() && description.is_some()))
    });
    figures.collect()
}

fn recorded(record: impl Fn()) -> BTreeMap<String, String> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        #[cfg(feature = "metrics")]
        inflight::describe_metrics();
        #[cfg(not(feature = "metrics"))]
        {
            inflight::tags::describe_metrics();
            inflight::flush::describe_metrics();
            WorkqueueSystem::describe_metrics();
        }
        record();
    });
    let figures = told(&snapshotter);
    for (name, (_, described)) in &figures {
        assert!(described, "{name} has no unit or description");
    }
    figures
        .into_iter()
        .map(|(name, (value, _))| (name, value))
        .collect()
}

#[test]
fn sets_and_tenants() {
    let set = TagSet::builder().depth(4).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let held: Vec<_> = (0..4).map(|_| dev.alloc_blocking().unwrap()).collect();
    dev.try_alloc().unwrap_err();
    let mut held = held.into_iter();
    let token = held.next().unwrap().into_token();
    drop(held.next());
    let figures = recorded(|| {
        set.record_metrics("disks");
        dev.record_metrics("disks");
    });
    for (name, value) in [
        ("inflight_tags_allocated_total set=disks", "4"),
        ("inflight_tags_freed_total set=disks", "1"),
        ("inflight_tags_in_use set=disks", "3"),
        ("inflight_tags_in_flight set=disks", "1"),
        ("inflight_tags_depth set=disks", "4"),
        ("inflight_tags_redeem_errors_total set=disks", "0"),
        (
            "inflight_tags_tenant_allocated_total set=disks tenant=nvme0n1",
            "4",
        ),
        (
            "inflight_tags_tenant_exhausted_total set=disks tenant=nvme0n1",
            "1",
        ),
        ("inflight_tags_tenant_in_use set=disks tenant=nvme0n1", "3"),
        (
            "inflight_tags_tenant_longest_wait_seconds set=disks tenant=nvme0n1",
            "0",
        ),
    ] {
        assert_eq!(
            figures.get(name).map(String::as_str),
            Some(value),
            "{figures:#?}"
        );
    }
    assert_eq!(figures.len(), 9 + 7, "{figures:#?}");
    drop(set.redeem(token).unwrap());
}

/// Where completions ran, why, and how many wait for a worker.
#[test]
fn completions() {
    /// Has a worker for each done list, who never comes.
    struct Asleep;
    impl CompletionSink for Asleep {
        fn runner(&self, _: &CpuSet, _: DoneListHandle) -> Option<Box<dyn Runner>> {
            Some(Box::new(Self))
        }
    }
    impl Runner for Asleep {
        fn wake(&self, _: usize) -> bool {
            true
        }
    }
    fn on<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
        cpu::set_current_for_thread(Some(cpu));
        let result = f();
        cpu::set_current_for_thread(None);
        result
    }
    let topology = Topology::synthetic("cache:2 core:2").unwrap();
    let set = TagSet::builder().depth(8).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let completions = set.completions(&topology).sink(Asleep);
    let completions = completions.build(drop::<Tag<()>>);
    for cpu in [0, 1, 2, 2, 3] {
        let token = on(cpu, || dev.try_alloc().unwrap().into_token());
        on(0, || completions.complete(token, |()| ())).unwrap();
    }
    let figures = recorded(|| completions.record_metrics("disks"));
    let of = |name: &str| figures.get(name).map_or("none", String::as_str).to_owned();
    for (name, value) in [
        ("sent_total set=disks", "3"),
        ("wakeups_total set=disks", "2"),
        ("deferred_total set=disks", "0"),
        ("run_here_total set=disks reason=same_cpu", "1"),
        ("run_here_total set=disks reason=same_cache", "1"),
        ("run_here_total set=disks reason=closed", "0"),
        ("waiting set=disks cpus=0", "0"),
        ("waiting set=disks cpus=2", "2"),
        ("waiting set=disks cpus=3", "1"),
        ("max_batch set=disks", "0"),
    ] {
        assert_eq!(
            of(&format!("inflight_steering_{name}")),
            value,
            "{name}: {figures:#?}"
        );
    }
    assert_eq!(figures.len(), 7 + 8 + 4 + 1, "{figures:#?}");
    completions.close();
    let figures = recorded(|| completions.record_metrics("disks"));
    assert_eq!(figures["inflight_steering_waiting set=disks cpus=2"], "0");
    assert_eq!(figures["inflight_steering_max_batch set=disks"], "2");
}

#[test]
fn queues_and_pools() {
    let topology = Topology::synthetic("core:1").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    let sys = builder.sampling(false).build().unwrap();
    let queue = |limit| {
        sys.workqueue("jobs")
            .bound()
            .max_active(limit)
            .build()
            .unwrap()
    };
    let (jobs, twin) = (queue(2), queue(3));
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let running = jobs.spawn({
        let gate = gate.clone();
        move || drop(gate.lock())
    });
    while jobs.stats().started == 0 {
        inflight::sync::thread::yield_now();
    }
    let (waits, starves) = (jobs.spawn(|| ()), jobs.spawn(|| ()));
    let other = twin.spawn(|| panic!("on purpose"));
    let figures = recorded(|| sys.record_metrics());
    for (name, value) in [
        ("inflight_workqueue_queued_total queue=jobs", "4"),
        ("inflight_workqueue_started_total queue=jobs", "1"),
        ("inflight_workqueue_completed_total queue=jobs", "0"),
        ("inflight_workqueue_active queue=jobs", "3"),
        ("inflight_workqueue_inactive queue=jobs", "1"),
        ("inflight_workqueue_max_active queue=jobs", "5"),
        ("inflight_pool_workers pool=cpu 0 state=busy", "1"),
        ("inflight_pool_workers pool=cpu 0 state=idle", "0"),
        ("inflight_pool_ready pool=cpu 0", "2"),
        ("inflight_pool_target pool=cpu 0", "1"),
        ("inflight_workqueue_hogs_total function=others", "0"),
    ] {
        assert_eq!(
            figures.get(name).map(String::as_str),
            Some(value),
            "{figures:#?}"
        );
    }
    assert_eq!(
        figures.len(),
        16 + 3 + 5 + 1,
        "two queues of one name are one line: {figures:#?}"
    );
    drop(closed);
    running.wait().unwrap();
    waits.wait().unwrap();
    starves.wait().unwrap();
    other.wait().unwrap_err();
    twin.flush_blocking().unwrap();
    jobs.flush_blocking().unwrap();
    let figures = recorded(|| sys.record_metrics());
    assert_eq!(
        figures["inflight_workqueue_completed_total queue=jobs"],
        "4"
    );
    assert_eq!(figures["inflight_workqueue_panicked_total queue=jobs"], "1");
}

/// Counts never go down, and gauges do not stay.
#[test]
fn queues_that_have_ended() {
    let sys = WorkqueueSystem::builder();
    let sys = sys.topology(Topology::synthetic("core:1").unwrap());
    let sys = sys.build().unwrap();
    let run = |name: String, attrs| {
        let wq = sys.workqueue(name).unbound(attrs).build().unwrap();
        wq.spawn(|| ()).wait().unwrap();
        wq.spawn(|| panic!("on purpose")).wait().unwrap_err();
        wq.flush_blocking().unwrap();
        wq
    };
    let attrs = Attrs::new;
    drop(run("jobs".to_owned(), attrs()));
    let figures = || {
        let figures = recorded(|| sys.record_metrics());
        move |name: &str| figures.get(name).cloned()
    };
    let told = figures();
    let completed = |queue| format!("inflight_workqueue_completed_total queue={queue}");
    assert_eq!(told(&completed("jobs")).as_deref(), Some("2"));
    assert_eq!(
        told("inflight_workqueue_max_active queue=jobs").as_deref(),
        Some("0")
    );
    let other = run("jobs".to_owned(), attrs().nice(1));
    let told = figures();
    assert_eq!(told(&completed("jobs")).as_deref(), Some("4"));
    let panicked = "inflight_workqueue_panicked_total queue=jobs";
    assert_eq!(told(panicked).as_deref(), Some("2"));
    let target = |pool| format!("inflight_pool_target pool={pool}");
    assert_eq!(told(&target("u1")).as_deref(), Some("1"));
    drop(other);
    while sys.dump().contains("pool[1]") {
        thread::yield_now();
    }
    // Once, because nobody else sets it.
    assert_eq!(figures()(&target("u1")).as_deref(), Some("0"));
    assert_eq!(figures()(&target("u1")), None);
    // All names together are bounded.
    for n in 0..134 {
        drop(run(format!("queue {n}"), attrs()));
    }
    let told = figures();
    assert_eq!(told(&completed("queue 126")).as_deref(), Some("2"));
    assert_eq!(told(&completed("queue 127")), None);
    assert_eq!(told(&completed("others")).as_deref(), Some("14"));
    let limit = "inflight_workqueue_max_active queue=last";
    let last = run("last".to_owned(), attrs());
    assert_ne!(figures()(limit), None);
    drop(last);
    assert_eq!(figures()(limit).as_deref(), Some("0"));
    assert_eq!(figures()(limit), None);
}

/// A rescuer is no worker of the pool that it helps: in none of the states.
#[test]
fn a_blocked_rescuer_is_no_worker_of_the_pool() {
    let (faults, clock) = (Faults::new(), Clock::manual());
    let builder = WorkqueueSystem::builder().topology(Topology::synthetic("core:1").unwrap());
    let sys = builder
        .faults(&faults)
        .clock(clock.clone())
        .build()
        .unwrap();
    let safe = sys.workqueue("safe").bound().mem_reclaim().build().unwrap();
    faults.refuse_spawns(true);
    let begun = Arc::new(AtomicBool::new(false));
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let item = safe.spawn({
        let (begun, gate) = (begun.clone(), gate.clone());
        move || {
            blocking(|| {
                begun.store(true, Ordering::Relaxed);
                drop(gate.lock());
            })
        }
    });
    clock.advance(Duration::from_millis(10));
    while !begun.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    let figures = recorded(|| sys.record_metrics());
    drop(closed);
    item.wait().unwrap();
    for state in ["busy", "blocked", "idle"] {
        let name = format!("inflight_pool_workers pool=cpu 0 state={state}");
        assert_eq!(figures[&name], "0", "{figures:#?}");
    }
}

/// A function that computes for long has a line of its own, whatever its items are called.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn hogs_by_function() {
    let builder = WorkqueueSystem::builder().topology(Topology::synthetic("core:1").unwrap());
    let builder = builder.intensive_threshold(Duration::from_millis(1));
    let sys = builder.build().unwrap();
    let jobs = sys.workqueue("jobs").bound().build().unwrap();
    let found = || sys.hogs().iter().map(|hog| hog.count).sum::<u64>();
    for n in 0.. {
        let behind = jobs.clone();
        let computes = move || {
            let ran = behind.spawn_on(0, || ());
            while !ran.is_finished() {
                std::hint::spin_loop();
            }
        };
        jobs.spawn_named(format!("parse {n}"), computes)
            .wait()
            .unwrap();
        jobs.flush_blocking().unwrap();
        if found() >= 2 {
            break;
        }
    }
    let figures = recorded(|| sys.record_metrics());
    let mut hogs = figures
        .iter()
        .filter(|(name, _)| name.contains("hogs_total"));
    let (function, count) = hogs.next().unwrap();
    assert!(
        function.contains(" function=metrics::hogs_by_function"),
        "{function}"
    );
    assert_eq!(*count, found().to_string());
    let others = hogs
        .next()
        .map(|(name, count)| (name.as_str(), count.as_str()));
    assert_eq!(
        others,
        Some(("inflight_workqueue_hogs_total function=others", "0"))
    );
    assert_eq!(hogs.next(), None);
}

#[test]
fn domains_and_logs() {
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::new(device.clone());
    domain.flush_blocking().unwrap();
    device.fail_flushes(1);
    domain.flush_blocking().unwrap_err();
    let storage = MemoryStorage::new(&Power::new());
    let (log, _) = LogOptions::new().open(storage).unwrap();
    for _ in 0..3 {
        let lsn = log.append_blocking(b"record").unwrap();
        log.commit_blocking(lsn, Durability::Flushed).unwrap();
    }
    let figures = recorded(|| {
        domain.record_metrics("disk0");
        log.record_metrics("journal");
    });
    for (name, value) in [
        ("inflight_flush_requested_total domain=disk0", "2"),
        ("inflight_flush_issued_total domain=disk0", "2"),
        ("inflight_flush_merged_total domain=disk0", "2"),
        ("inflight_flush_max_merged domain=disk0", "1"),
        ("inflight_flush_errors_total domain=disk0", "1"),
        ("inflight_flush_poisoned domain=disk0", "1"),
        ("inflight_log_records_total log=journal", "3"),
        ("inflight_log_bytes_total log=journal", "18"),
        ("inflight_log_commits_total log=journal", "3"),
        ("inflight_log_flushes_total log=journal", "3"),
        ("inflight_log_segments log=journal", "1"),
        ("inflight_log_poisoned log=journal", "0"),
    ] {
        assert_eq!(
            figures.get(name).map(String::as_str),
            Some(value),
            "{figures:#?}"
        );
    }
    assert_eq!(figures.len(), 14 + 17, "{figures:#?}");
}

#[cfg(feature = "metrics")]
#[test]
fn requests_sent_again() {
    let system = WorkqueueSystem::builder().build().unwrap();
    let queue = system.workqueue("requeue").bound().build().unwrap();
    let set = TagSet::builder().depth(1).build(|_, _| ()).unwrap();
    let requeue = inflight::Requeue::new(&queue, |_: Tag<()>| Ok(()));
    let tag = set.add_tenant("disk0").unwrap().try_alloc().unwrap();
    requeue.requeue(tag, Duration::from_secs(3600));
    let figures = recorded(|| requeue.record_metrics("disk0"));
    let expected = [
        ("inflight_requeue_requeued_total requeue=disk0", "1"),
        ("inflight_requeue_sent_early_total requeue=disk0", "0"),
        ("inflight_requeue_waiting requeue=disk0", "1"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(figures, BTreeMap::from(expected));
}

/// The page of the book has all figures, and no others.
#[test]
fn every_name_is_documented() {
    let set = TagSet::builder().build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let topology = Topology::synthetic("core:1").unwrap();
    let sys = WorkqueueSystem::builder().topology(&topology);
    let sys = sys.build().unwrap();
    let completions = set.completions(&topology).build(drop::<Tag<()>>);
    let wq = sys.workqueue("jobs").bound().build().unwrap();
    wq.spawn(|| ()).wait().unwrap();
    let domain = FlushDomain::new(MemoryDevice::new(4096));
    let storage = MemoryStorage::new(&Power::new());
    let (log, _) = LogOptions::new().open(storage).unwrap();
    #[cfg(feature = "metrics")]
    let requeue = inflight::Requeue::new(&wq, |_: Tag<()>| Ok(()));
    let figures = recorded(|| {
        set.record_metrics("disks");
        dev.record_metrics("disks");
        completions.record_metrics("disks");
        sys.record_metrics();
        domain.record_metrics("disk0");
        log.record_metrics("journal");
        #[cfg(feature = "metrics")]
        requeue.record_metrics("disk0");
    });
    let told = figures.keys().filter_map(|name| name.split(' ').next());
    let mut told: Vec<_> = told.collect();
    told.dedup();
    let rows = include_str!("../../../docs/metrics.md").lines();
    let rows = rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut documented: Vec<_> = rows.collect();
    if cfg!(not(feature = "metrics")) {
        documented.retain(|name| !name.starts_with("inflight_requeue"));
    }
    documented.sort_unstable();
    assert_eq!(told, documented);
}

/// What a Prometheus server reads: the page of the example.
#[test]
fn one_page() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let set = TagSet::builder().depth(4).build(|_, _| ()).unwrap();
    let sys = WorkqueueSystem::builder().build().unwrap();
    let _wq = sys
        .workqueue("check")
        .unbound(Attrs::new())
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        WorkqueueSystem::describe_metrics();
        set.record_metrics("disks");
        sys.record_metrics();
    });
    let page = recorder.handle().render();
    for line in [
        "inflight_tags_depth{set=\"disks\"} 4\n",
        "inflight_workqueue_queued_total{queue=\"check\"} 0\n",
        "# TYPE inflight_workqueue_queued_total counter\n",
        "# HELP inflight_workqueue_queued_total items queued\n",
    ] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
}
