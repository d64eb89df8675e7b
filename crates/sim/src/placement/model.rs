//! The constants.

use super::idle::IdleState;
use inflight_topology::wake::WakeRules;

/// What clients do for an IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A journal worker on any CPU, and a worker bound to the client's CPU for the IO itself, which
    /// also wakes the client when the IO is complete: XFS over blk-mq.
    Requeue,
    /// As before, and the journal worker is bound to the client's CPU too.
    RequeueBoundJournal,
    /// A journal thread on any CPU; the interrupt wakes the client: ext4.
    Direct,
}

/// Which thread remembers where the woken one ran before, for the rule of the recent CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recent {
    /// Each wake writes the waker's own CPU into the *waker*: the published kernels. A thread that
    /// wakes others before it sleeps has no other recent CPU than the one it is on.
    Waker,
    /// The woken thread gets the CPU it leaves.
    Woken,
}

/// What a run is made of beside the machine: what clients do, and the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// What clients do.
    pub load: Load,
    /// What is shipped, with its switches.
    pub rules: WakeRules,
    /// What the rules are told as the recent CPU.
    pub recent: Recent,
}

impl Side {
    /// The default rules without the stack rule: the kernel before the patch of the tables of
    /// bound workers.
    #[must_use]
    pub fn unstacked(load: Load) -> Self {
        Self {
            load,
            rules: WakeRules {
                stack: false,
                ..WakeRules::default()
            },
            recent: Recent::Waker,
        }
    }

    /// The same with the stack rule, and nothing else changed.
    #[must_use]
    pub fn stacked(load: Load) -> Self {
        Self::unstacked(load).rule(|rules| rules.stack = true)
    }

    /// With something changed in the rules.
    #[must_use]
    pub fn rule(mut self, change: impl FnOnce(&mut WakeRules)) -> Self {
        change(&mut self.rules);
        self
    }

    /// Another who notes where a thread ran before.
    #[must_use]
    pub fn recent(mut self, recent: Recent) -> Self {
        self.recent = recent;
        self
    }
}

/// On which CPU the device interrupts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interrupts {
    /// On the one that submitted.
    Submitter,
    /// So large a part on any CPU of the cache of the one that submitted, the rest on any at all.
    Near(f64),
}

/// The device's service: short, or so many times as long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// The mean, one request after the other.
    pub mean: f64,
    /// The part of the requests that is long.
    pub long_part: f64,
    /// How many times the mean a long one takes.
    pub long: f64,
}

/// Work of one IO, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The client, before it asks for the journal.
    pub before: f64,
    /// The journal worker.
    pub journal: f64,
    /// The client, before it hands the IO on.
    pub submit: f64,
    /// A bound worker: to submit, and to complete.
    pub worker: f64,
    /// What the bound worker does after it has woken the client.
    pub tail: f64,
}

/// A machine, its device and its load. All times in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// As tables call it.
    pub name: &'static str,
    /// As [`Topology::synthetic`](inflight_topology::Topology::synthetic) reads it.
    pub topology: &'static str,
    /// Work of an IO.
    pub times: Times,
    /// What the device does one at a time.
    pub service: Service,
    /// What it does for all at once, and the way to the interrupt.
    pub latency: f64,
    /// Which CPU is interrupted.
    pub interrupts: Interrupts,
    /// To switch to a thread that was woken.
    pub wake: f64,
    /// The first run on another CPU of the same cache.
    pub cold: f64,
    /// The first run in another node, on top of that.
    pub far: f64,
    /// From the lightest to the deepest.
    pub idle: Vec<IdleState>,
    /// The governor foresees an idle time with a log-normal error of so much.
    pub misjudged: f64,
    /// Work varies by so much, up and down.
    pub jitter: f64,
    /// IOs of a load file.
    pub ios_per_file: usize,
    /// Load files of each client that count, for one client; more clients do fewer each.
    pub files: usize,
}

impl Machine {
    /// 48 CPUs, 24 in each of two nodes.
    #[must_use]
    pub fn numa48() -> Self {
        Self {
            name: "numa48_llc24",
            topology: "numa:2 core:24",
            times: Times {
                before: 22.0,
                journal: 6.0,
                submit: 14.0,
                worker: 2.0,
                tail: 2.0,
            },
            service: Service {
                mean: 21.0,
                long_part: 0.19,
                long: 4.7,
            },
            latency: 20.0,
            interrupts: Interrupts::Submitter,
            wake: 1.5,
            cold: 6.0,
            far: 14.0,
            idle: IdleState::ladder(&[(0.0, 1.0), (60.0, 3.0), (680.0, 94.0)]),
            misjudged: 0.3,
            jitter: 0.15,
            ios_per_file: 300,
            files: 48,
        }
    }

    /// 8 CPUs around one cache.
    #[must_use]
    pub fn uma8() -> Self {
        Self {
            name: "uma8",
            topology: "core:8",
            times: Times {
                before: 15.0,
                journal: 4.0,
                submit: 9.0,
                ..Self::numa48().times
            },
            service: Service {
                mean: 11.6,
                ..Self::numa48().service
            },
            latency: 10.0,
            cold: 2.5,
            idle: IdleState::ladder(&[(0.0, 1.0), (60.0, 3.0), (680.0, 22.0)]),
            ..Self::numa48()
        }
    }

    /// 40 CPUs, 20 in each of two nodes, whose device interrupts CPUs far from the submitter too.
    #[must_use]
    pub fn numa40() -> Self {
        Self {
            name: "numa40_irq",
            topology: "numa:2 core:20",
            times: Times {
                before: 60.0,
                ..Self::numa48().times
            },
            service: Service {
                mean: 8.0,
                ..Self::numa48().service
            },
            latency: 45.0,
            interrupts: Interrupts::Near(0.7),
            cold: 4.0,
            idle: Self::uma8().idle,
            ..Self::numa48()
        }
    }
}
