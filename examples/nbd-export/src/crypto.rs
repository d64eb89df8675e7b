//! AES-XTS-256: each 512 bytes are a unit, whose number is its place on the disk.

use aes::cipher::{BlockDecrypt as _, BlockEncrypt as _, KeyInit as _};
use aes::{Aes256, Block};
use anyhow::{Result, ensure};

/// The bytes that are encrypted together.
pub(crate) const UNIT: usize = 512;
const BLOCK: usize = 16;
const BLOCKS: usize = UNIT / BLOCK;
/// Two keys, one for the data and one for the units' numbers.
pub(crate) const KEY: usize = 64;
/// Bytes that tell whether a key is the right one.
pub(crate) const CHECK: usize = 32;

/// What an encrypted export is read and written with. Its keys are wiped when it is dropped.
///
/// Why not `xts-mode`: it encrypts one block after the other, and the CPU's instructions several at
/// a time. The tests compare the two.
pub(crate) struct Cipher {
    data: Aes256,
    tweak: Aes256,
}

impl Cipher {
    pub(crate) fn new(key: &[u8; KEY]) -> Result<Self> {
        let (data, tweak) = key.split_at(KEY / 2);
        ensure!(data != tweak, "the two halves of the key must differ");
        Ok(Self {
            data: Aes256::new(data.into()),
            tweak: Aes256::new(tweak.into()),
        })
    }

    /// What this key makes of zeros in a unit that no disk has: tells keys apart, and does not tell
    /// the key.
    pub(crate) fn check(&self) -> [u8; CHECK] {
        let mut unit = [0; UNIT];
        self.encrypt(&mut unit, u64::MAX - (UNIT as u64 - 1));
        let mut check = [0; CHECK];
        check.copy_from_slice(&unit[..CHECK]);
        check
    }

    /// Encrypts whole units that lie at `offset` of the disk.
    pub(crate) fn encrypt(&self, bytes: &mut [u8], offset: u64) {
        self.units(bytes, offset, |blocks| self.data.encrypt_blocks(blocks));
    }

    /// The inverse.
    pub(crate) fn decrypt(&self, bytes: &mut [u8], offset: u64) {
        self.units(bytes, offset, |blocks| self.data.decrypt_blocks(blocks));
    }

    /// Each block is masked before and after `apply`: the unit's mask is its encrypted number, and
    /// each next block's the one before, doubled.
    fn units(&self, bytes: &mut [u8], offset: u64, apply: impl Fn(&mut [Block])) {
        debug_assert!(offset % UNIT as u64 == 0 && bytes.len() % UNIT == 0);
        let first = offset / UNIT as u64;
        for (unit, number) in bytes.chunks_exact_mut(UNIT).zip(first..) {
            let mut number = Block::from(u128::from(number).to_le_bytes());
            self.tweak.encrypt_block(&mut number);
            let mut masks = [0; BLOCKS];
            let mut mask = u128::from_le_bytes(number.into());
            for place in &mut masks {
                *place = mask;
                mask = doubled(mask);
            }
            let mut blocks = [Block::default(); BLOCKS];
            for ((block, bytes), mask) in blocks.iter_mut().zip(unit.chunks_exact(BLOCK)).zip(masks)
            {
                let bytes = <[u8; BLOCK]>::try_from(bytes).unwrap_or_default();
                *block = (u128::from_le_bytes(bytes) ^ mask).to_le_bytes().into();
            }
            apply(&mut blocks);
            for ((block, bytes), mask) in blocks.iter().zip(unit.chunks_exact_mut(BLOCK)).zip(masks)
            {
                let block = u128::from_le_bytes((*block).into());
                bytes.copy_from_slice(&(block ^ mask).to_le_bytes());
            }
        }
    }
}

/// Twice this, in the field that XTS is defined over: GF(2^128) with x^128 + x^7 + x^2 + x + 1.
const fn doubled(mask: u128) -> u128 {
    let carried = if mask >> 127 == 1 { 0x87 } else { 0 };
    (mask << 1) ^ carried
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Vector 10 of the public XTS-AES-256 test vectors (IEEE 1619): data unit 0xff.
    #[test]
    fn the_public_vector() {
        let digits = "2718281828459045235360287471352662497757247093699959574966967627\
                      3141592653589793238462643383279502884197169399375105820974944592";
        let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let cipher = Cipher::new(&std::array::from_fn(|n| digit(2 * n))).unwrap();
        let mut bytes: Vec<u8> = (0..512).map(|n| n as u8).collect();
        cipher.encrypt(&mut bytes, 0xff * 512);
        assert_eq!(bytes[..8], [0x1c, 0x3b, 0x3a, 0x10, 0x2f, 0x77, 0x03, 0x86]);
        cipher.decrypt(&mut bytes, 0xff * 512);
        assert!(bytes.iter().enumerate().all(|(n, &byte)| byte == n as u8));
    }

    proptest! {
        #[test]
        fn as_another_implementation_does_it(
            key in proptest::array::uniform32(any::<u8>()),
            first in 0..u64::MAX / 512,
            units in 1..9_usize,
            seed in any::<u8>(),
        ) {
            let (data, tweak) = (key, key.map(|byte| !byte));
            let both = std::array::from_fn(|n| [data, tweak][n / 32][n % 32]);
            let ours = Cipher::new(&both).unwrap();
            let aes = |half: [u8; 32]| Aes256::new(&half.into());
            let theirs = xts_mode::Xts128::new(aes(data), aes(tweak));
            let plain: Vec<u8> = (0..units * UNIT).map(|n| (n as u8).wrapping_mul(seed)).collect();
            let (mut a, mut b) = (plain.clone(), plain.clone());
            ours.encrypt(&mut a, first * UNIT as u64);
            theirs.encrypt_area(&mut b, UNIT, first.into(), xts_mode::get_tweak_default);
            prop_assert_eq!(&a, &b);
            ours.decrypt(&mut a, first * UNIT as u64);
            prop_assert_eq!(a, plain);
        }
    }
}
