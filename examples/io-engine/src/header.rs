//! The header at the start of every block a `--verify` run writes.
//!
//! 128 bytes, little-endian:
//!
//! ```text
//!   0   8  magic "inflight"
//!   8   2  version, 1
//!  10   2  checksum kind (1 crc32c, 2 sha256, 3 sha512)
//!  12   4  zero
//!  16   8  offset of the block in the file
//!  24   8  generation: 1 for the first write of this block in a run, then 2, 3, …
//!  32   8  run: a number drawn anew by every run
//!  40   8  length of the block, header included
//!  48  64  checksum of bytes 0..48 and of everything after the header, zero padded
//! 112  12  zero
//! 124   4  CRC-32C of bytes 0..124
//! ```

use crate::checksum::{Checksum, DIGEST_BYTES};

pub(crate) const HEADER_BYTES: usize = 128;
pub(crate) const MAGIC: [u8; 8] = *b"inflight";
const VERSION: u16 = 1;
const DIGEST_AT: usize = 48;
const CRC_AT: usize = 124;

/// What a header says. The magic, the version and the CRC are dealt with by `encode` and `decode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Checksum,
    pub(crate) offset: u64,
    pub(crate) generation: u64,
    pub(crate) run: u64,
    pub(crate) block_len: u64,
    pub(crate) digest: [u8; DIGEST_BYTES],
}

/// Why 128 bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// The first eight bytes are not the magic.
    Magic([u8; 8]),
    /// The header's own CRC does not match its bytes.
    Crc { expected: u32, found: u32 },
    /// Intact, but written by another version of the program.
    Version(u16),
    /// Intact, but with a checksum this version does not know.
    Kind(u16),
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..DIGEST_AT].copy_from_slice(&self.protected());
        bytes[DIGEST_AT..DIGEST_AT + DIGEST_BYTES].copy_from_slice(&self.digest);
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BadHeader> {
        let magic = array(bytes, 0);
        if magic != MAGIC {
            return Err(BadHeader::Magic(magic));
        }
        let (found, expected) = (
            u32::from_le_bytes(array(bytes, CRC_AT)),
            crc32c::crc32c(&bytes[..CRC_AT]),
        );
        if found != expected {
            return Err(BadHeader::Crc { expected, found });
        }
        let version = u16::from_le_bytes(array(bytes, 8));
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        let kind = u16::from_le_bytes(array(bytes, 10));
        Ok(Self {
            kind: Checksum::from_id(kind).ok_or(BadHeader::Kind(kind))?,
            offset: u64::from_le_bytes(array(bytes, 16)),
            generation: u64::from_le_bytes(array(bytes, 24)),
            run: u64::from_le_bytes(array(bytes, 32)),
            block_len: u64::from_le_bytes(array(bytes, 40)),
            digest: array(bytes, DIGEST_AT),
        })
    }

    /// The bytes before the digest, which the digest covers.
    pub(crate) fn protected(&self) -> [u8; DIGEST_AT] {
        let mut bytes = [0; DIGEST_AT];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.kind.id().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.run.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.block_len.to_le_bytes());
        bytes
    }
}

fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            kind: Checksum::Sha512,
            offset: 0x0102_0304_0506_0708,
            generation: 7,
            run: 0xfeed,
            block_len: 4096,
            digest: std::array::from_fn(|i| i as u8),
        }
    }

    #[test]
    fn decode_gives_back_what_encode_took() {
        assert_eq!(Header::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn every_single_flipped_bit_is_noticed() {
        let good = sample().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = Header::decode(&bad).expect_err("a flipped bit went unnoticed");
            assert_eq!(matches!(error, BadHeader::Magic(_)), bit < 64, "bit {bit}");
        }
    }

    #[test]
    fn an_intact_header_of_another_version_or_kind_says_so() {
        let reseal = |mut bytes: [u8; HEADER_BYTES]| {
            let crc = crc32c::crc32c(&bytes[..CRC_AT]);
            bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            bytes
        };
        let mut other = sample().encode();
        other[8] = 9;
        assert_eq!(Header::decode(&reseal(other)), Err(BadHeader::Version(9)));
        let mut other = sample().encode();
        other[10] = 77;
        assert_eq!(Header::decode(&reseal(other)), Err(BadHeader::Kind(77)));
    }

    #[test]
    fn zeros_are_not_a_header() {
        assert_eq!(
            Header::decode(&[0; HEADER_BYTES]),
            Err(BadHeader::Magic([0; 8]))
        );
    }
}
