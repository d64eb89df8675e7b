//! What a client sends when an export is agreed on: requests, and the payloads of writes.

use crate::proto::{Command, Errno, Limits, Request};

/// A payload that is refused is read all the same, up to this.
const MAX_REFUSED: u32 = 256 << 20;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing is whole yet.
    More,
    /// A request that may be carried out. If it is a write its payload follows, which is not for
    /// [`Incoming`].
    Request(Request),
    /// One that is refused. Its payload is passed over.
    Refused(Request, Errno),
    /// The client leaves.
    Goodbye,
    /// Nothing that follows can be trusted.
    Close(&'static str),
}

/// Takes apart what one client sends.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    limits: Limits,
    /// Bytes of a refused payload that are still to come.
    refused: u32,
}

impl Incoming {
    /// For an export, as it was agreed on.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, refused: 0 }
    }

    /// Takes the next thing off the front of `input`. Says how many bytes it took.
    pub fn next(&mut self, input: &[u8]) -> (usize, Next) {
        if self.refused > 0 {
            let now = input.len().min(self.refused as usize);
            self.refused -= now as u32;
            return (now, Next::More);
        }
        if input.len() < Request::LEN {
            return (0, Next::More);
        }
        let Some(request) = Request::decode(input) else {
            return (0, Next::Close("no request where one is due"));
        };
        let next = match request.check(&self.limits) {
            _ if request.command == Some(Command::Disconnect) => Next::Goodbye,
            Ok(()) => Next::Request(request),
            Err(errno) => Next::Refused(request, errno),
        };
        if let (Next::Refused(..), Some(Command::Write)) = (next, request.command) {
            if request.length > MAX_REFUSED {
                return (Request::LEN, Next::Close("a payload that is much too long"));
            }
            self.refused = request.length;
        }
        (Request::LEN, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::REQUEST_MAGIC;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        size: 1 << 20,
        block: 512,
        max_payload: 64 << 10,
        read_only: false,
        fast_zeros: true,
        block_status: true,
    };

    fn request(command: u16, offset: u64, length: u32) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(command.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    }

    /// All that comes of some bytes, if payloads are read and at most `cut` bytes come at once.
    fn all(bytes: &[u8], cut: usize) -> Vec<Next> {
        let mut incoming = Incoming::new(LIMITS);
        let (mut buffer, mut payload, mut found) = (Vec::new(), 0, Vec::new());
        for part in bytes.chunks(cut) {
            buffer.extend(part);
            loop {
                let own = payload.min(buffer.len());
                payload -= own;
                buffer.drain(..own);
                let (taken, next) = incoming.next(&buffer);
                buffer.drain(..taken);
                match next {
                    Next::More if taken == 0 => break,
                    Next::More => continue,
                    Next::Request(request) if request.command == Some(Command::Write) => {
                        payload = request.length as usize;
                    }
                    _ => {}
                }
                found.push(next);
                if matches!(next, Next::Close(_) | Next::Goodbye) {
                    return found;
                }
            }
        }
        found
    }

    #[test]
    fn a_refused_payload_is_passed_over_and_one_that_is_much_too_long_is_not() {
        let bytes = [
            &request(1, 1 << 20, 2048)[..],
            &[0; 2048],
            &request(0, 0, 512),
            &request(1, 0, 256 << 20),
        ];
        let mut bytes = bytes.concat();
        let kinds = |bytes: &[u8]| {
            let found = all(bytes, 100);
            found.into_iter().map(|next| match next {
                Next::Refused(_, errno) => Err(errno),
                Next::Request(request) => Ok(request.command),
                other => panic!("{other:?}"),
            })
        };
        let full = Err(Errno::NoSpc);
        let expected = [full, Ok(Some(Command::Read)), full];
        assert_eq!(kinds(&bytes).collect::<Vec<_>>(), expected);
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&((256_u32 << 20) + 1).to_be_bytes());
        assert!(matches!(all(&bytes, 100).last(), Some(Next::Close(_))));
    }

    #[test]
    fn a_client_may_say_goodbye_and_then_nothing_counts() {
        let bytes = [request(3, 0, 0), request(2, 0, 0), vec![9; 100]].concat();
        let found = all(&bytes, 7);
        assert!(matches!(found[..], [Next::Request(_), Next::Goodbye]));
    }

    proptest! {
        /// However the bytes are cut, the requests are the same.
        #[test]
        fn it_does_not_matter_how_bytes_arrive(
            requests in proptest::collection::vec((0..9_u16, 0..5000_u64, 0..5000_u32), 1..20),
            cut in 1..300_usize,
        ) {
            let mut bytes = Vec::new();
            for (command, offset, length) in requests {
                bytes.extend(request(command, offset / 3 * 512, length / 4 * 512));
                if command == 1 {
                    bytes.resize(bytes.len() + (length / 4 * 512) as usize, 1);
                }
            }
            prop_assert_eq!(all(&bytes, cut), all(&bytes, usize::MAX));
        }
    }
}
