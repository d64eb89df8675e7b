//! The reader: what `/sys`, or a recorded copy of it, says about each CPU.
//!
//! It reports only what it finds; [`model`](crate::model) fills the gaps. A file that is absent is
//! a gap. A file that cannot be read or makes no sense is a gap too, and is counted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cpuset::is_decimal;
use crate::model::{CacheFacts, CpuFacts, Description};
use crate::{Assumption, CpuSet, Scope};

/// Reads the tree whose root is `sys` (`/sys` on a running system).
///
/// With `allowed`, only the CPUs in it are usable. `None` if there is no CPU at all.
pub(crate) fn read(sys: &Path, allowed: Option<&CpuSet>) -> Option<Description> {
    let description = steady(|| scan(sys, allowed));
    (!description.cpus.is_empty()).then_some(description)
}

/// The result of one look at the tree, and the CPUs online at its end.
struct Scan {
    description: Description,
    online_after: CpuSet,
}

/// Looks again, once, if CPUs came or went meanwhile: the files of a CPU vanish with it. CPUs that
/// do so in the second look too are left out.
fn steady(mut scan: impl FnMut() -> Scan) -> Description {
    let first = scan();
    if first.description.online == first.online_after {
        return first.description;
    }
    let Scan {
        mut description,
        online_after,
    } = scan();
    let before = &description.online;
    let steady = before.intersection(&online_after);
    let unsteady = before.union(&online_after).difference(&steady);
    if !unsteady.is_empty() {
        description.cpus.retain(|&cpu, _| !unsteady.contains(cpu));
        description.online = steady;
        description
            .assumptions
            .push(Assumption::Unsteady { cpus: unsteady });
    }
    description
}

fn scan(sys: &Path, allowed: Option<&CpuSet>) -> Scan {
    let mut files = Files::default();
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
    let mut usable = allowed.map_or_else(|| online.clone(), |allowed| online.intersection(allowed));
    if let Some(allowed) = allowed.filter(|_| usable.is_empty()) {
        usable = allowed.clone();
        assumptions.push(Assumption::OnlineContradicted {
            cpus: usable.clone(),
        });
    }

    let (nodes, in_two_nodes) = files.nodes(&sys.join("devices/system/node"));
    if !in_two_nodes.is_empty() {
        let (scope, cpus) = (Scope::Numa, in_two_nodes);
        assumptions.push(Assumption::ListsDisagree { scope, cpus });
    }
    let cpus = usable
        .iter()
        .map(|cpu| {
            let node = nodes.get(&cpu).copied();
            (
                cpu,
                files.facts(&cpu_dir.join(format!("cpu{cpu}")), cpu, node),
            )
        })
        .collect();
    let possible = files
        .set(&cpu_dir, &[("possible", Form::List)])
        .unwrap_or_default();
    let isolated = files
        .set(&cpu_dir, &[("isolated", Form::List)])
        .unwrap_or_default();
    let online_after = match Files::default().online(&cpu_dir) {
        Online::Listed(cpus) => cpus,
        Online::Guessed(cpus) if cpus.is_empty() => online.clone(),
        Online::Guessed(cpus) => cpus,
    };
    if let Some(first) = files.first_bad {
        assumptions.push(Assumption::Unreadable {
            first,
            files: files.bad,
        });
    }
    Scan {
        description: Description {
            possible,
            online,
            isolated,
            cpus,
            assumptions,
        },
        online_after,
    }
}

/// The online CPUs, as listed or as the directories suggest.
enum Online {
    Listed(CpuSet),
    Guessed(CpuSet),
}

/// The text form of a set file.
#[derive(Clone, Copy)]
enum Form {
    List,
    Mask,
}

/// Reads files, and remembers those that exist but say nothing.
#[derive(Default)]
struct Files {
    first_bad: Option<PathBuf>,
    bad: usize,
}

impl Files {
    fn note_bad(&mut self, path: PathBuf) {
        self.bad += 1;
        self.first_bad.get_or_insert(path);
    }

    /// A file that `parse` understands; `None` and a note if it does not.
    fn value<T>(&mut self, path: PathBuf, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = match fs::read_to_string(&path) {
            Ok(text) => parse(text.trim()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => None,
        };
        if value.is_none() {
            self.note_bad(path);
        }
        value
    }

    /// The first of several files in `dir` that holds a set.
    fn set(&mut self, dir: &Path, names: &[(&str, Form)]) -> Option<CpuSet> {
        self.set_where(dir, names, |_| true)
    }

    /// The first of several files in `dir` that holds a set with `cpu` in it. A group without the
    /// CPU it is the group of is damaged.
    fn group_of(&mut self, cpu: usize, dir: &Path, names: &[(&str, Form)]) -> Option<CpuSet> {
        self.set_where(dir, names, |set| set.contains(cpu))
    }

    fn set_where(
        &mut self,
        dir: &Path,
        names: &[(&str, Form)],
        valid: impl Fn(&CpuSet) -> bool,
    ) -> Option<CpuSet> {
        names.iter().find_map(|&(name, form)| {
            self.value(dir.join(name), |text| {
                let set = match form {
                    Form::List => text.parse().ok(),
                    Form::Mask => CpuSet::from_mask_str(text).ok(),
                };
                set.filter(&valid)
            })
        })
    }

    /// The entries of `dir` named `prefix` and a number, by number. An absent directory is empty.
    fn numbered(&mut self, dir: &Path, prefix: &str) -> Vec<(usize, PathBuf)> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.note_bad(dir.to_owned());
                }
                return Vec::new();
            }
        };
        let mut found: Vec<(usize, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name();
                let number = name
                    .to_str()?
                    .strip_prefix(prefix)
                    .filter(|n| is_decimal(n))?;
                Some((number.parse().ok()?, entry.path()))
            })
            .collect();
        found.sort();
        found
    }

    fn online(&mut self, cpu_dir: &Path) -> Online {
        match self.set_where(cpu_dir, &[("online", Form::List)], |set| !set.is_empty()) {
            Some(cpus) => Online::Listed(cpus),
            None => {
                let mut dirs = self.numbered(cpu_dir, "cpu");
                dirs.retain(|&(cpu, _)| cpu < CpuSet::ID_LIMIT);
                // Without a switch of its own, a CPU cannot be taken down.
                dirs.retain(|(_, dir)| {
                    let switch = fs::read_to_string(dir.join("online"));
                    switch.map_or(true, |text| text.trim() != "0")
                });
                Online::Guessed(dirs.into_iter().map(|(cpu, _)| cpu).collect())
            }
        }
    }

    /// The node of each CPU, and the CPUs that more than one node lists.
    fn nodes(&mut self, node_dir: &Path) -> (BTreeMap<usize, usize>, CpuSet) {
        let mut nodes = BTreeMap::new();
        let mut in_two_nodes = CpuSet::new();
        for (node, dir) in self.numbered(node_dir, "node") {
            let cpus = self.set(&dir, &[("cpulist", Form::List), ("cpumap", Form::Mask)]);
            for cpu in &cpus.unwrap_or_default() {
                if *nodes.entry(cpu).or_insert(node) != node {
                    in_two_nodes.insert(cpu);
                }
            }
        }
        (nodes, in_two_nodes)
    }

    fn facts(&mut self, dir: &Path, cpu: usize, node: Option<usize>) -> CpuFacts {
        let topology = dir.join("topology");
        // The newer name first; both are the threads of one core.
        let names = [
            ("core_cpus_list", Form::List),
            ("thread_siblings_list", Form::List),
            ("core_cpus", Form::Mask),
            ("thread_siblings", Form::Mask),
        ];
        let siblings = self.group_of(cpu, &topology, &names);
        let package = self
            .value(topology.join("physical_package_id"), |text| {
                text.parse::<i64>().ok()
            })
            // Minus one is how firmware without package numbers is shown.
            .and_then(|id| usize::try_from(id).ok());
        let cache = self.last_level_cache(&dir.join("cache"), cpu);
        CpuFacts {
            siblings,
            cache,
            package,
            node,
        }
    }

    /// The data or unified cache of the highest level. The number in the name of an index
    /// directory is not its level, and a lower level must never stand in for an unreadable one.
    fn last_level_cache(&mut self, dir: &Path, cpu: usize) -> Option<CacheFacts> {
        let mut last: Option<(u32, PathBuf)> = None;
        for (_, index) in self.numbered(dir, "index") {
            let kind = self.value(index.join("type"), |text| Some(text.to_owned()))?;
            if kind != "Unified" && kind != "Data" {
                continue;
            }
            let level = self.value(index.join("level"), |text| text.parse().ok())?;
            if last.as_ref().is_none_or(|&(highest, _)| level > highest) {
                last = Some((level, index));
            }
        }
        let (level, index) = last?;
        let names = [
            ("shared_cpu_list", Form::List),
            ("shared_cpu_map", Form::Mask),
        ];
        let cpus = self.group_of(cpu, &index, &names)?;
        Some(CacheFacts { level, cpus })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{CpuFacts, Description, Scan, read, steady};
    use crate::{Assumption, CpuSet};

    fn look(before: &[usize], after: &[usize]) -> Scan {
        let description = Description {
            online: before.iter().copied().collect(),
            cpus: before
                .iter()
                .map(|&cpu| (cpu, CpuFacts::default()))
                .collect(),
            ..Description::default()
        };
        Scan {
            description,
            online_after: after.iter().copied().collect(),
        }
    }

    #[test]
    fn a_quiet_machine_is_looked_at_once() {
        let mut looks = vec![look(&[0, 1], &[0, 1])];
        let found = steady(|| looks.pop().expect("one look is enough"));
        assert_eq!(found.online, CpuSet::from([0, 1]));
        assert_eq!(found.assumptions, []);
    }

    #[test]
    fn a_cpu_that_leaves_during_the_first_look_costs_a_second_one() {
        let mut looks = vec![look(&[0], &[0]), look(&[0, 1], &[0])];
        let found = steady(|| looks.pop().expect("two looks are enough"));
        assert_eq!(found.cpus.into_keys().collect::<Vec<_>>(), [0]);
        assert_eq!(found.assumptions, []);
    }

    #[test]
    fn cpus_that_keep_moving_are_left_out_and_named() {
        let mut looks = vec![look(&[0, 2, 3], &[0, 1, 2]), look(&[0, 1], &[0, 2, 3])];
        let found = steady(|| looks.pop().expect("two looks are enough"));
        assert_eq!(found.cpus.into_keys().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(found.online, CpuSet::from([0, 2]));
        assert_eq!(
            found.assumptions,
            [Assumption::Unsteady {
                cpus: CpuSet::from([1, 3])
            }]
        );
    }

    /// The usable CPUs and the assumptions, for a tree with this list of online CPUs.
    fn read_with_mask(online: &str, allowed: &CpuSet) -> (Vec<usize>, Vec<Assumption>) {
        let sys = tempfile::tempdir().expect("a temporary directory");
        let cpu_dir = sys.path().join("devices/system/cpu");
        fs::create_dir_all(&cpu_dir).expect("a directory");
        fs::write(cpu_dir.join("online"), online).expect("a file");
        let found = read(sys.path(), Some(allowed)).expect("the mask has a CPU");
        (found.cpus.into_keys().collect(), found.assumptions)
    }

    #[test]
    fn only_cpus_of_the_mask_are_usable() {
        let (cpus, assumptions) = read_with_mask("0-3,6\n", &CpuSet::from([2, 5, 6]));
        assert_eq!(cpus, [2, 6]);
        assert_eq!(assumptions, []);
    }

    #[test]
    fn a_mask_without_any_online_cpu_wins() {
        let mask = CpuSet::from([40, 41]);
        let (cpus, assumptions) = read_with_mask("0-1\n", &mask);
        assert_eq!(cpus, [40, 41]);
        assert_eq!(assumptions, [Assumption::OnlineContradicted { cpus: mask }]);
    }

    #[test]
    fn without_a_tree_the_mask_is_the_machine() {
        let mask = CpuSet::from([4, 7]);
        let found = read(Path::new("/no/such/tree"), Some(&mask)).expect("the mask has CPUs");
        assert_eq!(found.online, mask);
        assert_eq!(found.cpus.into_keys().collect::<Vec<_>>(), [4, 7]);
        assert_eq!(
            found.assumptions,
            [Assumption::OnlineUnknown { cpus: mask }]
        );
        assert!(read(Path::new("/no/such/tree"), None).is_none());
    }
}
