//! What the server reads and writes of queues: counters, and the kernel's control files as far as
//! they exist here.

use super::wire::{ControlFile, QueueCounters, QueueFiles, Reply, Request};
use crate::attrs::Kind;
use crate::door::Shared;
use crate::queue::checked_max_active;
use crate::system;
use inflight_sync::Arc;

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
            queues: system.queues().iter().map(files).collect(),
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
        unbound: queue.kind() != Kind::Bound,
        mem_reclaim: queue.rescuer().is_some(),
        max_active: queue.level().1,
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
        repatriated: 0,
        mayday: stats.maydays,
        rescued: stats.rescued,
    }
}

fn files(queue: &Arc<Shared>) -> QueueFiles {
    let mut files = Vec::new();
    let mut file = |name: &str, value: String, writable| {
        files.push(ControlFile {
            name: name.to_owned(),
            value,
            writable,
        });
    };
    let bound = queue.kind() == Kind::Bound;
    file("per_cpu", u8::from(bound).to_string(), false);
    let ordered = matches!(queue.kind(), Kind::Ordered(_));
    file("max_active", queue.level().1.to_string(), !ordered);
    if let Kind::Unbound(attrs) | Kind::Ordered(attrs) = queue.kind() {
        let nice = if queue.is_highpri() { -20 } else { 0 };
        file("nice", nice.to_string(), false);
        file("cpumask", queue.topology().cpus().to_mask_string(), false);
        file("affinity_scope", attrs.get_scope().to_string(), false);
        let strict = u8::from(attrs.is_strict());
        file("affinity_strict", strict.to_string(), false);
    }
    QueueFiles {
        name: queue.name().to_owned(),
        files,
    }
}

fn set(system: &system::Shared, name: &str, file: &str, value: &str) -> Result<(), String> {
    let queue = only(system, name)?;
    let known = files(&queue).files;
    let Some(found) = known.iter().find(|known| known.name == file) else {
        let names: Vec<_> = known.iter().map(|known| known.name.as_str()).collect();
        let names = names.join(", ");
        return Err(format!("{name} has no file {file:?}; it has {names}"));
    };
    if !found.writable {
        return Err(format!("{file} of {name} can only be read"));
    }
    // What can be written is the limit.
    let number = value.trim().parse();
    let number = number.map_err(|_| format!("{file} is a number from 1 on, not {value:?}"))?;
    let limit = checked_max_active(queue.kind(), number).map_err(|e| e.to_string())?;
    queue.set_max_active(limit);
    Ok(())
}

/// The only queue of that name.
fn only(system: &system::Shared, name: &str) -> Result<Arc<Shared>, String> {
    let mut queues = system.queues();
    queues.retain(|queue| queue.name() == name);
    match (queues.pop(), queues.len()) {
        (Some(queue), 0) => Ok(queue),
        (Some(_), others) => Err(format!("{} queues have the name {name:?}", others + 1)),
        (None, _) => Err(format!("no queue has the name {name:?}")),
    }
}
