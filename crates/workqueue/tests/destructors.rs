//! Destructors of users' values run under no lock: one that uses the system it was part of ends.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{
    Attrs, DelayedWork, JoinError, Work, Workqueue, WorkqueueBuilder, WorkqueueSystem,
};
use std::task::Waker;
use std::time::Duration;
use support::{Level, builder, one_cpu, plug, watch};

/// Uses all that has a lock when it goes: its queue, its system, a work.
struct Uses {
    wq: Workqueue,
    work: Work,
    gone: Level,
    sys: Option<WorkqueueSystem>,
}

impl Drop for Uses {
    fn drop(&mut self) {
        // The queue may be closed by now, and the work running.
        drop(self.wq.spawn(|| ()));
        drop(self.wq.try_spawn(|| ()));
        drop(self.wq.spawn_future(async {}));
        let _ = self.wq.queue(&self.work);
        self.work.cancel();
        let _ = self.wq.stats();
        let _ = self.wq.set_max_active(3);
        if let Some(sys) = &self.sys {
            let _ = sys.dump();
            let _ = sys.hogs();
            drop(sys.freeze());
        }
        self.gone.raise();
    }
}

fn each_kind(sys: &WorkqueueSystem) -> [Workqueue; 4] {
    let build = |builder: WorkqueueBuilder| builder.build().unwrap();
    [
        build(sys.workqueue("bound").bound().max_active(2)),
        build(sys.workqueue("unbound").unbound(Attrs::new())),
        build(sys.workqueue("ordered").ordered()),
        build(sys.workqueue("bh").bh()),
    ]
}

struct Case {
    sys: WorkqueueSystem,
    wq: Workqueue,
    gone: Level,
}

impl Case {
    fn uses(&self) -> Uses {
        let mut uses = self.uses_queue();
        uses.sys = Some(self.sys.clone());
        uses
    }

    /// The same, without keeping the system.
    fn uses_queue(&self) -> Uses {
        Uses {
            wq: self.wq.clone(),
            work: Work::new(|| ()),
            gone: self.gone.clone(),
            sys: None,
        }
    }
}

/// What a test does must end; if it does not, that is said and not waited for.
fn each_ends(what: &str, case: impl Fn(&Case) + Send + Sync + 'static) {
    let case = Arc::new(case);
    let news = Arc::new(AtomicUsize::new(0));
    for kind in 0..4 {
        let (case, now) = (case.clone(), news.clone());
        let test = thread::spawn(move || {
            let sys = one_cpu().sampling(false).build().unwrap();
            let wq = each_kind(&sys)[kind].clone();
            case(&Case {
                sys,
                wq,
                gone: Level::new(),
            });
            // Relaxed: the number alone is looked at.
            now.fetch_add(1, Ordering::Relaxed);
        });
        watch(&news, vec![test], || format!("{what}, kind {kind}"));
    }
}

#[test]
fn the_destructor_of_a_function_that_has_run() {
    each_ends("after its run", |case| {
        let uses = case.uses();
        case.wq.spawn(move || drop(uses)).wait().unwrap();
        let uses = case.uses();
        case.wq.spawn(move || _ = &uses).wait().unwrap();
        case.gone.wait(2);
        case.wq.flush_blocking().unwrap();
    });
}

#[test]
fn the_destructor_of_a_result() {
    each_ends("a result", |case| {
        for detached in [true, false] {
            let uses = case.uses();
            let handle = case.wq.spawn(move || uses);
            if detached {
                handle.detach();
            } else {
                case.wq.flush_blocking().unwrap();
                drop(handle);
            }
        }
        case.gone.wait(2);
    });
}

#[test]
fn the_destructor_of_a_cancelled_item() {
    each_ends("cancelled", |case| {
        let open = plug(&case.wq);
        let uses = [(); 2].map(|()| case.uses());
        let [handle, other] = uses.map(|uses| case.wq.spawn_on(0, move || drop(uses)));
        assert!(handle.try_cancel());
        case.gone.wait(1);
        assert!(other.try_cancel());
        // A work whose last handle goes while its entry waits to be left out.
        let uses = case.uses();
        let work = Work::new(move || _ = &uses);
        assert!(case.wq.queue_on(0, &work).unwrap().is_queued());
        assert!(work.cancel());
        drop(work);
        open.raise();
        case.gone.wait(3);
        case.wq.flush_blocking().unwrap();
    });
}

#[test]
fn the_destructors_of_an_item_that_panics() {
    each_ends("a panic", |case| {
        // As a payload, and while it is unwound.
        let uses = case.uses();
        let handle = case.wq.spawn(move || std::panic::panic_any(uses));
        assert!(matches!(handle.wait(), Err(JoinError::Panicked(_))));
        let uses = case.uses();
        let handle = case.wq.spawn(move || {
            let _uses = uses;
            panic!("with it");
        });
        assert!(matches!(handle.wait(), Err(JoinError::Panicked(_))));
        case.gone.wait(2);
        // Nobody takes the payload of a work, but the dump shows it.
        let uses = Mutex::new(Some(case.uses()));
        let work = Work::new(move || std::panic::panic_any(uses.lock().take()));
        assert!(case.wq.queue(&work).unwrap().is_queued());
        case.gone.wait(3);
        work.flush_blocking().unwrap();
    });
}

#[test]
fn the_destructor_of_a_refused_item() {
    each_ends("refused", |case| {
        case.wq.destroy_blocking().unwrap();
        let uses = case.uses();
        assert!(case.wq.spawn(move || drop(uses)).wait().is_err());
        let uses = case.uses();
        drop(case.wq.try_spawn(move || drop(uses)).unwrap_err());
        let uses = case.uses();
        let future = async move { drop(uses) };
        assert!(case.wq.spawn_future(future).wait().is_err());
        case.gone.wait(3);
    });
}

/// A future that waits when its queue, or its system, ends.
#[test]
fn the_destructor_of_a_future_that_ends_with_its_queue() {
    each_ends("a future", |case| {
        let uses = case.uses_queue();
        let handle = case.wq.spawn_future(async move {
            let _uses = uses;
            never().await;
        });
        let gone = case.gone.clone();
        if case.wq.name() == "bound" {
            case.wq.destroy_blocking().unwrap();
        } else {
            case.sys.shutdown_blocking().unwrap();
        }
        assert!(handle.wait().is_err());
        gone.wait(1);
    });
}

/// Nobody drops these.
static WAKERS: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

/// Ready at no time, but somebody could wake it.
fn never() -> impl Future<Output = ()> {
    std::future::poll_fn(|cx| {
        WAKERS.lock().push(cx.waker().clone());
        std::task::Poll::Pending
    })
}

/// An armed work that the end of the system takes from its timer.
#[test]
fn the_destructor_of_a_delayed_work_that_ends_with_its_system() {
    let news = AtomicUsize::new(0);
    let test = thread::spawn(|| {
        let sys = builder().clock(Clock::manual()).build().unwrap();
        let [wq, ..] = each_kind(&sys);
        let gone = Level::new();
        let case = Case {
            sys: sys.clone(),
            wq: wq.clone(),
            gone: gone.clone(),
        };
        let uses = case.uses_queue();
        drop(case);
        let delayed = DelayedWork::new(move || _ = &uses);
        let later = Duration::from_secs(1);
        assert!(wq.queue_delayed(&delayed, later).unwrap().is_queued());
        drop(delayed);
        assert_eq!(gone.get(), 0, "the timer has it");
        sys.shutdown_blocking().unwrap();
        gone.wait(1);
    });
    watch(&news, vec![test], || "a delayed work".to_owned());
}
