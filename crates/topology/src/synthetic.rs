//! Machines described in one line.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use crate::CpuSet;
use crate::cpuset::is_decimal;
use crate::model::{CacheFacts, CpuFacts, Description};

/// The largest machine that can be described.
pub(crate) const MAX_CPUS: usize = 1024;

const KEYS: [&str; 4] = ["numa", "cache", "core", "smt"];

/// The level of the one cache a synthetic machine has; any number does.
const CACHE_LEVEL: u32 = 3;

/// Why a text describes no machine.
///
/// ```
/// use inflight_topology::{SyntheticError, Topology};
///
/// let error = Topology::synthetic("numa:2 cores:4").unwrap_err();
/// assert_eq!(error, SyntheticError::UnknownKey { key: "cores".to_owned() });
/// assert_eq!(error.to_string(), "`cores` is none of numa, cache, core, smt");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntheticError {
    /// An item is not of the form `key:count` with a decimal count.
    Malformed {
        /// The item.
        item: String,
    },
    /// The key is none of `numa`, `cache`, `core`, `smt`.
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
        /// Its key.
        key: &'static str,
    },
    /// The machine would have more than 1,024 CPUs.
    TooLarge,
}

impl fmt::Display for SyntheticError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { item } => write!(f, "`{item}` is not of the form key:count"),
            Self::UnknownKey { key } => write!(f, "`{key}` is none of {}", KEYS.join(", ")),
            Self::Duplicate { key } => write!(f, "`{key}` is given twice"),
            Self::Zero { key } => write!(f, "`{key}` must be at least 1"),
            Self::TooLarge => write!(f, "the machine has more than {MAX_CPUS} CPUs"),
        }
    }
}

impl Error for SyntheticError {}

/// A machine that looks the same everywhere.
struct Machine {
    /// Memory nodes.
    nodes: usize,
    /// Last-level caches in a node.
    caches: usize,
    /// Cores around a cache.
    cores: usize,
    /// Hardware threads of a core.
    threads: usize,
}

fn parse(text: &str) -> Result<Machine, SyntheticError> {
    let mut counts: [Option<usize>; KEYS.len()] = [None; KEYS.len()];
    for item in text.split_whitespace() {
        let malformed = || SyntheticError::Malformed {
            item: item.to_owned(),
        };
        let (name, count) = item.split_once(':').ok_or_else(malformed)?;
        let position = KEYS.iter().position(|&key| key == name);
        let position = position.ok_or_else(|| SyntheticError::UnknownKey {
            key: name.to_owned(),
        })?;
        let key = KEYS[position];
        if !is_decimal(count) {
            return Err(malformed());
        }
        // Only digits, so the one way to fail is a number too large for a usize.
        let count: usize = count.parse().map_err(|_| SyntheticError::TooLarge)?;
        if count == 0 {
            return Err(SyntheticError::Zero { key });
        }
        if counts[position].replace(count).is_some() {
            return Err(SyntheticError::Duplicate { key });
        }
    }
    let [nodes, caches, cores, threads] = counts.map(|count| count.unwrap_or(1));
    let cpus = [caches, cores, threads]
        .into_iter()
        .try_fold(nodes, usize::checked_mul);
    match cpus {
        Some(cpus) if cpus <= MAX_CPUS => Ok(Machine {
            nodes,
            caches,
            cores,
            threads,
        }),
        _ => Err(SyntheticError::TooLarge),
    }
}

/// CPUs are numbered as firmware commonly does it: first the first threads of all cores, core by
/// core, then all second threads in the same order.
pub(crate) fn describe(text: &str) -> Result<Description, SyntheticError> {
    let Machine {
        nodes,
        caches,
        cores,
        threads,
    } = parse(text)?;
    let all_cores = nodes * caches * cores;
    let threads_of = |first: usize, last: usize| -> CpuSet {
        (0..threads)
            .flat_map(|t| (first..last).map(move |core| t * all_cores + core))
            .collect()
    };
    let mut cpus = BTreeMap::new();
    for core in 0..all_cores {
        let node = core / (caches * cores);
        let first = core / cores * cores;
        let siblings = threads_of(core, core + 1);
        let facts = CpuFacts {
            siblings: Some(siblings.clone()),
            cache: Some(CacheFacts {
                level: CACHE_LEVEL,
                cpus: threads_of(first, first + cores),
            }),
            package: Some(node),
            node: Some(node),
        };
        cpus.extend(siblings.iter().map(|cpu| (cpu, facts.clone())));
    }
    let ids: CpuSet = cpus.keys().copied().collect();
    Ok(Description {
        possible: ids.clone(),
        online: ids,
        cpus,
        ..Description::default()
    })
}
