//! The one-file form of a recorded machine: a line per line of a file, its path below the root, a
//! tab, its text.
//!
//! Recordings come from strangers. Nothing is unpacked, so no path in one can write a file
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::tree::Tree;

/// The files of a recording. Paths are relative: `sys/devices/…`.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    files: BTreeMap<PathBuf, String>,
    dirs: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl Recording {
    /// # Errors
    ///
    /// The first line that is none, and why.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut recording = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let (path, content) = line
                .split_once('\t')
                .ok_or_else(|| format!("line {number} is not a path, a tab and a text"))?;
            recording
                .add(Path::new(path), content)
                .ok_or_else(|| format!("line {number} names no file of the tree"))?;
        }
        Ok(recording)
    }

    fn add(&mut self, path: &Path, content: &str) -> Option<()> {
        let mut dir = PathBuf::new();
        for part in path.components() {
            let Component::Normal(name) = part else {
                return None;
            };
            let names = self.dirs.entry(dir.clone()).or_default();
            names.insert(name.to_str()?.to_owned());
            dir.push(name);
        }
        if dir.as_os_str().is_empty() {
            return None;
        }
        let text = self.files.entry(dir).or_default();
        text.push_str(content);
        text.push('\n');
        Some(())
    }
}

impl Tree for Recording {
    fn read(&self, file: &Path) -> io::Result<String> {
        let text = self.files.get(file).cloned();
        text.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = self.dirs.get(dir).ok_or(io::ErrorKind::NotFound)?;
        Ok(names.iter().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Recording;
    use crate::tree::Tree;

    #[test]
    fn files_and_directories_are_those_of_the_lines() {
        let text = "sys/a/x\t1\nsys/b\t\nsys/a/x\t2\tor 3\n";
        let recording = Recording::parse(text).expect("a recording");
        let read = |file: &str| recording.read(Path::new(file)).ok();
        assert_eq!(read("sys/a/x").as_deref(), Some("1\n2\tor 3\n"));
        assert_eq!(read("sys/b").as_deref(), Some("\n"));
        assert_eq!((read("sys/a"), read("x")), (None, None));
        let list = |dir: &str| recording.list(Path::new(dir)).ok();
        assert_eq!(list("sys"), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(list("sys/b"), None);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for (text, problem) in [
            (
                "sys/a\t1\nsys/b 1\n",
                "line 2 is not a path, a tab and a text",
            ),
            ("../sys/a\t1\n", "line 1 names no file of the tree"),
            ("sys/a\t1\n/etc/a\t1\n", "line 2 names no file of the tree"),
            ("\t1\n", "line 1 names no file of the tree"),
        ] {
            let error = Recording::parse(text).expect_err(text);
            assert_eq!(error, problem);
        }
    }
}
