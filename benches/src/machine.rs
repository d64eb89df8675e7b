//! Where and how the measured threads run.

use core_affinity::CoreId;
use std::fmt;
use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// A real-time thread that does not sleep for this many seconds ends the process: it would keep its
/// CPU for ever, and the machine with it.
const ENDLESS: u64 = 10;

/// How the machine lets us measure.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// How many CPUs this process may use.
    pub cpus: usize,
    /// Whether measured threads may run in the real-time class.
    pub realtime: bool,
    /// Whether the process could raise its priority for the loads of many threads.
    pub raised: bool,
}

impl Machine {
    /// Looks, and raises the priority of the process if permitted.
    #[must_use]
    pub fn prepare() -> Self {
        let realtime = thread::spawn(become_realtime).join().unwrap_or(false);
        Self {
            cpus: cpus(),
            realtime,
            raised: raise_priority(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nice = if self.raised { "nice -20" } else { "nice 0" };
        let class = if self.realtime {
            "SCHED_RR".to_owned()
        } else {
            format!("the normal class at {nice} (SCHED_RR is not permitted)")
        };
        write!(
            f,
            "{} CPUs; loads of one and two threads and throughput of pools in {class}, submitters \
             pinned; latencies (submitters pinned), sleepers and many threads (not pinned) at \
             {nice}",
            self.cpus
        )
    }
}

/// Runs `f` on a thread of its own in the real-time class, if permitted, and on any CPU: what it
/// makes inherits that.
///
/// # Panics
///
/// If `f` does.
pub fn realtime<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let body = || {
            let _ = become_realtime();
            f()
        };
        scope.spawn(body).join().expect("the load does not panic")
    })
}

/// Runs `f` on a thread of its own, pinned to the first CPU.
///
/// # Panics
///
/// If `f` does.
pub fn pinned<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let body = || {
            pin(0);
            f()
        };
        scope.spawn(body).join().expect("the load does not panic")
    })
}

/// Runs `f` on a thread of its own, pinned to the first CPU, in the real-time class if permitted.
///
/// # Panics
///
/// If `f` does.
pub fn alone<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let body = || {
            settle(0);
            f()
        };
        scope.spawn(body).join().expect("the load does not panic")
    })
}

/// What two threads did at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
    /// From the common start to the end of the slower thread.
    pub wall: Duration,
    /// The CPU time of a thread as a part of the time it took, the lesser of two: 1 if both
    /// ran throughout.
    pub share: f64,
}

/// Runs `f(0)` and `f(1)` on the first two CPUs, from a common start.
///
/// # Panics
///
/// If `f` does.
pub fn together<R: Send>(f: impl Fn(usize) -> R + Sync) -> ([R; 2], Overlap) {
    let ready = AtomicUsize::new(0);
    let body = |cpu: usize| {
        settle(cpu);
        // Relaxed: a starting shot, nothing is handed over. Both threads have a CPU.
        ready.fetch_add(1, Ordering::Relaxed);
        while ready.load(Ordering::Relaxed) < 2 {
            hint::spin_loop();
        }
        let (start, cpu_start) = (Instant::now(), thread_cpu_time());
        let result = f(cpu);
        (result, start.elapsed(), thread_cpu_time() - cpu_start)
    };
    let [a, b] = thread::scope(|scope| {
        [0, 1]
            .map(|cpu| scope.spawn(move || body(cpu)))
            .map(|t| t.join().expect("the load does not panic"))
    });
    let wall = a.1.max(b.1);
    let ran = |wall: Duration, cpu: Duration| cpu.as_secs_f64() / wall.as_secs_f64();
    let share = ran(a.1, a.2).min(ran(b.1, b.2));
    ([a.0, b.0], Overlap { wall, share })
}

/// How many CPUs the process could use when this was first asked. A thread that is pinned has one.
#[must_use]
pub fn cpus() -> usize {
    cores().len().max(1)
}

pub(crate) fn cores() -> &'static [CoreId] {
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

/// Pins the calling thread, and those it will start, to the `cpu`-th of the process's CPUs.
pub fn pin(cpu: usize) {
    have_cpus_counted();
    if let Some(core) = cores().get(cpu) {
        core_affinity::set_for_current(*core);
    }
}

/// kanal counts the CPUs of the calling thread once, at the process's first wait, and spins only if
/// there are several. Called before any thread is pinned, so that it counts all.
fn have_cpus_counted() {
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        let (_give, take) = kanal::bounded::<()>(0);
        let nobody_sends = take.recv_timeout(Duration::ZERO);
        assert!(nobody_sends.is_err());
    });
}

/// Pins the calling thread and makes it real-time, as far as permitted.
fn settle(cpu: usize) {
    pin(cpu);
    let _ = become_realtime();
}

/// The number of the second CPU, or of the one there is.
#[must_use]
pub(crate) fn second_cpu() -> usize {
    let core = cores().get(1).or(cores().first());
    core.map_or(0, |core| core.id)
}

/// The number of the `n`-th CPU, round again behind the last.
#[must_use]
pub(crate) fn cpu(n: usize) -> usize {
    let cores = cores();
    let core = cores.get(n % cores.len().max(1));
    core.map_or(0, |core| core.id)
}

/// Makes the calling thread, and those it will start, real-time, if permitted.
#[must_use]
pub fn become_realtime() -> bool {
    realtime_class(1)
}

#[cfg(target_os = "linux")]
fn limit_realtime() {
    let micros = ENDLESS * 1_000_000;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the answer.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) };
    assert_eq!(got, 0, "every Linux has this limit");
    limit.rlim_cur = limit.rlim_cur.min(micros);
    // SAFETY: `limit` lives through the call, which only reads it.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limit) };
    assert_eq!(set, 0, "anybody may lower the soft limit");
}

/// Puts the calling thread before all others of this process, if permitted. It must not spin.
pub(crate) fn outrank() {
    let _ = realtime_class(2);
}

#[cfg(target_os = "linux")]
fn realtime_class(priority: i32) -> bool {
    static LIMITED: Once = Once::new();
    LIMITED.call_once(limit_realtime);
    // SAFETY: all fields are integers, for which zero is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: 0 is the calling thread, and `param` lives through the call, which only reads it.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const param) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn realtime_class(_priority: i32) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn raise_priority() -> bool {
    // SAFETY: no memory is passed. 0 is the calling thread, whose children inherit the value.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn raise_priority() -> bool {
    false
}

/// The CPU time the calling thread has used.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The CPU time this process has used.
pub(crate) fn process_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(target_os = "linux")]
fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(status, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(target_os = "linux"))]
fn cpu_time(_clock: libc::clockid_t) -> Duration {
    Duration::ZERO
}
