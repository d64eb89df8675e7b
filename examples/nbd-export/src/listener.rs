//! Where clients come in.

use std::fmt::{self, Display, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::net::sockopt;

/// What a Unix socket may hold for a client that has not read it. A large reply in few pieces wakes
/// the client, and this server, less often.
const SEND_BUFFER: usize = 1 << 20;

/// The longest path of a Unix socket, in bytes.
const LONGEST_PATH: usize = 107;

/// A client over TCP that says nothing and takes nothing for so long is taken to be gone.
const GONE: Duration = Duration::from_secs(120);
/// How often it is asked for a sign of life, in the second half of that.
const SIGNS: u32 = 4;

/// Where clients come in.
pub(crate) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// A socket at a path. One that nobody listens at any more is replaced.
    pub(crate) fn unix(path: &Path) -> Result<Self> {
        let shown = path.display();
        let len = path.as_os_str().len();
        ensure!(
            len <= LONGEST_PATH,
            "--unix {shown}: the path of a socket has at most {LONGEST_PATH} bytes, not {len}"
        );
        if path.exists() {
            if UnixStream::connect(path).is_ok() {
                bail!("{shown}: another server listens on it");
            }
            use std::os::unix::fs::FileTypeExt as _;
            let kind = std::fs::symlink_metadata(path)?.file_type();
            ensure!(kind.is_socket(), "{shown} exists and is no socket");
            std::fs::remove_file(path).with_context(|| format!("removing {shown}"))?;
        }
        let listener = UnixListener::bind(path).with_context(|| format!("--unix {shown}"))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    pub(crate) fn tcp(address: &str) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("--listen {address}"))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// How to reach it.
    pub(crate) fn uri(&self, export: &str) -> String {
        let export = Encoded(export.as_bytes());
        match self {
            Self::Unix(_, path) => {
                let path = Encoded(path.as_os_str().as_bytes());
                format!("nbd+unix:///{export}?socket={path}")
            }
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("nbd://{address}/{export}"),
                Err(_) => format!("nbd://?/{export}"),
            },
        }
    }

    /// The next client, and where it is.
    pub(crate) fn accept(&self) -> std::io::Result<(OwnedFd, Peer)> {
        match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // The kernel takes less if it does not allow that.
                let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER);
                let peer = Peer::of_process(&stream);
                Ok((stream.into(), peer))
            }
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                notice_gone(&stream)?;
                Ok((stream.into(), Peer::Tcp(address)))
            }
        }
    }
}

/// Where a client is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    /// A process of this machine, as it was when it connected.
    Unix {
        pid: libc::pid_t,
        uid: libc::uid_t,
    },
    /// The system does not say.
    Unknown,
}

impl Peer {
    // `rustix` has no place for the 0 that stands for a process of another namespace.
    fn of_process(stream: &UnixStream) -> Self {
        let mut peer = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of_val(&peer) as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let place = (&raw mut peer).cast();
        // SAFETY: `place` has room for `len` bytes, and any bytes are credentials.
        let read = unsafe { libc::getsockopt(stream.as_raw_fd(), level, name, place, &mut len) };
        if read != 0 {
            return Self::Unknown;
        }
        let libc::ucred { pid, uid, .. } = peer;
        Self::Unix { pid, uid }
    }
}

impl Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix { pid, uid } => write!(f, "pid {pid}, uid {uid}"),
            Self::Unknown => f.write_str("unknown peer"),
        }
    }
}

/// A part of a URI, in which everything but letters, digits and a few marks is encoded.
struct Encoded<'a>(&'a [u8]);

impl Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'-' | b'.' | b'_' | b'~' | b'/' => f.write_char(byte.into())?,
                _ if byte.is_ascii_alphanumeric() => f.write_char(byte.into())?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

/// Has the system end the connection if the peer has gone without a word: if it is asked for a sign
/// of life, and if it was sent something and does not confirm or take it.
fn notice_gone(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, GONE / 2)?;
    sockopt::set_tcp_keepintvl(stream, GONE / 2 / SIGNS)?;
    sockopt::set_tcp_keepcnt(stream, SIGNS)?;
    sockopt::set_tcp_user_timeout(stream, GONE.as_millis() as u32)
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;
    use std::net::TcpStream;

    /// A peer that has gone without a word is noticed: one that is idle, and one that was sent
    /// something.
    #[test]
    fn peers_that_are_gone_are_noticed_in_two_minutes() {
        let listener = Listener::tcp("127.0.0.1:0").unwrap();
        let Listener::Tcp(tcp) = &listener else {
            panic!("it is for TCP");
        };
        let _peer = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let socket = loop {
            match listener.accept() {
                Ok((socket, _)) => break socket,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        };
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let idle = sockopt::tcp_keepidle(&socket).unwrap();
        let between = sockopt::tcp_keepintvl(&socket).unwrap();
        let asked = sockopt::tcp_keepcnt(&socket).unwrap();
        assert_eq!(idle + between * asked, Duration::from_secs(120));
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 120_000);
    }

    #[test]
    fn a_path_that_is_too_long_is_told_with_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let rest = 106_usize
            .checked_sub(folder.path().as_os_str().len())
            .expect("a short TMPDIR");
        let longest = folder.path().join("x".repeat(rest));
        assert!(Listener::unix(&longest).is_ok());
        let longer = folder.path().join("x".repeat(rest + 1));
        let error = Listener::unix(&longer).err().unwrap().to_string();
        assert!(error.ends_with("at most 107 bytes, not 108"), "{error}");
    }

    #[test]
    fn a_socket_s_path_is_a_part_of_a_uri() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::unix(&folder.path().join("a b&c=d%\u{e9}")).unwrap();
        let uri = listener.uri("disk");
        let (before, name) = uri.rsplit_once('/').unwrap();
        assert!(before.starts_with("nbd+unix:///disk?socket=/"), "{uri}");
        assert_eq!(name, "a%20b%26c%3Dd%25%C3%A9");
    }
}
