//! Options that are one of a few names.

use clap::ValueEnum;
use inflight::tags::{Admission, NoPreempt};
use inflight::topology::wake::{Reach, WakeRules};

/// The order in which waiting requests get tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdmissionChoice {
    /// All tags of a block before those of any other.
    #[value(name = "whole_io")]
    WholeIo,
    /// First come while a tag is free, as in kernels.
    Preempt,
    /// A newcomer does not overtake while many wait.
    #[value(name = "no_preempt")]
    NoPreempt,
    /// Later pieces of a block need no tag of the depth, up to half of it.
    Elastic,
}

impl AdmissionChoice {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WholeIo => "whole_io",
            Self::Preempt => "preempt",
            Self::NoPreempt => "no_preempt",
            Self::Elastic => "elastic",
        }
    }

    /// The policy for tags of `depth`.
    pub(crate) fn policy(self, depth: usize) -> Admission {
        match self {
            Self::WholeIo => Admission::WholeIo,
            Self::Preempt => Admission::preempt(),
            Self::NoPreempt => Admission::NoPreempt(NoPreempt::default()),
            Self::Elastic => Admission::elastic_overcommit(depth.div_ceil(2)),
        }
    }
}

/// How requests are passed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineChoice {
    /// One ring per job.
    #[value(name = "io_uring")]
    IoUring,
    /// pread and pwrite on a workqueue; works everywhere.
    Psync,
    /// io_uring if the kernel lets us, else psync.
    Auto,
}

/// Which CPU runs a completion that is sent to the CPU that submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WakeChoice {
    /// That CPU, whatever it does.
    Affine,
    /// The one that saw the completion, if it is free and near; else one that is free.
    Pull,
    /// That of the worker that saw it, if that sleeps next; else one that is free.
    Stack,
}

impl WakeChoice {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Affine => "affine",
            Self::Pull => "pull",
            Self::Stack => "stack",
        }
    }

    /// The rules of the queue that runs completions.
    pub(crate) fn rules(self) -> Option<WakeRules> {
        let rules = WakeRules::default();
        match self {
            Self::Affine => None,
            Self::Pull => Some(WakeRules {
                stack: false,
                ..rules
            }),
            Self::Stack => Some(WakeRules {
                pull: Reach::Nowhere,
                ..rules
            }),
        }
    }
}
