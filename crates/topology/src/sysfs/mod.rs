//! The reader: what `/sys`, or a recorded copy of it, has about each CPU.
//!
//! It reports only what it finds; [`model`](crate::model) fills the gaps. A file that is absent is
//! a gap. A file that cannot be read or is malformed is a gap too, and is counted.

mod files;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use self::files::{Bad, Online};
pub(crate) use self::files::{Files, Form};
use crate::model::{CpuFacts, Description};
use crate::tree::Tree;
use crate::{Assumption, CpuSet, Scope, cgroup};

/// Reads this machine's tree, whose root is `sys`; only the CPUs in `allowed` are usable. `None`
/// if there is no CPU at all.
#[cfg(target_os = "linux")]
pub(crate) fn read(sys: &Path, allowed: Option<&CpuSet>) -> Option<Description> {
    read_tree(&crate::tree::Disk, sys, allowed).ok()
}

/// Reads any tree. If it describes no CPU, the error is the first damaged file, if one is.
pub(crate) fn read_tree(
    tree: &dyn Tree,
    sys: &Path,
    allowed: Option<&CpuSet>,
) -> Result<Description, Option<Bad>> {
    let (description, bad) = steady(|| scan(tree, sys, allowed));
    if description.usable.is_empty() {
        return Err(bad);
    }
    Ok(description)
}

/// The result of one look at the tree.
struct Scan {
    description: Description,
    /// The CPUs online at its end.
    online_after: CpuSet,
    /// Usable CPUs of which something was not found that was found of others.
    partial: CpuSet,
    /// Whether a CPU's list names one whose own list does not name it.
    one_sided: bool,
    /// The first damaged file.
    bad: Option<Bad>,
}

impl Scan {
    fn is_quiet(&self) -> bool {
        let moved = self.description.online != self.online_after;
        !moved && self.partial.is_empty() && !self.one_sided && self.bad.is_none()
    }
}

/// How often a machine that changes meanwhile is read.
const LOOKS: usize = 4;

/// Reads again if CPUs came or went meanwhile, or seem to have: the files of a CPU vanish with it,
/// a CPU that came back may lack some, and the lists of its neighbours may name it or not. If two
/// scans are equal, the result is taken as it is. CPUs that come or go in the last scan too are
/// left out.
fn steady(mut scan: impl FnMut() -> Scan) -> (Description, Option<Bad>) {
    let mut look = scan();
    for _ in 1..LOOKS {
        if look.is_quiet() {
            break;
        }
        let last = std::mem::replace(&mut look, scan());
        let still = look.description.online == look.online_after;
        if still && look.description == last.description {
            break;
        }
    }
    let Scan {
        mut description,
        online_after,
        bad,
        ..
    } = look;
    let before = &description.online;
    let steady = before.intersection(&online_after);
    let unsteady = before.union(&online_after).difference(&steady);
    if !unsteady.is_empty() {
        description.cpus.retain(|&cpu, _| !unsteady.contains(cpu));
        description.usable = description.usable.difference(&unsteady);
        description.online = steady;
        description
            .assumptions
            .push(Assumption::Unsteady { cpus: unsteady });
    }
    (description, bad)
}

fn scan(tree: &dyn Tree, sys: &Path, allowed: Option<&CpuSet>) -> Scan {
    let mut files = Files::new(tree);
    let mut assumptions = Vec::new();
    let cpu_dir = sys.join("devices/system/cpu");

    let online = match files.online(&cpu_dir) {
        Online::Listed(cpus) => cpus,
        Online::Guessed(cpus) => {
            // Without any directory, the CPUs this process may run on are all there is to go by.
            let cpus = if cpus.is_empty() {
                allowed.cloned().unwrap_or_default()
            } else {
                cpus
            };
            assumptions.push(Assumption::OnlineUnknown { cpus: cpus.clone() });
            cpus
        }
    };
    // Without the file `isolated`, the system has no way to isolate CPUs.
    let [possible, isolated] = ["possible", "isolated"].map(|name| {
        let found = files.set(&cpu_dir, &[(name, Form::List)]);
        found.unwrap_or_default()
    });
    let unlisted = online.difference(&possible);
    if !unlisted.is_empty() {
        assumptions.push(Assumption::PossibleUnknown { cpus: unlisted });
    }
    // The process is described beside `sys`, not in it.
    let root = sys.parent().filter(|_| sys.ends_with("sys"));
    let mask = match (allowed, root) {
        (None, Some(root)) => cgroup::recorded_mask(&mut files, root),
        _ => allowed.cloned(),
    };
    let usable = match mask {
        Some(mask) => usable(&online, &mask, &mut assumptions),
        // The mask a process has by default, unless it would be empty.
        None if online.is_subset(&isolated) => online.clone(),
        None => online.difference(&isolated),
    };

    let node_dir = sys.join("devices/system/node");
    let (nodes, in_two_nodes) = files.nodes(&node_dir);
    if !in_two_nodes.is_empty() {
        let (scope, cpus) = (Scope::Numa, in_two_nodes);
        assumptions.push(Assumption::ListsDisagree { scope, cpus });
    }
    let mut cpus: BTreeMap<usize, CpuFacts> = BTreeMap::new();
    for cpu in &online.union(&usable) {
        let dir = cpu_dir.join(format!("cpu{cpu}"));
        cpus.insert(cpu, files.facts(&dir, cpu, nodes.get(&cpu).copied()));
    }
    // A CPU that cannot be used is dropped if its description is incomplete: that would make the
    // groups of its neighbours doubtful.
    let known_of_any = known_of_any(&cpus, &usable);
    cpus.retain(|&cpu, facts| usable.contains(cpu) || says_all_of(facts, known_of_any));
    files.hybrid(&sys.join("devices"), &mut cpus);
    let distances = files.distances(&node_dir);
    let in_group = root.and_then(|root| cgroup::allowed(&mut files, root));

    let online_after = match Files::new(tree).online(&cpu_dir) {
        Online::Listed(cpus) => cpus,
        Online::Guessed(cpus) if cpus.is_empty() => online.clone(),
        Online::Guessed(cpus) => cpus,
    };
    let bad = files.first_bad();
    if let Some(Bad { file, reason }) = bad.clone() {
        assumptions.push(Assumption::Unreadable {
            first: file,
            reason,
            files: files.bad(),
        });
    }
    Scan {
        one_sided: is_one_sided(&cpus),
        partial: cpus
            .iter()
            .filter(|(_, facts)| !says_all_of(facts, known_of_any))
            .map(|(&cpu, _)| cpu)
            .collect(),
        description: Description {
            possible,
            online,
            isolated,
            allowed: in_group,
            usable,
            cpus,
            distances,
            assumptions,
        },
        online_after,
        bad,
    }
}

/// Whether a list of siblings or of a cache names a described CPU that does not name it.
fn is_one_sided(cpus: &BTreeMap<usize, CpuFacts>) -> bool {
    lists_are_one_sided(cpus, |facts| facts.siblings.as_ref())
        || lists_are_one_sided(cpus, |facts| facts.cache.as_ref().map(|cache| &cache.cpus))
}

/// Compares only lists that differ: a large cache has one list and many CPUs.
fn lists_are_one_sided<'a>(
    cpus: &'a BTreeMap<usize, CpuFacts>,
    list_of: impl Fn(&'a CpuFacts) -> Option<&'a CpuSet>,
) -> bool {
    let mut owners: HashMap<&CpuSet, CpuSet> = HashMap::new();
    let mut lists: HashMap<usize, &CpuSet> = HashMap::new();
    for (&cpu, facts) in cpus {
        if let Some(list) = list_of(facts) {
            owners.entry(list).or_default().insert(cpu);
            let (&shared, _) = owners.get_key_value(list).expect("it was just inserted");
            lists.insert(cpu, shared);
        }
    }
    owners.iter().any(|(&list, cpus)| {
        list.iter()
            .filter_map(|named| lists.get(&named))
            .any(|&theirs| !std::ptr::eq(theirs, list) && !cpus.is_subset(theirs))
    })
}

/// The online CPUs of the mask. A mask without any of them is that of a container that numbers
/// its CPUs in its own way.
fn usable(online: &CpuSet, mask: &CpuSet, assumptions: &mut Vec<Assumption>) -> CpuSet {
    let usable = online.intersection(mask);
    if !usable.is_empty() || mask.is_empty() {
        return usable;
    }
    assumptions.push(Assumption::OnlineContradicted { cpus: mask.clone() });
    mask.clone()
}

/// Which kinds of fact are known about a CPU.
fn known(facts: &CpuFacts) -> [bool; 4] {
    [
        facts.siblings.is_some(),
        facts.cache.is_some(),
        facts.package.is_some(),
        facts.capacity.is_some(),
    ]
}

/// The kinds of fact that are known about at least one usable CPU.
fn known_of_any(cpus: &BTreeMap<usize, CpuFacts>, usable: &CpuSet) -> [bool; 4] {
    let described = usable.iter().filter_map(|cpu| cpus.get(&cpu));
    described.map(known).fold([false; 4], |all, one| {
        std::array::from_fn(|at| all[at] || one[at])
    })
}

fn says_all_of(facts: &CpuFacts, kinds: [bool; 4]) -> bool {
    let pairs = known(facts).into_iter().zip(kinds);
    pairs.into_iter().all(|(known, wanted)| known || !wanted)
}
