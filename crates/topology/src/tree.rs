//! Where the reader reads from: the file system, or in tests a tree that changes under it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// No file of `/sys` comes near it; a recorded tree may hold anything.
const MAX_BYTES: u64 = 1 << 20;

/// Room for nearly every file. The kernel fills it if the file has as much.
const FIRST_READ: usize = 4096;

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
        let mut file = File::open(file)?;
        let mut first = [0; FIRST_READ];
        let length = file.read(&mut first)?;
        let mut bytes = first[..length].to_vec();
        // A short read is the end of such a file. Asking once more would be one call in four, for
        // each of the thousands of files of a large machine.
        if length == FIRST_READ {
            file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        }
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}
