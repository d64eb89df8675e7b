//! The negotiation: bytes of the client go in, bytes for the client come out.

use crate::proto::{self, Fields, Limits, option, reply, transmission};

/// The longest option that is read; longer ones are passed over and refused.
const MAX_OPTION: u32 = 8 << 10;
/// The longest one that is passed over.
const MAX_PASSED_OVER: u32 = 1 << 20;
/// The longest name that the protocol allows.
pub const MAX_NAME: usize = 4096;
/// More options than any client needs end the connection: so many, and more for each export, as a
/// client may ask about one after the other.
const MAX_OPTIONS: usize = 64;
const MAX_OPTIONS_EACH: usize = 4;
/// Nothing more is answered until so many bytes of answers are sent.
const MAX_ANSWERS: usize = 64 << 10;

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
    /// Zeros may be asked for that take less time than to write them.
    pub fast_zeros: bool,
}

impl Described {
    fn flags(&self, structured: bool) -> u16 {
        use transmission as t;
        let mut flags =
            t::HAS_FLAGS | t::SEND_FLUSH | t::SEND_FUA | t::CAN_MULTI_CONN | t::SEND_CACHE;
        if self.read_only {
            flags |= t::READ_ONLY;
        } else {
            flags |= t::SEND_TRIM | t::SEND_WRITE_ZEROES;
        }
        if !self.read_only && self.fast_zeros {
            flags |= t::SEND_FAST_ZERO;
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
            fast_zeros: export.fast_zeros,
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
    /// The client leaves: send what there is to be sent, and close.
    Goodbye,
    /// The same, because of something that cannot be answered.
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
    options: usize,
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
    /// how many bytes it took: not all that it understands if there are many answers, which are to
    /// be sent before it is called again.
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
            if more == 0 || next != Next::More || output.len() >= MAX_ANSWERS {
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
                    refuse_length(output, number);
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
                // Each is counted once, when there is something to be done for it.
                let whole = fields.bytes(len as usize);
                if len > MAX_OPTION || whole.is_some() {
                    self.options += 1;
                }
                if self.options > MAX_OPTIONS + MAX_OPTIONS_EACH * exports.len() {
                    return (16, Next::Close("too many options"));
                }
                if number == option::EXPORT_NAME && len as usize > MAX_NAME {
                    // There is no answer for this.
                    return (16, Next::Close("a name that is too long"));
                }
                if len > MAX_PASSED_OVER {
                    refuse_length(output, number);
                    return (16, Next::Close("an option that is much too long"));
                }
                if len > MAX_OPTION {
                    self.phase = Phase::Skipping(number, len);
                    return (16, Next::More);
                }
                let Some(data) = whole else {
                    return (0, Next::More);
                };
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
                return Next::Goodbye;
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
        if exports[export].block > 1 {
            // Nor is there one for block sizes.
            return Next::Close("it cannot be told the block size of its export");
        }
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
        if export.block > 1 && !wanted.contains(&3) {
            // Who does not ask takes one byte to be a block.
            answer(output, number, reply::ERR_BLOCK_SIZE_REQD, &[]);
            return Next::More;
        }
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

fn refuse_length(output: &mut Vec<u8>, number: u32) {
    answer(
        output,
        number,
        reply::ERR_TOO_BIG,
        b"the option is too long",
    );
}

#[cfg(test)]
mod tests;
