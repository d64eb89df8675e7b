//! Idle states: the longer a CPU will be idle, the deeper it sleeps, and the longer it takes to
//! wake.

use fastrand::Rng;

/// An idle state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleState {
    /// Chosen for idle times from here on, in microseconds.
    pub from: f64,
    /// What it takes to leave it, in microseconds.
    pub exit: f64,
}

impl IdleState {
    /// From pairs of `from` and `exit`, the lightest first.
    #[must_use]
    pub fn ladder(states: &[(f64, f64)]) -> Vec<Self> {
        let state = |&(from, exit)| Self { from, exit };
        states.iter().map(state).collect()
    }
}

/// What it takes to leave the state that the governor has chosen for an idle time, which it
/// foresees with an error.
pub(super) fn exit(states: &[IdleState], idle: f64, misjudged: f64, rng: &mut Rng) -> f64 {
    let foreseen = idle * (misjudged * normal(rng)).exp();
    let chosen = states.iter().rev().find(|state| state.from <= foreseen);
    chosen.map_or(0.0, |state| state.exit)
}

/// Of mean 0 and deviation 1, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}
