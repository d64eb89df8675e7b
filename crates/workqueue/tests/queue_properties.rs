//! Queues of each kind on real threads, over random items and changes of the limit.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread;
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, Workqueue, WorkqueueSystem, blocking};
use proptest::prelude::*;
use support::{Inside, Log, system};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// An item on this CPU, which blocks so often.
    Item(usize, usize),
    Limit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4usize, 0..3usize).prop_map(|(cpu, blocks)| Step::Item(cpu, blocks)),
        1 => (1..6usize).prop_map(Step::Limit),
    ]
}

/// What was seen of a queue's items.
struct Seen {
    /// CPU and number of each item, as they started.
    starts: Log<(usize, usize)>,
    all: Inside,
    by_cpu: [Inside; 4],
    /// The highest limit there has been.
    limit: usize,
    items: usize,
}

fn drive(wq: &Workqueue, limit: usize, steps: &[Step]) -> Seen {
    let mut seen = Seen {
        starts: Log::new(),
        all: Inside::new(),
        by_cpu: std::array::from_fn(|_| Inside::new()),
        limit,
        items: 0,
    };
    for step in steps {
        match *step {
            Step::Item(cpu, blocks) => {
                let (starts, n) = (seen.starts.clone(), seen.items);
                let (all, own) = (seen.all.clone(), seen.by_cpu[cpu].clone());
                seen.items += 1;
                drop(wq.spawn_on(cpu, move || {
                    starts.push((cpu, n));
                    all.enter();
                    own.enter();
                    (0..blocks).for_each(|_| blocking(thread::yield_now));
                    own.leave();
                    all.leave();
                }));
            }
            Step::Limit(limit) => {
                if wq.set_max_active(limit).is_ok() {
                    seen.limit = seen.limit.max(limit);
                }
            }
        }
    }
    wq.flush_blocking().unwrap();
    let stats = wq.stats();
    assert_eq!(
        (stats.active, stats.inactive),
        (0, 0),
        "nothing is left behind"
    );
    assert_eq!(stats.completed, seen.items as u64, "each item ran once");
    seen
}

fn limited(sys: &WorkqueueSystem, scope: Scope, limit: usize) -> Workqueue {
    let builder = sys.workqueue("unbound").unbound(Attrs::new().scope(scope));
    builder.max_active(limit).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// One limit for the whole queue, whatever the pools are.
    #[test]
    fn an_unbound_queue_keeps_its_limit(
        limit in 1..6usize,
        whole in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let sys = system();
        let scope = if whole { Scope::System } else { Scope::Cache };
        let seen = drive(&limited(&sys, scope, limit), limit, &steps);
        prop_assert!(seen.all.most() <= seen.limit);
    }

    /// A limit for each CPU, and starts in the order of queueing on each.
    #[test]
    fn a_bound_queue_keeps_its_limits_and_order(
        limit in 1..6usize,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let sys = system();
        let wq = sys.workqueue("bound").bound().max_active(limit).build().unwrap();
        let seen = drive(&wq, limit, &steps);
        for (cpu, inside) in seen.by_cpu.iter().enumerate() {
            prop_assert!(inside.most() <= seen.limit);
            let starts = seen.starts.entries().into_iter().filter(|(c, _)| *c == cpu);
            prop_assert!(starts.map(|(_, n)| n).is_sorted());
        }
    }

    /// One item at a time, in the order of queueing over all CPUs; the limit stays.
    #[test]
    fn an_ordered_queue_keeps_its_order(steps in proptest::collection::vec(step(), 1..60)) {
        let sys = system();
        let wq = sys.workqueue("ordered").ordered().build().unwrap();
        let seen = drive(&wq, 1, &steps);
        prop_assert!(seen.all.most() <= 1);
        let starts = seen.starts.entries().into_iter().map(|(_, n)| n);
        prop_assert_eq!(starts.collect::<Vec<_>>(), (0..seen.items).collect::<Vec<_>>());
    }
}
