//! Where the reader reads from: the file system, or in tests a tree that changes under it.

use std::error::Error;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Far more than any file of `/sys` has. A recorded tree may hold anything.
const MAX_BYTES: u64 = 1 << 20;

/// Room for a recording, as one file, of more CPUs than any machine has, and for the mounts of a
/// host of very many containers.
const MAX_LONG_BYTES: u64 = 1 << 26;

/// Room for nearly every file at the first read.
const USUAL_BYTES: usize = 4096;

/// A tree of small text files.
pub(crate) trait Tree {
    /// The text of a file.
    fn read(&self, file: &Path) -> io::Result<String>;

    /// The text of a file of a process, which may be long and have names of any bytes in it: what
    /// is no text becomes U+FFFD.
    fn read_names(&self, file: &Path) -> io::Result<String> {
        self.read(file)
    }

    /// The names in a directory, in any order. Names that are no text are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Disk;

impl Tree for Disk {
    fn read(&self, file: &Path) -> io::Result<String> {
        text(read_at_most(file, MAX_BYTES)?)
    }

    fn read_names(&self, file: &Path) -> io::Result<String> {
        let bytes = read_at_most(file, MAX_LONG_BYTES)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

/// The text of a recording in one file.
pub(crate) fn read_recording(file: &Path) -> io::Result<String> {
    text(read_at_most(file, MAX_LONG_BYTES)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(invalid)
}

fn read_at_most(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(file)?;
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    // Reads to the end: files of `/proc` return whole lines, so a short read does not mean that
    // nothing follows.
    file.take(most + 1).read_to_end(&mut bytes)?;
    // A part of a list could be mistaken for a whole one.
    if bytes.len() as u64 > most {
        return Err(invalid(format!("larger than {most} bytes")));
    }
    Ok(bytes)
}

/// Opens a regular file. A recorded tree may hold pipes and devices, which must not hold the reader
/// up.
fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(target_os = "linux")]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    #[cfg(not(target_os = "linux"))]
    regular(&fs::metadata(file)?)?;
    let file = options.open(file)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

fn regular(found: &Metadata) -> io::Result<()> {
    let yes = found.is_file();
    yes.then_some(())
        .ok_or_else(|| invalid("not a regular file"))
}

fn invalid(reason: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Disk, MAX_BYTES, Tree};

    #[test]
    fn what_is_too_large_is_refused_and_never_cut() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("list");
        let most = usize::try_from(MAX_BYTES).expect("a megabyte");
        fs::write(&file, "1".repeat(most)).expect("a file");
        assert_eq!(Disk.read(&file).map(|text| text.len()).ok(), Some(most));
        fs::write(&file, "1".repeat(most + 1)).expect("a file");
        let error = Disk.read(&file).expect_err("too large");
        assert_eq!(error.to_string(), "larger than 1048576 bytes");
    }

    /// Such a file gives whole lines at each read, and so less than was asked for.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_of_proc_is_read_to_its_end() {
        let maps = Disk.read("/proc/self/smaps".as_ref()).expect("a text");
        assert!(maps.len() > 4096, "too short to tell");
        assert!(
            maps.contains("[stack]"),
            "the last part is missing:\n{maps}"
        );
    }
}
