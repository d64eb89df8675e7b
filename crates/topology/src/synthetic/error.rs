//! Why a text is not a valid description of a machine.

use std::error::Error;
use std::fmt;

use super::{COUNTS, MAX_CPUS, SETS};
use crate::ParseCpuSetError;

/// Why a text is not a valid description of a machine.
///
/// ```
/// use inflight_topology::{SyntheticError, Topology};
///
/// let error = Topology::synthetic("numa:2 cores:4").unwrap_err();
/// assert_eq!(error, SyntheticError::UnknownKey { key: "cores".to_owned() });
/// assert_eq!(
///     error.to_string(),
///     "`cores` is none of numa, cache, core, smt, offline, isolated, fast, slow"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntheticError {
    /// The text is empty.
    Empty,
    /// An item is not of the form `key:value`, or a count is not a decimal number.
    Malformed {
        /// The item.
        item: String,
    },
    /// The key is not one of `numa`, `cache`, `core`, `smt`, `offline`, `isolated`, `fast`, `slow`.
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key is given twice.
    Duplicate {
        /// The key.
        key: &'static str,
    },
    /// A count is zero.
    Zero {
        /// The key.
        key: &'static str,
    },
    /// A list of counts has neither one count nor one for each whole that is divided.
    WrongLength {
        /// The key.
        key: &'static str,
        /// The number of counts.
        given: usize,
        /// The number of nodes, caches or cores that the counts are for.
        needed: usize,
    },
    /// The machine would have more than 1,024 CPUs.
    TooLarge,
    /// The value of `offline`, `isolated`, `fast` or `slow` is not a list of CPUs.
    BadList {
        /// The key.
        key: &'static str,
        /// What is wrong with the list.
        error: ParseCpuSetError,
    },
    /// A list names a CPU that the machine does not have.
    NoSuchCpu {
        /// The key of the list.
        key: &'static str,
        /// The lowest such CPU.
        cpu: usize,
    },
    /// A CPU is listed both as `fast` and as `slow`.
    FastAndSlow {
        /// The lowest such CPU.
        cpu: usize,
    },
    /// Every CPU is offline or isolated.
    NoCpuLeft,
}

impl fmt::Display for SyntheticError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the description is empty; try `core:4`"),
            Self::Malformed { item } => write!(
                f,
                "`{item}` is neither `key:count`, with a decimal number or one for each part \
                 between commas, nor `key:cpus`"
            ),
            Self::UnknownKey { key } => {
                let keys = [COUNTS, SETS].concat().join(", ");
                write!(f, "`{key}` is none of {keys}")
            }
            Self::Duplicate { key } => write!(f, "`{key}` is given twice"),
            Self::Zero { key } => write!(f, "`{key}` must be at least 1"),
            Self::WrongLength { key, given, needed } => write!(
                f,
                "`{key}` has {given} counts, where one or {needed} would fit"
            ),
            Self::TooLarge => write!(f, "the machine has more than {MAX_CPUS} CPUs"),
            Self::BadList { key, error } => write!(f, "`{key}`: {error}"),
            Self::NoSuchCpu { key, cpu } => {
                write!(
                    f,
                    "`{key}` names CPU {cpu}, which the machine does not have"
                )
            }
            Self::FastAndSlow { cpu } => write!(f, "CPU {cpu} cannot be both fast and slow"),
            Self::NoCpuLeft => f.write_str("every CPU is offline or isolated"),
        }
    }
}

impl Error for SyntheticError {}
