//! AES-XTS-256: each 512 bytes are a unit, whose number is its place on the disk.

use std::path::Path;

use aes::Aes256;
use aes::cipher::KeyInit as _;
use aes::cipher::generic_array::GenericArray;
use anyhow::{Context as _, Result, ensure};
use xts_mode::{Xts128, get_tweak_default};

/// The bytes that are encrypted together.
pub(crate) const UNIT: usize = 512;
const KEY: usize = 64;

/// What an encrypted export is read and written with.
pub(crate) struct Cipher(Xts128<Aes256>);

impl Cipher {
    /// A key file holds the key itself: 64 bytes, or 128 hexadecimal digits. Anything else is a
    /// passphrase, from which the key is made by Argon2id with the export's name as salt.
    pub(crate) fn from_file(path: &Path, export: &str) -> Result<Self> {
        let content = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let key =
            key(&content, export).with_context(|| format!("the key in {}", path.display()))?;
        let (data, tweak) = key.split_at(KEY / 2);
        ensure!(data != tweak, "the two halves of the key must differ");
        let cipher = |half| Aes256::new(GenericArray::from_slice(half));
        Ok(Self(Xts128::new(cipher(data), cipher(tweak))))
    }

    /// Encrypts whole units that lie at `offset` of the disk.
    pub(crate) fn encrypt(&self, bytes: &mut [u8], offset: u64) {
        let first = u128::from(offset) / UNIT as u128;
        self.0.encrypt_area(bytes, UNIT, first, get_tweak_default);
    }

    /// The inverse.
    pub(crate) fn decrypt(&self, bytes: &mut [u8], offset: u64) {
        let first = u128::from(offset) / UNIT as u128;
        self.0.decrypt_area(bytes, UNIT, first, get_tweak_default);
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

fn key(content: &[u8], export: &str) -> Result<[u8; KEY]> {
    if let Ok(key) = content.try_into() {
        return Ok(key);
    }
    let text = content.trim_ascii();
    if let Some(key) = from_hex(text) {
        return Ok(key);
    }
    ensure!(text.len() >= 8, "a passphrase of fewer than 8 bytes");
    let salt = format!("nbd-export:{export}");
    let mut key = [0; KEY];
    argon2::Argon2::default()
        .hash_password_into(text, salt.as_bytes(), &mut key)
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(key)
}

fn from_hex(text: &[u8]) -> Option<[u8; KEY]> {
    if text.len() != 2 * KEY {
        return None;
    }
    let mut key = [0; KEY];
    for (byte, digits) in key.iter_mut().zip(text.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(content: &[u8]) -> Cipher {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, content).unwrap();
        Cipher::from_file(&path, "disk").unwrap()
    }

    /// Vector 10 of the public XTS-AES-256 test vectors (IEEE 1619): data unit 0xff.
    #[test]
    fn the_public_vector() {
        let key = "2718281828459045235360287471352662497757247093699959574966967627\
                   3141592653589793238462643383279502884197169399375105820974944592";
        let mut bytes: Vec<u8> = (0..512).map(|n| n as u8).collect();
        let cipher = cipher(key.as_bytes());
        cipher.encrypt(&mut bytes, 0xff * 512);
        assert_eq!(bytes[..8], [0x1c, 0x3b, 0x3a, 0x10, 0x2f, 0x77, 0x03, 0x86]);
        cipher.decrypt(&mut bytes, 0xff * 512);
        assert!(bytes.iter().enumerate().all(|(n, &byte)| byte == n as u8));
    }

    #[test]
    fn a_passphrase_makes_a_key_and_a_poor_one_does_not() {
        let mut bytes = [0; 512];
        cipher(b"correct horse battery staple\n").encrypt(&mut bytes, 0);
        assert_ne!(bytes, [0; 512]);
        assert!(key(b"short", "disk").is_err());
        assert!(key(b"correct horse", "a").unwrap() != key(b"correct horse", "b").unwrap());
    }
}
