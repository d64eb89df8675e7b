//! Whatever a client sends while it negotiates, and then as requests: nothing panics, nothing grows
//! beyond what was sent, and requests that pass the check lie within the export.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nbd_export::negotiate::{Described, Negotiation, Next};
use nbd_export::proto::{Command, OPTION_MAGIC, REQUEST_MAGIC, Request};

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
            } => {
                bytes.extend(REQUEST_MAGIC.to_be_bytes());
                bytes.extend((flags % 64).to_be_bytes());
                bytes.extend((command % 10).to_be_bytes());
                bytes.extend(7_u64.to_be_bytes());
                bytes.extend(offset.to_be_bytes());
                bytes.extend(length.to_be_bytes());
            }
        }
    }
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
    });
    let mut negotiation = Negotiation::new();
    let (mut buffer, mut output) = (Vec::new(), Vec::new());
    let mut parts = bytes.chunks(usize::from(client.cut).max(1));
    let agreed = loop {
        let Some(part) = parts.next() else { return };
        buffer.extend_from_slice(part);
        let (taken, next) = negotiation.receive(&buffer, &exports, &mut output);
        assert!(taken <= buffer.len());
        buffer.drain(..taken);
        // An option and its answers, for as many options as there can be.
        assert!(buffer.len() <= (8 << 10) + 16 + 256 && output.len() <= 64 << 10);
        match next {
            Next::More => {}
            Next::Close(_) => return,
            Next::Transmit(agreed) => break agreed,
        }
    };
    let export = &exports[agreed.export];
    let limits = agreed.limits(export);
    buffer.extend(parts.flatten());
    for bytes in buffer.chunks_exact(Request::LEN) {
        let Some(request) = Request::decode(bytes) else {
            return;
        };
        if request.check(&limits).is_ok() {
            let command = request.command.expect("what passes says what it wants");
            let writes = [Command::Write, Command::Trim, Command::WriteZeroes];
            assert!(!export.read_only || !writes.contains(&command));
            assert!(request.offset + u64::from(request.length) <= export.size);
        }
    }
});
