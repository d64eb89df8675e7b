//! Pinning, on the machine the tests run on. A binary of its own, because it changes threads.

#![cfg(not(any(loom, shuttle)))]

use inflight_topology::{CpuSet, PinError, Topology};

fn this_machine() -> Topology {
    Topology::discover().expect("this machine has a CPU")
}

/// The CPUs the calling thread may use now.
#[cfg(target_os = "linux")]
fn allowed() -> CpuSet {
    this_machine().cpus().clone()
}

#[test]
fn no_cpu_at_all_is_refused() {
    let error = this_machine()
        .pin_current_thread(&CpuSet::new())
        .expect_err("an empty set");
    assert_eq!(error, PinError::EmptySet);
}

#[test]
fn machines_that_are_not_this_one_are_refused() {
    let topo = Topology::synthetic("core:1").expect("a good description");
    let cpus = topo.cpus().clone();
    let error = topo
        .pin_current_thread(&cpus)
        .expect_err("a synthetic machine");
    assert_eq!(error, PinError::NotThisMachine { cpus: cpus.clone() });
    let error = topo
        .pin_current_thread_for_good(&cpus)
        .expect_err("a synthetic machine");
    assert_eq!(error, PinError::NotThisMachine { cpus });
}

#[cfg(target_os = "linux")]
mod linux {
    use inflight_sync::thread;
    use inflight_topology::{PinCheck, PinGuard, current_cpu};

    use super::*;

    /// Enough CPUs to tell a pinned thread from a free one, or a note why there is nothing to see.
    fn two_cpus() -> Option<(Topology, usize, usize)> {
        let topo = this_machine();
        match (topo.cpus().first(), topo.cpus().last()) {
            (Some(a), Some(b)) if a != b => Some((topo, a, b)),
            _ => {
                println!("skipped: only one CPU is open to this process");
                None
            }
        }
    }

    #[test]
    fn a_guard_pins_and_restores() {
        let Some((topo, first, last)) = two_cpus() else {
            return;
        };
        let before = allowed();
        for cpu in [first, last] {
            let guard = topo
                .pin_current_thread(&CpuSet::from([cpu]))
                .expect("a usable CPU");
            assert_eq!(allowed(), CpuSet::from([cpu]));
            assert_eq!(current_cpu(), cpu);
            drop(guard);
            assert_eq!(allowed(), before);
        }
    }

    #[test]
    fn guards_nest() {
        let Some((topo, first, last)) = two_cpus() else {
            return;
        };
        let before = allowed();
        {
            let _outer = topo
                .pin_current_thread(&CpuSet::from([first]))
                .expect("a usable CPU");
            {
                let _inner = topo
                    .pin_current_thread(&CpuSet::from([last]))
                    .expect("a usable CPU");
                assert_eq!(current_cpu(), last);
            }
            assert_eq!(allowed(), CpuSet::from([first]));
        }
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_panic_restores_too() {
        let Some((topo, first, _)) = two_cpus() else {
            return;
        };
        let before = allowed();
        let result = std::panic::catch_unwind(|| {
            let _guard = topo
                .pin_current_thread(&CpuSet::from([first]))
                .expect("a usable CPU");
            panic!("on purpose");
        });
        assert!(result.is_err());
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_guard_that_is_kept_does_not_restore() {
        let Some((topo, _, last)) = two_cpus() else {
            return;
        };
        let worker = thread::spawn(move || {
            topo.pin_current_thread(&CpuSet::from([last]))
                .expect("a usable CPU")
                .keep();
            allowed()
        });
        assert_eq!(worker.join().expect("no panic"), CpuSet::from([last]));
    }

    #[test]
    fn a_worker_is_pinned_for_good_and_its_parent_is_not() {
        let Some((topo, first, _)) = two_cpus() else {
            return;
        };
        let before = allowed();
        let worker = thread::spawn(move || {
            topo.pin_current_thread_for_good(&CpuSet::from([first]))
                .expect("a usable CPU");
            (allowed(), current_cpu())
        });
        assert_eq!(
            worker.join().expect("no panic"),
            (CpuSet::from([first]), first)
        );
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_pinned_thread_can_be_pinned_out_of_its_mask() {
        let Some((_, first, last)) = two_cpus() else {
            return;
        };
        let worker = thread::spawn(move || {
            this_machine()
                .pin_current_thread_for_good(&CpuSet::from([first]))
                .expect("usable");
            let narrow = this_machine();
            assert_eq!(narrow.cpus(), &CpuSet::from([first]));
            assert!(narrow.online().contains(last), "still shown as online");
            narrow
                .pin_current_thread_for_good(&CpuSet::from([last]))
                .expect("usable");
            current_cpu()
        });
        assert_eq!(worker.join().expect("no panic"), last);
    }

    #[test]
    fn restore_reports_success() {
        let topo = this_machine();
        let before = allowed();
        let guard = topo.pin_current_thread(&before).expect("the own mask");
        assert_eq!(guard.restore(), Ok(()));
        assert_eq!(allowed(), before);
    }

    #[test]
    fn cpus_that_do_not_exist_are_a_clear_error() {
        let topo = this_machine();
        let before = allowed();
        for cpu in [1023, 1024, 65_535] {
            let cpus = CpuSet::from([cpu]);
            if topo.possible().contains(cpu) {
                println!("skipped: CPU {cpu} exists here");
                continue;
            }
            match topo.pin_current_thread(&cpus).expect_err("no such CPU") {
                PinError::NoUsableCpu { cpus: asked, errno } => {
                    assert_eq!(asked, cpus);
                    assert_ne!(errno, 0);
                }
                other => panic!("CPU {cpu}: {other:?}"),
            }
            assert_eq!(allowed(), before);
        }
    }

    /// Does to a thread of this process what an administrator would do: sets its mask from outside.
    fn rewrite_mask(thread: libc::pid_t, cpu: usize) {
        let mut mask = [0_u64; 1024];
        mask[cpu / 64] = 1 << (cpu % 64);
        let bytes = std::mem::size_of_val(&mask);
        // SAFETY: the call reads `bytes` bytes from the pointer, which is the whole array. The
        // thread waits for this one, so its number is not used for another.
        let done = unsafe { libc::sched_setaffinity(thread, bytes, mask.as_ptr().cast()) };
        assert_eq!(done, 0);
    }

    fn own_id() -> libc::pid_t {
        // SAFETY: gettid takes nothing and touches no memory of ours.
        unsafe { libc::gettid() }
    }

    #[test]
    fn a_mask_that_was_rewritten_is_set_again() {
        let Some((topo, first, last)) = two_cpus() else {
            return;
        };
        let before = allowed();
        let guard = topo
            .pin_current_thread(&CpuSet::from([first]))
            .expect("a usable CPU");
        assert_eq!(guard.cpus(), &CpuSet::from([first]));
        assert_eq!(guard.revalidate(), Ok(PinCheck::Held));
        let id = own_id();
        thread::spawn(move || rewrite_mask(id, last))
            .join()
            .expect("no panic");
        assert_eq!(
            allowed(),
            CpuSet::from([last]),
            "the pinning is not what it was"
        );
        let found = CpuSet::from([last]);
        assert_eq!(guard.revalidate(), Ok(PinCheck::Reapplied { found }));
        assert_eq!(allowed(), CpuSet::from([first]));
        assert_eq!(guard.revalidate(), Ok(PinCheck::Held));
        drop(guard);
        assert_eq!(allowed(), before);
    }

    /// Pins to `first`, then to `last`, then to `first` again.
    fn three_guards(topo: &Topology, first: usize, last: usize) -> Vec<Option<PinGuard>> {
        let pin = |cpu| topo.pin_current_thread(&CpuSet::from([cpu]));
        let guards = [first, last, first].map(|cpu| Some(pin(cpu).expect("a usable CPU")));
        guards.into()
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let Some((topo, first, last)) = two_cpus() else {
            return;
        };
        let before = allowed();
        let cpus = [first, last, first];
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let mut guards = three_guards(&topo, first, last);
            for at in order {
                drop(guards[at].take());
                let latest = guards.iter().rposition(Option::is_some);
                let wanted = latest.map_or(before.clone(), |at| CpuSet::from([cpus[at]]));
                assert_eq!(allowed(), wanted, "{order:?} after {at}");
            }
        }
    }

    #[test]
    fn only_the_latest_guard_moves_the_thread() {
        let Some((topo, first, last)) = two_cpus() else {
            return;
        };
        let pin = |cpu| topo.pin_current_thread(&CpuSet::from([cpu]));
        let outer = pin(first).expect("a usable CPU");
        let inner = pin(last).expect("a usable CPU");
        assert_eq!(outer.revalidate(), Ok(PinCheck::Covered));
        assert_eq!(inner.revalidate(), Ok(PinCheck::Held));
        assert_eq!(allowed(), CpuSet::from([last]));
        drop(inner);
        assert_eq!(outer.revalidate(), Ok(PinCheck::Held));
    }

    #[test]
    fn restoring_an_earlier_guard_leaves_the_later_one_in_force() {
        let Some((topo, first, last)) = two_cpus() else {
            return;
        };
        let before = allowed();
        let pin = |cpu| topo.pin_current_thread(&CpuSet::from([cpu]));
        let (outer, inner) = (pin(first).expect("usable"), pin(last).expect("usable"));
        assert_eq!(outer.restore(), Ok(()));
        assert_eq!(allowed(), CpuSet::from([last]));
        assert_eq!(inner.restore(), Ok(()));
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_kept_guard_is_what_a_later_one_restores_and_an_earlier_one_undoes() {
        let Some((topo, first, last)) = two_cpus() else {
            return;
        };
        let before = allowed();
        let mut guards = three_guards(&topo, first, last);
        guards[1].take().expect("the second").keep();
        drop(guards.pop());
        assert_eq!(allowed(), CpuSet::from([last]));
        drop(guards);
        assert_eq!(allowed(), before);
    }

    /// The guard's own thread-local may be gone before one that the user keeps a guard in.
    #[test]
    fn a_guard_may_be_dropped_when_its_thread_ends() {
        let Some((topo, first, _)) = two_cpus() else {
            return;
        };
        inflight_sync::thread_local! {
            static KEPT: std::cell::RefCell<Option<PinGuard>> = Default::default();
        }
        let worker = thread::spawn(move || {
            // Made first, and so dropped last.
            KEPT.with(|kept| {
                let guard = topo.pin_current_thread(&CpuSet::from([first]));
                *kept.borrow_mut() = Some(guard.expect("a usable CPU"));
            });
            allowed()
        });
        assert_eq!(worker.join().expect("no panic"), CpuSet::from([first]));
    }

    #[test]
    fn what_has_vanished_is_named() {
        let topo = this_machine();
        let (first, gone) = (topo.cpus().first().expect("a CPU"), 65_535);
        let guard = topo
            .pin_current_thread(&CpuSet::from([first, gone]))
            .expect("one exists");
        let vanished = CpuSet::from([gone]);
        assert_eq!(guard.revalidate(), Ok(PinCheck::Narrowed { vanished }));
        assert_eq!(allowed(), CpuSet::from([first]));
    }

    #[test]
    fn missing_cpus_of_a_set_are_left_out() {
        let topo = this_machine();
        let first = topo.cpus().first().expect("a CPU");
        let guard = topo
            .pin_current_thread(&CpuSet::from([first, 65_535]))
            .expect("one exists");
        assert_eq!(allowed(), CpuSet::from([first]));
        drop(guard);
    }
}

#[cfg(not(target_os = "linux"))]
#[test]
fn guards_are_not_supported_here() {
    let topo = this_machine();
    let cpus = topo.cpus().clone();
    let error = topo.pin_current_thread(&cpus).expect_err("not supported");
    assert_eq!(error, PinError::Unsupported { cpus });
}
