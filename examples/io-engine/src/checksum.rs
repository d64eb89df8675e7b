//! The checksums `--verify` offers, computed over a block that lies in several buffers.

use clap::ValueEnum;
use sha2::{Digest, Sha256, Sha512};

/// Room for the longest digest; shorter ones are followed by zeros.
pub(crate) const DIGEST_BYTES: usize = 64;

/// What protects the data of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checksum {
    /// No header, no check.
    None,
    /// CRC-32C (Castagnoli), 4 bytes.
    Crc32c,
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-512, 64 bytes.
    Sha512,
}

impl Checksum {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Crc32c => "crc32c",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// The number a block header stores for this kind.
    pub(crate) fn id(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Crc32c => 1,
            Self::Sha256 => 2,
            Self::Sha512 => 3,
        }
    }

    pub(crate) fn from_id(id: u16) -> Option<Self> {
        Self::value_variants()
            .iter()
            .copied()
            .find(|kind| kind.id() == id)
    }

    /// How many bytes of a stored digest mean something.
    pub(crate) fn digest_len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32c => 4,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The digest of the concatenation of `parts`.
    pub(crate) fn digest<P: AsRef<[u8]>>(
        self,
        parts: impl Iterator<Item = P>,
    ) -> [u8; DIGEST_BYTES] {
        let mut digest = [0; DIGEST_BYTES];
        match self {
            Self::None => {}
            Self::Crc32c => {
                let sum = parts.fold(0, |sum, part| crc32c::crc32c_append(sum, part.as_ref()));
                digest[..4].copy_from_slice(&sum.to_be_bytes());
            }
            Self::Sha256 => digest[..32].copy_from_slice(&sha::<Sha256, P>(parts)),
            Self::Sha512 => digest.copy_from_slice(&sha::<Sha512, P>(parts)),
        }
        digest
    }
}

fn sha<D: Digest, P: AsRef<[u8]>>(parts: impl Iterator<Item = P>) -> sha2::digest::Output<D> {
    let mut hasher = D::new();
    for part in parts {
        hasher.update(part.as_ref());
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published check values of each algorithm.
    #[test]
    fn known_answers() {
        let crc = Checksum::Crc32c.digest([&b"123456789"[..]].into_iter());
        assert_eq!(crc[..4], 0xE306_9283_u32.to_be_bytes());
        let sha256 = Checksum::Sha256.digest([&b"abc"[..]].into_iter());
        assert_eq!(sha256[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(sha256[32..], [0; 32]);
        let sha512 = Checksum::Sha512.digest([&b"abc"[..]].into_iter());
        assert_eq!(sha512[..4], [0xdd, 0xaf, 0x35, 0xa1]);
    }

    #[test]
    fn where_the_data_is_cut_does_not_matter() {
        let data: Vec<u8> = (0..=255).collect();
        for &kind in Checksum::value_variants() {
            let whole = kind.digest([&data[..]].into_iter());
            let cut = kind.digest([&data[..3], &data[3..128], &data[128..]].into_iter());
            assert_eq!(whole, cut, "{kind:?}");
        }
    }

    #[test]
    fn ids_come_back() {
        for &kind in Checksum::value_variants() {
            assert_eq!(Checksum::from_id(kind.id()), Some(kind));
        }
        assert_eq!(Checksum::from_id(99), None);
    }
}
