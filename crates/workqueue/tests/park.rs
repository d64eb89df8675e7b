//! An item that is queued while it runs, on a queue of the same or another kind, or of another
//! system: its entry is drawn, and parked in the item until its run has ended.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_topology::Scope;
use inflight_workqueue::{Attrs, Frozen, Work, Workqueue, WorkqueueSystem};
use support::{Level, Log, Rigged, one_cpu, refusable};

/// Each has one slot, and a pool in which one worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bound,
    Unbound,
    Ordered,
}

use Kind::{Bound, Ordered, Unbound};

fn attrs(strict: bool) -> Attrs {
    Attrs::new().scope(Scope::System).strict(strict)
}

fn queue(sys: &WorkqueueSystem, kind: Kind, name: &str) -> Workqueue {
    let draft = sys.workqueue(name);
    let builder = match kind {
        Bound => draft.bound().max_active(1),
        Unbound => draft.unbound(attrs(false)).max_active(1),
        Ordered => draft.ordered_with(attrs(false)),
    };
    builder.freezable().build().unwrap()
}

/// The item has begun in `here` and is parked in `there`.
struct Parked {
    kind: (Kind, Kind),
    systems: [Rigged; 2],
    here: Workqueue,
    there: Workqueue,
    work: Work,
    release: Level,
    /// 0 for each run.
    log: Log<u32>,
}

impl Parked {
    /// In every pair of kinds, within a system and between two.
    fn each() -> impl Iterator<Item = Self> {
        [Bound, Unbound, Ordered]
            .into_iter()
            .flat_map(Self::each_in)
    }

    /// In a queue of this kind.
    fn each_in(there: Kind) -> impl Iterator<Item = Self> {
        let pairs = [Bound, Unbound, Ordered].map(|here| (here, there));
        let cases = pairs
            .into_iter()
            .flat_map(|pair| [(pair, false), (pair, true)]);
        cases.map(|(pair, apart)| Self::new(pair, apart))
    }

    fn new(kind: (Kind, Kind), apart: bool) -> Self {
        let systems = [(); 2].map(|()| refusable(one_cpu().sampling(false)).0);
        let other = &systems[usize::from(apart)];
        let (here, there) = (
            queue(&systems[0], kind.0, "here"),
            queue(other, kind.1, "there"),
        );
        let (release, begun, log) = (Level::new(), Level::new(), Log::new());
        let work = Work::new({
            let (release, begun, log) = (release.clone(), begun.clone(), log.clone());
            move || {
                log.push(0);
                begun.raise();
                release.wait(1);
            }
        });
        assert!(here.queue(&work).unwrap().is_queued());
        begun.wait(1);
        assert!(there.queue(&work).unwrap().is_queued());
        // The worker that runs this has drawn the other before.
        queue(other, kind.1, "behind").spawn(|| ()).wait().unwrap();
        assert_eq!((work.is_pending(), log.entries().len()), (true, 1));
        Self {
            kind,
            systems,
            here,
            there,
            work,
            release,
            log,
        }
    }

    /// An item of `there`, behind the parked one.
    fn behind(&self, number: u32) {
        let log = self.log.clone();
        self.there.spawn(move || log.push(number)).detach();
    }

    fn assert_log(&self, expected: &[u32]) {
        assert_eq!(self.log.entries(), expected, "{:?}", self.kind);
    }

    /// All has ended, and is counted.
    fn end(self) {
        for wq in [&self.here, &self.there] {
            wq.flush_blocking().unwrap();
            let stats = wq.stats();
            assert_eq!(stats.queued, stats.completed + stats.cancelled);
            assert_eq!((stats.active, stats.inactive), (0, 0));
        }
        drop(self.systems);
    }
}

/// It runs when its run has ended, and what was queued behind it runs after it.
#[test]
fn nothing_passes_what_is_parked() {
    for parked in Parked::each() {
        parked.behind(1);
        parked.behind(2);
        parked.release.raise();
        parked.there.flush_blocking().unwrap();
        parked.assert_log(&[0, 0, 1, 2]);
        parked.end();
    }
}

/// It has not begun, so it waits for the thaw, although its run ends before.
#[test]
fn what_is_parked_does_not_begin_in_a_freeze() {
    for parked in Parked::each() {
        parked.behind(1);
        let frozen = [0, 1].map(|n| parked.systems[n].freeze());
        parked.release.raise();
        // It is put back before that run is settled.
        parked.here.flush_blocking().unwrap();
        support::until(|| !frozen.iter().any(Frozen::is_busy), || "busy".to_owned());
        let stats = parked.there.stats();
        assert_eq!((stats.started, stats.inactive), (0, 2));
        parked.assert_log(&[0]);
        drop(frozen);
        parked.there.flush_blocking().unwrap();
        parked.assert_log(&[0, 0, 1]);
        parked.end();
    }
}

/// A cancel takes it back, and what is behind it runs although its run goes on.
#[test]
fn a_cancel_of_what_is_parked_gives_its_slot_back() {
    for parked in Parked::each() {
        parked.behind(1);
        assert!(parked.work.cancel());
        assert!(!parked.work.is_pending() && parked.work.is_running());
        parked.there.flush_blocking().unwrap();
        parked.assert_log(&[0, 1]);
        assert_eq!(parked.there.stats().cancelled, 1);
        parked.release.raise();
        parked.end();
    }
}

/// Cancelled while it is held by a freeze, it does not wait for the thaw.
#[test]
fn a_cancel_of_what_is_parked_in_a_freeze() {
    for parked in Parked::each() {
        let frozen = [0, 1].map(|n| parked.systems[n].freeze());
        assert!(parked.work.cancel());
        parked.there.flush_blocking().unwrap();
        parked.release.raise();
        parked.work.flush_blocking().unwrap();
        drop(frozen);
        parked.there.flush_blocking().unwrap();
        parked.assert_log(&[0]);
        parked.end();
    }
}

/// An ordered queue goes over to another pool. What comes then runs after what is parked.
#[test]
fn an_ordered_queue_moves_with_what_is_parked() {
    for cancels in [false, true] {
        for parked in Parked::each_in(Ordered) {
            parked.behind(1);
            parked.there.set_attrs(attrs(true)).unwrap();
            parked.behind(2);
            parked.assert_log(&[0]);
            if cancels {
                assert!(parked.work.cancel());
                parked.there.flush_blocking().unwrap();
                parked.assert_log(&[0, 1, 2]);
                parked.release.raise();
            } else {
                parked.release.raise();
                parked.there.flush_blocking().unwrap();
                parked.assert_log(&[0, 0, 1, 2]);
            }
            parked.end();
        }
    }
}

/// An unbound queue that is not ordered moves: what is parked has its slot in the new pools too.
#[test]
fn an_unbound_queue_moves_with_what_is_parked() {
    for parked in Parked::each_in(Unbound) {
        parked.there.set_attrs(attrs(true)).unwrap();
        parked.behind(1);
        assert_eq!(parked.there.stats().inactive, 1, "there is no other slot");
        parked.release.raise();
        parked.there.flush_blocking().unwrap();
        parked.assert_log(&[0, 0, 1]);
        parked.end();
    }
}
