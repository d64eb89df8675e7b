//! A socket in the file system that only its owner can open, and that nobody loses by accident.

use crate::pause::pause;
use crate::server::ServeError;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A path may be that long. Linux takes one byte more if no zero follows, but clients, those of the
/// standard library among them, do not.
pub(crate) const PATH_LIMIT: usize = 107;

/// How many bytes a path has that is too long.
pub(crate) fn excess(path: &Path) -> Option<usize> {
    Some(path.as_os_str().len()).filter(|&bytes| bytes > PATH_LIMIT)
}

/// Only the owner.
const MODE: u32 = 0o600;

/// So many clients may wait for the server to come to them.
const BACKLOG: i32 = 16;

/// So often it is tried to lock the folder,
const LOCK_TRIES: u32 = 500;

/// with a pause after each.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A listening socket, with its name.
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and number of the name's file.
    file: (u64, u64),
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

fn io(e: impl Into<io::Error>) -> ServeError {
    ServeError::Io(e.into().kind())
}

/// Holds off other servers that look for the same name, until it is dropped. Whoever can read the
/// folder can hold its lock for as long as he likes, so it is not waited for without end.
fn lock_folder(path: &Path) -> Result<File, ServeError> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty()).map_err(io)?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(folder.into()),
            Err(Errno::WOULDBLOCK) => pause(LOCK_PAUSE),
            Err(e) => return Err(io(e)),
        }
    }
    Err(ServeError::FolderLocked)
}

impl Socket {
    /// A name is taken over only from a socket at which nobody listens any more.
    pub(crate) fn listen(path: &Path) -> Result<Self, ServeError> {
        if path.as_os_str().is_empty() {
            return Err(ServeError::EmptyPath);
        }
        if let Some(bytes) = excess(path) {
            return Err(ServeError::PathTooLong { bytes });
        }
        let _locked = lock_folder(path)?;
        let socket = match bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                refuse_taken(path)?;
                fs::remove_file(path).map_err(io)?;
                bind(path)
            }
            other => other,
        };
        let socket = socket.map_err(io)?;
        // As long as nobody listens nobody gets in, so it is looked at before.
        let file = fs::symlink_metadata(path).map_err(io)?;
        if file.mode() & 0o777 & !MODE != 0 {
            let _ = fs::remove_file(path);
            return Err(ServeError::Io(io::ErrorKind::PermissionDenied));
        }
        rustix::net::listen(&socket, BACKLOG).map_err(io)?;
        Ok(Self {
            listener: socket.into(),
            path: path.to_owned(),
            file: (file.dev(), file.ino()),
        })
    }
}

/// A socket with this name, at which nobody listens yet.
fn bind(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // On Linux the name's file gets the mode of the socket.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(MODE))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::net::bind(&socket, &address).map_err(|e| match e {
        Errno::EXIST => Errno::ADDRINUSE,
        e => e,
    })?;
    Ok(socket)
}

/// The name is taken: whether by something that is still needed.
fn refuse_taken(path: &Path) -> Result<(), ServeError> {
    if !fs::symlink_metadata(path)
        .map_err(io)?
        .file_type()
        .is_socket()
    {
        return Err(ServeError::NotASocket);
    }
    let connect = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let to = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&to, &SocketAddrUnix::new(path)?)
    };
    match connect() {
        // AGAIN: so many wait for who listens there that one more would have to wait here, with the
        // folder locked.
        Ok(()) | Err(Errno::AGAIN) => Err(ServeError::InUse),
        Err(Errno::CONNREFUSED) => Ok(()),
        Err(e) => Err(io(e)),
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If the folder cannot be locked the name is left: the next server takes it over.
        let Ok(_locked) = lock_folder(&self.path) else {
            return;
        };
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
