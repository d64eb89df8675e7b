//! The one-file form of a recorded machine: a line per file, its path below the root,
//! a tab, its text.

use std::fs;
use std::path::{Component, Path};

/// Writes the files of a recording below `root`, which is to stand for the root of a file system.
///
/// Recordings come from strangers, so a path that leads anywhere else is refused.
pub(crate) fn unpack(text: &str, root: &Path) -> Result<(), String> {
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let (path, content) = line
            .split_once('\t')
            .ok_or_else(|| format!("line {number} is not a path, a tab and a text"))?;
        let path = Path::new(path);
        let mut parts = path.components();
        if !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!("line {number} names no file of the tree"));
        }
        let file = root.join(path);
        let dir = file.parent().unwrap_or(root);
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&file, format!("{content}\n")))
            .map_err(|error| format!("line {number} cannot be unpacked: {error}"))?;
    }
    Ok(())
}
