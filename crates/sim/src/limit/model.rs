//! The constants, and what a limit counts.

use std::fmt;

/// Over what a limit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// All items of the queue: what this library and kernels from 6.9 on do.
    System,
    /// The items queued on each CPU: kernels 6.6 to 6.8.
    Cpu,
}

impl Counted {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::System, Self::Cpu];

    /// As the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Cpu => "cpu",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The machine, the load and the lock. Times in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The machine, as a topology's description.
    pub machine: String,
    /// Writes that are under way.
    pub writes: usize,
    /// KiB of each.
    pub kib: f64,
    /// What an item does before it needs the lock.
    pub work: f64,
    /// How long an item holds the lock.
    pub hold: f64,
    /// How many waiters of the lock spin. Others sleep.
    pub spinners: usize,
    /// From the wake of a sleeper to its first step.
    pub wake: f64,
    /// From the end of an item to its writer's next one.
    pub device: f64,
    /// Steps vary by so much, up and down.
    pub jitter: f64,
    /// Items that count.
    pub items: usize,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            machine: "cache:4 core:24".to_owned(),
            writes: 32 * 32,
            kib: 64.0,
            work: 30_000.0,
            hold: 25_000.0,
            spinners: 8,
            wake: 24_000.0,
            device: 100_000.0,
            jitter: 0.2,
            items: 20_000,
        }
    }
}
