//! Reads single files, and notes which of them are damaged.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use crate::CpuSet;
use crate::cpuset::is_decimal;
use crate::model::{CacheFacts, CpuFacts};
use crate::tree::Tree;

/// The online CPUs, as listed or as the directories suggest.
pub(super) enum Online {
    Listed(CpuSet),
    Guessed(CpuSet),
}

/// The text form of a set file.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    List,
    Mask,
}

/// A file that exists but cannot be read or makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) file: PathBuf,
    pub(crate) reason: String,
}

/// Reads files, and remembers those that exist but cannot be used.
pub(crate) struct Files<'a> {
    tree: &'a dyn Tree,
    first_bad: Option<Bad>,
    bad: usize,
}

impl<'a> Files<'a> {
    pub(crate) fn new(tree: &'a dyn Tree) -> Self {
        Self {
            tree,
            first_bad: None,
            bad: 0,
        }
    }

    /// The first file that cannot be used, and why.
    pub(crate) fn first_bad(&self) -> Option<Bad> {
        self.first_bad.clone()
    }

    /// How many files cannot be used.
    pub(crate) fn bad(&self) -> usize {
        self.bad
    }

    pub(crate) fn note_bad(&mut self, file: PathBuf, reason: &dyn Display) {
        self.bad += 1;
        self.first_bad.get_or_insert_with(|| Bad {
            file,
            reason: reason.to_string(),
        });
    }

    /// A file that `parse` understands; `None` and a note if it does not.
    pub(crate) fn value<T>(
        &mut self,
        path: PathBuf,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let read = self.tree.read(&path);
        self.parsed(path, read, parse)
    }

    /// As [`value`](Self::value), for a file with names in it: see [`Tree::read_names`].
    pub(crate) fn value_among_names<T>(
        &mut self,
        path: PathBuf,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let read = self.tree.read_names(&path);
        self.parsed(path, read, parse)
    }

    fn parsed<T>(
        &mut self,
        path: PathBuf,
        read: io::Result<String>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = match read {
            Ok(text) => parse(text.trim()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
        };
        value.map_err(|reason| self.note_bad(path, &reason)).ok()
    }

    /// The first of several files in `dir` that holds a set.
    pub(crate) fn set(&mut self, dir: &Path, names: &[(&str, Form)]) -> Option<CpuSet> {
        self.set_where(dir, names, |_| Ok(()))
    }

    /// The first of several files in `dir` that holds a set with `cpu` in it. A list without `cpu`
    /// itself is damaged.
    fn group_of(&mut self, cpu: usize, dir: &Path, names: &[(&str, Form)]) -> Option<CpuSet> {
        self.set_where(dir, names, |set| {
            let listed = set.contains(cpu);
            listed
                .then_some(())
                .ok_or("the CPU is not in its own group")
        })
    }

    fn set_where(
        &mut self,
        dir: &Path,
        names: &[(&str, Form)],
        check: impl Fn(&CpuSet) -> Result<(), &'static str>,
    ) -> Option<CpuSet> {
        names.iter().find_map(|&(name, form)| {
            self.value(dir.join(name), |text| {
                let set = match form {
                    Form::List => text.parse(),
                    Form::Mask => CpuSet::from_mask_str(text),
                };
                let set = set.map_err(|error| error.to_string())?;
                check(&set)?;
                Ok(set)
            })
        })
    }

    /// The entries of `dir` named `prefix` and a number, by number. An absent directory is empty.
    fn numbered(&mut self, dir: &Path, prefix: &str) -> Vec<(usize, PathBuf)> {
        let names = match self.tree.list(dir) {
            Ok(names) => names,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.note_bad(dir.to_owned(), &error);
                }
                return Vec::new();
            }
        };
        let mut found: Vec<(usize, PathBuf)> = names
            .iter()
            .filter_map(|name| {
                let number = name.strip_prefix(prefix).filter(|n| is_decimal(n))?;
                Some((number.parse().ok()?, dir.join(name)))
            })
            .collect();
        found.sort();
        found
    }

    pub(super) fn online(&mut self, cpu_dir: &Path) -> Online {
        let listed = self.set_where(cpu_dir, &[("online", Form::List)], |set| {
            let any = !set.is_empty();
            any.then_some(()).ok_or("no CPU is online")
        });
        if let Some(cpus) = listed {
            return Online::Listed(cpus);
        }
        let mut dirs = self.numbered(cpu_dir, "cpu");
        dirs.retain(|&(cpu, _)| cpu < CpuSet::ID_LIMIT);
        // A CPU without its own file `online` cannot be taken offline.
        dirs.retain(|(_, dir)| {
            let switch = self.tree.read(&dir.join("online"));
            switch.map_or(true, |text| text.trim() != "0")
        });
        Online::Guessed(dirs.into_iter().map(|(cpu, _)| cpu).collect())
    }

    /// The node of each CPU, and the CPUs that more than one node lists.
    pub(super) fn nodes(&mut self, node_dir: &Path) -> (BTreeMap<usize, usize>, CpuSet) {
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

    /// The distances between nodes. A node's file has one number per node, in ascending order; a
    /// file with another count was written while nodes came or went.
    pub(super) fn distances(&mut self, node_dir: &Path) -> BTreeMap<(usize, usize), u32> {
        let nodes = self.numbered(node_dir, "node");
        let mut distances = BTreeMap::new();
        for (from, dir) in &nodes {
            let row = self.value(dir.join("distance"), |text| {
                let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
                let row = row.map_err(|error| error.to_string())?;
                let fits = row.len() == nodes.len();
                fits.then_some(row)
                    .ok_or_else(|| format!("not one distance for each of {} nodes", nodes.len()))
            });
            let row = row.into_iter().flatten();
            distances.extend(
                nodes
                    .iter()
                    .zip(row)
                    .map(|((to, _), far)| ((*from, *to), far)),
            );
        }
        distances
    }

    pub(super) fn facts(&mut self, dir: &Path, cpu: usize, node: Option<usize>) -> CpuFacts {
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
            .value(topology.join("physical_package_id"), number::<i64>)
            // It is -1 if the firmware has no package numbers.
            .and_then(|id| usize::try_from(id).ok());
        CpuFacts {
            siblings,
            cache: self.last_level_cache(&dir.join("cache"), cpu),
            package,
            node,
            capacity: self.value(dir.join("cpu_capacity"), number),
        }
    }

    /// The data or unified cache of the highest level. The number in the name of an index
    /// directory is not its level, and a lower level must never stand in for an unreadable one.
    fn last_level_cache(&mut self, dir: &Path, cpu: usize) -> Option<CacheFacts> {
        let mut by_level: Vec<(u32, PathBuf)> = Vec::new();
        for (_, index) in self.numbered(dir, "index") {
            by_level.push((self.value(index.join("level"), number)?, index));
        }
        // From the highest, so that the types of the lower levels need not be read.
        by_level.sort_by_key(|&(level, _)| std::cmp::Reverse(level));
        for (level, index) in by_level {
            let holds_data = self.value(index.join("type"), |text| match text {
                "Unified" | "Data" => Ok(true),
                "Instruction" => Ok(false),
                _ => Err("no type of cache".to_owned()),
            })?;
            if !holds_data {
                continue;
            }
            let names = [
                ("shared_cpu_list", Form::List),
                ("shared_cpu_map", Form::Mask),
            ];
            let cpus = self.group_of(cpu, &index, &names)?;
            return Some(CacheFacts { level, cpus });
        }
        None
    }

    /// Where capacities do not tell CPUs apart, the kinds of core that a hybrid machine lists do. A
    /// CPU that is of neither kind, or of both, is of unknown speed.
    pub(super) fn hybrid(&mut self, devices: &Path, cpus: &mut BTreeMap<usize, CpuFacts>) {
        let mut capacities = cpus.values().map(|facts| facts.capacity);
        let first = capacities.next().flatten();
        let differ = first.is_some() && capacities.any(|c| c.is_some_and(|c| Some(c) != first));
        if differ {
            return;
        }
        let kinds = [("cpu_atom", 1), ("cpu_core", 2)].map(|(kind, capacity)| {
            let listed = self.set(&devices.join(kind), &[("cpus", Form::List)]);
            (listed.unwrap_or_default(), capacity)
        });
        if kinds.iter().all(|(listed, _)| listed.is_empty()) {
            return;
        }
        for (cpu, facts) in cpus {
            let of = |kind: usize| kinds[kind].0.contains(*cpu).then_some(kinds[kind].1);
            facts.capacity = of(0).xor(of(1));
        }
    }
}

fn number<T: std::str::FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}
