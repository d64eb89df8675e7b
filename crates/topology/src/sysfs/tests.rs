use std::fs;
use std::path::Path;

use super::{Scan, read_tree, steady};
use crate::model::{CpuFacts, Description};
use crate::tree::Disk;
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
        vanished: CpuSet::new(),
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
    assert_eq!(found.cpus.into_keys().collect::<Vec<_>>(), [0]);
    assert_eq!(found.assumptions, []);
}

#[test]
fn cpus_that_keep_moving_are_left_out_and_named() {
    let mut looks = vec![look(&[0, 2, 3], &[0, 1, 2]), look(&[0, 1], &[0, 2, 3])];
    let (found, _) = steady(|| looks.pop().expect("two looks are enough"));
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
    let found = read_tree(&Disk, sys.path(), Some(allowed)).expect("the mask has a CPU");
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
    let found =
        read_tree(&Disk, Path::new("/no/such/tree"), Some(&mask)).expect("the mask has CPUs");
    assert_eq!(found.online, mask);
    assert_eq!(found.cpus.into_keys().collect::<Vec<_>>(), [4, 7]);
    assert_eq!(
        found.assumptions,
        [Assumption::OnlineUnknown { cpus: mask }]
    );
    assert!(matches!(
        read_tree(&Disk, Path::new("/no/such/tree"), None),
        Err(None)
    ));
}
