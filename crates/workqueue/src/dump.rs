//! A system as text, in the layout of the kernel's `wq_dump` tool, and its present state.

use crate::attrs::{Kind, Mode};
use crate::pool_attrs::{PoolAttrs, Settings};
use crate::stats::WorkqueueStats;
use crate::system_inner::SystemInner;
use crate::system_shared::SystemShared;
use crate::worker_pool::{PoolReport, WorkerPool};
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::{Arc, Printed};
use inflight_topology::{CpuSet, Scope};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

struct Dump<'a> {
    system: &'a SystemShared,
    settings: Settings,
    pools: Vec<(Arc<WorkerPool>, PoolReport)>,
    queues: Vec<(Arc<WorkqueueInner>, WorkqueueStats)>,
}

impl SystemInner {
    pub(crate) fn dump(&self) -> String {
        let (pools, queues) = (self.pools().into_iter(), self.queues().into_iter());
        let dump = Dump {
            system: &self.shared,
            settings: self.settings(),
            pools: pools.map(|p| (p.clone(), p.report())).collect(),
            queues: queues.map(|q| (q.clone(), q.stats())).collect(),
        };
        let mut out = String::new();
        dump.write(&mut out)
            .expect("writing to a string cannot fail");
        out
    }
}

const NAME: usize = 32;

/// In the order of the kernel's tool.
const SCOPES: [Scope; 6] = [
    Scope::Cpu,
    Scope::Smt,
    Scope::Cache,
    Scope::CacheShard,
    Scope::Numa,
    Scope::System,
];

fn title(out: &mut String, title: &str) -> fmt::Result {
    let line = "=".repeat(title.len());
    let between = if out.is_empty() { "" } else { "\n" };
    writeln!(out, "{between}{title}\n{line}")
}

fn pairs(
    out: &mut String,
    title: &str,
    mut pairs: impl Iterator<Item = (usize, impl fmt::Display)>,
) -> fmt::Result {
    write!(out, "\n  {title}")?;
    pairs.try_for_each(|(key, value)| write!(out, " [{key}]={value}"))
}

fn width(texts: impl Iterator<Item = String>) -> usize {
    texts.map(|text| text.len()).max().unwrap_or(1)
}

fn header(out: &mut String, columns: &str) -> fmt::Result {
    let name = NAME - 2;
    writeln!(out, "[{:^name$}\\ {columns}]", "workqueue")
}

impl Dump<'_> {
    fn write(&self, out: &mut String) -> fmt::Result {
        self.scopes(out)?;
        self.pools(out)?;
        self.routes(out)?;
        self.rescuers(out)?;
        self.limits(out)?;
        self.state(out)
    }

    fn scopes(&self, out: &mut String) -> fmt::Result {
        title(out, "Affinity Scopes")?;
        let all = self.settings.unbound_cpus().to_mask_string();
        writeln!(out, "wq_unbound_cpumask={all}")?;
        for scope in SCOPES {
            let is_default = scope == self.settings.default_scope;
            let name = scope.to_string().to_uppercase();
            let default = if is_default { " (default)" } else { "" };
            let pods = self.settings.topology.pods(scope);
            write!(out, "\n{name}{default}\n  nr_pods  {}", pods.len())?;
            let cpus = pods.iter().map(|pod| pod.cpus().to_mask_string());
            pairs(out, "pod_cpus", cpus.enumerate())?;
            let text = |node: Option<usize>| node.map_or("-1".to_owned(), |node| node.to_string());
            let nodes = pods.iter().map(|pod| text(pod.node()));
            pairs(out, "pod_node", nodes.enumerate())?;
            let pod_of = |cpu| Some((cpu, pods.iter().position(|pod| pod.cpus().contains(cpu))?));
            let of_cpus = self.settings.topology.cpus().iter().filter_map(pod_of);
            pairs(out, "cpu_pod ", of_cpus)?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn pools(&self, out: &mut String) -> fmt::Result {
        title(out, "Worker Pools")?;
        let ids = width(self.pools.iter().map(|(pool, _)| pool.id.to_string()));
        let refs = width(self.pools.iter().map(|(_, r)| r.users.to_string()));
        for (pool, report) in &self.pools {
            let (id, users) = (pool.id, report.users);
            write!(
                out,
                "pool[{id:0ids$}] flags=0x{:02x} ref={users:refs$} nice={:3} \
                 idle/workers={:3}/{:3} ",
                flags(pool.attrs.bh, report.creating),
                pool.attrs.nice,
                report.idle,
                report.workers,
            )?;
            let attrs = &pool.attrs;
            if let Some(cpu) = attrs.cpu {
                let bh = if attrs.bh { " bh" } else { "" };
                writeln!(out, "cpu={cpu:3}{bh}")?;
            } else {
                let strict = if attrs.strict { " strict" } else { "" };
                let (allowed, pod) = (&attrs.allowed, &attrs.cpus);
                let (allowed, pod) = (allowed.to_mask_string(), pod.to_mask_string());
                writeln!(out, "cpus={allowed} pod_cpus={pod}{strict}")?;
            }
        }
        Ok(())
    }

    fn pool_with(&self, attrs: &PoolAttrs) -> String {
        let pool = self.pools.iter().find(|(pool, _)| pool.attrs == *attrs);
        pool.map_or_else(|| "-".to_owned(), |(pool, _)| pool.id.to_string())
    }

    fn routes(&self, out: &mut String) -> fmt::Result {
        title(out, "Workqueue CPU -> pool")?;
        let cpus = self.settings.topology.possible();
        let ids = self.pools.iter().map(|(pool, _)| pool.id.to_string());
        let w = width(ids.chain(cpus.last().map(|cpu| cpu.to_string())));
        let mut columns = "type   CPU".to_owned();
        for cpu in cpus {
            write!(columns, " {cpu:w$}")?;
        }
        header(out, &(columns + " dfl"))?;
        for (queue, _) in &self.queues {
            let kind = type_of(&queue.kind());
            write!(out, "{:NAME$} {kind:10}", queue.name)?;
            for cpu in cpus {
                let attrs = queue.pool_attrs_of(cpu);
                write!(out, " {:>w$}", self.pool_with(&attrs))?;
            }
            if !queue.mode.is_bound() {
                // The pool for CPUs outside the queue's mask, if it exists.
                let attrs = queue.default_pool_attrs(&self.settings);
                write!(out, " {:>w$}", self.pool_with(&attrs))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn rescuers(&self, out: &mut String) -> fmt::Result {
        title(out, "Workqueue -> rescuer")?;
        let all = self.settings.topology.cpus().to_mask_string();
        let w = all.len().max("unbound_cpus".len());
        let columns = format!("{:w$} {:>6} rescuer_cpus", "unbound_cpus", "pid");
        header(out, &columns)?;
        for (queue, _) in &self.queues {
            let Some(rescuer) = queue.rescuer.as_ref() else {
                continue;
            };
            let unbound = if queue.mode == Mode::Bound {
                String::new()
            } else {
                self.settings.effective(&queue.attrs()).to_mask_string()
            };
            let thread = rescuer
                .inbox
                .thread
                .number()
                .map_or("-".to_owned(), |id| id.to_string());
            let cpus = self.settings.unbound_cpus().to_mask_string();
            writeln!(out, "{:NAME$} {unbound:w$} {thread:>6} {cpus}", queue.name)?;
        }
        Ok(())
    }

    fn limits(&self, out: &mut String) -> fmt::Result {
        title(out, "Unbound workqueue -> node_nr/max_active")?;
        let online = self.settings.topology.online().to_mask_string();
        writeln!(out, "online_cpus={online}")?;
        for &node in self.settings.topology.nodes() {
            let cpus = self.settings.topology.cpus().iter();
            let cpus: CpuSet = cpus
                .filter(|cpu| self.settings.topology.node_of(*cpu) == Some(node))
                .collect();
            writeln!(out, "NODE[{node:02}]={}", cpus.to_mask_string())?;
        }
        let mut columns = " min  max".to_owned();
        for node in self.settings.topology.nodes() {
            write!(columns, " {:>9}", format!("NODE {node}"))?;
        }
        writeln!(out)?;
        header(out, &format!("{columns} {:>9}", "dfl"))?;
        for (queue, stats) in self.queues.iter().filter(|(q, _)| !q.mode.is_bound()) {
            // By node: the machine's may be others than when the queue was made. What still runs
            // for a node that has gone is in no column.
            let levels: BTreeMap<_, _> = queue.levels().into_iter().collect();
            let (active, max) = (stats.active, queue.max_active());
            let min = queue.min_active();
            let min = min.map_or("-".to_owned(), |min| min.to_string());
            write!(out, "{:NAME$} {min:>4} {max:4}", queue.name)?;
            let pair = |(active, max): &(usize, usize)| format!("{active}/{max}");
            for &node in self.settings.topology.nodes() {
                let node = levels.get(&Some(node)).map_or("-".to_owned(), pair);
                write!(out, " {node:>9}")?;
            }
            let nodeless = levels.get(&None).copied();
            writeln!(out, " {:>9}", pair(&nodeless.unwrap_or((active, max))))?;
        }
        Ok(())
    }

    fn state(&self, out: &mut String) -> fmt::Result {
        title(out, "State")?;
        for (pool, report) in &self.pools {
            describe_pool(out, pool, report)?;
        }
        if let Some(why) = *self.system.nice_refused.lock() {
            writeln!(out, "high priority refused: {why}")?;
        }
        for (queue, stats) in &self.queues {
            describe_queue(out, queue, stats)?;
        }
        let (looked_at, stalls) = self.system.watchdog.stalls();
        let now = self.system.clock.now();
        for stall in stalls {
            writeln!(out, "stall {:?} ago: {stall}", now - looked_at)?;
        }
        for hog in self.system.hogs.all() {
            writeln!(out, "hog {hog}")?;
        }
        let others = self.system.hogs.others();
        if others > 0 {
            writeln!(out, "hog others, found {others} times")?;
        }
        Ok(())
    }
}

/// The kernel's bits that have a meaning here: 1 for BH items; 2 if a worker is being created.
fn flags(bh: bool, creating: bool) -> u8 {
    u8::from(bh) | u8::from(creating) << 1
}

/// The kernel's word, with `S` for strict as in the kernel, and with `U` for unmanaged.
fn type_of(kind: &Kind) -> String {
    let (word, strict) = match kind {
        Kind::Bound => ("percpu", false),
        Kind::Bh => ("bh", false),
        Kind::Unbound(attrs) => ("unbound", attrs.is_strict()),
        Kind::Ordered(_) => ("ordered", false),
    };
    let flags = match (strict, kind.attrs().is_unmanaged()) {
        (false, false) => "",
        (true, false) => ",S",
        (false, true) => ",U",
        (true, true) => ",SU",
    };
    format!("{word}{flags}")
}

fn describe_pool(out: &mut String, pool: &WorkerPool, r: &PoolReport) -> fmt::Result {
    let attrs = &pool.attrs;
    match attrs.cpu {
        Some(_) => write!(out, "pool {}", attrs.name(pool.id))?,
        None => {
            let strict = if attrs.strict { " strict" } else { "" };
            write!(out, "pool u{} cpus {}{strict}", pool.id, attrs.cpus)?;
            match attrs.nice {
                0 => {}
                _ if attrs.is_high() => write!(out, " highpri")?,
                nice => write!(out, " nice {nice}")?,
            }
        }
    }
    write!(
        out,
        ": {} workers ({} running of {}, {} blocked, {} idle), {} ready",
        r.workers, r.running, r.target, r.blocked, r.idle, r.ready
    )?;
    let mut busy = pool.busy_workers().into_iter();
    busy.try_for_each(|busy| write!(out, "\n  {busy}"))?;
    writeln!(out)
}

fn describe_queue(out: &mut String, queue: &WorkqueueInner, s: &WorkqueueStats) -> fmt::Result {
    write!(out, "queue {} {}", queue.name, queue.kind())?;
    if queue.flags.highpri {
        write!(out, " highpri")?;
    }
    if queue.is_frozen() {
        write!(out, " frozen")?;
    }
    writeln!(
        out,
        ": {} active, {} inactive; {} queued, {} started, {} completed, {} panicked, {} cancelled; \
         {} cm wakeups, {} found asleep, {} intensive, {} maydays, {} rescued, \
         {} remote wakeups, {} stolen, {} repatriated",
        s.active,
        s.inactive,
        s.queued,
        s.started,
        s.completed,
        s.panicked,
        s.cancelled,
        s.cm_wakeups,
        s.found_asleep,
        s.cpu_intensive,
        s.maydays,
        s.rescued,
        s.remote_wakeups,
        s.stolen,
        s.repatriated
    )?;
    match queue.last_panic() {
        Some((item, message)) => {
            write!(out, "  last panic: {}", Printed(&item))?;
            if let Some(message) = message {
                write!(out, ": {message:?}")?;
            }
            writeln!(out)
        }
        None => Ok(()),
    }
}
