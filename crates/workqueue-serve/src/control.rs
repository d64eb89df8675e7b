//! What the server reads and writes of queues: counters, and the kernel's control files as far as
//! they exist here.

use crate::wire::{ControlFile, QueueCounters, QueueFiles, Reply, Request, TraceLine};
use inflight_topology::CpuSet;
use inflight_workqueue::{Attrs, Concurrency, Kind, MAX_ACTIVE_LIMIT, Workqueue, WorkqueueSystem};
use std::time::Duration;

/// The priority of highpri queues.
const HIGHPRI: i32 = -20;

/// Does what is asked.
pub(crate) fn answer(system: &WorkqueueSystem, request: &Request) -> Reply {
    match request {
        Request::Dump => Reply::Dump {
            text: system.dump(),
        },
        Request::Stats => Reply::Stats {
            queues: system.queues().iter().map(counters).collect(),
        },
        Request::Files => Reply::Files {
            queues: system.queues().iter().map(|q| files(system, q)).collect(),
        },
        Request::Set { queue, file, value } => done(set(system, queue, file, value)),
        Request::SystemFiles => Reply::SystemFiles {
            files: system_files(system),
        },
        Request::SetSystem { file, value } => done(set_system(system, file, value)),
        Request::Trace => {
            let trace = system.take_trace();
            Reply::Trace {
                steps: trace.steps.into_iter().map(TraceLine::from).collect(),
                dropped: trace.dropped,
            }
        }
    }
}

fn done(done: Result<(), String>) -> Reply {
    match done {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Error { error },
    }
}

fn counters(queue: &Workqueue) -> QueueCounters {
    let stats = queue.stats();
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    QueueCounters {
        name: queue.name().to_owned(),
        unbound: is_unbound(&queue.kind()),
        mem_reclaim: queue.is_mem_reclaim(),
        max_active: queue.max_active(),
        queued: stats.queued,
        started: stats.started,
        completed: stats.completed,
        panicked: stats.panicked,
        cancelled: stats.cancelled,
        active: stats.active,
        inactive: stats.inactive,
        cpu_time: stats.cpu_time.map(micros),
        cpu_intensive: stats.cpu_intensive,
        cm_wakeup: stats.cm_wakeups,
        found_asleep: stats.found_asleep,
        repatriated: stats.repatriated,
        remote_wakeups: stats.remote_wakeups,
        stolen: stats.stolen,
        mayday: stats.maydays,
        rescued: stats.rescued,
    }
}

fn is_unbound(kind: &Kind) -> bool {
    matches!(kind, Kind::Unbound(_) | Kind::Ordered(_))
}

fn files(system: &WorkqueueSystem, queue: &Workqueue) -> QueueFiles {
    let mut files = Vec::new();
    let mut file = |name: &str, value: String, writable| {
        files.push(ControlFile {
            name: name.to_owned(),
            value,
            writable,
        });
    };
    let kind = queue.kind();
    let per_cpu = u8::from(!is_unbound(&kind));
    file("per_cpu", per_cpu.to_string(), false);
    if let Some(limit) = queue.max_active() {
        let ordered = matches!(kind, Kind::Ordered(_));
        file("max_active", limit.to_string(), !ordered);
    }
    if let Some(min) = queue.min_active() {
        file("min_active", min.to_string(), true);
    }
    if let Kind::Unbound(attrs) | Kind::Ordered(attrs) = kind {
        let nice = if queue.is_highpri() {
            HIGHPRI
        } else {
            attrs.get_nice()
        };
        file("nice", nice.to_string(), !queue.is_highpri());
        let asked = attrs.get_cpumask();
        let cpus = if asked.is_empty() {
            system.topology().possible()
        } else {
            asked
        };
        file("cpumask", cpus.to_mask_string(), true);
        let scope = match attrs.get_scope() {
            Some(scope) => scope.to_string(),
            None => format!("default ({})", system.default_scope()),
        };
        file("affinity_scope", scope, true);
        let strict = u8::from(attrs.is_strict());
        file("affinity_strict", strict.to_string(), true);
        file("concurrency", attrs.get_concurrency().to_string(), true);
    }
    QueueFiles {
        name: queue.name().to_owned(),
        files,
    }
}

fn set(system: &WorkqueueSystem, name: &str, file: &str, value: &str) -> Result<(), String> {
    let queue = only(system, name)?;
    let known = files(system, &queue).files;
    let Some(found) = known.iter().find(|known| known.name == file) else {
        let names: Vec<_> = known.iter().map(|known| known.name.as_str()).collect();
        let names = names.join(", ");
        return Err(format!("{name} has no file {file:?}; it has {names}"));
    };
    if !found.writable {
        return Err(format!("{file} of {name} can only be read"));
    }
    let value = value.trim();
    if file == "max_active" {
        // Refuses 0, which means the default in the API: a user who writes it here may mean "none".
        let number = value.parse().ok().filter(|&number| number > 0);
        let number = number.ok_or_else(|| {
            format!("{file} is a number from 1 to {MAX_ACTIVE_LIMIT}, not {value:?}")
        })?;
        return queue.set_max_active(number).map_err(|e| e.to_string());
    }
    if file == "min_active" {
        let number = value.parse();
        let number = number
            .map_err(|_| format!("{file} is a number from 1 to max_active, not {value:?}"))?;
        return queue.set_min_active(number).map_err(|e| e.to_string());
    }
    let change = attrs_change(system, file, value)?;
    queue.change_attrs(change).map_err(|e| e.to_string())
}

/// What holds for all queues.
fn system_files(system: &WorkqueueSystem) -> Vec<ControlFile> {
    let file = |name: &str, value: String| ControlFile {
        name: name.to_owned(),
        value,
        writable: true,
    };
    // Rounded up: 0 would say that the watchdog is off.
    let threshold = system.watchdog_threshold().as_nanos().div_ceil(1_000_000);
    vec![
        file("cpumask", system.unbound_cpumask().to_mask_string()),
        file("default_affinity_scope", system.default_scope().to_string()),
        file("trace", u8::from(system.is_recording()).to_string()),
        file("watchdog_thresh_ms", threshold.to_string()),
    ]
}

fn set_system(system: &WorkqueueSystem, file: &str, value: &str) -> Result<(), String> {
    let known = system_files(system);
    if known.iter().all(|known| known.name != file) {
        let names: Vec<_> = known.iter().map(|known| known.name.as_str()).collect();
        let names = names.join(", ");
        return Err(format!("the system has no file {file:?}; it has {names}"));
    }
    let value = value.trim();
    match file {
        "cpumask" => {
            let cpus = mask(system, file, value)?;
            let done = system.set_unbound_cpumask(&cpus);
            done.map_err(|e| e.to_string())
        }
        "default_affinity_scope" => {
            let known = "cpu, smt, cache_shard, cache, numa or system";
            let scope = value.parse().map_err(|_| wrong(file, known, value))?;
            let done = system.set_default_scope(scope);
            done.map_err(|e| e.to_string())
        }
        "trace" => {
            let on = match value {
                "0" => false,
                "1" => true,
                _ => return Err(wrong(file, "0 or 1", value)),
            };
            system.record_trace(on);
            Ok(())
        }
        _ => {
            let what = "a number of ms, 0 for never";
            let ms = value.parse().map_err(|_| wrong(file, what, value))?;
            system.set_watchdog_threshold(Duration::from_millis(ms));
            Ok(())
        }
    }
}

fn wrong(file: &str, what: &str, value: &str) -> String {
    format!("{file} is {what}, not {value:?}")
}

/// Refuses CPUs that are not there: they would be ignored, and be shown as if they were not.
fn mask(system: &WorkqueueSystem, file: &str, value: &str) -> Result<CpuSet, String> {
    let what = "a mask in hexadecimal without 0x (f is CPUs 0 to 3)";
    let cpus = CpuSet::from_mask_str(value)
        .ok()
        .filter(|_| !value.is_empty());
    let cpus = cpus.ok_or_else(|| wrong(file, what, value))?;
    let possible = system.topology().possible().clone();
    let others = cpus.difference(&possible);
    if others.is_empty() {
        Ok(cpus)
    } else {
        Err(format!(
            "{file}: there is no CPU {others}; the CPUs are {possible}"
        ))
    }
}

/// A change of one of the attributes.
fn attrs_change(
    system: &WorkqueueSystem,
    file: &str,
    value: &str,
) -> Result<Box<dyn Fn(Attrs) -> Attrs>, String> {
    let wrong = |what: &str| wrong(file, what, value);
    Ok(match file {
        "nice" => {
            let nice = value.parse();
            let nice = nice.map_err(|_| wrong("a number from -20 to 19"))?;
            Box::new(move |attrs| attrs.nice(nice))
        }
        "cpumask" => {
            let cpus = mask(system, file, value)?;
            Box::new(move |attrs| attrs.cpumask(cpus.clone()))
        }
        "affinity_scope" if value == "default" => Box::new(Attrs::default_scope),
        "affinity_scope" => {
            let known = "default, cpu, smt, cache_shard, cache, numa or system";
            let scope = value.parse().map_err(|_| wrong(known))?;
            Box::new(move |attrs| attrs.scope(scope))
        }
        "concurrency" => {
            let all = [Concurrency::Managed, Concurrency::Unmanaged];
            let asked = all.into_iter().find(|known| known.to_string() == value);
            let asked = asked.ok_or_else(|| wrong("managed or unmanaged"))?;
            Box::new(move |attrs| attrs.concurrency(asked))
        }
        _ => {
            let strict: i64 = value.parse().map_err(|_| wrong("a number, 0 for no"))?;
            Box::new(move |attrs| attrs.strict(strict != 0))
        }
    })
}

/// The only queue of that name.
fn only(system: &WorkqueueSystem, name: &str) -> Result<Workqueue, String> {
    let mut queues = system.queues();
    queues.retain(|queue| queue.name() == name);
    match (queues.pop(), queues.len()) {
        (Some(queue), 0) => Ok(queue),
        (Some(_), others) => Err(format!(
            "{} queues have the name {name:?}, so none can be changed by it",
            others + 1
        )),
        (None, _) => Err(format!("no queue has the name {name:?}")),
    }
}
