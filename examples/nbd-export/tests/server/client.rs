//! A client that speaks the protocol by hand.

use nbd_export::proto::{self, option, reply};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A server that listens to nobody for so long has ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(String),
}

#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn connect(to: &Address) -> io::Result<Self> {
        match to {
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Address::Tcp(address) => TcpStream::connect(address).map(Self::Tcp),
        }
    }

    /// Says that nothing more is sent.
    pub(crate) fn close_sending(&self) {
        let closed = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
        };
        closed.unwrap();
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Client {
    pub(crate) stream: Stream,
    pub(crate) cookie: u64,
}

impl Client {
    pub(crate) fn new(to: &Address) -> Self {
        // The path may be there before anybody listens. A server that has ended is not waited for
        // without end.
        let since = Instant::now();
        let stream = loop {
            match Stream::connect(to) {
                Ok(stream) => break stream,
                Err(error) if since.elapsed() > PATIENCE => panic!("{to:?}: {error}"),
                Err(_) => std::thread::yield_now(),
            }
        };
        let mut client = Self { stream, cookie: 0 };
        let greeting = client.read(18);
        assert_eq!(greeting[..8], proto::INIT_MAGIC.to_be_bytes());
        client.stream.write_all(&3_u32.to_be_bytes()).unwrap();
        client
    }

    pub(crate) fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn option(&mut self, number: u32, data: &[u8]) {
        let mut bytes = proto::OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn answer(&mut self) -> u32 {
        let head = self.read(20);
        let len = u32::from_be_bytes(head[16..].try_into().unwrap());
        self.read(len as usize);
        u32::from_be_bytes(head[12..16].try_into().unwrap())
    }

    /// What the server says that an export can do.
    pub(crate) fn flags_of(&mut self, name: &str) -> u16 {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend([0, 1, 0, 3]);
        self.option(option::INFO, &data);
        let mut flags = None;
        loop {
            let head = self.read(20);
            let [kind, len] =
                [12, 16].map(|at| u32::from_be_bytes(head[at..at + 4].try_into().unwrap()));
            let body = self.read(len as usize);
            if kind == reply::ACK {
                return flags.expect("the export is told of");
            }
            if body[..2] == [0, 0] {
                flags = Some(u16::from_be_bytes([body[10], body[11]]));
            }
        }
    }

    pub(crate) fn go(mut self, name: &str) -> Self {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        // One piece of information is asked for: block sizes.
        data.extend([0, 1, 0, 3]);
        self.option(option::GO, &data);
        while self.answer() != reply::ACK {}
        self
    }

    /// Agrees on structured replies and on `base:allocation` for an export.
    pub(crate) fn ask_for_extents(&mut self, name: &str) {
        self.option(option::STRUCTURED_REPLY, &[]);
        assert_eq!(self.answer(), reply::ACK);
        let mut data = Vec::new();
        for (count, text) in [(None, name), (Some(1_u32), proto::BASE_ALLOCATION)] {
            data.extend(count.iter().flat_map(|n| n.to_be_bytes()));
            data.extend((text.len() as u32).to_be_bytes());
            data.extend(text.as_bytes());
        }
        self.option(option::SET_META_CONTEXT, &data);
        assert_eq!(self.answer(), reply::META_CONTEXT);
        assert_eq!(self.answer(), reply::ACK);
    }

    /// Extents of a part of the export: their lengths and states.
    pub(crate) fn extents(&mut self, offset: u64, length: u32, flags: u16) -> Vec<(u32, u32)> {
        self.send(7, flags, offset, length, &[]);
        let head = self.read(20);
        assert_eq!(head[..4], proto::CHUNK_MAGIC.to_be_bytes());
        let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        assert_eq!(number(4), proto::chunk::FLAG_DONE);
        assert_eq!(number(6), proto::chunk::BLOCK_STATUS);
        assert_eq!(head[8..16], self.cookie.to_be_bytes());
        let len = u32::from_be_bytes(head[16..].try_into().unwrap());
        let body = self.read(len as usize);
        let numbers = body.chunks_exact(4);
        let numbers: Vec<u32> = numbers
            .map(|n| u32::from_be_bytes(n.try_into().unwrap()))
            .collect();
        assert_eq!(numbers[0], proto::BASE_ALLOCATION_ID);
        numbers[1..]
            .chunks(2)
            .map(|pair| (pair[0], pair[1]))
            .collect()
    }

    pub(crate) fn send(&mut self, command: u16, flags: u16, offset: u64, length: u32, data: &[u8]) {
        self.cookie += 1;
        let mut bytes = proto::REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Whether the server has sent nothing more.
    pub(crate) fn is_silent(&self) -> bool {
        let mut byte = [0];
        let (peek, now) = (libc::MSG_PEEK, libc::MSG_DONTWAIT);
        let fd = self.stream.as_raw_fd();
        // SAFETY: there is room for the one byte that is asked for.
        let got = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, peek | now) };
        got < 0
    }

    /// The error of a request, by a simple reply.
    pub(crate) fn error(&mut self) -> u32 {
        let reply = self.read(16);
        assert_eq!(reply[..4], proto::SIMPLE_REPLY_MAGIC.to_be_bytes());
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }

    /// The error of a request without data, by a structured reply of one chunk.
    pub(crate) fn chunk_error(&mut self) -> u32 {
        let head = self.read(20);
        assert_eq!(head[..4], proto::CHUNK_MAGIC.to_be_bytes());
        let len = u32::from_be_bytes(head[16..].try_into().unwrap());
        let body = self.read(len as usize);
        match u16::from_be_bytes([head[6], head[7]]) {
            proto::chunk::NONE => 0,
            proto::chunk::ERROR => u32::from_be_bytes(body[..4].try_into().unwrap()),
            kind => panic!("a chunk of kind {kind}"),
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> u32 {
        self.send(1, flags, offset, data.len() as u32, data);
        self.error()
    }

    pub(crate) fn read_at(&mut self, offset: u64, len: u32) -> Vec<u8> {
        self.send(0, 0, offset, len, &[]);
        assert_eq!(self.error(), 0);
        self.read(len as usize)
    }
}
