//! Whatever a client sends while it negotiates, and then as requests and payloads: nothing panics,
//! nothing grows beyond what was sent, requests that pass the check lie within the export, what is
//! refused is passed over by its length, and however the bytes are cut, the requests are the same.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nbd_export::incoming::{self, Incoming};
use nbd_export::negotiate::{Described, Negotiation, Next};
use nbd_export::proto::{Command, Limits, OPTION_MAGIC, REQUEST_MAGIC};

/// What a client may send next; most of it is framed as the protocol wants, so that more is
/// reached.
#[derive(Arbitrary, Debug)]
enum Sent {
    Raw(Vec<u8>),
    Option {
        number: u8,
        data: Vec<u8>,
    },
    /// An option about an export: its name's length and the name fit, as a rule.
    About {
        number: u8,
        second: bool,
        off: i8,
        rest: Vec<u8>,
    },
    Request {
        flags: u16,
        command: u16,
        offset: u64,
        length: u32,
    },
    /// A write with its payload, whole or not quite.
    Write {
        offset: u64,
        payload: Vec<u8>,
        off: i8,
    },
}

impl Sent {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Raw(raw) => bytes.extend(raw),
            Self::Option { number, data } => option(bytes, *number, data),
            Self::About {
                number,
                second,
                off,
                rest,
            } => {
                let name: &[u8] = if *second { b"disk" } else { b"" };
                let len = (name.len() as u32).wrapping_add_signed((*off / 64).into());
                let data = [&len.to_be_bytes()[..], name, rest].concat();
                option(bytes, *number, &data);
            }
            Self::Request {
                flags,
                command,
                offset,
                length,
            } => request(bytes, *flags, *command, *offset, *length),
            Self::Write {
                offset,
                payload,
                off,
            } => {
                let len = (payload.len() as u32).wrapping_add_signed((*off / 64).into());
                request(bytes, 0, 1, *offset, len);
                bytes.extend(payload);
            }
        }
    }
}

fn request(bytes: &mut Vec<u8>, flags: u16, command: u16, offset: u64, length: u32) {
    bytes.extend(REQUEST_MAGIC.to_be_bytes());
    bytes.extend((flags % 64).to_be_bytes());
    bytes.extend((command % 10).to_be_bytes());
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
}

fn option(bytes: &mut Vec<u8>, number: u8, data: &[u8]) {
    bytes.extend(OPTION_MAGIC.to_be_bytes());
    bytes.extend(u32::from(number % 12).to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
}

#[derive(Arbitrary, Debug)]
struct Client {
    flags: u8,
    sent: Vec<Sent>,
    cut: u8,
    size: u64,
    block: u8,
    read_only: bool,
}

fuzz_target!(|client: Client| {
    let mut bytes = u32::from(client.flags % 8).to_be_bytes().to_vec();
    client.sent.iter().for_each(|sent| sent.encode(&mut bytes));
    let exports = ["first", "disk"].map(|name| Described {
        name: name.to_owned(),
        size: client.size.max(1),
        block: 1 << (client.block % 13),
        preferred: 4096,
        max_payload: 32 << 20,
        read_only: client.read_only,
        fast_zeros: !client.read_only,
    });
    let mut negotiation = Negotiation::new();
    let (mut buffer, mut output) = (Vec::new(), Vec::new());
    let mut parts = bytes.chunks(usize::from(client.cut).max(1));
    let mut taken = 0;
    let agreed = loop {
        // What is left may be understood when answers are sent.
        if taken == 0 {
            let Some(part) = parts.next() else { return };
            buffer.extend_from_slice(part);
        }
        let next;
        (taken, next) = negotiation.receive(&buffer, &exports, &mut output);
        assert!(taken <= buffer.len());
        buffer.drain(..taken);
        // An option, and the answers to some.
        assert!(output.len() <= 72 << 10);
        output.clear();
        match next {
            Next::More if taken > 0 => {}
            Next::More => assert!(buffer.len() <= (8 << 10) + 16 + 256),
            Next::Close(_) | Next::Goodbye => return,
            Next::Transmit(agreed) => break agreed,
        }
    };
    let limits = agreed.limits(&exports[agreed.export]);
    buffer.extend(parts.flatten());
    let found = requests(&buffer, usize::from(client.cut).max(1), limits);
    assert_eq!(found, requests(&buffer, usize::MAX, limits));
    for request in found {
        let incoming::Next::Request(request) = request else {
            continue;
        };
        let command = request.command.expect("what passes says what it wants");
        let writes = [Command::Write, Command::Trim, Command::WriteZeroes];
        assert!(!limits.read_only || !writes.contains(&command));
        assert!(request.offset + u64::from(request.length) <= limits.size);
    }
});

/// The requests in some bytes that come in parts, payloads left out.
fn requests(bytes: &[u8], cut: usize, limits: Limits) -> Vec<incoming::Next> {
    let mut incoming = Incoming::new(limits);
    let (mut buffer, mut payload, mut found) = (Vec::new(), 0, Vec::new());
    for part in bytes.chunks(cut) {
        buffer.extend_from_slice(part);
        loop {
            let own = payload.min(buffer.len());
            payload -= own;
            buffer.drain(..own);
            if payload > 0 {
                break;
            }
            let (taken, next) = incoming.next(&buffer);
            assert!(taken <= buffer.len());
            buffer.drain(..taken);
            match next {
                incoming::Next::More if taken == 0 => break,
                incoming::Next::More => continue,
                incoming::Next::Request(request) if request.command == Some(Command::Write) => {
                    payload = request.length as usize;
                }
                _ => {}
            }
            found.push(next);
            if matches!(next, incoming::Next::Close(_) | incoming::Next::Goodbye) {
                return found;
            }
        }
    }
    found
}
