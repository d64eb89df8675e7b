//! Sinks of completions, and wakes of their workers, that panic.

use super::{Counts, assert_panics, assert_whole, for_each_policy, poll};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, block_on, cpu};
use inflight_tags::steering::{CompletionSink, DoneListHandle, Runner};
use inflight_tags::{Steering, Tag, TagSet};
use inflight_topology::{CpuSet, Topology};
use std::pin::pin;

/// Workers whose wake panics, or does not.
#[derive(Clone, Default)]
struct Workers {
    told: Arc<AtomicUsize>,
    list: Arc<inflight_sync::Mutex<Option<DoneListHandle>>>,
}

impl CompletionSink for Workers {
    fn runner(&self, _: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
        *self.list.lock() = Some(list);
        Some(Box::new(self.clone()))
    }
}

impl Runner for Workers {
    fn wake(&self, _: usize) -> bool {
        assert!(
            self.told.fetch_add(1, Ordering::Relaxed) > 0,
            "the waker's panic"
        );
        true
    }
}

/// A completion whose worker's wake panics is run all the same, and the next one wakes again. Its
/// tag goes to whoever waits.
#[test]
fn a_completion_is_run_although_its_wake_panics() {
    for_each_policy(|policy| {
        let topology = Topology::synthetic("cache:2 core:1").unwrap();
        let set = TagSet::builder().depth(1).admission(policy);
        let set = set.steering(Steering::SameCache).build(|_, _| ()).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let workers = Workers::default();
        let ran = Arc::new(AtomicUsize::new(0));
        let completions = set.completions(&topology).sink(workers.clone()).build({
            let ran = ran.clone();
            move |_: Tag<()>| {
                ran.fetch_add(1, Ordering::Relaxed);
            }
        });
        for n in 0..2 {
            cpu::set_current_for_thread(Some(1));
            let token = dev.try_alloc().unwrap().into_token();
            cpu::set_current_for_thread(Some(0));
            let told = Arc::new(Counts::default());
            let mut waiter = pin!(dev.alloc());
            assert!(poll(waiter.as_mut(), told.clone()).is_pending());
            let complete = || completions.complete(token, |()| ());
            match n {
                0 => assert_panics(complete),
                _ => {
                    complete().unwrap();
                    assert_eq!(
                        ran.load(Ordering::Relaxed),
                        1,
                        "the worker has not come yet"
                    );
                    let list = workers.list.lock().clone().unwrap();
                    list.run();
                }
            }
            assert_eq!(ran.load(Ordering::Relaxed), n + 1, "{policy:?}");
            assert_eq!(told.0.load(Ordering::Relaxed), 1, "{policy:?}");
            assert!(block_on(waiter).is_ok());
        }
        cpu::set_current_for_thread(None);
        assert_eq!(workers.told.load(Ordering::Relaxed), 2);
        assert_whole(&dev, 1);
    });
}

/// New CPUs, for which a sink makes no runner but panics: other completions of the set run what was
/// in the done lists that close, and the panic comes out behind that.
#[test]
fn new_cpus_are_new_for_all_although_a_sink_panics() {
    struct PanicsLater(AtomicUsize);
    impl CompletionSink for PanicsLater {
        fn runner(&self, _: &CpuSet, _: DoneListHandle) -> Option<Box<dyn Runner>> {
            let first = self.0.fetch_add(1, Ordering::Relaxed) < 2;
            assert!(first, "the waker's panic");
            None
        }
    }
    let old = Topology::synthetic("cache:2 core:1").unwrap();
    let new = Topology::synthetic("cache:3 core:1 offline:1").unwrap();
    let set = TagSet::builder().depth(1).steering(Steering::SameCache);
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let workers = Workers::default();
    workers.told.store(1, Ordering::Relaxed); // none of its wakes panics
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let completions = set.completions(&old).sink(workers).build(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let _panics = set.completions(&old).sink(PanicsLater(AtomicUsize::new(0)));
    let _panics = _panics.build(drop::<Tag<()>>);
    cpu::set_current_for_thread(Some(1));
    let token = dev.try_alloc().unwrap().into_token();
    cpu::set_current_for_thread(Some(0));
    completions.complete(token, |()| ()).unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 0, "it waits for its worker");
    assert_panics(|| set.cpus().refresh(&new));
    cpu::set_current_for_thread(None);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_whole(&dev, 1);
}
