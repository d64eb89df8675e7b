//! Synthetic machines, described in one line.

mod error;

use std::collections::BTreeMap;

pub use self::error::SyntheticError;
use crate::CpuSet;
use crate::cpuset::is_decimal;
use crate::model::{CacheFacts, CpuFacts, Description};

/// The largest machine that can be described.
const MAX_CPUS: usize = 1024;

/// The keys for counts, from the outermost part to the innermost.
const COUNTS: [&str; 4] = ["numa", "cache", "core", "smt"];

/// The keys for sets of CPUs.
const SETS: [&str; 4] = ["offline", "isolated", "fast", "slow"];

/// The level of the only cache of a synthetic machine; any number is valid.
const CACHE_LEVEL: u32 = 3;

/// The capacity that Linux gives the fastest CPU of a machine.
const ORDINARY: u32 = 1024;

/// Distances that firmware commonly reports.
const OWN: u32 = 10;
const OTHER: u32 = 20;

/// A parsed description whose numbers have not been checked against each other.
#[derive(Default)]
struct Parsed {
    /// In the order of [`COUNTS`].
    counts: [Option<Vec<usize>>; COUNTS.len()],
    /// In the order of [`SETS`].
    sets: [Option<CpuSet>; SETS.len()],
}

fn parse(text: &str) -> Result<Parsed, SyntheticError> {
    let mut parsed = Parsed::default();
    let mut empty = true;
    for item in text.split_whitespace() {
        empty = false;
        let malformed = || SyntheticError::Malformed {
            item: item.to_owned(),
        };
        let (name, value) = item.split_once(':').ok_or_else(malformed)?;
        let of = |keys: &[&str]| keys.iter().position(|&key| key == name);
        let twice = if let Some(at) = of(&COUNTS) {
            let counts = counts(COUNTS[at], value, malformed)?;
            parsed.counts[at].replace(counts).map(|_| COUNTS[at])
        } else if let Some(at) = of(&SETS) {
            let key = SETS[at];
            let set = value
                .parse()
                .map_err(|error| SyntheticError::BadList { key, error })?;
            parsed.sets[at].replace(set).map(|_| key)
        } else {
            let key = name.to_owned();
            return Err(SyntheticError::UnknownKey { key });
        };
        if let Some(key) = twice {
            return Err(SyntheticError::Duplicate { key });
        }
    }
    if empty {
        return Err(SyntheticError::Empty);
    }
    Ok(parsed)
}

fn counts(
    key: &'static str,
    value: &str,
    malformed: impl Fn() -> SyntheticError,
) -> Result<Vec<usize>, SyntheticError> {
    let count = |text: &str| {
        if !is_decimal(text) {
            return Err(malformed());
        }
        // There are only digits, so the only other failure is a number too large for a usize.
        match text.parse() {
            Ok(0) => Err(SyntheticError::Zero { key }),
            Ok(count) if count <= MAX_CPUS => Ok(count),
            _ => Err(SyntheticError::TooLarge),
        }
    };
    value.split(',').map(count).collect()
}

/// The number of parts of each of the `wholes`: one count for all, or one for each.
fn spread(
    key: &'static str,
    counts: Option<Vec<usize>>,
    wholes: usize,
) -> Result<Vec<usize>, SyntheticError> {
    let counts = counts.unwrap_or_else(|| vec![1]);
    let counts = match counts[..] {
        [count] => vec![count; wholes],
        _ if counts.len() == wholes => counts,
        _ => {
            return Err(SyntheticError::WrongLength {
                key,
                given: counts.len(),
                needed: wholes,
            });
        }
    };
    // Every count is at most MAX_CPUS, and there are at most as many counts: no overflow.
    if counts.iter().sum::<usize>() > MAX_CPUS {
        return Err(SyntheticError::TooLarge);
    }
    Ok(counts)
}

/// For each part, the whole that it is in.
fn owners(counts: &[usize]) -> Vec<usize> {
    let parts = counts.iter().enumerate();
    parts
        .flat_map(|(whole, &count)| vec![whole; count])
        .collect()
}

/// The position of a CPU.
struct Place {
    node: usize,
    cache: usize,
    core: usize,
}

/// The positions of the CPUs, by number. The numbers are as firmware commonly assigns them: the
/// first threads of all cores, core by core, then all second threads in the same order.
fn places(counts: [Option<Vec<usize>>; COUNTS.len()]) -> Result<Vec<Place>, SyntheticError> {
    let [nodes, caches, cores, threads] = counts;
    let [numa, cache, core, smt] = COUNTS;
    let nodes = spread(numa, nodes, 1)?[0];
    let node_of = owners(&spread(cache, caches, nodes)?);
    let cache_of = owners(&spread(core, cores, node_of.len())?);
    let threads = spread(smt, threads, cache_of.len())?;
    let place = |core: usize| Place {
        node: node_of[cache_of[core]],
        cache: cache_of[core],
        core,
    };
    let most = threads.iter().copied().max().unwrap_or(0);
    let mut places = Vec::new();
    for thread in 0..most {
        let with_it = (0..threads.len()).filter(|&core| threads[core] > thread);
        places.extend(with_it.map(place));
    }
    Ok(places)
}

pub(crate) fn describe(text: &str) -> Result<Description, SyntheticError> {
    let Parsed { counts, sets } = parse(text)?;
    let places = places(counts)?;
    let possible: CpuSet = (0..places.len()).collect();
    for (key, set) in SETS.into_iter().zip(&sets) {
        let unknown = set
            .as_ref()
            .and_then(|set| set.difference(&possible).first());
        if let Some(cpu) = unknown {
            return Err(SyntheticError::NoSuchCpu { key, cpu });
        }
    }
    let [offline, isolated, fast, slow] = sets.map(Option::unwrap_or_default);
    if let Some(cpu) = fast.intersection(&slow).first() {
        return Err(SyntheticError::FastAndSlow { cpu });
    }
    let online = possible.difference(&offline);
    let usable = online.difference(&isolated);
    if usable.is_empty() {
        return Err(SyntheticError::NoCpuLeft);
    }
    let capacity = |cpu| match (fast.contains(cpu), slow.contains(cpu)) {
        (true, _) => 2 * ORDINARY,
        (_, true) => ORDINARY / 2,
        _ => ORDINARY,
    };
    let cores = members(&places, &online, |place| place.core);
    let caches = members(&places, &online, |place| place.cache);
    let facts = |cpu: usize| CpuFacts {
        siblings: Some(cores[&places[cpu].core].clone()),
        cache: Some(CacheFacts {
            level: CACHE_LEVEL,
            cpus: caches[&places[cpu].cache].clone(),
        }),
        package: Some(places[cpu].node),
        node: Some(places[cpu].node),
        capacity: Some(capacity(cpu)),
    };
    let nodes = places
        .iter()
        .map(|place| place.node)
        .max()
        .map_or(0, |last| last + 1);
    let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    let far = |(from, to)| ((from, to), if from == to { OWN } else { OTHER });
    Ok(Description {
        cpus: online.iter().map(|cpu| (cpu, facts(cpu))).collect(),
        usable,
        distances: pairs.map(far).collect(),
        possible,
        online,
        isolated,
        ..Description::default()
    })
}

/// The online CPUs of each core, or of each cache.
fn members(
    places: &[Place],
    online: &CpuSet,
    whole: impl Fn(&Place) -> usize,
) -> BTreeMap<usize, CpuSet> {
    let mut members: BTreeMap<usize, CpuSet> = BTreeMap::new();
    for cpu in online {
        members.entry(whole(&places[cpu])).or_default().insert(cpu);
    }
    members
}
