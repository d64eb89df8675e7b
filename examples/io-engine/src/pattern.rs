//! The data after the header: different for every block, generation and run, and computable again
//! from the header alone, so that a reader can name the first byte that is wrong.

use crate::buffer::AlignedBuf;
use crate::header::{HEADER_BYTES, Header};

/// Odd, with well-spread bits: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64 bits that spreads every input bit over the output (SplitMix64's finaliser).
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn seed(header: &Header) -> u64 {
    mix(header.run ^ mix(header.offset ^ mix(header.generation.wrapping_add(STEP))))
}

/// The word at byte `at` (a multiple of 8) of a block.
fn word(seed: u64, at: usize) -> [u8; 8] {
    mix(seed.wrapping_add((at as u64 / 8 + 1).wrapping_mul(STEP))).to_le_bytes()
}

/// Fills everything behind the header; stops between two buffers once `stopped` says so. Buffers
/// are multiples of 512 bytes long.
pub(crate) fn fill(header: &Header, block: &mut [AlignedBuf], stopped: impl Fn() -> bool) {
    let seed = seed(header);
    let mut at = 0;
    for buf in block.iter_mut().take_while(|_| !stopped()) {
        let skip = HEADER_BYTES.saturating_sub(at);
        for (index, bytes) in buf[skip..].chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&word(seed, at + skip + index * 8));
        }
        at += buf.len();
    }
}

/// The first byte behind the header that is not what `fill` wrote: its place in the block, what
/// it should be, what it is.
pub(crate) fn first_difference(header: &Header, block: &[AlignedBuf]) -> Option<(usize, u8, u8)> {
    let seed = seed(header);
    let mut at = 0;
    for buf in block {
        let skip = HEADER_BYTES.saturating_sub(at);
        for (index, &found) in buf.iter().enumerate().skip(skip) {
            let place = at + index;
            let expected = word(seed, place)[place % 8];
            if expected != found {
                return Some((place, expected, found));
            }
        }
        at += buf.len();
    }
    None
}

/// Fills a buffer of a run without `--verify`, where only incompressibility matters.
pub(crate) fn fill_noise(seed: u64, buf: &mut [u8]) {
    fastrand::Rng::with_seed(seed).fill(buf);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{Checksum, DIGEST_BYTES};

    fn header(offset: u64, generation: u64, run: u64) -> Header {
        let kind = Checksum::Crc32c;
        Header {
            kind,
            offset,
            generation,
            run,
            block_len: 2048,
            digest: [0; DIGEST_BYTES],
        }
    }

    fn filled(header: &Header, piece: usize) -> Vec<AlignedBuf> {
        let mut block = AlignedBuf::pieces(2048, piece).unwrap();
        fill(header, &mut block, || false);
        block
    }

    fn flat(block: &[AlignedBuf]) -> Vec<u8> {
        block.iter().flat_map(|buf| buf.iter().copied()).collect()
    }

    #[test]
    fn splitting_does_not_change_the_data() {
        let header = header(4096, 1, 2);
        assert_eq!(flat(&filled(&header, 2048)), flat(&filled(&header, 512)));
    }

    #[test]
    fn offset_generation_and_run_each_change_nearly_every_byte() {
        let base = flat(&filled(&header(0, 1, 1), 2048));
        for other in [header(4096, 1, 1), header(0, 2, 1), header(0, 1, 2)] {
            let other = flat(&filled(&other, 2048));
            let same = base[HEADER_BYTES..].iter().zip(&other[HEADER_BYTES..]);
            assert!(same.filter(|(a, b)| a == b).count() < 64);
        }
    }

    #[test]
    fn the_first_wrong_byte_is_named() {
        let header = header(8192, 3, 9);
        let mut block = filled(&header, 512);
        assert_eq!(first_difference(&header, &block), None);
        block[3][1] ^= 0x40;
        block[1][200] ^= 0x01;
        let (place, expected, found) = first_difference(&header, &block).unwrap();
        assert_eq!((place, expected ^ found), (712, 0x01));
    }
}
