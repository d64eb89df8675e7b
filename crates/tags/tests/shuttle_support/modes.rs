//! How sets differ from each other: what schedules are tried for each.

use inflight_sbitmap::Engine;
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::time::Clock;
use inflight_tags::{
    Admission, Force, HwQueueOptions, NoPreempt, SharePolicy, TagSet, TagSetBuilder,
    WakeAccounting, WakePolicy,
};
use inflight_topology::Topology;

/// Schedules of each kind, for each mode.
const RUNS: usize = 12;

/// How tags are given out, where free ones are kept, whether hardware queues share them, and how
/// tenants do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) admission: Admission,
    pub(crate) engine: Engine,
    pub(crate) shared: bool,
    pub(crate) share: SharePolicy,
}

fn modes() -> Vec<Mode> {
    let whole_io = Admission::WholeIo;
    let no_preempt = NoPreempt::default().threshold(1);
    let by_waiters = no_preempt.accounting(WakeAccounting::PerWaiter);
    let never = by_waiters
        .force(Force::Never)
        .wake_policy(WakePolicy::FullestFirst);
    let (alone, fair) = (SharePolicy::None, SharePolicy::Fair { min: 1 });
    let weighted = SharePolicy::Weighted { min: 1 };
    [
        (whole_io, Engine::Local, false, fair),
        (whole_io, Engine::Shared, true, weighted),
        (Admission::preempt(), Engine::Shared, false, fair),
        (
            Admission::NoPreempt(no_preempt),
            Engine::Shared,
            true,
            weighted,
        ),
        (Admission::NoPreempt(never), Engine::Shared, false, fair),
        (
            Admission::elastic_overcommit(1),
            Engine::Shared,
            false,
            alone,
        ),
    ]
    .map(|(admission, engine, shared, share)| Mode {
        admission,
        engine,
        shared,
        share,
    })
    .to_vec()
}

/// Both ways to choose schedules, for each mode.
pub(crate) fn check(name: &str, model: fn(Mode)) {
    for mode in modes() {
        let name = format!("{name}/{mode:?}");
        check_random(&name, RUNS, move || model(mode));
        check_pct(&name, RUNS, 3, move || model(mode));
    }
}

/// The same, for sets that hold whole requests together.
pub(crate) fn check_whole_io(name: &str, model: fn(Mode)) {
    for mode in modes() {
        if mode.admission == Admission::WholeIo {
            let name = format!("{name}/{mode:?}");
            check_random(&name, RUNS, move || model(mode));
            check_pct(&name, RUNS, 3, move || model(mode));
        }
    }
}

/// How a world differs from the usual one of two hardware queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) hw_queues: HwQueueOptions,
    pub(crate) depth: usize,
    pub(crate) max_depth: usize,
    pub(crate) reserved: usize,
}

impl Size {
    /// Two hardware queues of so many normal tags each.
    pub(crate) fn of(depth: usize) -> Self {
        Self {
            hw_queues: HwQueueOptions::new(2),
            depth,
            max_depth: depth,
            reserved: 0,
        }
    }

    pub(crate) fn max_depth(self, max_depth: usize) -> Self {
        Self { max_depth, ..self }
    }

    /// So many more, for reserved ones.
    pub(crate) fn reserved(self, reserved: usize) -> Self {
        Self {
            reserved,
            depth: self.depth + reserved,
            max_depth: self.max_depth + reserved,
            ..self
        }
    }

    pub(crate) fn hw_queues(self, hw_queues: HwQueueOptions) -> Self {
        Self { hw_queues, ..self }
    }
}

/// The builder of a mode's set.
pub(crate) fn builder<T: Send + 'static>(
    mode: Mode,
    size: Size,
    clock: &Clock,
) -> TagSetBuilder<T> {
    TagSet::builder()
        .topology(&Topology::synthetic("core:2").unwrap())
        .hw_queues(size.hw_queues.shared_tags(mode.shared))
        .depth(size.depth)
        .max_depth(size.max_depth)
        .reserved(size.reserved)
        .admission(mode.admission)
        .engine(mode.engine)
        .share(mode.share)
        .timeout(super::SECOND)
        .clock(clock.clone())
}
