//! The negotiation: bytes of the client go in, bytes for the client come out.

use crate::proto::{self, Fields, Limits, option, reply, transmission};

/// The longest option that is read; longer ones are passed over and refused.
const MAX_OPTION: u32 = 8 << 10;
/// The longest name that the protocol allows.
const MAX_NAME: usize = 4096;
/// More options than any client needs end the connection.
const MAX_OPTIONS: u32 = 64;

/// What the server says of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// How many bytes it has.
    pub size: u64,
    /// The least a request moves, and what offsets are multiples of.
    pub block: u32,
    /// What a request had better be.
    pub preferred: u32,
    /// The most a read or a write moves.
    pub max_payload: u32,
    /// Nothing may be written.
    pub read_only: bool,
}

impl Described {
    fn flags(&self, structured: bool) -> u16 {
        use transmission as t;
        let mut flags =
            t::HAS_FLAGS | t::SEND_FLUSH | t::SEND_FUA | t::CAN_MULTI_CONN | t::SEND_CACHE;
        if self.read_only {
            flags |= t::READ_ONLY;
        } else {
            flags |= t::SEND_TRIM | t::SEND_WRITE_ZEROES | t::SEND_FAST_ZERO;
        }
        if structured {
            flags |= t::SEND_DF;
        }
        flags
    }
}

/// What was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The number of the export in the server's list.
    pub export: usize,
    /// Replies are structured.
    pub structured: bool,
    /// The client will ask for `base:allocation`.
    pub block_status: bool,
}

impl Agreed {
    /// What requests are checked against.
    #[must_use]
    pub fn limits(&self, export: &Described) -> Limits {
        Limits {
            size: export.size,
            block: export.block,
            max_payload: export.max_payload,
            read_only: export.read_only,
            block_status: self.block_status,
        }
    }
}

/// How the negotiation goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read more.
    More,
    /// Requests follow.
    Transmit(Agreed),
    /// Send what there is to be sent, and close.
    Close(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    ClientFlags,
    Options,
    /// Bytes of an option that is too long are passed over: its number, and how many are left.
    Skipping(u32, u32),
}

/// One client's negotiation.
#[derive(Debug)]
pub struct Negotiation {
    phase: Phase,
    padding: bool,
    structured: bool,
    /// The export for which `base:allocation` was asked for.
    context_of: Option<usize>,
    options: u32,
}

impl Default for Negotiation {
    fn default() -> Self {
        Self::new()
    }
}

impl Negotiation {
    /// A client that has just come.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: Phase::ClientFlags,
            padding: true,
            structured: false,
            context_of: None,
            options: 0,
        }
    }

    /// What the server sends first.
    #[must_use]
    pub fn greeting() -> Vec<u8> {
        let mut bytes = proto::INIT_MAGIC.to_be_bytes().to_vec();
        bytes.extend(proto::OPTION_MAGIC.to_be_bytes());
        bytes.extend(proto::SERVER_FLAGS.to_be_bytes());
        bytes
    }

    /// Takes what it understands off the front of `input`, and appends answers to `output`. Says
    /// how many bytes it took.
    pub fn receive(
        &mut self,
        input: &[u8],
        exports: &[Described],
        output: &mut Vec<u8>,
    ) -> (usize, Next) {
        let mut taken = 0;
        loop {
            let (more, next) = self.step(&input[taken..], exports, output);
            taken += more;
            if more == 0 || next != Next::More {
                return (taken, next);
            }
        }
    }

    fn step(&mut self, input: &[u8], exports: &[Described], output: &mut Vec<u8>) -> (usize, Next) {
        let mut fields = Fields(input);
        match self.phase {
            Phase::ClientFlags => {
                let Some(flags) = fields.u32() else {
                    return (0, Next::More);
                };
                let known = u32::from(proto::FIXED_NEWSTYLE | proto::NO_ZEROES);
                if flags & !known != 0 {
                    return (4, Next::Close("unknown handshake flags"));
                }
                self.padding = flags & u32::from(proto::NO_ZEROES) == 0;
                self.phase = Phase::Options;
                (4, Next::More)
            }
            Phase::Skipping(number, left) => {
                let now = (left as usize).min(input.len());
                let left = left - now as u32;
                self.phase = Phase::Skipping(number, left);
                if left == 0 {
                    answer(
                        output,
                        number,
                        reply::ERR_TOO_BIG,
                        b"the option is too long",
                    );
                    self.phase = Phase::Options;
                }
                (now, Next::More)
            }
            Phase::Options => {
                let (Some(magic), Some(number), Some(len)) =
                    (fields.u64(), fields.u32(), fields.u32())
                else {
                    return (0, Next::More);
                };
                if magic != proto::OPTION_MAGIC {
                    return (16, Next::Close("no option where one is due"));
                }
                if len > MAX_OPTION {
                    self.phase = Phase::Skipping(number, len);
                    return (16, Next::More);
                }
                let Some(data) = fields.bytes(len as usize) else {
                    return (0, Next::More);
                };
                self.options += 1;
                if self.options > MAX_OPTIONS {
                    return (16, Next::Close("too many options"));
                }
                let next = self.option(number, data, exports, output);
                (16 + len as usize, next)
            }
        }
    }

    fn option(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &[Described],
        output: &mut Vec<u8>,
    ) -> Next {
        match number {
            option::EXPORT_NAME => return self.export_name(data, exports, output),
            option::ABORT => {
                answer(output, number, reply::ACK, &[]);
                return Next::Close("the client has left");
            }
            option::LIST if data.is_empty() => {
                for export in exports {
                    let mut bytes = (export.name.len() as u32).to_be_bytes().to_vec();
                    bytes.extend(export.name.as_bytes());
                    answer(output, number, reply::SERVER, &bytes);
                }
                answer(output, number, reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                answer(output, number, reply::ACK, &[]);
            }
            option::INFO | option::GO => return self.info(number, data, exports, output),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(number, data, exports, output);
            }
            option::LIST | option::STRUCTURED_REPLY => {
                answer(
                    output,
                    number,
                    reply::ERR_INVALID,
                    b"this option has no data",
                );
            }
            _ => answer(output, number, reply::ERR_UNSUP, &[]),
        }
        Next::More
    }

    fn agree(&self, export: usize) -> Next {
        Next::Transmit(Agreed {
            export,
            structured: self.structured,
            block_status: self.context_of == Some(export),
        })
    }

    fn export_name(&self, data: &[u8], exports: &[Described], output: &mut Vec<u8>) -> Next {
        let Some(export) = find(data, exports) else {
            // There is no answer for this.
            return Next::Close("no export of this name");
        };
        output.extend(exports[export].size.to_be_bytes());
        output.extend(exports[export].flags(self.structured).to_be_bytes());
        if self.padding {
            output.extend([0; 124]);
        }
        self.agree(export)
    }

    fn info(&self, number: u32, data: &[u8], exports: &[Described], output: &mut Vec<u8>) -> Next {
        let Some((name, wanted)) = parse_info(data) else {
            answer(output, number, reply::ERR_INVALID, b"lengths do not fit");
            return Next::More;
        };
        let Some(at) = find(name, exports) else {
            answer(
                output,
                number,
                reply::ERR_UNKNOWN,
                b"no export of this name",
            );
            return Next::More;
        };
        let export = &exports[at];
        let mut bytes = 0_u16.to_be_bytes().to_vec();
        bytes.extend(export.size.to_be_bytes());
        bytes.extend(export.flags(self.structured).to_be_bytes());
        answer(output, number, reply::INFO, &bytes);
        if wanted.contains(&1) {
            let mut bytes = 1_u16.to_be_bytes().to_vec();
            bytes.extend(export.name.as_bytes());
            answer(output, number, reply::INFO, &bytes);
        }
        let mut bytes = 3_u16.to_be_bytes().to_vec();
        for size in [export.block, export.preferred, export.max_payload] {
            bytes.extend(size.to_be_bytes());
        }
        answer(output, number, reply::INFO, &bytes);
        answer(output, number, reply::ACK, &[]);
        if number == option::GO {
            self.agree(at)
        } else {
            Next::More
        }
    }

    fn meta_context(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &[Described],
        output: &mut Vec<u8>,
    ) {
        let set = number == option::SET_META_CONTEXT;
        if set {
            // The last one counts, also if it fails.
            self.context_of = None;
        }
        if !self.structured {
            let why = b"structured replies come first";
            return answer(output, number, reply::ERR_INVALID, why);
        }
        let Some((name, queries)) = parse_meta_context(data) else {
            return answer(output, number, reply::ERR_INVALID, b"lengths do not fit");
        };
        let Some(at) = find(name, exports) else {
            return answer(
                output,
                number,
                reply::ERR_UNKNOWN,
                b"no export of this name",
            );
        };
        let wanted = |query: &&[u8]| {
            let list = !set && (query.is_empty() || *query == b"base:");
            *query == proto::BASE_ALLOCATION.as_bytes() || list
        };
        if queries.iter().any(wanted) || (!set && queries.is_empty()) {
            let id = if set { proto::BASE_ALLOCATION_ID } else { 0 };
            let mut bytes = id.to_be_bytes().to_vec();
            bytes.extend(proto::BASE_ALLOCATION.as_bytes());
            answer(output, number, reply::META_CONTEXT, &bytes);
            if set {
                self.context_of = Some(at);
            }
        }
        answer(output, number, reply::ACK, &[]);
    }
}

/// The export of a name; the empty name is the first one's.
fn find(name: &[u8], exports: &[Described]) -> Option<usize> {
    if name.is_empty() && !exports.is_empty() {
        return Some(0);
    }
    exports
        .iter()
        .position(|export| export.name.as_bytes() == name)
}

fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut fields = Fields(data);
    let len = fields.u32()? as usize;
    let name = fields.bytes(len).filter(|name| name.len() <= MAX_NAME)?;
    let count = fields.u16()?;
    let wanted: Option<Vec<u16>> = (0..count).map(|_| fields.u16()).collect();
    fields.0.is_empty().then_some((name, wanted?))
}

fn parse_meta_context(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let len = fields.u32()? as usize;
    let name = fields.bytes(len).filter(|name| name.len() <= MAX_NAME)?;
    let count = fields.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        let len = fields.u32()? as usize;
        queries.push(fields.bytes(len)?);
    }
    fields.0.is_empty().then_some((name, queries))
}

fn answer(output: &mut Vec<u8>, number: u32, kind: u32, data: &[u8]) {
    output.extend(proto::OPTION_REPLY_MAGIC.to_be_bytes());
    output.extend(number.to_be_bytes());
    output.extend(kind.to_be_bytes());
    output.extend((data.len() as u32).to_be_bytes());
    output.extend(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exports() -> Vec<Described> {
        ["disk", "other"]
            .map(|name| Described {
                name: name.to_owned(),
                size: 1 << 20,
                block: 1,
                preferred: 4096,
                max_payload: 32 << 20,
                read_only: name == "other",
            })
            .into()
    }

    fn option(number: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = proto::OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn go(name: &str) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend([0, 1, 0, 3]);
        option(option::GO, &data)
    }

    fn flags(flags: u32) -> Vec<u8> {
        flags.to_be_bytes().to_vec()
    }

    /// The kinds of the answers, and how it ended.
    fn run(input: &[u8]) -> (Vec<u32>, Next) {
        let mut output = Vec::new();
        let (_, next) = Negotiation::new().receive(input, &exports(), &mut output);
        let mut kinds = Vec::new();
        let mut fields = Fields(&output);
        while let Some(magic) = fields.u64() {
            assert_eq!(magic, proto::OPTION_REPLY_MAGIC);
            fields.u32().unwrap();
            kinds.push(fields.u32().unwrap());
            let len = fields.u32().unwrap();
            fields.bytes(len as usize).unwrap();
        }
        (kinds, next)
    }

    #[test]
    fn go_agrees_on_an_export() {
        let (kinds, next) = run(&[flags(3), go("other")].concat());
        assert_eq!(kinds, [reply::INFO, reply::INFO, reply::ACK]);
        let agreed = Agreed {
            export: 1,
            structured: false,
            block_status: false,
        };
        assert_eq!(next, Next::Transmit(agreed));
    }

    #[test]
    fn what_is_unknown_is_refused_and_the_client_may_go_on() {
        let input = [
            flags(3),
            option(77, b"x"),
            go("none"),
            option(option::LIST, b"x"),
            option(option::GO, &[0, 0, 0, 9]),
            option(option::LIST, &[]),
        ];
        let (kinds, next) = run(&input.concat());
        let expected = [
            reply::ERR_UNSUP,
            reply::ERR_UNKNOWN,
            reply::ERR_INVALID,
            reply::ERR_INVALID,
            reply::SERVER,
            reply::SERVER,
            reply::ACK,
        ];
        assert_eq!((&kinds[..], next), (&expected[..], Next::More));
    }

    #[test]
    fn contexts_need_structured_replies() {
        let mut data = 4_u32.to_be_bytes().to_vec();
        data.extend(b"disk");
        data.extend(1_u32.to_be_bytes());
        data.extend(15_u32.to_be_bytes());
        data.extend(b"base:allocation");
        let ask = option(option::SET_META_CONTEXT, &data);
        let (kinds, _) = run(&[flags(3), ask.clone()].concat());
        assert_eq!(kinds, [reply::ERR_INVALID]);
        let structured = option(option::STRUCTURED_REPLY, &[]);
        let (kinds, next) = run(&[flags(3), structured, ask, go("disk")].concat());
        assert_eq!(kinds[..3], [reply::ACK, reply::META_CONTEXT, reply::ACK]);
        assert!(matches!(next, Next::Transmit(agreed) if agreed.block_status));
    }

    #[test]
    fn an_option_that_is_too_long_is_passed_over() {
        let long = vec![1; 100_000];
        let input = [
            flags(3),
            option(option::GO, &long),
            option(option::LIST, &[]),
        ];
        let (kinds, _) = run(&input.concat());
        assert_eq!(kinds[0], reply::ERR_TOO_BIG);
        assert_eq!(kinds.last(), Some(&reply::ACK));
    }

    #[test]
    fn a_stranger_is_sent_away() {
        assert!(matches!(run(b"GET / HTTP/1.1\r\n\r\n").1, Next::Close(_)));
        let nonsense = [flags(3), vec![9; 16]].concat();
        assert!(matches!(run(&nonsense).1, Next::Close(_)));
        let many = (0..100).flat_map(|_| option(option::LIST, &[]));
        let many: Vec<u8> = flags(3).into_iter().chain(many).collect();
        assert!(matches!(run(&many).1, Next::Close(_)));
    }

    proptest! {
        /// However the bytes are cut, the answers are the same.
        #[test]
        fn it_does_not_matter_how_bytes_arrive(
            junk in proptest::collection::vec(any::<u8>(), 0..200), cut in 1..40_usize,
        ) {
            let input = [flags(3), option(8, &[]), option(5, &junk), option(6, &junk),
                option(10, &junk), go("disk")].concat();
            let mut whole = Vec::new();
            let (_, ended) = Negotiation::new().receive(&input, &exports(), &mut whole);
            let mut negotiation = Negotiation::new();
            let (mut parts, mut buffer) = (Vec::new(), Vec::new());
            let mut last = Next::More;
            for part in input.chunks(cut) {
                buffer.extend(part);
                let (taken, next) = negotiation.receive(&buffer, &exports(), &mut parts);
                buffer.drain(..taken);
                last = next;
                if last != Next::More { break; }
            }
            prop_assert_eq!((parts, last), (whole, ended));
        }
    }
}
