//! A system as text, in the layout of the kernel's `wq_dump` tool, and its present state.

use crate::attrs::{Kind, Mode};
use crate::pool_attrs::{PoolAttrs, Settings};
use crate::stats::{COUNTERS, WorkqueueStats};
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
        let written = dump.write(&mut out);
        written.expect("writing to a string cannot fail");
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

fn or_dash(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
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
            let (id, attrs, users) = (pool.id, &pool.attrs, report.users);
            // The kernel's bits that have a meaning here: a BH pool, a worker being created.
            let flags = u8::from(attrs.bh) | u8::from(report.creating) << 1;
            write!(out, "pool[{id:0ids$}] flags=0x{flags:02x} ")?;
            write!(out, "ref={users:refs$} nice={:3} ", attrs.nice)?;
            let (idle, workers) = (report.idle, report.workers);
            write!(out, "idle/workers={idle:3}/{workers:3} ")?;
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
        or_dash(pool.map(|(pool, _)| pool.id))
    }

    fn routes(&self, out: &mut String) -> fmt::Result {
        title(out, "Workqueue CPU -> pool")?;
        let cpus = self.settings.topology.possible();
        let ids = self.pools.iter().map(|(pool, _)| pool.id.to_string());
        let w = width(ids.chain(cpus.last().map(|cpu| cpu.to_string())));
        let columns: String = cpus.iter().map(|cpu| format!(" {cpu:w$}")).collect();
        header(out, &format!("type   CPU{columns} dfl"))?;
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
            let thread = or_dash(rescuer.inbox.thread.number());
            let cpus = self.settings.unbound_cpus().to_mask_string();
            writeln!(out, "{:NAME$} {unbound:w$} {thread:>6} {cpus}", queue.name)?;
        }
        Ok(())
    }

    fn limits(&self, out: &mut String) -> fmt::Result {
        title(out, "Unbound workqueue -> node_nr/max_active")?;
        let topology = &self.settings.topology;
        writeln!(out, "online_cpus={}", topology.online().to_mask_string())?;
        for &node in topology.nodes() {
            let on_it = |cpu: &usize| topology.node_of(*cpu) == Some(node);
            let cpus: CpuSet = topology.cpus().iter().filter(on_it).collect();
            writeln!(out, "NODE[{node:02}]={}", cpus.to_mask_string())?;
        }
        let columns = topology.nodes().iter().map(|node| format!("NODE {node}"));
        let columns = columns.chain(["dfl".to_owned()]);
        let columns: String = columns.map(|column| format!(" {column:>9}")).collect();
        writeln!(out)?;
        header(out, &format!(" min  max{columns}"))?;
        for (queue, stats) in self.queues.iter().filter(|(q, _)| !q.mode.is_bound()) {
            // By node: the machine's may be others than when the queue was made. What still runs
            // for a node that has gone is in no column.
            let levels: BTreeMap<_, _> = queue.levels().into_iter().collect();
            let (active, max) = (stats.active, queue.max_active());
            let min = or_dash(queue.min_active());
            write!(out, "{:NAME$} {min:>4} {max:4}", queue.name)?;
            let pair = |(active, max): &(usize, usize)| format!("{active}/{max}");
            for &node in topology.nodes() {
                write!(out, " {:>9}", or_dash(levels.get(&Some(node)).map(pair)))?;
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
    let counts = COUNTERS.map(|(name, _, read)| format!("{} {}", read(s), name.replace('_', " ")));
    let (active, inactive, counts) = (s.active, s.inactive, counts.join(", "));
    writeln!(out, ": {active} active, {inactive} inactive; {counts}")?;
    if let Some((item, message)) = &*queue.last_panic.lock() {
        let message = message.as_ref().map(|text| format!(": {text:?}"));
        let message = message.unwrap_or_default();
        writeln!(out, "  last panic: {}{message}", Printed(item))?;
    }
    Ok(())
}
