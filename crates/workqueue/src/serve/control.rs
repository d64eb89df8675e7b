//! What the server reads and writes of queues: counters, and the kernel's control files as far as
//! they exist here.

use super::wire::{ControlFile, QueueCounters, QueueFiles, Reply, Request, TraceLine};
use crate::attrs::{Attrs, HIGHPRI, Kind};
use crate::error::AttrsError;
use crate::system_inner::SystemInner;
use crate::workqueue::{MAX_ACTIVE_LIMIT, checked_max_active};
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::Arc;
use inflight_topology::CpuSet;
use std::time::Duration;

/// Does what is asked.
pub(super) fn answer(system: &SystemInner, request: &Request) -> Reply {
    match request {
        Request::Dump => Reply::Dump {
            text: system.dump(),
        },
        Request::Stats => Reply::Stats {
            queues: system.queues().iter().map(counters).collect(),
        },
        Request::Files => Reply::Files {
            queues: {
                let queues = system.queues();
                queues.iter().map(|queue| files(system, queue)).collect()
            },
        },
        Request::Set { queue, file, value } => done(set(system, queue, file, value)),
        Request::SystemFiles => Reply::SystemFiles {
            files: system_files(system),
        },
        Request::SetSystem { file, value } => done(set_system(system, file, value)),
        Request::Trace => {
            let steps = system.shared().tracing.take_recorded().into_iter();
            Reply::Trace {
                steps: steps.map(TraceLine::from).collect(),
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

fn counters(queue: &Arc<WorkqueueInner>) -> QueueCounters {
    let stats = queue.stats();
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    QueueCounters {
        name: queue.name().to_owned(),
        unbound: !queue.mode().is_bound(),
        mem_reclaim: queue.rescuer().is_some(),
        max_active: queue.limit(),
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
        sent: stats.remote_wakeups,
        taken: stats.stolen,
        mayday: stats.maydays,
        rescued: stats.rescued,
    }
}

fn files(system: &SystemInner, queue: &Arc<WorkqueueInner>) -> QueueFiles {
    let mut files = Vec::new();
    let mut file = |name: &str, value: String, writable| {
        files.push(ControlFile {
            name: name.to_owned(),
            value,
            writable,
        });
    };
    let bound = queue.mode().is_bound();
    file("per_cpu", u8::from(bound).to_string(), false);
    if let Some(limit) = queue.limit() {
        let ordered = matches!(queue.kind(), Kind::Ordered(_));
        file("max_active", limit.to_string(), !ordered);
    }
    if let Some(min) = queue.min_active() {
        file("min_active", min.to_string(), true);
    }
    if let Kind::Unbound(attrs) | Kind::Ordered(attrs) = queue.kind() {
        let nice = if queue.is_highpri() {
            HIGHPRI
        } else {
            attrs.get_nice()
        };
        file("nice", nice.to_string(), !queue.is_highpri());
        let asked = attrs.get_cpumask();
        let cpus = if asked.is_empty() {
            queue.shared().topology.possible()
        } else {
            asked
        };
        file("cpumask", cpus.to_mask_string(), true);
        let scope = match attrs.get_scope() {
            Some(scope) => scope.to_string(),
            None => format!("default ({})", system.settings().default_scope),
        };
        file("affinity_scope", scope, true);
        let strict = u8::from(attrs.is_strict());
        file("affinity_strict", strict.to_string(), true);
    }
    QueueFiles {
        name: queue.name().to_owned(),
        files,
    }
}

fn set(system: &SystemInner, name: &str, file: &str, value: &str) -> Result<(), String> {
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
        // 0 means the default to a program. Who writes it here means none.
        let number = value.parse().ok().filter(|&number| number > 0);
        let number = number.ok_or_else(|| {
            format!("{file} is a number from 1 to {MAX_ACTIVE_LIMIT}, not {value:?}")
        })?;
        let limit = checked_max_active(queue.mode(), number).map_err(|e| e.to_string())?;
        queue.set_max_active(limit);
        return Ok(());
    }
    if file == "min_active" {
        let number = value.parse();
        let number = number
            .map_err(|_| format!("{file} is a number from 1 to max_active, not {value:?}"))?;
        return queue.set_min_active(number).map_err(|e| e.to_string());
    }
    let change = |attrs| changed(attrs, file, value).map_err(Refusal);
    let done = system.change_attrs(&queue, change);
    done.map_err(|Refusal(why)| why)
}

/// What holds for all queues.
fn system_files(system: &SystemInner) -> Vec<ControlFile> {
    let (settings, shared) = (system.settings(), system.shared());
    let file = |name: &str, value: String| ControlFile {
        name: name.to_owned(),
        value,
        writable: true,
    };
    let mut files = vec![
        file("cpumask", settings.unbound_cpus().to_mask_string()),
        file("default_affinity_scope", settings.default_scope.to_string()),
        file("trace", u8::from(shared.tracing.is_recording()).to_string()),
    ];
    if shared.watchdog.tells_somebody() {
        let threshold = shared.watchdog.threshold().unwrap_or_default();
        files.push(file(
            "watchdog_thresh_ms",
            threshold.as_millis().to_string(),
        ));
    }
    files
}

fn set_system(system: &SystemInner, file: &str, value: &str) -> Result<(), String> {
    let known = system_files(system);
    if known.iter().all(|known| known.name != file) {
        let names: Vec<_> = known.iter().map(|known| known.name.as_str()).collect();
        let names = names.join(", ");
        return Err(format!("the system has no file {file:?}; it has {names}"));
    }
    let value = value.trim();
    match file {
        "cpumask" => {
            let cpus = mask(file, value)?;
            let done = system.set_unbound_cpumask(&cpus);
            done.map_err(|e| e.to_string())
        }
        "default_affinity_scope" => {
            let known = "cpu, smt, cache_shard, cache, numa or system";
            let scope = value.parse().map_err(|_| wrong(file, known, value))?;
            let done = system.reconfigure(|settings| {
                settings.default_scope = scope;
                Ok(())
            });
            done.map_err(|e| e.to_string())
        }
        "trace" => {
            let on: u8 = value.parse().map_err(|_| wrong(file, "0 or 1", value))?;
            system.shared().tracing.record(on != 0);
            Ok(())
        }
        _ => {
            let what = "a number of ms, 0 for never";
            let ms = value.parse().map_err(|_| wrong(file, what, value))?;
            let threshold = Duration::from_millis(ms);
            system.shared().watchdog.set_threshold(threshold);
            Ok(())
        }
    }
}

fn wrong(file: &str, what: &str, value: &str) -> String {
    format!("{file} is {what}, not {value:?}")
}

fn mask(file: &str, value: &str) -> Result<CpuSet, String> {
    let what = "a mask in hexadecimal without 0x (f is CPUs 0 to 3)";
    CpuSet::from_mask_str(value).map_err(|_| wrong(file, what, value))
}

/// Why attributes are not written.
struct Refusal(String);

impl From<AttrsError> for Refusal {
    fn from(e: AttrsError) -> Self {
        Self(e.to_string())
    }
}

/// The attributes with one of them written.
fn changed(attrs: Attrs, file: &str, value: &str) -> Result<Attrs, String> {
    let wrong = |what: &str| wrong(file, what, value);
    match file {
        "nice" => {
            let nice = value
                .parse()
                .map_err(|_| wrong("a number from -20 to 19"))?;
            Ok(attrs.nice(nice))
        }
        "cpumask" => Ok(attrs.cpumask(mask(file, value)?)),
        "affinity_scope" if value == "default" => Ok(attrs.default_scope()),
        "affinity_scope" => {
            let known = "default, cpu, smt, cache_shard, cache, numa or system";
            Ok(attrs.scope(value.parse().map_err(|_| wrong(known))?))
        }
        _ => {
            let strict: i64 = value.parse().map_err(|_| wrong("0 or 1"))?;
            Ok(attrs.strict(strict != 0))
        }
    }
}

/// The only queue of that name.
fn only(system: &SystemInner, name: &str) -> Result<Arc<WorkqueueInner>, String> {
    let mut queues = system.queues();
    queues.retain(|queue| queue.name() == name);
    match (queues.pop(), queues.len()) {
        (Some(queue), 0) => Ok(queue),
        (Some(_), others) => Err(format!(
            "{} queues have the name {name:?}: none can be written by it",
            others + 1
        )),
        (None, _) => Err(format!("no queue has the name {name:?}")),
    }
}
