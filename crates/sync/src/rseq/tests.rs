use super::{Rseq, cpu_id};

#[test]
#[cfg(inflight_rseq)]
fn the_area_and_the_c_library_name_the_same_cpu() {
    if cpu_id().is_none() {
        return; // an old kernel or C library
    }
    // The thread may move between the two reads: repeat until it did not.
    let same = (0..1_000).any(|_| {
        // SAFETY: sched_getcpu has no preconditions and accesses no memory of ours.
        let asked = unsafe { libc::sched_getcpu() };
        cpu_id().map(i64::from) == Some(i64::from(asked))
    });
    assert!(same);
}

#[test]
fn a_probe_that_succeeds_can_make_the_barrier() {
    if let Some(rseq) = Rseq::probe() {
        assert!(cpu_id().is_some());
        rseq.barrier();
    }
}

#[test]
fn every_thread_gets_the_same_answer() {
    let here = cpu_id().is_some();
    let there = crate::thread::spawn(|| cpu_id().is_some()).join().unwrap();
    assert_eq!(here, there);
}
