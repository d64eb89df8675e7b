//! Sealing a block before it is written and judging one that was read.
//!
//! The rule of a reader: a block of nothing but zeros was never written, unless this run wrote it;
//! every other block must have an intact header that fits its place, and intact data.

use crate::buffer::AlignedBuf;
use crate::checksum::Checksum;
use crate::header::{BadHeader, HEADER_BYTES, Header, MAGIC};
use crate::pattern;

/// How the blocks of a run look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) kind: Checksum,
    pub(crate) block_len: usize,
}

/// Which write of which run a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) run: u64,
    pub(crate) generation: u64,
}

/// What a reader found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Intact,
    NeverWritten,
    Corrupt(Corruption),
    /// An intact header of a run with other options; says which.
    OtherFormat(String),
}

/// One damaged block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Corruption {
    /// Where the block starts in the file.
    pub(crate) offset: u64,
    /// Which part of it is wrong.
    what: &'static str,
    expected: String,
    found: String,
    /// More to tell, or empty.
    note: String,
}

impl std::fmt::Display for Corruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            offset,
            what,
            expected,
            found,
            note,
        } = self;
        write!(
            f,
            "corrupted block at offset {offset}: {what}: expected {expected}, found {found}"
        )?;
        if note.is_empty() {
            Ok(())
        } else {
            write!(f, " ({note})")
        }
    }
}

/// Fills `block` with the data of `version` and puts the header in front. A large block takes a
/// while, so it asks before every piece whether the run is stopped; if so, gives up and says false.
pub(crate) fn seal(
    format: Format,
    offset: u64,
    version: Version,
    block: &mut [AlignedBuf],
    stopped: impl Fn() -> bool,
) -> bool {
    let mut header = Header {
        kind: format.kind,
        offset,
        generation: version.generation,
        run: version.run,
        block_len: format.block_len as u64,
        digest: [0; 64],
    };
    pattern::fill(&header, block, &stopped);
    header.digest = digest(&header, block, &stopped);
    // A stopped run stays stopped, so nothing was left out if it is not.
    if stopped() {
        return false;
    }
    block[0][..HEADER_BYTES].copy_from_slice(&header.encode());
    true
}

/// Judges a block read from `offset`. `written` is what this run last wrote there, if anything.
pub(crate) fn check(
    format: Format,
    offset: u64,
    written: Option<Version>,
    block: &[AlignedBuf],
) -> Verdict {
    let judge = Judge {
        format,
        offset,
        written,
    };
    let mut first = [0; HEADER_BYTES];
    first.copy_from_slice(&block[0][..HEADER_BYTES]);
    match Header::decode(&first) {
        Ok(header) => judge.header(&header, block),
        Err(BadHeader::Magic(_)) if written.is_none() && all_zero(block) => Verdict::NeverWritten,
        Err(bad) => judge.bad_header(bad),
    }
}

/// Whether the header, if there is one, was written with these options.
///
/// # Errors
/// What the options were.
pub(crate) fn check_format(format: Format, header: &Header) -> Result<(), String> {
    if header.kind == format.kind && header.block_len == format.block_len as u64 {
        return Ok(());
    }
    Err(format!(
        "the file was written with --bs {} --verify {}, this run has --bs {} --verify {}",
        header.block_len,
        header.kind.name(),
        format.block_len,
        format.kind.name(),
    ))
}

struct Judge {
    format: Format,
    offset: u64,
    written: Option<Version>,
}

impl Judge {
    fn header(&self, header: &Header, block: &[AlignedBuf]) -> Verdict {
        if let Err(other) = check_format(self.format, header) {
            return Verdict::OtherFormat(other);
        }
        if header.offset != self.offset {
            let note = "a block meant for another place";
            return self.corrupt("offset in the header", self.offset, header.offset, note);
        }
        match self.written {
            Some(Version { run, .. }) if run != header.run => {
                let note = "this run's write is not there";
                return self.corrupt(
                    "run",
                    hex(&run.to_be_bytes()),
                    hex(&header.run.to_be_bytes()),
                    note,
                );
            }
            Some(Version { generation, .. }) if generation != header.generation => {
                return self.corrupt("generation", generation, header.generation, "");
            }
            _ => {}
        }
        let found = digest(header, block, || false);
        if found == header.digest {
            return Verdict::Intact;
        }
        let note = pattern::first_difference(header, block).map_or(
            String::new(),
            |(place, expected, found)| {
                let place = self.offset + place as u64;
                format!("byte {place} is {found:#04x}, not {expected:#04x}")
            },
        );
        let len = self.format.kind.digest_len();
        let what = self.format.kind.name();
        self.corrupt(what, hex(&header.digest[..len]), hex(&found[..len]), note)
    }

    fn bad_header(&self, bad: BadHeader) -> Verdict {
        match bad {
            BadHeader::Magic(found) => {
                let note = "no header; was the file written with --verify?";
                self.corrupt("magic", hex(&MAGIC), hex(&found), note)
            }
            BadHeader::Crc { expected, found } => {
                let (expected, found) = (hex(&expected.to_be_bytes()), hex(&found.to_be_bytes()));
                self.corrupt("crc32c of the header", expected, found, "")
            }
            BadHeader::Version(version) => Verdict::OtherFormat(format!(
                "the file was written by version {version} of the block format, this is version 1"
            )),
            BadHeader::Kind(kind) => Verdict::OtherFormat(format!(
                "the file was written with checksum kind {kind}, which this program does not know"
            )),
        }
    }

    fn corrupt(
        &self,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
        note: impl ToString,
    ) -> Verdict {
        Verdict::Corrupt(Corruption {
            offset: self.offset,
            what,
            expected: expected.to_string(),
            found: found.to_string(),
            note: note.to_string(),
        })
    }
}

/// The digest of the block, or a worthless one once `stopped` says so.
fn digest(header: &Header, block: &[AlignedBuf], stopped: impl Fn() -> bool) -> [u8; 64] {
    let pieces = block.iter().take_while(|_| !stopped());
    let data = pieces.enumerate().map(|(index, buf)| {
        if index == 0 {
            &buf[HEADER_BYTES..]
        } else {
            &buf[..]
        }
    });
    header
        .kind
        .digest(std::iter::once(&header.protected()[..]).chain(data))
}

fn all_zero(block: &[AlignedBuf]) -> bool {
    block.iter().all(|buf| buf.iter().all(|&byte| byte == 0))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format {
        kind: Checksum::Sha256,
        block_len: 2048,
    };
    const VERSION: Version = Version {
        run: 77,
        generation: 3,
    };

    fn sealed(offset: u64) -> Vec<AlignedBuf> {
        let mut block = AlignedBuf::pieces(FORMAT.block_len, 512).unwrap();
        assert!(seal(FORMAT, offset, VERSION, &mut block, || false));
        block
    }

    fn corruption(verdict: Verdict) -> Corruption {
        match verdict {
            Verdict::Corrupt(corruption) => corruption,
            other => panic!("expected corruption, found {other:?}"),
        }
    }

    #[test]
    fn a_sealed_block_is_intact_with_and_without_history() {
        let block = sealed(4096);
        assert_eq!(check(FORMAT, 4096, None, &block), Verdict::Intact);
        assert_eq!(check(FORMAT, 4096, Some(VERSION), &block), Verdict::Intact);
    }

    #[test]
    fn sealing_ends_between_two_pieces_once_the_run_is_stopped() {
        // Four pieces are filled, then four are digested, then the header is made.
        for pieces in 0..9 {
            let mut block = AlignedBuf::pieces(FORMAT.block_len, 512).unwrap();
            let asked = std::cell::Cell::new(0);
            let stopped = || asked.replace(asked.get() + 1) >= pieces;
            assert!(!seal(FORMAT, 0, VERSION, &mut block, stopped));
            assert_eq!(block[0][..HEADER_BYTES], [0; HEADER_BYTES]);
            let filled = block.iter().filter(|buf| buf[HEADER_BYTES..] != [0; 384]);
            assert_eq!(filled.count(), pieces.min(4));
        }
    }

    #[test]
    fn every_flipped_byte_of_a_block_is_found() {
        for kind in [Checksum::Crc32c, Checksum::Sha256, Checksum::Sha512] {
            let format = Format {
                kind,
                block_len: 2048,
            };
            let mut block = AlignedBuf::pieces(2048, 1024).unwrap();
            assert!(seal(format, 0, VERSION, &mut block, || false));
            for place in 0..2048 {
                block[place / 1024][place % 1024] ^= 0x10;
                corruption(check(format, 0, None, &block));
                block[place / 1024][place % 1024] ^= 0x10;
            }
            assert_eq!(check(format, 0, None, &block), Verdict::Intact);
        }
    }

    #[test]
    fn the_report_names_the_byte() {
        let mut block = sealed(8192);
        block[2][7] ^= 0xff;
        let line = corruption(check(FORMAT, 8192, None, &block)).to_string();
        assert!(
            line.contains("corrupted block at offset 8192: sha256: expected "),
            "{line}"
        );
        assert!(line.contains("byte 9223 is 0x"), "{line}");
    }

    #[test]
    fn zeros_are_unwritten_only_if_this_run_did_not_write_there() {
        let block = AlignedBuf::pieces(2048, 512).unwrap();
        assert_eq!(check(FORMAT, 0, None, &block), Verdict::NeverWritten);
        assert_eq!(
            corruption(check(FORMAT, 0, Some(VERSION), &block)).what,
            "magic"
        );
    }

    #[test]
    fn a_zeroed_header_before_data_is_corruption() {
        let mut block = sealed(0);
        block[0][..HEADER_BYTES].fill(0);
        assert_eq!(corruption(check(FORMAT, 0, None, &block)).what, "magic");
    }

    #[test]
    fn a_misdirected_write_and_a_stale_one_are_found() {
        let block = sealed(4096);
        assert_eq!(
            corruption(check(FORMAT, 0, None, &block)).what,
            "offset in the header"
        );
        let newer = Version {
            generation: 4,
            ..VERSION
        };
        assert_eq!(
            corruption(check(FORMAT, 4096, Some(newer), &block)).what,
            "generation"
        );
        let other_run = Version { run: 78, ..VERSION };
        assert_eq!(
            corruption(check(FORMAT, 4096, Some(other_run), &block)).what,
            "run"
        );
    }

    #[test]
    fn other_options_are_not_called_corruption() {
        let block = sealed(0);
        for format in [
            Format {
                kind: Checksum::Crc32c,
                ..FORMAT
            },
            Format {
                block_len: 4096,
                ..FORMAT
            },
        ] {
            assert!(matches!(
                check(format, 0, None, &block),
                Verdict::OtherFormat(_)
            ));
        }
    }
}
