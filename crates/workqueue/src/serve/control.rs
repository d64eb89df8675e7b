//! What the server reads and writes of queues: counters, and the kernel's control files as far as
//! they exist here.

use super::wire::{ControlFile, QueueCounters, QueueFiles, Reply, Request};
use crate::attrs::{Attrs, HIGHPRI, Kind};
use crate::door::Shared;
use crate::error::AttrsError;
use crate::queue::{MAX_ACTIVE_LIMIT, checked_max_active};
use crate::system;
use inflight_sync::Arc;
use inflight_topology::CpuSet;

/// Does what is asked.
pub(super) fn answer(system: &system::Shared, request: &Request) -> Reply {
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
        Request::Set { queue, file, value } => match set(system, queue, file, value) {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Error { error },
        },
    }
}

fn counters(queue: &Arc<Shared>) -> QueueCounters {
    let stats = queue.stats();
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    QueueCounters {
        name: queue.name().to_owned(),
        unbound: !queue.mode().is_bound(),
        mem_reclaim: queue.rescuer().is_some(),
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
        sent: stats.sent,
        taken: stats.taken,
        mayday: stats.maydays,
        rescued: stats.rescued,
    }
}

fn files(system: &system::Shared, queue: &Arc<Shared>) -> QueueFiles {
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
    if let Some(limit) = queue.max_active() {
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
            queue.env().topology.possible()
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

fn set(system: &system::Shared, name: &str, file: &str, value: &str) -> Result<(), String> {
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
        let number = value.parse();
        let number = number.map_err(|_| {
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

/// Why attributes are not written.
struct Refusal(String);

impl From<AttrsError> for Refusal {
    fn from(e: AttrsError) -> Self {
        Self(e.to_string())
    }
}

/// The attributes with one of them written.
fn changed(attrs: Attrs, file: &str, value: &str) -> Result<Attrs, String> {
    let wrong = |what: &str| format!("{file} is {what}, not {value:?}");
    match file {
        "nice" => {
            let nice = value
                .parse()
                .map_err(|_| wrong("a number from -20 to 19"))?;
            Ok(attrs.nice(nice))
        }
        "cpumask" => {
            let cpus = CpuSet::from_mask_str(value);
            let mask = "a mask in hexadecimal without 0x (f is CPUs 0 to 3)";
            Ok(attrs.cpumask(cpus.map_err(|_| wrong(mask))?))
        }
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
fn only(system: &system::Shared, name: &str) -> Result<Arc<Shared>, String> {
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
