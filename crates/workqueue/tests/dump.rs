//! The dump, whole: the layout of `wq_dump`, and what goes on.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_topology::{Refresh, Scope, Topology};
use inflight_workqueue::{Attrs, Concurrency, Share, WorkqueueSystem};
use support::{Level, plug};

/// All but what differs from run to run: numbers of threads, their stacks, times, and whether the
/// user may raise priorities.
fn without_threads(dump: &str) -> String {
    let differs = ["    [<0>]", "high priority refused: "];
    let lines = dump
        .lines()
        .filter(|line| !differs.iter().any(|d| line.starts_with(d)));
    let lines = lines.map(|line| {
        if let Some((thread, runs)) = line.split_once(" runs ") {
            let name = thread.split_once(" (").map_or(thread, |(name, _)| name);
            let item = runs.split_once(" for ").map_or(runs, |(item, _)| item);
            return format!("{name} (TID) runs {item}");
        }
        // The rescuer's line: name, mask, number, mask.
        let thread = line
            .split_whitespace()
            .nth(2)
            .filter(|_| line.starts_with("kcryptd "));
        match thread.and_then(|text| text.parse::<u32>().ok()) {
            Some(thread) => line.replace(&format!("{thread:>6}"), "   TID"),
            None => line.to_owned(),
        }
    });
    lines.map(|line| line + "\n").collect()
}

/// D5: every section, title, column and width.
#[test]
fn d5_the_dump_has_the_layout_of_wq_dump() {
    let topology = Topology::synthetic("numa:2 core:2").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    let sys = builder.sampling(false).build().unwrap();
    let irq = sys.workqueue("complete").bound().highpri();
    let irq = irq.build().unwrap();
    let slow = sys.workqueue("slow").bound().max_active(1).build().unwrap();
    let crypt = Attrs::new().scope(Scope::Numa).strict(true);
    let crypt = sys.workqueue("kcryptd").unbound(crypt).mem_reclaim();
    let crypt = crypt.max_active(64).build().unwrap();
    let log = sys.workqueue("journal").ordered().build().unwrap();
    irq.spawn_on(2, || ()).wait().unwrap();
    crypt.spawn_on(3, || panic!("no key")).wait().unwrap_err();
    log.spawn_on(0, || ()).wait().unwrap();
    let open = plug(&slow);
    let waits = slow.spawn_on(0, || ());
    for queue in [&irq, &crypt, &log] {
        queue.flush_blocking().unwrap();
    }
    // Each worker goes idle a moment after its item has ended, and each rescuer begins to sleep.
    let settled = |dump: &str| dump.matches("idle/workers=  1/  1").count() == 3;
    let mut dump = sys.dump();
    while !settled(&dump) || dump.contains("      - 0000000f") {
        inflight_sync::thread::yield_now();
        dump = sys.dump();
    }
    open.raise();
    waits.wait().unwrap();
    let dump = without_threads(&dump);
    let golden = include_str!("golden/dump.txt");
    assert_eq!(dump, golden, "{dump}");
}

/// Masks above 32 CPUs have groups with commas, and columns are as wide as the largest number.
#[test]
fn d5_big_machines() {
    let topology = Topology::synthetic("numa:2 cache:2 core:16 smt:2").unwrap();
    let sys = WorkqueueSystem::builder()
        .topology(topology)
        .build()
        .unwrap();
    let wq = sys
        .workqueue("wide")
        .unbound(Attrs::new().scope(inflight_topology::Scope::Cache))
        .build()
        .unwrap();
    wq.spawn_on(127, || ()).wait().unwrap();
    let dump = sys.dump();
    let all = "ffffffff,ffffffff,ffffffff,ffffffff";
    assert!(
        dump.contains(&format!("wq_unbound_cpumask={all}\n")),
        "{dump}"
    );
    assert!(
        dump.contains(&format!(
            "cpus={all} pod_cpus=ffff0000,00000000,ffff0000,00000000\n"
        )),
        "{dump}"
    );
    let mut lines = dump.lines();
    let header = lines.find(|line| line.contains("type   CPU")).unwrap();
    assert!(header.contains(" CPU   0   1   2 "), "{header}");
    assert!(header.ends_with(" 126 127 dfl]"), "{header}");
    let row = lines.next().unwrap();
    assert!(
        row.starts_with("wide                             unbound      0   0"),
        "{row}"
    );
    assert!(row.ends_with("   3   3   -"), "{row}");
    assert_eq!(row.len(), header.len() - "]".len());
}

/// What the kernel's tool does not have to tell: there every unbound queue is unmanaged.
#[test]
fn the_type_tells_who_is_unmanaged() {
    let sys = support::system();
    let plain = Attrs::new().concurrency(Concurrency::Unmanaged);
    let queues = [
        sys.workqueue("plain").unbound(plain.clone()),
        sys.workqueue("narrow").unbound(plain.clone().strict(true)),
        sys.workqueue("journal").ordered_with(plain),
    ];
    let _queues = queues.map(|queue| queue.build().unwrap());
    let dump = sys.dump();
    for (name, kind) in [
        ("plain", "unbound,U"),
        ("narrow", "unbound,SU"),
        ("journal", "ordered,U"),
    ] {
        assert!(dump.contains(&format!("{name:32} {kind:10} ")), "{dump}");
    }
}

/// D7: whose items a pool runs.
#[test]
fn d7_a_pool_tells_whose_items_it_runs() {
    let topology = Topology::synthetic("core:4").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    let sys = builder.sampling(false).build().unwrap();
    let (a, b) = (sys.workqueue("crypt"), sys.workqueue("log"));
    let (a, b) = (a.unbound(Attrs::new()), b.unbound(Attrs::new()));
    let (a, b) = (a.build().unwrap(), b.build().unwrap());
    let (begun, open) = (Level::new(), Level::new());
    for queue in [&b, &a, &b] {
        let (begun, open) = (begun.clone(), open.clone());
        drop(queue.spawn(move || {
            begun.raise();
            open.wait(1);
        }));
    }
    begun.wait(3);
    let dump = sys.dump();
    open.raise();
    let runs = |queue| dump.matches(&format!(" runs {queue}: ")).count();
    assert_eq!((runs("crypt"), runs("log")), (1, 2), "{dump}");
    a.flush_blocking().unwrap();
    b.flush_blocking().unwrap();
}

/// What no worker has looked at yet waits for one like all else that is ready.
#[test]
fn items_nobody_has_looked_at_are_ready() {
    let topology = Topology::synthetic("core:1").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    let sys = builder.sampling(false).build().unwrap();
    let jobs = sys.workqueue("jobs").bound().build().unwrap();
    let open = plug(&jobs);
    let wait = [jobs.spawn(|| ()), jobs.spawn(|| ())];
    let dump = sys.dump();
    open.raise();
    wait.into_iter().for_each(|item| item.wait().unwrap());
    assert!(dump.contains(", 2 ready"), "{dump}");
}

/// A limit that is split among nodes is shown by node, also if the first node has gone.
#[test]
fn d5_the_limit_of_a_node_stands_under_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let both = Topology::synthetic("numa:2 core:3").unwrap();
    both.write_sysfs(folder.path()).unwrap();
    let both = Topology::from_sysfs(folder.path()).unwrap();
    let builder = WorkqueueSystem::builder().topology(&both);
    let sys = builder.build().unwrap();
    let queue = sys.workqueue("q").unbound(Attrs::new().scope(Scope::Numa));
    let queue = queue.max_active(10).min_active(1).share(Share::PerNode);
    let queue = queue.build().unwrap();
    let online = folder.path().join("sys/devices/system/cpu/online");
    std::fs::write(online, "3-5\n").unwrap();
    let Refresh::Changed(second) = both.refresh().unwrap() else {
        panic!("a node has gone");
    };
    sys.refresh(&second).unwrap();
    let (begun, open) = (Level::new(), Level::new());
    let item = queue.spawn_on(3, {
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            begun.raise();
            open.wait(1);
        }
    });
    begun.wait(1);
    let dump = sys.dump();
    open.raise();
    item.wait().unwrap();
    let row: Vec<_> = dump
        .lines()
        .find(|line| line.starts_with("q  ") && line.contains('/'))
        .unwrap_or_else(|| panic!("{dump}"))
        .split_whitespace()
        .collect();
    assert_eq!(row[..4], ["q", "1", "10", "1/10"], "{dump}");
}
