use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Scan, is_one_sided, read_tree, steady};
use crate::model::{CpuFacts, Description, Model};
use crate::tree::{Disk, Tree};
use crate::{Assumption, CpuSet, Scope};

fn look(before: &[usize], after: &[usize]) -> Scan {
    let description = Description {
        online: before.iter().copied().collect(),
        usable: before.iter().copied().collect(),
        cpus: before
            .iter()
            .map(|&cpu| (cpu, CpuFacts::default()))
            .collect(),
        ..Description::default()
    };
    Scan {
        description,
        online_after: after.iter().copied().collect(),
        partial: CpuSet::new(),
        one_sided: false,
        bad: None,
    }
}

#[test]
fn a_quiet_machine_is_looked_at_once() {
    let mut looks = vec![look(&[0, 1], &[0, 1])];
    let (found, _) = steady(|| looks.pop().expect("one look is enough"));
    assert_eq!(found.online, CpuSet::from([0, 1]));
    assert_eq!(found.assumptions, []);
}

#[test]
fn a_cpu_that_leaves_during_the_first_look_costs_a_second_one() {
    let mut looks = vec![look(&[0], &[0]), look(&[0, 1], &[0])];
    let (found, _) = steady(|| looks.pop().expect("two looks are enough"));
    assert_eq!(found.usable.iter().collect::<Vec<_>>(), [0]);
    assert_eq!(found.assumptions, []);
}

#[test]
fn cpus_that_keep_moving_are_left_out_and_named() {
    let mut looks = vec![
        look(&[0, 2, 3], &[0, 1, 2]),
        look(&[0, 1], &[0, 1, 3]),
        look(&[0, 1, 2], &[0, 2]),
        look(&[0, 1], &[0, 2, 3]),
    ];
    let (found, _) = steady(|| looks.pop().expect("four looks are enough"));
    assert_eq!(found.usable.iter().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(found.online, CpuSet::from([0, 2]));
    assert_eq!(
        found.assumptions,
        [Assumption::Unsteady {
            cpus: CpuSet::from([1, 3])
        }]
    );
}

#[test]
fn neighbours_that_speak_of_different_moments_cost_another_look() {
    let mut early = look(&[0, 1], &[0, 1]);
    early.one_sided = true;
    let mut looks = vec![look(&[0, 1], &[0, 1]), early];
    let (found, _) = steady(|| looks.pop().expect("two looks are enough"));
    assert_eq!(found.online, CpuSet::from([0, 1]));
    assert_eq!(looks.len(), 0);
}

#[test]
fn a_tree_that_contradicts_itself_is_looked_at_twice() {
    let mut looks = 0;
    let _found = steady(|| {
        looks += 1;
        let mut look = look(&[0, 1], &[0, 1]);
        look.one_sided = true;
        look
    });
    assert_eq!(looks, 2);
}

/// CPUs whose lists of siblings are these.
fn with_siblings(lists: &[(usize, &[usize])]) -> BTreeMap<usize, CpuFacts> {
    let facts = |list: &[usize]| CpuFacts {
        siblings: Some(list.iter().copied().collect()),
        ..CpuFacts::default()
    };
    lists
        .iter()
        .map(|&(cpu, list)| (cpu, facts(list)))
        .collect()
}

#[test]
fn a_list_is_one_sided_if_it_names_a_cpu_that_does_not_name_its_owner() {
    let mutual: &[(usize, &[usize])] = &[(0, &[0, 1]), (1, &[0, 1]), (2, &[2, 9])];
    assert!(!is_one_sided(&with_siblings(mutual)), "9 is not described");
    assert!(is_one_sided(&with_siblings(&[(0, &[0, 1]), (1, &[1])])));
    assert!(is_one_sided(&with_siblings(&[(0, &[0]), (1, &[0, 1])])));
    let overlapping: &[(usize, &[usize])] = &[(0, &[0, 1]), (1, &[0, 1, 2]), (2, &[1, 2])];
    assert!(
        !is_one_sided(&with_siblings(overlapping)),
        "each names who names it"
    );
}

/// The usable CPUs and the assumptions, for a tree with this list of online CPUs.
fn read_with_mask(online: &str, allowed: &CpuSet) -> (Vec<usize>, Vec<Assumption>) {
    let sys = tempfile::tempdir().expect("a temporary directory");
    let cpu_dir = sys.path().join("devices/system/cpu");
    fs::create_dir_all(&cpu_dir).expect("a directory");
    fs::write(cpu_dir.join("online"), online).expect("a file");
    fs::write(cpu_dir.join("possible"), "0-63\n").expect("a file");
    let found = read_tree(&Disk, sys.path(), Some(allowed)).expect("the mask has a CPU");
    (found.usable.iter().collect(), found.assumptions)
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
    let found =
        read_tree(&Disk, Path::new("/no/such/tree"), Some(&mask)).expect("the mask has CPUs");
    assert_eq!(found.online, mask);
    assert_eq!(found.usable.iter().collect::<Vec<_>>(), [4, 7]);
    assert_eq!(
        found.assumptions,
        [
            Assumption::OnlineUnknown { cpus: mask.clone() },
            Assumption::PossibleUnknown { cpus: mask }
        ]
    );
    assert!(matches!(
        read_tree(&Disk, Path::new("/no/such/tree"), None),
        Err(None)
    ));
}

/// A tree in memory in which CPU 2 leaves after so many reads, and comes back after more.
struct Leaving {
    files: BTreeMap<PathBuf, String>,
    reads: Cell<usize>,
    leaves: usize,
    returns: usize,
    /// What reading a file of the absent CPU says.
    error: io::ErrorKind,
}

const SYS: &str = "/t/sys";
const CPU: &str = "/t/sys/devices/system/cpu";

impl Leaving {
    fn new(leaves: usize, returns: usize, error: io::ErrorKind) -> Self {
        let mut files = BTreeMap::new();
        let mut add = |file: String, text: &str| files.insert(PathBuf::from(file), text.to_owned());
        for cpu in 0..4 {
            let dir = format!("{CPU}/cpu{cpu}");
            add(format!("{dir}/topology/core_cpus_list"), &cpu.to_string());
            add(format!("{dir}/topology/physical_package_id"), "0");
            add(format!("{dir}/cache/index0/level"), "2");
            add(format!("{dir}/cache/index0/type"), "Unified");
            add(format!("{dir}/cache/index0/shared_cpu_list"), "0-3");
            add(format!("{dir}/cpu_capacity"), "1024");
        }
        add("/t/sys/devices/system/node/node0/cpulist".to_owned(), "0-3");
        add(format!("{CPU}/possible"), "0-3");
        Self {
            files,
            reads: Cell::new(0),
            leaves,
            returns,
            error,
        }
    }

    fn present(&self) -> bool {
        !(self.leaves..self.returns).contains(&self.reads.get())
    }

    fn check(&self, path: &Path) -> io::Result<()> {
        self.reads.set(self.reads.get() + 1);
        let gone = path.starts_with(format!("{CPU}/cpu2")) && !self.present();
        if gone { Err(self.error.into()) } else { Ok(()) }
    }
}

impl Tree for Leaving {
    fn read(&self, file: &Path) -> io::Result<String> {
        self.check(file)?;
        if file == Path::new(CPU).join("online") {
            let online = if self.present() { "0-3\n" } else { "0-1,3\n" };
            return Ok(online.to_owned());
        }
        if file.ends_with("shared_cpu_list") && !self.present() {
            return Ok("0-1,3\n".to_owned());
        }
        let text = self.files.get(file).cloned();
        text.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.check(dir)?;
        let below = self
            .files
            .keys()
            .filter_map(|file| file.strip_prefix(dir).ok());
        let first = below.filter_map(|rest| Some(rest.iter().next()?.to_str()?.to_owned()));
        let names: BTreeSet<String> = first.collect();
        if names.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(names.into_iter().collect())
    }
}

fn model_of(tree: &Leaving) -> Model {
    let description = read_tree(tree, Path::new(SYS), None).expect("CPUs 0, 1 and 3 stay");
    Model::new(description)
}

/// How many reads one quiet look takes.
fn reads_of_a_look() -> usize {
    let tree = Leaving::new(usize::MAX, usize::MAX, io::ErrorKind::NotFound);
    assert_eq!(model_of(&tree).assumptions, []);
    tree.reads.get()
}

#[test]
fn a_cpu_that_leaves_at_any_moment_is_in_whole_or_left_out() {
    let look = reads_of_a_look();
    // The kinds of error that a file of a CPU gives while it goes.
    for error in [io::ErrorKind::NotFound, io::ErrorKind::Other] {
        for leaves in 0..=3 * look {
            let model = model_of(&Leaving::new(leaves, usize::MAX, error));
            let three = CpuSet::from([0, 1, 3]);
            assert!(
                model.cpus == three || model.cpus == CpuSet::from(0..4),
                "{leaves}: {}",
                model.cpus
            );
            for cpu in &three {
                let pod = model.pods(Scope::Cache).of(cpu).expect("a CPU that stayed");
                assert_eq!(pod.cpus(), &model.cpus, "left after {leaves} reads");
            }
            // Gone in the first look: the second is quiet and needs nothing assumed.
            if leaves < look - 1 {
                assert_eq!(model.cpus, three, "left after {leaves} reads");
                assert_eq!(model.assumptions, [], "left after {leaves} reads");
            }
            if model.cpus != three {
                assert_eq!(model.assumptions, [], "left after {leaves} reads");
            }
        }
    }
}

#[test]
fn a_cpu_that_left_and_came_back_is_in_whole_or_left_out() {
    let look = reads_of_a_look();
    let unsteady = Assumption::Unsteady {
        cpus: CpuSet::from([2]),
    };
    let times = (0..look).flat_map(|leaves| {
        (leaves + 1..=2 * look)
            .step_by(5)
            .map(move |back| (leaves, back))
    });
    for error in [io::ErrorKind::NotFound, io::ErrorKind::Other] {
        for (leaves, returns) in times.clone() {
            let model = model_of(&Leaving::new(leaves, returns, error));
            let when = format!("{error:?} from {leaves} to {returns}");
            if model.cpus == CpuSet::from(0..4) {
                assert_eq!(model.assumptions, [], "{when}");
            } else {
                // It was away when the look began, or came back during the second one.
                assert_eq!(model.cpus, CpuSet::from([0, 1, 3]), "{when}");
                let none_or_named = model.assumptions.iter().all(|made| *made == unsteady);
                assert!(none_or_named, "{when}: {:?}", model.assumptions);
            }
        }
    }
}
