//! Every order of events that two to four requests allow, on the machine as it is shipped.
//!
//! A state is the machine and the world around it: what each request has done, what the device has
//! written, and which of it is durable. From each state every possible event is tried. Each step
//! checks the invariants, and at the end no request is left waiting.
//!
//! A device may lose what is in its cache. It reports that to the call that asks first, and to no
//! other.
//!
//! Found by it, when a step is left out on purpose: see [`mutations_are_noticed`].

mod world;

use super::mutation::Mutation;
use super::{Caps, Deferral, Flags};
use std::time::Duration;
use world::{Faults, Setting};

const TIMEOUT: Duration = Duration::from_millis(10);
const KINDS: [Flags; 4] = [
    Flags::flush(),
    Flags::write().preflush(),
    Flags::write().fua(),
    Flags::write().preflush().fua(),
];

/// All multisets of `count` of the kinds.
fn combinations(of: &[Flags], count: usize) -> Vec<Vec<Flags>> {
    let Some(fewer) = count.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let mut all = Vec::new();
    for (from, &first) in of.iter().enumerate() {
        for mut rest in combinations(&of[from..], fewer) {
            rest.push(first);
            all.push(rest);
        }
    }
    all
}

const NO_FAULTS: Faults = Faults {
    errors: false,
    leaving: false,
    timer: false,
    loss: false,
};
const ALL_FAULTS: Faults = Faults {
    errors: true,
    leaving: true,
    timer: true,
    loss: false,
};
/// Without the timer, which would hide a request that is stuck.
const NO_TIMER: Faults = Faults {
    timer: false,
    ..ALL_FAULTS
};

/// The cache is lost once. A time limit adds nothing to that.
const LOSS: Faults = Faults {
    errors: false,
    loss: true,
    ..NO_TIMER
};

fn settings(kinds: &[Flags], count: usize, devices: &[Caps], faults: Faults) -> Vec<Setting> {
    let mut all = Vec::new();
    for kinds in combinations(kinds, count) {
        for &caps in devices {
            for deferral in [Deferral::Off, Deferral::Bounded(TIMEOUT)] {
                all.push(Setting {
                    kinds: kinds.clone(),
                    exclusive: false,
                    caps,
                    deferral,
                    faults,
                    mutation: None,
                });
            }
        }
    }
    all
}

fn explore_each(settings: Vec<Setting>) -> usize {
    let explored = settings.into_iter().map(|setting| {
        let states = setting.explore();
        states.unwrap_or_else(|what| panic!("{:?} on {:?}: {what}", setting.kinds, setting.caps))
    });
    explored.sum()
}

/// No request waits for more than two flushes, either: see [`Setting::perform`].
#[test]
fn two_requests_with_every_fault() {
    let devices = [Caps::volatile(), Caps::volatile_with_fua(), Caps::durable()];
    for faults in [ALL_FAULTS, NO_TIMER] {
        let states = explore_each(settings(&KINDS, 2, &devices, faults));
        assert!(states > 1_550, "{states}");
    }
}

/// No request waits for ever, even without the timer: only data delays a flush, and its end issues
/// the flush.
#[test]
fn three_requests_with_every_fault() {
    let devices = [Caps::volatile(), Caps::volatile_with_fua()];
    for faults in [ALL_FAULTS, NO_TIMER] {
        let states = explore_each(settings(&KINDS, 3, &devices, faults));
        assert!(states > 37_551, "{states}");
    }
}

#[test]
fn four_requests() {
    let states = explore_each(settings(&KINDS, 4, &[Caps::volatile()], NO_FAULTS));
    assert!(states > 355_033, "{states}");
}

/// If the device reports a loss to one call, no other call that the loss concerns succeeds.
#[test]
fn three_requests_whose_data_may_be_lost() {
    let devices = [Caps::volatile(), Caps::volatile_with_fua()];
    let states = explore_each(settings(&KINDS, 3, &devices, LOSS));
    assert!(states > 100, "{states}");
}

fn exclusive(count: usize, faults: Faults) -> Vec<Setting> {
    let kinds = [Flags::flush(), Flags::write(), Flags::write().fua()];
    let devices = [Caps::volatile(), Caps::volatile_with_fua()];
    let mut settings = settings(&kinds, count, &devices, faults);
    settings.iter_mut().for_each(|s| s.exclusive = true);
    settings
}

/// A domain that sees all writes ends a flush at once if there is nothing to flush; what completed
/// before is durable all the same.
#[test]
fn four_requests_of_an_exclusive_domain() {
    let states = explore_each(exclusive(3, ALL_FAULTS)) + explore_each(exclusive(4, NO_FAULTS));
    assert!(states > 300_000, "{states}");
}

#[test]
fn mutations_are_noticed() {
    let volatile = || settings(&KINDS, 3, &[Caps::volatile()], NO_FAULTS);
    let loss = || settings(&KINDS, 3, &[Caps::volatile_with_fua()], LOSS);
    for (mutation, settings, word) in [
        (Mutation::JoinRunning, volatile(), "durable"),
        (Mutation::NoIssueAfterData, volatile(), "for ever"),
        (Mutation::NoIssueAfterFlush, volatile(), "for ever"),
        (Mutation::IssueTwice, volatile(), "two flushes"),
        (Mutation::CleanAtEnd, exclusive(3, NO_FAULTS), "durable"),
        (Mutation::WriteIsNotHeld, loss(), "durable"),
        (Mutation::FlushIsNotHeld, loss(), "durable"),
        (Mutation::FlushIgnoresFailures, loss(), "durable"),
        (Mutation::DataIgnoresFailures, loss(), "durable"),
    ] {
        let broken = settings.into_iter().map(|setting| Setting {
            mutation: Some(mutation),
            ..setting
        });
        let found: Vec<String> = broken.filter_map(|s| s.explore().err()).collect();
        assert!(
            found.iter().any(|what| what.contains(word)),
            "{mutation:?}: {:?}",
            found.first()
        );
    }
}
