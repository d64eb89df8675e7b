//! What the control group of this process, and its recorded status, allow.
//!
//! The affinity mask already shows the effect of a control group. What it does not show is how far
//! the mask could be widened again: a thread pinned to one CPU by its parent is in a group that
//! may well allow all of them.

use std::path::{Path, PathBuf};

use crate::CpuSet;
use crate::tree::Tree;

/// The CPUs the control group of this process allows. `root` is the root of the file tree; `None`
/// if no group is described or it says nothing about CPUs.
pub(crate) fn allowed(tree: &dyn Tree, root: &Path) -> Option<CpuSet> {
    let groups = tree.read(&root.join("proc/self/cgroup")).ok()?;
    let mounts = tree.read(&root.join("proc/self/mountinfo")).ok()?;
    // The first version's hierarchy for CPU sets, where mounted, has the controller.
    first_version(tree, root, &groups, &mounts)
        .or_else(|| second_version(tree, root, &groups, &mounts))
}

/// The mask a recorded process had.
pub(crate) fn recorded_mask(tree: &dyn Tree, root: &Path) -> Option<CpuSet> {
    let status = tree.read(&root.join("proc/self/status")).ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.parse().ok()
}

fn first_version(tree: &dyn Tree, root: &Path, groups: &str, mounts: &str) -> Option<CpuSet> {
    let group = group_of(groups, |names| {
        names.split(',').any(|name| name == "cpuset")
    })?;
    let mount = Mount::find(mounts, "cgroup", |options| {
        options.split(',').any(|option| option == "cpuset")
    })?;
    let dir = mount.dir(root, group);
    read_set(tree, &dir.join("cpuset.effective_cpus"))
        .or_else(|| read_set(tree, &dir.join("cpuset.cpus")))
}

/// A group without the file has the CPUs of its parent.
fn second_version(tree: &dyn Tree, root: &Path, groups: &str, mounts: &str) -> Option<CpuSet> {
    let group = group_of(groups, str::is_empty)?;
    let mount = Mount::find(mounts, "cgroup2", |_| true)?;
    let top = mount.dir(root, &mount.root);
    mount
        .dir(root, group)
        .ancestors()
        .take_while(|dir| dir.starts_with(&top))
        .find_map(|dir| read_set(tree, &dir.join("cpuset.cpus.effective")))
}

/// An empty file is a group that has not been given CPUs.
fn read_set(tree: &dyn Tree, file: &Path) -> Option<CpuSet> {
    let set: CpuSet = tree.read(file).ok()?.parse().ok()?;
    (!set.is_empty()).then_some(set)
}

/// The path of the group whose controllers are wanted: lines are `number:controllers:path`.
fn group_of(groups: &str, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        wanted(controllers).then_some(path)
    })
}

/// A mounted hierarchy.
struct Mount {
    /// The group that is shown at the mount point; groups above it are out of sight.
    root: String,
    point: String,
}

impl Mount {
    /// The first mount of type `kind` with fitting options of its file system.
    ///
    /// Lines are `… … … root point options … - type source options`.
    fn find(mounts: &str, kind: &str, fits: impl Fn(&str) -> bool) -> Option<Self> {
        mounts.lines().find_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            let mut system = system.split(' ');
            let found = system.next()? == kind && fits(system.nth(1)?);
            let mut mount = mount.split(' ').skip(3);
            let (root, point) = (mount.next()?.to_owned(), mount.next()?.to_owned());
            found.then_some(Self { root, point })
        })
    }

    /// The directory of a group, below the root of the file tree. A group that the mount does not
    /// show is taken to be the group it shows.
    fn dir(&self, root: &Path, group: &str) -> PathBuf {
        let below = Path::new(group)
            .strip_prefix(&self.root)
            .unwrap_or(Path::new(""));
        // Never out of the tree, whatever a damaged file says.
        let normal = |path: &Path| -> PathBuf {
            path.components()
                .filter(|part| matches!(part, std::path::Component::Normal(_)))
                .collect()
        };
        root.join(normal(Path::new(&self.point)))
            .join(normal(below))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{allowed, recorded_mask};
    use crate::tree::Disk;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (file, text) in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        dir
    }

    fn allowed_by(files: &[(&str, &str)]) -> Option<String> {
        allowed(&Disk, tree(files).path()).map(|set| set.to_string())
    }

    const V2_MOUNT: (&str, &str) = (
        "proc/self/mountinfo",
        "22 1 0:20 / /sys rw - sysfs sysfs rw\n\
         30 22 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    );

    #[test]
    fn the_second_version_asks_the_nearest_group_that_knows() {
        let files = [
            V2_MOUNT,
            ("proc/self/cgroup", "0::/a/b/c\n"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n"),
            ("sys/fs/cgroup/a/cpuset.cpus.effective", "2-5\n"),
        ];
        assert_eq!(allowed_by(&files), Some("2-5".to_owned()));
        assert_eq!(allowed_by(&files[..3]), Some("0-7".to_owned()));
        assert_eq!(allowed_by(&files[..2]), None);
    }

    #[test]
    fn the_first_version_goes_before_the_second() {
        let files = [
            (
                "proc/self/mountinfo",
                "30 22 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                 31 22 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
            ),
            (
                "proc/self/cgroup",
                "4:cpu,cpuacct:/x\n3:cpuset:/jobs\n0::/x\n",
            ),
            ("sys/fs/cgroup/cpuset/jobs/cpuset.cpus", "0-7\n"),
            ("sys/fs/cgroup/unified/cpuset.cpus.effective", "0-31\n"),
            ("sys/fs/cgroup/cpuset/jobs/cpuset.effective_cpus", "4-5\n"),
        ];
        assert_eq!(allowed_by(&files), Some("4-5".to_owned()));
        assert_eq!(allowed_by(&files[..4]), Some("0-7".to_owned()));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount_point() {
        let mount = "30 22 0:26 /pods/p1 /sys/fs/cgroup ro - cgroup cgroup ro,cpuset\n";
        let file = ("sys/fs/cgroup/cpuset.cpus", "8-9\n");
        for group in [
            "3:cpuset:/pods/p1\n",
            "3:cpuset:/\n",
            "3:cpuset:/../../up\n",
        ] {
            let files = [
                ("proc/self/mountinfo", mount),
                ("proc/self/cgroup", group),
                file,
            ];
            assert_eq!(allowed_by(&files), Some("8-9".to_owned()), "{group:?}");
        }
    }

    #[test]
    fn nonsense_allows_nothing_and_asks_nowhere_else() {
        for (group, mount) in [
            ("", ""),
            ("0::", " - "),
            ("::::", " - cgroup2 x rw"),
            (
                "0::/../../../etc",
                "1 2 3 /../.. /../../etc rw - cgroup2 a b",
            ),
        ] {
            let files = [("proc/self/mountinfo", mount), ("proc/self/cgroup", group)];
            assert_eq!(allowed_by(&files), None);
        }
    }

    #[test]
    fn a_recorded_status_has_the_mask() {
        let dir = tree(&[(
            "proc/self/status",
            "Name:\tx\nCpus_allowed:\t6\nCpus_allowed_list:\t1-2\n",
        )]);
        let mask = recorded_mask(&Disk, dir.path()).map(|set| set.to_string());
        assert_eq!(mask, Some("1-2".to_owned()));
        assert_eq!(recorded_mask(&Disk, Path::new("/no/such/tree")), None);
    }
}
