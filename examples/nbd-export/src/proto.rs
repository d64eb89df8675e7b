//! Numbers and messages of the protocol.

/// The first bytes a server sends, and the ones that open each option.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// The second ones.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Opens an answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Opens a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Opens a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Opens a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags of the server: fixed newstyle, and no padding if the client can do without.
pub const SERVER_FLAGS: u16 = FIXED_NEWSTYLE | NO_ZEROES;
/// Both sides know fixed newstyle.
pub const FIXED_NEWSTYLE: u16 = 1;
/// Both sides leave the padding out.
pub const NO_ZEROES: u16 = 2;

/// Options of the negotiation.
pub mod option {
    #![allow(missing_docs)]
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of answers to options.
pub mod reply {
    #![allow(missing_docs)]
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_BLOCK_SIZE_REQD: u32 = 1 << 31 | 8;
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// What an export can do.
pub mod transmission {
    #![allow(missing_docs)]
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of commands.
pub mod flag {
    #![allow(missing_docs)]
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Kinds of chunks of a structured reply.
pub mod chunk {
    #![allow(missing_docs)]
    pub const FLAG_DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// The metadata context that the server knows.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number on the wire.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Extent flags of `base:allocation`: there is no data, and it reads as zeros.
pub const STATE_HOLE_ZERO: u32 = 3;

/// What goes wrong, as the protocol says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// The export is read-only.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// There is not enough memory.
    NoMem = 12,
    /// The request makes no sense.
    Inval = 22,
    /// The device is full, or the request goes beyond its end.
    NoSpc = 28,
    /// The answer is too long for one chunk.
    Overflow = 75,
    /// The server does not do that.
    NotSup = 95,
    /// The server is about to end.
    Shutdown = 108,
}

impl From<&std::io::Error> for Errno {
    fn from(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge => Self::NoSpc,
            std::io::ErrorKind::OutOfMemory => Self::NoMem,
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                Self::Perm
            }
            std::io::ErrorKind::InvalidInput => Self::Inval,
            std::io::ErrorKind::Unsupported => Self::NotSup,
            _ => Self::Io,
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bytes, please.
    Read,
    /// Bytes follow.
    Write,
    /// Goodbye: no answer.
    Disconnect,
    /// What was answered shall be durable.
    Flush,
    /// Nobody needs these bytes any more.
    Trim,
    /// These will be read soon.
    Cache,
    /// Bytes that are all zero.
    WriteZeroes,
    /// Which parts hold data?
    BlockStatus,
}

/// A request, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags of the command.
    pub flags: u16,
    /// What is asked for; `None` if the number says nothing.
    pub command: Option<Command>,
    /// The client's name for it.
    pub cookie: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub length: u32,
}

impl Request {
    /// How long it is on the wire, data not counted.
    pub const LEN: usize = 28;

    /// The request at the start of `bytes`, which are at least [`LEN`](Self::LEN). `None` if they
    /// do not begin a request: then nothing that follows can be trusted either.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        let flags = fields.u16()?;
        let command = match fields.u16()? {
            0 => Some(Command::Read),
            1 => Some(Command::Write),
            2 => Some(Command::Disconnect),
            3 => Some(Command::Flush),
            4 => Some(Command::Trim),
            5 => Some(Command::Cache),
            6 => Some(Command::WriteZeroes),
            7 => Some(Command::BlockStatus),
            _ => None,
        };
        Some(Self {
            flags,
            command,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// Checks the request against an export of `size` bytes whose blocks are `block` bytes.
    ///
    /// # Errors
    ///
    /// What is answered instead.
    pub fn check(&self, export: &Limits) -> Result<(), Errno> {
        let Some(command) = self.command else {
            return Err(Errno::Inval);
        };
        let known = match command {
            Command::Read => flag::DF | flag::FUA,
            Command::Write | Command::Trim => flag::FUA,
            Command::WriteZeroes if export.fast_zeros => {
                flag::FUA | flag::NO_HOLE | flag::FAST_ZERO
            }
            Command::WriteZeroes => flag::FUA | flag::NO_HOLE,
            Command::BlockStatus => flag::REQ_ONE | flag::FUA,
            Command::Flush | Command::Cache | Command::Disconnect => flag::FUA,
        };
        if self.flags & !known != 0 {
            return Err(Errno::Inval);
        }
        if matches!(command, Command::Flush | Command::Disconnect) {
            let plain = self.offset == 0 && self.length == 0;
            return if plain { Ok(()) } else { Err(Errno::Inval) };
        }
        let writes = matches!(
            command,
            Command::Write | Command::Trim | Command::WriteZeroes
        );
        if writes && export.read_only {
            return Err(Errno::Perm);
        }
        if self.length == 0 {
            return Err(Errno::Inval);
        }
        if command == Command::BlockStatus && !export.block_status {
            return Err(Errno::Inval);
        }
        let end = self.offset.checked_add(self.length.into());
        if end.is_none_or(|end| end > export.size) {
            // Writers are told that there is no space, as the specification asks for.
            return Err(if writes { Errno::NoSpc } else { Errno::Inval });
        }
        let moves_data = matches!(command, Command::Read | Command::Write);
        if moves_data && self.length > export.max_payload {
            // That it is too long for one chunk is told to those only who want one.
            let one_chunk = self.flags & flag::DF != 0;
            return Err(if one_chunk {
                Errno::Overflow
            } else {
                Errno::Inval
            });
        }
        let block = u64::from(export.block);
        if self.offset % block != 0 || u64::from(self.length) % block != 0 {
            return Err(Errno::Inval);
        }
        Ok(())
    }
}

/// What an export allows on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many bytes it has.
    pub size: u64,
    /// Offsets and lengths are multiples of this.
    pub block: u32,
    /// The most that a read or a write moves.
    pub max_payload: u32,
    /// Nothing may be written.
    pub read_only: bool,
    /// Zeros may be asked for that take less time than to write them.
    pub fast_zeros: bool,
    /// The client has asked for `base:allocation`.
    pub block_status: bool,
}

/// Takes big-endian numbers off the front.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// A simple reply.
#[must_use]
pub fn simple_reply(cookie: u64, error: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The head of a chunk whose payload has `len` bytes.
#[must_use]
pub fn chunk_header(cookie: u64, flags: u16, kind: u16, len: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&len.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
        let mut bytes = Vec::new();
        bytes.extend(REQUEST_MAGIC.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(7_u64.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        assert_eq!(bytes.len(), Request::LEN);
        Request::decode(&bytes).unwrap()
    }

    const DISK: Limits = Limits {
        size: 1 << 20,
        block: 512,
        max_payload: 64 << 10,
        read_only: false,
        fast_zeros: true,
        block_status: true,
    };

    #[test]
    fn requests_are_checked() {
        for (command, flags, offset, length, answer) in [
            (0, 0, 0, 512, Ok(())),
            (0, 0, 0, 0, Err(Errno::Inval)),
            (0, 0, 1 << 20, 512, Err(Errno::Inval)),
            (0, 0, u64::MAX - 511, 512, Err(Errno::Inval)),
            (1, 0, 1 << 20, 512, Err(Errno::NoSpc)),
            (1, flag::FUA, 512, 512, Ok(())),
            (1, flag::NO_HOLE, 512, 512, Err(Errno::Inval)),
            (1, 0, 0, 65 << 10, Err(Errno::Inval)),
            (0, 0, 0, 65 << 10, Err(Errno::Inval)),
            (0, flag::DF, 0, 65 << 10, Err(Errno::Overflow)),
            (6, 0, 0, 512 << 10, Ok(())),
            (0, 0, 1, 512, Err(Errno::Inval)),
            (0, 0, 0, 511, Err(Errno::Inval)),
            (3, 0, 0, 0, Ok(())),
            (3, 0, 512, 0, Err(Errno::Inval)),
            (7, flag::REQ_ONE, 0, 1 << 20, Ok(())),
            (99, 0, 0, 512, Err(Errno::Inval)),
            (0, 1 << 9, 0, 512, Err(Errno::Inval)),
        ] {
            let checked = request(command, flags, offset, length).check(&DISK);
            assert_eq!(checked, answer, "{command} {flags} {offset} {length}");
        }
    }

    #[test]
    fn nothing_is_written_to_what_is_read_only() {
        let disk = Limits {
            read_only: true,
            ..DISK
        };
        for (command, answer) in [(0, Ok(())), (1, Err(Errno::Perm)), (4, Err(Errno::Perm))] {
            assert_eq!(request(command, 0, 0, 512).check(&disk), answer);
        }
    }

    #[test]
    fn what_does_not_begin_a_request_is_none() {
        assert_eq!(Request::decode(&[0; 28]), None);
        assert_eq!(Request::decode(&REQUEST_MAGIC.to_be_bytes()), None);
    }
}
