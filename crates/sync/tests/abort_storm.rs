//! Restartable sections under signals, migrations and a busy closer: the real back end, on the
//! real kernel.
//!
//! No model covers the kernel's part, so this counts: every section cut short is an abort, and a
//! run without aborts has shown nothing.
#![cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]

use inflight_sync::percpu::{Backend, Stacks};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const IDS: usize = 16;
const USERS: usize = 4;

extern "C" fn nothing(_: libc::c_int) {}

fn catch_signal() {
    let handler = nothing as *const () as libc::sighandler_t;
    // SAFETY: the handler does nothing at all.
    let old = unsafe { libc::signal(libc::SIGUSR1, handler) };
    assert_ne!(old, libc::SIG_ERR);
}

/// Moves the calling thread to one of the CPUs it may use, or back to all of them.
fn move_to(allowed: &libc::cpu_set_t, cpu: Option<usize>) {
    let mut set = *allowed;
    if let Some(cpu) = cpu {
        // SAFETY: the set is ours and initialised.
        unsafe { libc::CPU_ZERO(&mut set) };
        // SAFETY: the set is ours, and the CPU is one that was in a set of this size.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: 0 is the calling thread; the set has the size that is told.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}

fn allowed() -> libc::cpu_set_t {
    // SAFETY: a set of bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: 0 is the calling thread; the set has the size that is told.
    let failed = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    assert_eq!(failed, 0);
    set
}

fn cpus_of(set: &libc::cpu_set_t) -> Vec<usize> {
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the set is initialised and the CPU below its size.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, set) })
        .collect()
}

/// Who holds each id, and what must not happen to two at once.
struct Owners(Vec<AtomicBool>);

impl Owners {
    fn begin(&self, id: u32) {
        let taken = self.0[id as usize].swap(true, Ordering::Relaxed);
        assert!(!taken, "two owners of {id}");
    }

    fn end(&self, id: u32) {
        assert!(self.0[id as usize].swap(false, Ordering::Relaxed));
    }
}

/// A user pops and pushes until told to stop and rid of every id.
fn user(stacks: &Stacks, owners: &Owners, run: &AtomicBool, steps: &AtomicU64, seed: usize) {
    let allowed = allowed();
    let cpus = cpus_of(&allowed);
    let (mut held, mut step) = (Vec::new(), seed);
    while run.load(Ordering::Relaxed) || !held.is_empty() {
        step += 1;
        if step % 4_096 == 0 {
            let cpu = cpus.get(step / 4_096 % (cpus.len() + 1));
            move_to(&allowed, cpu.copied());
            steps.fetch_add(4_096, Ordering::Relaxed);
        }
        if run.load(Ordering::Relaxed) && held.len() < IDS / USERS {
            if let Some(id) = stacks.pop() {
                owners.begin(id);
                held.push(id);
                continue;
            }
        }
        if let Some(id) = held.pop() {
            owners.end(id);
            if !stacks.push(id) {
                owners.begin(id);
                held.push(id);
                if held.len() == IDS / USERS || !run.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            }
        }
    }
}

fn close_and_collect(stacks: &Stacks, mine: &mut Vec<u32>) {
    (0..stacks.len()).for_each(|i| stacks.close(i));
    stacks.barrier();
    (0..stacks.len()).for_each(|i| stacks.drain(i, |id| mine.push(id)));
}

#[test]
fn sections_cut_short_lose_nothing_and_repeat_nothing() {
    catch_signal();
    let cpus = inflight_sync::cpu::possible();
    let stacks = Arc::new(Stacks::new(Backend::best(), cpus));
    let rseq = stacks.backend() == Backend::Rseq;
    let owners = Arc::new(Owners((0..IDS).map(|_| AtomicBool::new(false)).collect()));
    let (run, steps) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let users: Vec<_> = (0..USERS)
        .map(|seed| {
            let (stacks, owners) = (stacks.clone(), owners.clone());
            let (run, steps) = (run.clone(), steps.clone());
            thread::spawn(move || user(&stacks, &owners, &run, &steps, seed * 1_000))
        })
        .collect();
    let mut mine: Vec<u32> = (0..IDS as u32).collect();
    // Rounds, not seconds; more of them until the kernel has cut some sections short.
    let (mut round, mut closes) = (0, 0);
    while round < 20_000 || (rseq && stacks.aborts() < 20 && round < 5_000_000) {
        round += 1;
        for user in &users {
            use std::os::unix::thread::JoinHandleExt;
            if user.is_finished() {
                continue;
            }
            // SAFETY: the thread has not been joined, so its handle is valid.
            unsafe { libc::pthread_kill(user.as_pthread_t(), libc::SIGUSR1) };
        }
        if round % 16 == 0 {
            close_and_collect(&stacks, &mut mine);
            (0..cpus).for_each(|i| stacks.open(i, 8));
            closes += 1;
        }
        mine.retain(|&id| !stacks.push(id));
    }
    run.store(false, Ordering::Relaxed);
    close_and_collect(&stacks, &mut mine);
    (0..cpus).for_each(|i| stacks.open(i, IDS as u32));
    for user in users {
        user.join().expect("no user saw an id with two owners");
    }
    close_and_collect(&stacks, &mut mine);
    mine.sort_unstable();
    assert_eq!(mine, (0..IDS as u32).collect::<Vec<_>>(), "every id, once");
    let (aborts, steps) = (stacks.aborts(), steps.load(Ordering::Relaxed));
    println!("{round} rounds, {closes} closes, {steps} steps, {aborts} aborts");
    assert!(
        !rseq || aborts > 0,
        "no section was cut short: nothing was shown"
    );
}
