//! The CPUs from which threads other than workers submit: these threads need those CPUs too.
//! `PROTOCOL.md`, part *stealing*.

use crate::load_hint::LoadHint;
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, CachePadded, Mutex, Weak};
use inflight_topology::CpuSet;
#[cfg(not(any(loom, shuttle)))]
use std::cell::Cell;

/// A thread silent for so long, in ns, no longer counts; also the least time between counts.
const SILENCE: u64 = 1_000_000;

/// Set if a thread has submitted since the last count. Names of submitters have this bit clear.
const HEARD: usize = 1;

/// The submitters of a system. Relaxed, all of it: hints.
#[derive(Debug)]
pub struct Submitters {
    /// By CPU: the last submitter from there, on a cache line of its own.
    last: Box<[CachePadded<AtomicUsize>]>,
    /// When the next count may begin, in ns.
    due: AtomicU64,
    pods: Mutex<Pods>,
}

#[derive(Debug, Default)]
struct Pods {
    /// The CPUs of each pod, and the hint that gets its count.
    told: Vec<(CpuSet, Weak<LoadHint>)>,
    /// Memory for a count: by CPU, the submitter heard from there; 0 for none.
    heard: Vec<usize>,
    /// The submitters of a pod.
    names: Vec<usize>,
}

impl Submitters {
    /// For CPUs below that number.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self {
            last: (0..cpus).map(|_| CachePadded::default()).collect(),
            due: AtomicU64::new(0),
            pods: Mutex::default(),
        }
    }

    /// Registers a pod, whose hint gets the number of submitters on these CPUs.
    pub fn tell(&self, cpus: CpuSet, hint: &Arc<LoadHint>) {
        let told = &mut self.pods.lock().told;
        // Also removes pods that are gone, in case no count does it.
        told.retain(|(_, hint)| hint.strong_count() > 0);
        told.push((cpus, Arc::downgrade(hint)));
    }

    /// A thread, or whatever has this even name, submits on that CPU. Writes nothing while it is
    /// the only submitter there and no count has happened.
    #[inline]
    #[cfg_attr(
        any(loom, shuttle),
        allow(dead_code, reason = "nobody is heard in a model")
    )]
    pub fn note(&self, name: usize, cpu: usize) {
        let word = name | HEARD;
        if let Some(last) = self.last.get(cpu) {
            if last.load(Ordering::Relaxed) != word {
                last.store(word, Ordering::Relaxed);
            }
        }
    }

    /// Whether a thread has submitted from that CPU since the last count.
    #[inline]
    #[must_use]
    pub fn is_heard(&self, cpu: usize) -> bool {
        let last = self.last.get(cpu);
        last.is_some_and(|last| last.load(Ordering::Relaxed) & HEARD != 0)
    }

    /// Counts the submitters, if the last count was long ago. One thread counts at a time.
    #[inline]
    pub fn tick(&self, now: Instant) {
        // Models have no submitters.
        if cfg!(any(loom, shuttle)) {
            return;
        }
        let now = now.as_nanos();
        if now >= self.due.load(Ordering::Relaxed) {
            self.look_round(now);
        }
    }

    #[cold]
    fn look_round(&self, now: u64) {
        let Some(mut pods) = self.pods.try_lock() else {
            return;
        };
        if now < self.due.load(Ordering::Relaxed) {
            return;
        }
        self.due.store(now + SILENCE, Ordering::Relaxed);
        let Pods { told, heard, names } = &mut *pods;
        heard.clear();
        heard.extend(self.last.iter().map(|last| Self::heard(last)));
        told.retain(|(cpus, hint)| {
            let Some(hint) = hint.upgrade() else {
                return false;
            };
            names.clear();
            let here = cpus.iter().filter_map(|cpu| heard.get(cpu));
            names.extend(here.filter(|name| **name != 0));
            names.sort_unstable();
            names.dedup();
            hint.set_submitters(names.len());
            true
        });
    }

    fn heard(last: &AtomicUsize) -> usize {
        let word = last.load(Ordering::Relaxed);
        if word & HEARD == 0 {
            return 0;
        }
        // A thread that writes at this moment is counted next time, or has just been counted.
        last.store(word & !HEARD, Ordering::Relaxed);
        word
    }
}

// Const and without a destructor: one load from the thread's own memory. A model's macro has no
// const form, and models have no submitters.
#[cfg(not(any(loom, shuttle)))]
inflight_sync::thread_local! {
    /// Whether the thread is a worker. The address of this is the thread's name.
    static IS_WORKER: Cell<usize> = const { Cell::new(0) };
}

/// Marks the calling thread as one that runs items: its pool knows of it.
pub(crate) fn is_a_worker() {
    #[cfg(not(any(loom, shuttle)))]
    IS_WORKER.with(|worker| worker.set(1));
}

/// The calling thread submits on that CPU.
#[inline]
#[cfg_attr(any(loom, shuttle), allow(unused_variables))]
pub(crate) fn note(submitters: &Submitters, cpu: usize) {
    #[cfg(not(any(loom, shuttle)))]
    IS_WORKER.with(|worker| {
        if worker.get() == 0 {
            submitters.note(std::ptr::from_ref(worker).addr(), cpu);
        }
    });
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use inflight_sync::thread;
    use proptest::prelude::*;

    proptest! {
        /// Against a simple model: for each pod, the last writers on its CPUs since the last tick.
        /// CPU 4 is one too many, and nobody's. A pod that has gone is forgotten.
        #[test]
        fn looks_count_who_wrote_last(
            steps in proptest::collection::vec((0..6usize, 0..6usize), 0..60)
        ) {
            let submitters = Submitters::new(4);
            let hints = [Arc::<LoadHint>::default(), Arc::default()];
            submitters.tell([0, 1].into(), &hints[0]);
            submitters.tell([2, 3].into(), &hints[1]);
            let (mut last, mut now) = ([None; 4], 0);
            for (who, cpu) in steps {
                if cpu < 5 {
                    submitters.note((who + 1) * 2, cpu);
                    if let Some(last) = last.get_mut(cpu) {
                        *last = Some(who);
                    }
                    for (cpu, who) in last.iter().enumerate() {
                        prop_assert_eq!(submitters.is_heard(cpu), who.is_some());
                    }
                    continue;
                }
                now += SILENCE;
                submitters.tick(Instant::from_nanos(now));
                // A second tick too soon changes nothing.
                submitters.tick(Instant::from_nanos(now + SILENCE - 1));
                let count = |pod: &[Option<usize>]| {
                    let mut who: Vec<_> = pod.iter().flatten().collect();
                    who.sort_unstable();
                    who.dedup();
                    who.len()
                };
                let seen = [hints[0].submitters(), hints[1].submitters()];
                prop_assert_eq!(seen, [count(&last[..2]), count(&last[2..])]);
                last = [None; 4];
            }
            let [_first, second] = hints;
            drop(second);
            submitters.tick(Instant::from_nanos(now + SILENCE));
            prop_assert_eq!(submitters.pods.lock().told.len(), 1);
        }
    }

    /// Two threads find that a count is due; the second one would hear nobody any more.
    #[test]
    fn one_of_two_threads_counts() {
        let (submitters, hint) = (Submitters::new(1), Arc::<LoadHint>::default());
        submitters.tell([0].into(), &hint);
        submitters.note(2, 0);
        (0..2).for_each(|_| submitters.look_round(SILENCE));
        assert_eq!(hint.submitters(), 1);
    }

    #[test]
    fn a_worker_is_no_submitter() {
        let submitters = Submitters::new(2);
        note(&submitters, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                is_a_worker();
                note(&submitters, 1);
            });
        });
        assert_eq!([0, 1].map(|cpu| submitters.is_heard(cpu)), [true, false]);
    }
}
