//! Looks for workers that sleep without having said so, or compute for long, while items wait
//! behind them.
//!
//! Only then: a pool is looked at from the moment an item has to wait because others run, and until
//! none has had to for some looks. What is looked at is the thread's state and the CPU time it has
//! used, as `/proc` tells them. Where there is no `/proc`, nobody is looked at.

use crate::worker_pool::WorkerPool;
use inflight_sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two looks when something has just been found, and at first.
pub(crate) const SOON: Duration = Duration::from_micros(50);

/// Between two looks when nothing has been found for long.
const SLOW: Duration = Duration::from_millis(1);

/// So many slow looks in a row without an item that waits end it.
const QUIET_LOOKS: u32 = 20;

/// The files of so many workers of a pool stay open from one look to the next: to open one takes
/// as long as ten looks at it.
const MAX_OPEN: usize = 32;

/// How systems look at their workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) on: bool,
    /// An item that has used so much CPU time computes for long; zero: none does.
    pub(crate) intensive: Duration,
}

/// What the timer remembers of a pool from one look to the next.
#[derive(Default)]
pub(crate) struct Sampler(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    watched: BTreeMap<usize, Watched>,
    period: Duration,
    quiet: u32,
    /// Room for those that are looked at.
    candidates: Vec<Candidate>,
}

struct Watched {
    turn: u32,
    thread: u32,
    files: proc::Files,
    /// How often the turn has been looked at.
    looks: u32,
    /// CPU time when the turn was seen for the second time: most are not.
    used: Option<Duration>,
}

/// A worker that may hold others back.
pub(crate) struct Candidate {
    pub(crate) worker: usize,
    /// How far it was in its batch.
    pub(crate) turn: u32,
    pub(crate) thread: u32,
}

/// What was seen of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Asleep,
    /// It has used so much CPU time.
    Intensive(Duration),
}

impl Sampler {
    /// One look at the pool. Returns when to look again, `None` if that is not needed.
    pub(crate) fn look(&self, pool: &Arc<WorkerPool>, sampling: Sampling) -> Option<Duration> {
        let mut memory = self.0.lock();
        let mut candidates = std::mem::take(&mut memory.candidates);
        if !pool.candidates(&mut candidates) {
            memory.candidates = candidates;
            memory.quiet += 1;
            if memory.quiet > QUIET_LOOKS && pool.end_watch() {
                *memory = Memory::default();
                return None;
            }
            return Some(SLOW);
        }
        memory.quiet = 0;
        let mut verdicts = Vec::new();
        if memory.watched.len() + candidates.len() > MAX_OPEN {
            let is_candidate = |worker| candidates.iter().any(|s| s.worker == worker);
            memory.watched.retain(|worker, _| is_candidate(*worker));
        }
        for candidate in candidates.drain(..) {
            let before = memory.watched.remove(&candidate.worker);
            let Some(mut now) = Watched::of(before, &candidate) else {
                continue;
            };
            if let Some(verdict) = now.look(sampling.intensive) {
                verdicts.push((candidate.worker, candidate.turn, verdict));
            }
            memory.watched.insert(candidate.worker, now);
        }
        memory.candidates = candidates;
        memory.period = if pool.found(verdicts) {
            SOON
        } else {
            (memory.period * 2).clamp(SOON, SLOW)
        };
        Some(memory.period)
    }
}

impl Watched {
    /// With the files of the look before, if it is the same thread.
    fn of(before: Option<Self>, candidate: &Candidate) -> Option<Self> {
        let before = before.filter(|b| b.thread == candidate.thread);
        let Some(before) = before else {
            return Some(Self {
                turn: candidate.turn,
                thread: candidate.thread,
                files: proc::Files::open(candidate.thread)?,
                looks: 0,
                used: None,
            });
        };
        if before.turn == candidate.turn {
            return Some(before);
        }
        Some(Self {
            turn: candidate.turn,
            looks: 0,
            used: None,
            ..before
        })
    }

    fn look(&mut self, intensive: Duration) -> Option<Verdict> {
        self.looks += 1;
        if self.files.is_asleep() {
            return Some(Verdict::Asleep);
        }
        if intensive.is_zero() || self.looks == 1 {
            return None;
        }
        let now = self.files.cpu_time()?;
        let used = now.saturating_sub(*self.used.get_or_insert(now));
        (used >= intensive).then_some(Verdict::Intensive(used))
    }
}

/// What the system tells of a thread.
#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
pub(crate) mod proc {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    /// The calling thread's number.
    pub(crate) fn this_thread() -> Option<u32> {
        u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok()
    }

    /// The CPU time the calling thread has used since it began.
    pub(crate) fn used_here() -> Option<Duration> {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(used).ok()
    }

    /// The CPU time of a thread, whoever asks. Kept open.
    pub(crate) struct CpuClock(File);

    impl CpuClock {
        /// `None` if the thread has ended, or the kernel does not tell.
        pub(crate) fn open(thread: u32) -> Option<Self> {
            let file = File::open(format!("/proc/self/task/{thread}/schedstat"));
            file.ok().map(Self)
        }

        /// What the thread has used since it began.
        pub(crate) fn read(&self) -> Option<Duration> {
            let mut text = [0; 64];
            let read = self.0.read_at(&mut text, 0).ok()?;
            let text = std::str::from_utf8(&text[..read]).ok()?;
            let nanos = text.split_whitespace().next()?.parse().ok()?;
            Some(Duration::from_nanos(nanos))
        }
    }

    /// Kept open while the thread is watched.
    pub(crate) struct Files {
        thread: u32,
        stat: File,
        /// Opened when it is wanted; not on every kernel.
        cpu: Option<CpuClock>,
    }

    impl Files {
        pub(crate) fn open(thread: u32) -> Option<Self> {
            let stat = File::open(format!("/proc/self/task/{thread}/stat"));
            Some(Self {
                thread,
                stat: stat.ok()?,
                cpu: None,
            })
        }

        /// Whether the thread sleeps. In doubt it does not.
        pub(crate) fn is_asleep(&self) -> bool {
            let mut text = [0; 96];
            let read = self.stat.read_at(&mut text, 0).unwrap_or(0);
            matches!(state(&text[..read]), Some(b'S' | b'D'))
        }

        /// The CPU time the thread has used since it began.
        pub(crate) fn cpu_time(&mut self) -> Option<Duration> {
            if self.cpu.is_none() {
                self.cpu = CpuClock::open(self.thread);
            }
            self.cpu.as_ref()?.read()
        }
    }

    /// Where the kernel says that the thread is, if it says so.
    pub(crate) fn stack(thread: u32) -> Option<String> {
        let stack = std::fs::read_to_string(format!("/proc/self/task/{thread}/stack"));
        stack.ok().filter(|stack| !stack.is_empty())
    }

    /// The state's character. It comes after the name, which may have blanks and parentheses.
    pub(super) fn state(stat: &[u8]) -> Option<u8> {
        let name_ends = stat.iter().rposition(|b| *b == b')')?;
        stat.get(name_ends + 2).copied()
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
pub(crate) mod proc {
    use std::time::Duration;

    /// The calling thread's number: threads have none here.
    pub(crate) fn this_thread() -> Option<u32> {
        None
    }

    /// Nobody is found asleep here, so no function is known.
    pub(crate) fn used_here() -> Option<Duration> {
        None
    }

    pub(crate) fn stack(_thread: u32) -> Option<String> {
        None
    }

    pub(crate) struct CpuClock;

    impl CpuClock {
        pub(crate) fn open(_thread: u32) -> Option<Self> {
            None
        }

        pub(crate) fn read(&self) -> Option<Duration> {
            None
        }
    }

    pub(crate) struct Files;

    impl Files {
        pub(crate) fn open(_thread: u32) -> Option<Self> {
            None
        }

        pub(crate) fn is_asleep(&self) -> bool {
            false
        }

        pub(crate) fn cpu_time(&mut self) -> Option<Duration> {
            None
        }
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle, miri))))]
mod tests {
    use super::proc::{Files, state, this_thread};
    use inflight_sync::{Parker, thread};

    #[test]
    fn the_state_comes_after_any_name() {
        assert_eq!(state(b"17 (a) S) (b) R 1 1"), Some(b'R'));
        assert_eq!(state(b"17 (inflight/0:1) D 1"), Some(b'D'));
        assert_eq!(state(b"17 (cut off"), None);
    }

    #[test]
    fn a_sleeper_is_seen_asleep_and_a_runner_is_not() {
        let me = Files::open(this_thread().unwrap()).unwrap();
        assert!(!me.is_asleep(), "it looks at itself");
        let (send, told) = (Parker::current().unparker(), Parker::current());
        let slot = inflight_sync::Arc::new(inflight_sync::Mutex::new(None));
        let sleeper = thread::spawn({
            let slot = slot.clone();
            move || {
                let parker = Parker::current();
                *slot.lock() = Some((this_thread().unwrap(), parker.unparker()));
                send.unpark();
                parker.park();
            }
        });
        told.park();
        let (number, wake) = slot.lock().clone().unwrap();
        let mut files = Files::open(number).unwrap();
        while !files.is_asleep() {
            thread::yield_now();
        }
        let used = files.cpu_time();
        wake.unpark();
        sleeper.join().unwrap();
        assert!(used.is_none_or(|used| used.as_secs() < 3600));
    }
}
