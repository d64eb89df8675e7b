//! A sink that runs done lists when a test says so.

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::{Arc, Condvar, Mutex, cpu};
use inflight_tags::Tag;
use inflight_tags::steering::{CompletionSink, DoneListHandle, Runner};
use inflight_topology::{CpuSet, Topology};
use std::collections::VecDeque;

/// Four CPUs, two of which share a cache.
pub(crate) fn machine() -> Topology {
    Topology::synthetic("cache:2 core:2").unwrap()
}

/// Runs `f` as if on a CPU.
pub(crate) fn on<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
    cpu::set_current_for_thread(Some(cpu));
    let result = f();
    cpu::set_current_for_thread(None);
    result
}

/// Counts callbacks.
#[derive(Clone)]
pub(crate) struct Ran(Arc<AtomicUsize>);

impl Ran {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn callback(&self) -> impl Fn(Tag<u64>) + Send + Sync + use<> {
        let count = self.0.clone();
        move |tag| {
            count.fetch_add(1, Ordering::Relaxed);
            drop(tag);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn fail(&self) {
        panic!("nothing is filled in when the token is refused");
    }
}

/// Writes down who was woken; the test runs them.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<State>);

#[derive(Default)]
struct State {
    woken: Mutex<VecDeque<(usize, DoneListHandle)>>,
    wakes: AtomicUsize,
    awake: AtomicBool,
    refuse: AtomicBool,
}

struct Shard(Recorder, DoneListHandle);

impl CompletionSink for Recorder {
    fn runner(&self, _cpus: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
        Some(Box::new(Shard(self.clone(), list)))
    }
}

impl Runner for Shard {
    fn wake(&self, cpu: usize) -> bool {
        let Recorder(state) = &self.0;
        state.wakes.fetch_add(1, Ordering::Relaxed);
        let refused = state.refuse.load(Ordering::Relaxed);
        if !refused {
            assert!(!self.1.is_empty(), "woken for something");
            state.woken.lock().push_back((cpu, self.1.clone()));
        }
        !refused
    }

    fn is_awake(&self) -> bool {
        self.0.0.awake.load(Ordering::Relaxed)
    }
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn awake(&self, awake: bool) {
        self.0.awake.store(awake, Ordering::Relaxed);
    }

    pub(crate) fn refuse(&self, refuse: bool) {
        self.0.refuse.store(refuse, Ordering::Relaxed);
    }

    pub(crate) fn wakes(&self) -> usize {
        self.0.wakes.load(Ordering::Relaxed)
    }

    /// The CPUs for which somebody was woken and has not run.
    pub(crate) fn woken(&self) -> Vec<usize> {
        self.0.woken.lock().iter().map(|(cpu, _)| *cpu).collect()
    }

    /// Runs the done lists of all who were woken; the CPU of the last one, if there was any.
    pub(crate) fn run_all(&self) -> Option<usize> {
        let woken = std::mem::take(&mut *self.0.woken.lock());
        let mut last = None;
        for (cpu, list) in woken {
            list.run();
            last = Some(cpu);
        }
        last
    }

    /// The same, each as if on its CPU.
    pub(crate) fn run_all_on(&self) -> Option<usize> {
        let woken = std::mem::take(&mut *self.0.woken.lock());
        let mut last = None;
        for (cpu, list) in woken {
            on(cpu, || list.run());
            last = Some(cpu);
        }
        last
    }
}

/// What one thread sends to another.
pub(crate) struct Pipe<T> {
    items: Mutex<(VecDeque<T>, bool)>,
    changed: Condvar,
}

impl<T> Pipe<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            items: Mutex::new((VecDeque::new(), false)),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn send(&self, item: T) {
        self.items.lock().0.push_back(item);
        self.changed.notify_one();
    }

    /// What is in it still comes out.
    pub(crate) fn close(&self) {
        self.items.lock().1 = true;
        self.changed.notify_all();
    }

    /// None once it is closed and empty.
    pub(crate) fn recv(&self) -> Option<T> {
        let mut items = self.items.lock();
        loop {
            if let Some(item) = items.0.pop_front() {
                return Some(item);
            }
            if items.1 {
                return None;
            }
            self.changed.wait(&mut items);
        }
    }
}
