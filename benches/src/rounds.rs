//! Rounds of all contenders in turn, and the middle of what they gave.

use crate::distance::{State, probe};
use std::thread;
use std::time::{Duration, Instant};

/// Calls `sample(contender)` for each of `contenders`, `rounds` times over, beginning with another
/// one each time, so that a slow moment of the machine meets all. The samples of each contender.
pub fn rotate<T>(
    contenders: usize,
    rounds: usize,
    mut sample: impl FnMut(usize) -> T,
) -> Vec<Vec<T>> {
    let mut samples: Vec<Vec<T>> = (0..contenders).map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..contenders {
            let contender = (round + turn) % contenders;
            samples[contender].push(sample(contender));
        }
    }
    samples
}

/// From the first start to the last end of threads that each look at the clock themselves: one that
/// looks for them may get a CPU late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    begin: Instant,
    end: Instant,
}

impl Span {
    /// From `begin` until now.
    pub(crate) fn since(begin: Instant) -> Self {
        let end = Instant::now();
        Self { begin, end }
    }

    /// Both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            begin: self.begin.min(other.begin),
            end: self.end.max(other.end),
        }
    }

    pub(crate) fn seconds(self) -> f64 {
        (self.end - self.begin).as_secs_f64()
    }
}

/// A sample, and where the two CPUs were.
#[derive(Clone, Copy, Debug)]
pub struct Probed<T> {
    /// What was measured.
    pub value: T,
    /// The state of the probes before and after; `None` if the sample must be put aside.
    pub state: Option<State>,
    /// The mean of the two probes, in ns.
    pub distance: f64,
}

/// The least number of samples of a state for a median.
pub const ENOUGH: usize = 3;

/// Between two samples: whatever still runs comes to its end, and the real-time class leaves the
/// part of each second that the system keeps for others.
const REST: Duration = Duration::from_millis(2);

/// As [`rotate`], with a probe of the CPUs' distance before and after each sample. If a
/// contender has a sample of the near state in less than a quarter of `rounds`, or less than
/// [`ENOUGH`], up to twice as many rounds.
pub fn rotate_probed<T>(
    contenders: usize,
    rounds: usize,
    mut sample: impl FnMut(usize) -> T,
) -> Vec<Vec<Probed<T>>> {
    let mut all: Vec<Vec<Probed<T>>> = (0..contenders).map(|_| Vec::new()).collect();
    let near = |samples: &Vec<Probed<T>>| {
        let near = |sample: &&Probed<T>| {
            matches!(sample.state, Some(State::Near | State::OneCpu)) // Nothing else is to come.
        };
        samples.iter().filter(near).count() >= ENOUGH.max(rounds / 4)
    };
    for round in 0..2 * rounds {
        if round >= rounds && all.iter().all(near) {
            break;
        }
        for turn in 0..contenders {
            let contender = (round + turn) % contenders;
            let before = probe();
            let value = sample(contender);
            let after = probe();
            all[contender].push(Probed {
                value,
                state: State::of(before, after),
                distance: f64::midpoint(before, after),
            });
            thread::sleep(REST);
        }
    }
    all
}

/// The samples of each contender in one state.
#[derive(Clone, Debug)]
pub struct Group<T> {
    /// The state of all of them.
    pub state: State,
    /// The middle of their distances, in ns; not a number with one CPU.
    pub distance: f64,
    /// By contender; empty where there were less than [`ENOUGH`].
    pub samples: Vec<Vec<T>>,
}

/// The samples by state, and how many were put aside because their probes disagreed.
#[must_use]
pub fn by_state<T: Clone>(all: &[Vec<Probed<T>>]) -> (Vec<Group<T>>, usize) {
    let aside = all.iter().flatten().filter(|p| p.state.is_none()).count();
    let groups = State::ALL.into_iter().filter_map(|state| {
        let of = |samples: &Vec<Probed<T>>| {
            let here = samples.iter().filter(|sample| sample.state == Some(state));
            let here: Vec<_> = here.cloned().collect();
            if here.len() < ENOUGH {
                Vec::new()
            } else {
                here
            }
        };
        let here: Vec<Vec<_>> = all.iter().map(of).collect();
        let distances: Vec<_> = here.iter().flatten().map(|s| s.distance).collect();
        (!distances.is_empty()).then(|| Group {
            state,
            distance: match state {
                State::OneCpu => f64::NAN,
                _ => median(distances),
            },
            samples: here
                .into_iter()
                .map(|samples| samples.into_iter().map(|s| s.value).collect())
                .collect(),
        })
    });
    (groups.collect(), aside)
}

/// The middle value, the upper one of two.
///
/// # Panics
///
/// If there are no values or one is not a number.
pub fn median<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T>) -> T {
    quantile(values, 0.5)
}

/// The value below which this part of the values lies.
///
/// # Panics
///
/// If there are no values or one is not a number.
pub fn quantile<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T>, part: f64) -> T {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    let last = values.len().checked_sub(1).expect("at least one value");
    let position = (values.len() as f64 * part) as usize;
    values[position.min(last)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(value: u32, before: f64, after: f64) -> Probed<u32> {
        Probed {
            value,
            state: State::of(before, after),
            distance: f64::midpoint(before, after),
        }
    }

    #[test]
    fn states_are_never_mixed() {
        let near = |value| probed(value, 60.0, 64.0);
        let far = |value| probed(value, 280.0, 300.0);
        let all = [
            vec![near(1), far(9), near(2), probed(5, 60.0, 290.0), near(3)],
            vec![far(7), near(4), far(8), near(5), far(9)],
        ];
        let (groups, aside) = by_state(&all);
        assert_eq!(aside, 1, "its probes disagree");
        let text =
            |group: &Group<u32>| format!("{} {} {:?}", group.state, group.distance, group.samples);
        let groups: Vec<_> = groups.iter().map(text).collect();
        assert_eq!(
            groups,
            ["near 62 [[1, 2, 3], []]", "far 290 [[], [7, 8, 9]]"]
        );
    }

    #[test]
    fn every_contender_has_its_turns() {
        let all = rotate_probed(3, 2, |contender| contender);
        for (contender, samples) in all.iter().enumerate() {
            assert!((2..=4).contains(&samples.len()), "{}", samples.len());
            assert!(samples.iter().all(|sample| sample.value == contender));
        }
    }
}
