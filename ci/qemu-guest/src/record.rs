//! The files of the machine, as `ci/record-topology` takes them: by the same list.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The list, see its head.
const FILES: &str = include_str!("../../topology-files");

/// Prints a line for each file: `file`, its path below the root, a tab, its text.
pub(crate) fn tell() -> Result<(), Box<dyn Error>> {
    let root = Path::new("/");
    for line in FILES.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let Some(pattern) = words.next() else {
            continue;
        };
        let names: Vec<&str> = words.collect();
        for dir in matching(root, pattern) {
            let found = names.iter().find_map(|name| {
                let path = dir.join(name);
                Some((fs::read_to_string(&path).ok()?, path))
            });
            if let Some((text, path)) = found {
                let path = path.strip_prefix(root)?.display();
                println!("file {path}\t{}", text.trim_end());
            }
        }
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let mask = |line: &&str| line.starts_with("Cpus_allowed_list:");
    if let Some(line) = status.lines().find(mask) {
        println!("file proc/self/status\t{line}");
    }
    Ok(())
}

/// The directories below `root` that match a pattern, in the order of their numbers. The one
/// pattern that occurs in the list is a name followed by a number.
fn matching(root: &Path, pattern: &str) -> Vec<PathBuf> {
    pattern
        .split('/')
        .fold(vec![root.to_owned()], |dirs, part| {
            let prefix = part.strip_suffix("[0-9]*");
            dirs.iter()
                .flat_map(|dir| match prefix {
                    Some(prefix) => numbered(dir, prefix),
                    None => vec![dir.join(part)],
                })
                .collect()
        })
}

fn numbered(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found: Vec<(usize, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse();
            Some((number.ok()?, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}
