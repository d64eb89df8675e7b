//! Makes pods from what is known about each CPU: fills the gaps, records each assumption, and
//! splits the CPUs for every scope.
//!
//! Invariant: whatever the description says, the pods of each scope are a partition of the usable
//! CPUs. Every rule below therefore gives each CPU exactly one key.

use std::collections::{BTreeMap, BTreeSet};

use crate::place::{Place, Places};
use crate::pod::Pods;
use crate::speed::Speeds;
use crate::{Assumption, CpuSet, Scope, shards};

/// What a reader found out about a machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    /// CPUs that may ever be online.
    pub(crate) possible: CpuSet,
    /// CPUs online when the reader looked.
    pub(crate) online: CpuSet,
    /// CPUs kept out of ordinary scheduling.
    pub(crate) isolated: CpuSet,
    /// CPUs the process's control group allows, where that is known.
    pub(crate) allowed: Option<CpuSet>,
    /// The CPUs that can be used; all of them are described.
    pub(crate) usable: CpuSet,
    /// What is known about each described CPU. Besides the usable ones, others that are online:
    /// isolated, or closed to the thread that asks.
    pub(crate) cpus: BTreeMap<usize, CpuFacts>,
    /// Distances between memory nodes, from and to.
    pub(crate) distances: BTreeMap<(usize, usize), u32>,
    /// What the reader itself had to assume.
    pub(crate) assumptions: Vec<Assumption>,
}

/// What is known about one CPU. Sets may name CPUs that are not described, and may be wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuFacts {
    /// The hardware threads of its core, itself among them.
    pub(crate) siblings: Option<CpuSet>,
    /// Its last-level cache.
    pub(crate) cache: Option<CacheFacts>,
    /// The number of its package.
    pub(crate) package: Option<usize>,
    /// Its memory node.
    pub(crate) node: Option<usize>,
    /// How fast it is, in any unit; comparable within a machine.
    pub(crate) capacity: Option<u32>,
}

/// A cache is known by its level and its CPUs: ids are unique only per level, may be missing, and
/// contradict themselves in some virtual machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheFacts {
    pub(crate) level: u32,
    /// The CPUs sharing it, the owner of the fact among them.
    pub(crate) cpus: CpuSet,
}

/// The finished model of a machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) possible: CpuSet,
    pub(crate) online: CpuSet,
    pub(crate) isolated: CpuSet,
    pub(crate) allowed: CpuSet,
    pub(crate) cpus: CpuSet,
    pub(crate) nodes: Vec<usize>,
    pub(crate) distances: BTreeMap<(usize, usize), u32>,
    pub(crate) speeds: Speeds,
    pub(crate) places: Places,
    pub(crate) assumptions: Vec<Assumption>,
    /// In the order of [`Scope::ALL`].
    pods: [Pods; Scope::ALL.len()],
}

impl Model {
    pub(crate) fn new(description: Description) -> Self {
        let Description {
            possible,
            online,
            isolated,
            allowed,
            usable: cpus,
            cpus: facts,
            distances,
            mut assumptions,
        } = description;
        let cores = core_leaders(&facts, &mut assumptions);
        let mut caches = cache_leaders(&facts, &mut assumptions);
        join_caches_of_cores(&cores, &mut caches, &mut assumptions);
        let nodes = nodes(&facts, &mut assumptions);
        let speeds = speeds(&facts, &mut assumptions);

        let node = |cpu: usize| Some(nodes[&cpu]);
        let cache = Pods::by_key(&cpus, |cpu| caches[&cpu], node);
        let shards = shard_numbers(&cache, &cores);
        let pods = Scope::ALL.map(|scope| match scope {
            Scope::Cpu => Pods::by_key(&cpus, |cpu| cpu, node),
            Scope::Smt => Pods::by_key(&cpus, |cpu| cores[&cpu], node),
            Scope::CacheShard => Pods::by_key(&cpus, |cpu| (caches[&cpu], shards[&cpu]), node),
            Scope::Cache => Pods::by_key(&cpus, |cpu| caches[&cpu], node),
            Scope::Numa => Pods::by_key(&cpus, |cpu| nodes[&cpu], node),
            Scope::System => Pods::by_key(&cpus, |_| (), |_| None),
        });
        let places = facts.keys().map(|cpu| {
            let (core, cache, node) = (cores[cpu], caches[cpu], nodes[cpu]);
            (*cpu, Place { core, cache, node })
        });
        let places = places.collect();
        let nodes: BTreeSet<usize> = cpus.iter().map(|cpu| nodes[&cpu]).collect();
        let online = online.union(&cpus);
        let allowed = allowed.map_or_else(|| online.clone(), |set| set.intersection(&online));
        Self {
            possible: possible.union(&online),
            online,
            isolated,
            allowed: allowed.union(&cpus),
            cpus,
            nodes: nodes.into_iter().collect(),
            distances,
            speeds,
            places,
            assumptions,
            pods,
        }
    }

    pub(crate) fn pods(&self, scope: Scope) -> &Pods {
        &self.pods[scope.index()]
    }
}

type Facts = BTreeMap<usize, CpuFacts>;

/// For each CPU the CPU that stands for its group: the lowest of them.
type Leaders = BTreeMap<usize, usize>;

/// Groups by lists, one list per CPU. Two CPUs share if each is in the other's list. In ascending
/// order, a CPU joins the group of the first lower CPU it shares with, or opens its own.
fn mutual_leaders(lists: &BTreeMap<usize, &CpuSet>) -> Leaders {
    let mut leaders = Leaders::new();
    for (&cpu, list) in lists {
        let friend = list
            .iter()
            .take_while(|&lower| lower < cpu)
            .find(|lower| lists.get(lower).is_some_and(|theirs| theirs.contains(cpu)));
        let leader = friend.map_or(cpu, |friend| leaders[&friend]);
        leaders.insert(cpu, leader);
    }
    leaders
}

/// The CPUs whose list, as far as it names described CPUs, is not the group they ended up in.
fn dissenters(lists: &BTreeMap<usize, &CpuSet>, leaders: &Leaders, described: &CpuSet) -> CpuSet {
    let mut groups: BTreeMap<usize, CpuSet> = BTreeMap::new();
    for (&cpu, &leader) in leaders {
        groups.entry(leader).or_default().insert(cpu);
    }
    let dissents =
        |&(cpu, list): &(&usize, &&CpuSet)| list.intersection(described) != groups[&leaders[cpu]];
    lists.iter().filter(dissents).map(|(&cpu, _)| cpu).collect()
}

fn record(assumptions: &mut Vec<Assumption>, cpus: CpuSet, make: impl Fn(CpuSet) -> Assumption) {
    if !cpus.is_empty() {
        assumptions.push(make(cpus));
    }
}

fn ids<T>(facts: &BTreeMap<usize, T>) -> CpuSet {
    facts.keys().copied().collect()
}

/// The cores. A CPU without a list is a core.
fn core_leaders(facts: &Facts, assumptions: &mut Vec<Assumption>) -> Leaders {
    let unknown: CpuSet = facts
        .iter()
        .filter(|(_, f)| f.siblings.is_none())
        .map(|(&cpu, _)| cpu)
        .collect();
    let lists: BTreeMap<usize, &CpuSet> = facts
        .iter()
        .filter_map(|(&cpu, facts)| Some((cpu, facts.siblings.as_ref()?)))
        .collect();
    let mut leaders = mutual_leaders(&lists);
    let disagreeing = dissenters(&lists, &leaders, &ids(facts));
    leaders.extend(unknown.iter().map(|cpu| (cpu, cpu)));
    record(assumptions, unknown, |cpus| Assumption::SiblingsUnknown {
        cpus,
    });
    record(assumptions, disagreeing, |cpus| Assumption::ListsDisagree {
        scope: Scope::Smt,
        cpus,
    });
    leaders
}

/// The last-level caches.
///
/// A package in which the caches of all CPUs are described plausibly is split by these
/// descriptions; any other package counts as one cache. CPUs of unknown package count as one
/// package here.
fn cache_leaders(facts: &Facts, assumptions: &mut Vec<Assumption>) -> Leaders {
    let mut packages: BTreeMap<Option<usize>, BTreeMap<usize, &CpuFacts>> = BTreeMap::new();
    for (&cpu, facts) in facts {
        packages
            .entry(facts.package)
            .or_default()
            .insert(cpu, facts);
    }
    let mut reach: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cache in facts.values().filter_map(|facts| facts.cache.as_ref()) {
        let cpus = reach.entry(cache.level).or_default();
        *cpus = cpus.union(&cache.cpus);
    }
    let mut leaders = Leaders::new();
    let mut described: BTreeMap<usize, &CacheFacts> = BTreeMap::new();
    let mut by_package = CpuSet::new();
    for (package, members) in &packages {
        if let Some(caches) = believable_caches(members, &reach) {
            described.extend(caches);
            continue;
        }
        let cpus = ids(members);
        let leader = cpus.first().expect("a package is listed because of a CPU");
        leaders.extend(cpus.iter().map(|cpu| (cpu, leader)));
        match package {
            Some(_) => by_package = by_package.union(&cpus),
            None => record(assumptions, cpus, |cpus| Assumption::PackageUnknown {
                cpus,
            }),
        }
    }
    record(assumptions, by_package, |cpus| Assumption::CacheUnknown {
        cpus,
    });

    // Level by level: caches of different levels are different caches.
    let levels: BTreeSet<u32> = described.values().map(|cache| cache.level).collect();
    let mut disagreeing = CpuSet::new();
    for level in levels {
        let lists: BTreeMap<usize, &CpuSet> = described
            .iter()
            .filter(|(_, cache)| cache.level == level)
            .map(|(&cpu, cache)| (cpu, &cache.cpus))
            .collect();
        let found = mutual_leaders(&lists);
        disagreeing = disagreeing.union(&dissenters(&lists, &found, &ids(facts)));
        leaders.extend(found);
    }
    record(assumptions, disagreeing, |cpus| Assumption::ListsDisagree {
        scope: Scope::Cache,
        cpus,
    });
    leaders
}

/// The descriptions of the last-level caches of one package, if all of them are plausible.
///
/// If some CPUs have a cache of a higher level than others, a CPU without one is plausible only if
/// its cache serves more than its own core, as in a cluster of small cores, and no cache of a
/// higher level serves it: `reach` has the CPUs that the caches of each level are said to serve.
/// Otherwise the entry for the shared cache is missing, as in some virtual machines.
fn believable_caches<'a>(
    members: &BTreeMap<usize, &'a CpuFacts>,
    reach: &BTreeMap<u32, CpuSet>,
) -> Option<BTreeMap<usize, &'a CacheFacts>> {
    let top = members
        .values()
        .filter_map(|facts| Some(facts.cache.as_ref()?.level))
        .max()?;
    members
        .iter()
        .map(|(&cpu, facts)| {
            let cache = facts.cache.as_ref()?;
            let alone = CpuSet::from([cpu]);
            let core = facts.siblings.as_ref().unwrap_or(&alone);
            let mut higher = reach
                .iter()
                .rev()
                .take_while(|&(&level, _)| level > cache.level);
            let believable = (cache.level == top || !cache.cpus.is_subset(core))
                && higher.all(|(_, cpus)| !cpus.contains(cpu));
            believable.then_some((cpu, cache))
        })
        .collect()
}

/// The threads of a core share every cache. If they are listed in different ones, it is not known
/// which list is wrong, and the caches are joined: to split a core would be worse than to treat two
/// caches as one.
fn join_caches_of_cores(cores: &Leaders, caches: &mut Leaders, assumptions: &mut Vec<Assumption>) {
    // Maps a cache to a lower one that it is joined with.
    let mut joined = Leaders::new();
    for (cpu, core) in cores {
        let own = joined_leader(&mut joined, caches[cpu]);
        let first = joined_leader(&mut joined, caches[core]);
        if own != first {
            joined.insert(own.max(first), own.min(first));
        }
    }
    if joined.is_empty() {
        return;
    }
    let mut larger = CpuSet::new();
    for leader in joined.clone().into_keys() {
        larger.insert(joined_leader(&mut joined, leader));
    }
    let mut cpus = CpuSet::new();
    for (&cpu, leader) in caches {
        *leader = joined_leader(&mut joined, *leader);
        if larger.contains(*leader) {
            cpus.insert(cpu);
        }
    }
    assumptions.push(Assumption::CoreAcrossCaches { cpus });
}

/// The lowest of the caches that a cache is joined with. Shortens the way there for the next time.
fn joined_leader(joined: &mut Leaders, mut cache: usize) -> usize {
    while let Some(&lower) = joined.get(&cache) {
        if let Some(&lowest) = joined.get(&lower) {
            joined.insert(cache, lowest);
        }
        cache = lower;
    }
    cache
}

/// The memory node of each CPU.
fn nodes(facts: &Facts, assumptions: &mut Vec<Assumption>) -> BTreeMap<usize, usize> {
    let default = facts
        .values()
        .filter_map(|facts| facts.node)
        .min()
        .unwrap_or(0);
    let unknown: CpuSet = facts
        .iter()
        .filter(|(_, f)| f.node.is_none())
        .map(|(&cpu, _)| cpu)
        .collect();
    record(assumptions, unknown, |cpus| Assumption::NodeUnknown {
        cpus,
        node: default,
    });
    facts
        .iter()
        .map(|(&cpu, facts)| (cpu, facts.node.unwrap_or(default)))
        .collect()
}

/// The speed classes. Unless the speed of every CPU is known, all count as equally fast. Otherwise
/// CPUs of which nothing is known could count as slow.
fn speeds(facts: &Facts, assumptions: &mut Vec<Assumption>) -> Speeds {
    let known: BTreeMap<usize, u32> = facts
        .iter()
        .filter_map(|(&cpu, facts)| Some((cpu, facts.capacity?)))
        .collect();
    let unknown = ids(facts).difference(&ids(&known));
    if unknown.is_empty() {
        return Speeds::by_capacity(&known);
    }
    record(assumptions, unknown, |cpus| Assumption::SpeedUnknown {
        cpus,
    });
    Speeds::by_capacity(&facts.keys().map(|&cpu| (cpu, 0)).collect())
}

/// The shard of each usable CPU within its cache: cores go to shards in the order of their lowest,
/// and the other threads of a core follow it.
fn shard_numbers(caches: &Pods, cores: &Leaders) -> BTreeMap<usize, usize> {
    let mut numbers = BTreeMap::new();
    for cache in caches.all() {
        // Not by leaders: the leader of a core may be a CPU that cannot be used.
        let mut position: BTreeMap<usize, usize> = BTreeMap::new();
        let mut threads: Vec<CpuSet> = Vec::new();
        for cpu in cache.cpus() {
            let at = *position.entry(cores[&cpu]).or_insert(threads.len());
            if at == threads.len() {
                threads.push(CpuSet::new());
            }
            threads[at].insert(cpu);
        }
        let mut rest = threads.iter();
        for (number, size) in shards::sizes(threads.len()).enumerate() {
            let shard = rest.by_ref().take(size);
            numbers.extend(shard.flatten().map(|cpu| (cpu, number)));
        }
    }
    numbers
}
