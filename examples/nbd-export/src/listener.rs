//! Where clients come in.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::net::sockopt;

/// What a Unix socket may hold for a client that has not read it. A large reply in few pieces wakes
/// the client, and this server, less often.
const SEND_BUFFER: usize = 1 << 20;

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
        if path.exists() {
            if UnixStream::connect(path).is_ok() {
                bail!("{shown}: another server listens there");
            }
            use std::os::unix::fs::FileTypeExt as _;
            let kind = std::fs::symlink_metadata(path)?.file_type();
            anyhow::ensure!(kind.is_socket(), "{shown} is there, and no socket");
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
        match self {
            Self::Unix(_, path) => format!("nbd+unix:///{export}?socket={}", path.display()),
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("nbd://{address}/{export}"),
                Err(_) => format!("nbd://?/{export}"),
            },
        }
    }

    pub(crate) fn accept(&self) -> std::io::Result<OwnedFd> {
        match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // The kernel takes less if it does not allow that.
                let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER);
                Ok(stream.into())
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                notice_gone(&stream)?;
                Ok(stream.into())
            }
        }
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
                Ok(socket) => break socket,
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
}
