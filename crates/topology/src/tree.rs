//! Where the reader reads from: the file system, or in tests a tree that changes under it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// No file of `/sys` comes near it; a recorded tree may hold anything.
const MAX_BYTES: u64 = 1 << 20;

/// A tree of small text files.
pub(crate) trait Tree {
    /// The text of a file.
    fn read(&self, file: &Path) -> io::Result<String>;

    /// The names in a directory, in any order. Names that are no text are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Disk;

impl Tree for Disk {
    fn read(&self, file: &Path) -> io::Result<String> {
        let mut text = String::with_capacity(64);
        File::open(file)?
            .take(MAX_BYTES)
            .read_to_string(&mut text)?;
        Ok(text)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}
