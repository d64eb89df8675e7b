//! What the control group of this process, and its recorded status, allow.
//!
//! The affinity mask already shows the effect of a control group. What it does not show is how far
//! the mask could be widened again: a thread pinned to one CPU by its parent is in a group that
//! may well allow all of them.

use std::path::{Component, Path, PathBuf};

use crate::CpuSet;
use crate::cpuset::is_decimal;
use crate::sysfs::{Files, Form};

/// The CPUs the control group of this process allows. `root` is the root of the file tree; `None`
/// if no group is described or it says nothing about CPUs.
pub(crate) fn allowed(files: &mut Files<'_>, root: &Path) -> Option<CpuSet> {
    let own = |text: &str| Ok(text.to_owned());
    let groups = of_process(files, root, "cgroup", ":", own)?;
    let mounts = of_process(files, root, "mountinfo", " - ", own)?;
    // The first version's hierarchy for CPU sets, where mounted, has the controller.
    first_version(files, root, &groups, &mounts)
        .or_else(|| second_version(files, root, &groups, &mounts))
}

/// The mask a recorded process had. No process runs on no CPU, so an empty one is damaged.
pub(crate) fn recorded_mask(files: &mut Files<'_>, root: &Path) -> Option<CpuSet> {
    of_process(files, root, "status", ":", |text| {
        let mut lines = text.lines();
        let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let mask = list.map(str::parse::<CpuSet>).transpose();
        match mask {
            Ok(Some(mask)) if mask.is_empty() => Err("Cpus_allowed_list: no CPU".to_owned()),
            mask => mask.map_err(|error| format!("Cpus_allowed_list: {error}")),
        }
    })?
}

/// A file that describes this process. If nothing in it has the mark of its lines, it is damaged.
fn of_process<T>(
    files: &mut Files<'_>,
    root: &Path,
    name: &str,
    mark: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let file = root.join("proc/self").join(name);
    files.value_among_names(file, |text| {
        if text.is_empty() || text.contains(mark) {
            parse(text)
        } else {
            Err(format!("no line has {mark:?}"))
        }
    })
}

fn first_version(files: &mut Files<'_>, root: &Path, groups: &str, mounts: &str) -> Option<CpuSet> {
    let group = group_of(groups, |names| {
        names.split(',').any(|name| name == "cpuset")
    })?;
    let mount = Mount::find(mounts, group, |kind, mount| {
        kind == "cgroup" && mount.has("cpuset")
    })?;
    let prefix = if mount.has("noprefix") { "" } else { "cpuset." };
    let dir = dir_of(files, root, &mount, group)?;
    ["effective_cpus", "cpus"]
        .iter()
        .find_map(|name| read_set(files, &dir, &format!("{prefix}{name}")))
}

/// A group without the file has the CPUs of its parent.
fn second_version(
    files: &mut Files<'_>,
    root: &Path,
    groups: &str,
    mounts: &str,
) -> Option<CpuSet> {
    let group = group_of(groups, str::is_empty)?;
    let mount = Mount::find(mounts, group, |kind, _| kind == "cgroup2")?;
    let top = mount.dir(root, &mount.root);
    dir_of(files, root, &mount, group)?
        .ancestors()
        .take_while(|dir| dir.starts_with(&top))
        .find_map(|dir| read_set(files, dir, "cpuset.cpus.effective"))
}

/// The directory of a group, unless a name in its path is no text and so not known.
fn dir_of(files: &mut Files<'_>, root: &Path, mount: &Mount<'_>, group: &str) -> Option<PathBuf> {
    let dir = mount.dir(root, group);
    let unknown = |name: &&str| name.contains(char::REPLACEMENT_CHARACTER);
    if [group, &mount.point].iter().any(unknown) {
        files.note_bad(dir, &"a name in the path is no text");
        return None;
    }
    Some(dir)
}

/// An empty file is a group that has not been given CPUs.
fn read_set(files: &mut Files<'_>, dir: &Path, name: &str) -> Option<CpuSet> {
    let set = files.set(dir, &[(name, Form::List)]);
    set.filter(|set| !set.is_empty())
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
struct Mount<'a> {
    /// The group that is shown at the mount point; groups beside and above it are out of sight.
    root: String,
    point: String,
    /// Those of the file system, not of the mount.
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// Of the mounts of a fitting type, the first that shows `group`, else the first: a container
    /// may see, besides its own group, mounts of others.
    ///
    /// Lines are `… … … root point options … - type source options`.
    fn find(mounts: &'a str, group: &str, fits: impl Fn(&str, &Self) -> bool) -> Option<Self> {
        let mut fitting = mounts.lines().filter_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            let mut system = system.split(' ');
            let (kind, options) = (system.next()?, system.nth(1)?);
            let mut mount = mount.split(' ').skip(3).map(unescaped);
            let (root, point) = (mount.next()?, mount.next()?);
            let mount = Self {
                root,
                point,
                options,
            };
            fits(kind, &mount).then_some(mount)
        });
        let first = fitting.next()?;
        if first.shown(group).is_some() {
            return Some(first);
        }
        let better = fitting.find(|mount| mount.shown(group).is_some());
        better.or(Some(first))
    }

    fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|one| one == option)
    }

    /// Where below the mount point a group is. A path with `..` names a group outside of the part
    /// of the hierarchy that the process can see.
    fn shown<'g>(&self, group: &'g str) -> Option<&'g Path> {
        let below = Path::new(group).strip_prefix(&self.root).ok()?;
        let down = |part| matches!(part, Component::Normal(_));
        below.components().all(down).then_some(below)
    }

    /// The directory of a group, below the root of the file tree. A group that the mount does not
    /// show is taken to be the group it shows.
    fn dir(&self, root: &Path, group: &str) -> PathBuf {
        // Stays inside the tree, even if a file is damaged.
        let point = Path::new(&self.point).components();
        let point = point.filter(|part| matches!(part, Component::Normal(_)));
        let below = self.shown(group).unwrap_or(Path::new(""));
        root.join(point.collect::<PathBuf>()).join(below)
    }
}

/// A field of the list of mounts, in which white space and the backslash are written as a backslash
/// and three octal digits.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let octal = part.get(..3).filter(|digits| is_decimal(digits));
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                text.push(char::from(byte));
                text.push_str(&part[3..]);
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{allowed, recorded_mask};
    use crate::sysfs::Files;
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
        allowed(&mut Files::new(&Disk), tree(files).path()).map(|set| set.to_string())
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
        let files = &mut Files::new(&Disk);
        let mask = recorded_mask(files, dir.path()).map(|set| set.to_string());
        assert_eq!(mask, Some("1-2".to_owned()));
        assert_eq!(recorded_mask(files, Path::new("/no/such/tree")), None);
        assert_eq!(files.bad(), 0);
    }

    #[test]
    fn of_several_mounts_the_one_that_shows_the_group_is_asked() {
        for (mounts, group) in [
            (
                "30 22 0:26 /other /mnt/other rw - cgroup cgroup rw,cpuset\n\
                 31 22 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,cpuset\n",
                "3:cpuset:/docker/abc\n",
            ),
            (
                "30 22 0:26 /docker/ab /mnt/other rw - cgroup2 cgroup rw\n\
                 31 22 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
                "0::/../docker/abc\n",
            ),
        ] {
            let files = [
                ("proc/self/mountinfo", mounts),
                ("proc/self/cgroup", group),
                ("mnt/other/cpuset.cpus", "6-7\n"),
                ("mnt/other/cpuset.cpus.effective", "6-7\n"),
                ("sys/fs/cgroup/docker/abc/cpuset.cpus", "2-3\n"),
                ("sys/fs/cgroup/docker/abc/cpuset.cpus.effective", "2-3\n"),
            ];
            assert_eq!(allowed_by(&files), Some("2-3".to_owned()), "{group:?}");
        }
    }

    /// It is beside what the process sees as the root, not below it.
    #[test]
    fn a_group_out_of_sight_is_not_one_of_the_same_name_below() {
        let files = [
            V2_MOUNT,
            ("proc/self/cgroup", "0::/../b\n"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n"),
            ("sys/fs/cgroup/b/cpuset.cpus.effective", "7\n"),
        ];
        assert_eq!(allowed_by(&files), Some("0-3".to_owned()));
    }

    #[test]
    fn white_space_in_a_mount_point_is_understood() {
        let files = [
            (
                "proc/self/mountinfo",
                "30 22 0:26 /a\\134b /sys/fs/x\\040y\\z rw - cgroup2 cgroup rw\n",
            ),
            ("proc/self/cgroup", "0::/a\\b/c d\n"),
            ("sys/fs/x y\\z/c d/cpuset.cpus.effective", "2-3\n"),
        ];
        assert_eq!(allowed_by(&files), Some("2-3".to_owned()));
    }

    #[test]
    fn the_oldest_form_has_no_prefix_in_its_names() {
        let mount = "31 22 0:26 / /dev/cpuset rw - cgroup cgroup rw,cpuset,noprefix\n";
        let files = [
            ("proc/self/mountinfo", mount),
            ("proc/self/cgroup", "2:cpuset:/x\n0::/\n"),
            ("dev/cpuset/x/cpus", "0-7\n"),
            ("dev/cpuset/x/effective_cpus", "2-3\n"),
        ];
        assert_eq!(allowed_by(&files), Some("2-3".to_owned()));
        assert_eq!(allowed_by(&files[..3]), Some("0-7".to_owned()));
    }

    fn write(dir: &tempfile::TempDir, file: &str, bytes: &[u8]) {
        fs::write(dir.path().join(file), bytes).expect("a file");
    }

    fn limited() -> tempfile::TempDir {
        tree(&[
            V2_MOUNT,
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n"),
            ("sys/fs/cgroup/a/cpuset.cpus.effective", "2-3\n"),
        ])
    }

    fn allowed_in(dir: &tempfile::TempDir) -> (Option<String>, usize) {
        let files = &mut Files::new(&Disk);
        let set = allowed(files, dir.path()).map(|set| set.to_string());
        (set, files.bad())
    }

    /// A name may have any bytes, and a host of many containers has many mounts.
    #[test]
    fn other_mounts_hide_no_limit() {
        let odd = b"31 22 8:1 / /media/M\xfcller rw - ext4 /dev/sdb1 rw\n".to_vec();
        let pod = b"31 22 0:31 / /var/lib/pods/0/volumes rw - tmpfs tmpfs rw,size=1024k\n";
        for mut mounts in [odd, pod.repeat((1 << 20) / pod.len() + 1)] {
            mounts.extend_from_slice(V2_MOUNT.1.as_bytes());
            let dir = limited();
            write(&dir, V2_MOUNT.0, &mounts);
            assert_eq!(allowed_in(&dir), (Some("2-3".to_owned()), 0));
        }
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_limit() {
        let dir = limited();
        write(&dir, "proc/self/cgroup", b"4:cpu:/M\xfcller\n0::/a\n");
        assert_eq!(allowed_in(&dir), (Some("2-3".to_owned()), 0));
        let status = b"Name:\tM\xfcller\nCpus_allowed_list:\t1-2\n";
        write(&dir, "proc/self/status", status);
        let mask = recorded_mask(&mut Files::new(&Disk), dir.path());
        assert_eq!(mask.map(|set| set.to_string()), Some("1-2".to_owned()));
    }

    /// The group above it would allow more.
    #[test]
    fn a_group_whose_own_name_is_no_text_is_noted() {
        let dir = limited();
        write(&dir, "proc/self/cgroup", b"0::/M\xfcller\n");
        assert_eq!(allowed_in(&dir), (None, 1));
    }

    #[test]
    fn what_makes_no_sense_is_noted() {
        let dir = tree(&[
            V2_MOUNT,
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/cpuset.cpus.effective", "0-zz\n"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n"),
            ("proc/self/status", "Cpus_allowed_list:\tgarbage\n"),
        ]);
        let files = &mut Files::new(&Disk);
        let set = allowed(files, dir.path()).map(|set| set.to_string());
        assert_eq!((set, files.bad()), (Some("0-3".to_owned()), 1));
        let bad = files.first_bad().expect("a damaged file");
        assert!(bad.file.ends_with("a/cpuset.cpus.effective"), "{bad:?}");
        assert_eq!((recorded_mask(files, dir.path()), files.bad()), (None, 2));
    }
}
