//! The rules of each mode: the length of a turn, and the number of woken threads that have not run.

use super::stall_watchdog::STALL_LIMIT;
use super::turn::{QUANTUM, TURN_LIFE};

/// What a mode allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeRules {
    /// How many ids one wake gives a thread, including the granted one.
    pub(crate) quantum: u32,
    /// For how many grants a turn lasts.
    pub(crate) life: u32,
    /// How many woken threads may not have run yet.
    pub(crate) tokens: u32,
    /// After how many puts that found the token out it is given up.
    pub(crate) stall_limit: u32,
    /// How often a turn that finds no id spins before it waits, while puts come from another CPU:
    /// in steps of about 0.1 us. In total about the cost of waking a thread on another CPU.
    pub(crate) spins: u32,
    /// How often it yields its CPU instead, while puts come from its own.
    pub(crate) yields: u32,
}

impl ModeRules {
    pub(crate) const FAIR: Self = Self {
        quantum: QUANTUM,
        life: TURN_LIFE,
        tokens: 1,
        stall_limit: STALL_LIMIT,
        // A model checker's CPU does nothing else meanwhile, and its CPUs are not real.
        spins: if cfg!(any(loom, shuttle)) { 0 } else { 200 },
        yields: if cfg!(any(loom, shuttle)) { 0 } else { 2 },
    };

    pub(crate) const FAIR_POLLED: Self = Self {
        spins: Self::FAIR.spins * 2,
        yields: Self::FAIR.yields * 4,
        ..Self::FAIR
    };

    pub(crate) const FIFO: Self = Self {
        quantum: 1,
        life: 0,
        tokens: u32::MAX,
        stall_limit: 1,
        spins: 0,
        yields: 0,
    };
}
