//! What is to be sent to a client: heads and data, in the order of the replies.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use nbd_export::proto::{BASE_ALLOCATION_ID, Errno, Request, chunk, chunk_header, simple_reply};
use rustix::io::writev;

use crate::reactor::{Buffer, Reactor};
use crate::request::Body;

/// Parts in one call.
const AT_ONCE: usize = 64;

enum Part {
    Head([u8; 44], usize),
    Data(Buffer),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Head(bytes, len) => &bytes[..*len],
            Self::Data(bytes) => bytes,
        }
    }

    const fn is_pipe(&self) -> bool {
        matches!(self, Self::Data(buffer) if buffer.is_pipe())
    }
}

/// What was sent.
pub(crate) struct Sent {
    pub(crate) bytes: usize,
    /// Bytes of data whose buffers are free now.
    pub(crate) freed: usize,
}

/// What is to be sent.
#[derive(Default)]
pub(crate) struct Output {
    parts: VecDeque<Part>,
    /// Heads among them.
    replies: usize,
    /// Bytes of the first part that were sent.
    sent: usize,
}

impl Output {
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        self.parts.push_back(Part::Data(bytes.into()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many replies there are of which nothing, or not all of the head, has been sent.
    pub(crate) const fn replies(&self) -> usize {
        self.replies
    }

    /// Bytes of data whose buffers are in use.
    pub(crate) fn data_bytes(&self) -> usize {
        let len = |part: &Part| match part {
            Part::Head(..) => 0,
            Part::Data(buffer) => buffer.len(),
        };
        self.parts.iter().map(len).sum()
    }

    /// Sends what the socket takes at once.
    pub(crate) fn send(&mut self, socket: &OwnedFd, reactor: &Reactor) -> rustix::io::Result<Sent> {
        let more = self.parts.len() > 1;
        if let Some(Part::Data(first)) = self.parts.front_mut() {
            if let Some(moved) = first.send(socket, more) {
                let (bytes, all) = moved?;
                let freed = if all { self.pop(reactor) } else { 0 };
                return Ok(Sent { bytes, freed });
            }
        }
        let mut slices = Vec::with_capacity(AT_ONCE);
        let copied = self.parts.iter().take_while(|part| !part.is_pipe());
        for (n, part) in copied.take(AT_ONCE).enumerate() {
            let skip = if n == 0 { self.sent } else { 0 };
            slices.push(IoSlice::new(&part.bytes()[skip..]));
        }
        let bytes = writev(socket, &slices)?;
        let mut sent = bytes + self.sent;
        let mut freed = 0;
        for _ in 0..slices.len() {
            let len = self.parts[0].bytes().len();
            if sent < len {
                break;
            }
            sent -= len;
            freed += self.pop(reactor);
        }
        self.sent = sent;
        Ok(Sent { bytes, freed })
    }

    /// The first part has been sent.
    fn pop(&mut self, reactor: &Reactor) -> usize {
        match self.parts.pop_front() {
            Some(Part::Data(buffer)) => {
                let len = buffer.len();
                reactor.recycle(buffer);
                len
            }
            Some(Part::Head(..)) => {
                self.replies -= 1;
                0
            }
            None => 0,
        }
    }

    fn head(&mut self, parts: &[&[u8]]) {
        let mut bytes = [0; 44];
        let mut len = 0;
        for part in parts {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        self.parts.push_back(Part::Head(bytes, len));
        self.replies += 1;
    }

    /// Appends a reply; how many bytes of data it has.
    pub(crate) fn reply(
        &mut self,
        request: &Request,
        result: Result<Body, Errno>,
        structured: bool,
    ) -> usize {
        let cookie = request.cookie;
        if !structured {
            let error = result.as_ref().err().map_or(0, |errno| *errno as u32);
            self.head(&[&simple_reply(cookie, error)]);
            return match result {
                Ok(Body::Data(pieces)) => self.data(pieces),
                _ => 0,
            };
        }
        let done = chunk::FLAG_DONE;
        match result {
            Err(errno) => {
                let head = chunk_header(cookie, done, chunk::ERROR, 6);
                self.head(&[&head, &(errno as u32).to_be_bytes(), &[0, 0]]);
                0
            }
            Ok(Body::Nothing) => {
                self.head(&[&chunk_header(cookie, done, chunk::NONE, 0)]);
                0
            }
            Ok(Body::Data(pieces)) => {
                let head = chunk_header(cookie, done, chunk::OFFSET_DATA, request.length + 8);
                self.head(&[&head, &request.offset.to_be_bytes()]);
                self.data(pieces)
            }
            Ok(Body::Status(extents)) => {
                let len = 4 + 8 * extents.len() as u32;
                let head = chunk_header(cookie, done, chunk::BLOCK_STATUS, len);
                self.head(&[&head, &BASE_ALLOCATION_ID.to_be_bytes()]);
                let bytes = extents.iter().flat_map(|(len, state)| {
                    let mut extent = [0; 8];
                    extent[..4].copy_from_slice(&len.to_be_bytes());
                    extent[4..].copy_from_slice(&state.to_be_bytes());
                    extent
                });
                self.data(vec![bytes.collect::<Vec<u8>>().into()])
            }
        }
    }

    fn data(&mut self, pieces: Vec<Buffer>) -> usize {
        let len = pieces.iter().map(|p| p.len()).sum();
        self.parts.extend(pieces.into_iter().map(Part::Data));
        len
    }
}
