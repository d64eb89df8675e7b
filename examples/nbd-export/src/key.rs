//! Keys, and the files that are encrypted by them.
//!
//! An encrypted file begins with a page that says how its key is made of a passphrase, and by which
//! a wrong key is noticed. It holds nothing that is secret.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use argon2::{Algorithm, Argon2, Params, Version};
use rustix::fs::{SeekFrom, seek};
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

use crate::crypto::{CHECK, Cipher, KEY};

/// What an encrypted file has before its data.
pub(crate) const HEADER: usize = 4096;
/// The header's first bytes; the last one is the number of its format.
const MAGIC: [u8; 16] = *b"nbd-export xts\0\x01";
const SALT: usize = 16;
/// Longer secrets are taken for a file that is no key.
const LONGEST: usize = 4096;
/// What a header may have this program do for a passphrase.
const MAX_MEMORY_KIB: u32 = 4 << 20;
const MAX_PASSES: u32 = 1000;
const MAX_LANES: u32 = 64;

/// How much work it is to make a key of a passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Costs {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

/// The second choice of RFC 9106: for machines that have other things to do with their memory.
const COSTS: Costs = Costs {
    memory_kib: 64 << 10,
    passes: 3,
    lanes: 4,
};

/// What an encrypted file says of its key.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    salt: [u8; SALT],
    costs: Costs,
    check: [u8; CHECK],
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.salt);
        let Costs {
            memory_kib,
            passes,
            lanes,
        } = self.costs;
        bytes.extend(
            [memory_kib, passes, lanes]
                .iter()
                .flat_map(|n| n.to_be_bytes()),
        );
        bytes.extend(self.check);
        bytes.resize(HEADER, 0);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (magic, bytes) = bytes.split_first_chunk()?;
        let (salt, bytes) = bytes.split_first_chunk()?;
        let (memory_kib, bytes) = bytes.split_first_chunk()?;
        let (passes, bytes) = bytes.split_first_chunk()?;
        let (lanes, bytes) = bytes.split_first_chunk()?;
        let (check, _) = bytes.split_first_chunk()?;
        let costs = Costs {
            memory_kib: u32::from_be_bytes(*memory_kib),
            passes: u32::from_be_bytes(*passes),
            lanes: u32::from_be_bytes(*lanes),
        };
        (*magic == MAGIC).then_some(Self {
            salt: *salt,
            costs,
            check: *check,
        })
    }
}

/// Where a key is, and whether it is said that it is a passphrase. If not, that is found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyFile {
    pub(crate) path: PathBuf,
    pub(crate) is_passphrase: bool,
}

/// What a key file holds. It is wiped from memory when it is dropped.
enum Secret {
    /// The key itself, as 64 bytes that are no text.
    Bytes(Zeroizing<[u8; KEY]>),
    /// The key itself, as 128 hexadecimal digits.
    Digits(Zeroizing<[u8; KEY]>),
    /// Any other text.
    Passphrase(Zeroizing<Vec<u8>>),
}

impl Secret {
    fn read(path: &Path, is_passphrase: bool) -> Result<Self> {
        let mut file = File::open(path)?;
        let found = file.metadata()?;
        let mode = found.permissions().mode();
        // What a shell passes as a pipe has its own.
        if found.is_file() && mode & 0o077 != 0 {
            bail!(
                "other users may access it; use chmod 600 {}",
                path.display()
            );
        }
        let mut content = Zeroizing::new(vec![0; LONGEST + 1]);
        let mut len = 0;
        while len < content.len() {
            match file.read(&mut content[len..])? {
                0 => break,
                more => len += more,
            }
        }
        ensure!(
            len <= LONGEST,
            "longer than any key: more than {LONGEST} bytes"
        );
        Self::parse(&content[..len], is_passphrase)
    }

    fn parse(content: &[u8], is_passphrase: bool) -> Result<Self> {
        let without_end = content.strip_suffix(b"\n").unwrap_or(content);
        let line = without_end.strip_suffix(b"\r").unwrap_or(without_end);
        // 64 random bytes are no text, as good as never.
        let text = std::str::from_utf8(line).ok();
        let Some(text) = text.filter(|text| !text.chars().any(char::is_control)) else {
            ensure!(!is_passphrase, "a passphrase must be text");
            let key = <&[u8; KEY]>::try_from(content);
            let key = key.ok().context("neither text nor 64 bytes")?;
            halves_differ(key)?;
            return Ok(Self::Bytes(Zeroizing::new(*key)));
        };
        if let Some(key) = from_hex(text).filter(|_| !is_passphrase) {
            halves_differ(&key)?;
            return Ok(Self::Digits(key));
        }
        ensure!(text.len() >= 8, "the passphrase has fewer than 8 bytes");
        Ok(Self::Passphrase(Zeroizing::new(line.to_vec())))
    }

    const fn is_taken_for(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "a key of 64 bytes",
            Self::Digits(_) => "a key of 128 hexadecimal digits",
            Self::Passphrase(_) => "a passphrase",
        }
    }

    fn cipher(&self, salt: &[u8; SALT], costs: Costs) -> Result<Cipher> {
        let passphrase = match self {
            Self::Bytes(key) | Self::Digits(key) => return Cipher::new(key),
            Self::Passphrase(passphrase) => passphrase,
        };
        let within = costs.memory_kib <= MAX_MEMORY_KIB
            && costs.passes <= MAX_PASSES
            && costs.lanes <= MAX_LANES;
        ensure!(
            within,
            "the file's header asks for too much work to derive the key"
        );
        let Costs {
            memory_kib,
            passes,
            lanes,
        } = costs;
        let refused = |error: argon2::Error| anyhow::anyhow!("the passphrase: {error}");
        let params = Params::new(memory_kib, passes, lanes, Some(KEY)).map_err(refused)?;
        let mut key = Zeroizing::new([0; KEY]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(passphrase, salt, &mut *key)
            .map_err(refused)?;
        Cipher::new(&key)
    }
}

/// With one key for the data and for the units' numbers XTS hides less than it should.
fn halves_differ(key: &[u8; KEY]) -> Result<()> {
    let (data, tweak) = key.split_at(KEY / 2);
    ensure!(data != tweak, "the two halves of the key are equal");
    Ok(())
}

fn from_hex(text: &str) -> Option<Zeroizing<[u8; KEY]>> {
    if text.len() != 2 * KEY {
        return None;
    }
    let mut key = Zeroizing::new([0; KEY]);
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        let [high, low] = [digits[0], digits[1]].map(|digit| char::from(digit).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(key)
}

/// Whether a file holds nothing but zeros. What is no hole is read.
fn is_empty(mut file: &File) -> io::Result<bool> {
    let end = file.seek(io::SeekFrom::End(0))?;
    let mut bytes = vec![0; 1 << 20];
    let mut at = 0;
    while at < end {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            // What cannot be asked is all data.
            Err(_) => at,
        };
        at = seek(file, SeekFrom::Hole(data)).unwrap_or(end);
        let mut from = data;
        while from < at {
            let now = (at - from).min(bytes.len() as u64) as usize;
            file.read_exact_at(&mut bytes[..now], from)?;
            if bytes[..now].iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            from += now as u64;
        }
    }
    Ok(true)
}

/// Whether a file begins as an encrypted one does.
pub(crate) fn is_encrypted(file: &File) -> Result<bool> {
    let mut bytes = vec![0; HEADER];
    let read = file
        .read_at(&mut bytes, 0)
        .context("reading its first page")?;
    Ok(Header::decode(&bytes[..read]).is_some())
}

/// The cipher of an encrypted file, and the header that it is to get first if it has none.
pub(crate) struct Opened {
    pub(crate) cipher: Cipher,
    pub(crate) key_is: String,
    pub(crate) header: Option<NewHeader>,
}

/// What makes a file an encrypted one.
pub(crate) struct NewHeader(Vec<u8>);

impl NewHeader {
    /// What the file held cannot be had any more.
    pub(crate) fn write(&self, file: &File) -> Result<()> {
        file.write_all_at(&self.0, 0)
            .context("writing its header")?;
        // Nothing is served that could not be read again.
        file.sync_all().context("writing its header")
    }
}

/// The cipher of an encrypted file, whose key is in another one. A file that holds nothing is to
/// get a header; so is any other that has none, if `format` says so. Nothing is written yet.
pub(crate) fn open(file: &File, read_only: bool, key: &KeyFile, format: bool) -> Result<Opened> {
    let path = key.path.display();
    let secret = Secret::read(&key.path, key.is_passphrase);
    let secret = secret.with_context(|| format!("the key in {path}"))?;
    let (cipher, header) = open_by(file, read_only, &secret, COSTS, format)?;
    let key_is = format!("what {path} holds is {}", secret.is_taken_for());
    Ok(Opened {
        cipher,
        key_is,
        header,
    })
}

fn open_by(
    file: &File,
    read_only: bool,
    secret: &Secret,
    costs: Costs,
    format: bool,
) -> Result<(Cipher, Option<NewHeader>)> {
    let mut bytes = vec![0; HEADER];
    file.read_exact_at(&mut bytes, 0)
        .context("reading its header")?;
    if let Some(header) = Header::decode(&bytes) {
        // So that whoever leaves it in a command line loses nothing at the next start.
        ensure!(!format, "already encrypted: leave format out");
        let cipher = secret.cipher(&header.salt, header.costs)?;
        ensure!(cipher.check() == header.check, "encrypted with another key");
        return Ok((cipher, None));
    }
    if !format && file.metadata()?.file_type().is_block_device() {
        crate::console::say(
            "a device without a key is read until something is found, for an empty one \
             to its end; format spares that",
        );
    }
    ensure!(
        format || is_empty(file).context("looking for data")?,
        "not encrypted by this program, and not empty; format overwrites it"
    );
    ensure!(
        !read_only,
        "no key has been set yet: serve it once without ro"
    );
    let mut salt = [0; SALT];
    let filled = getrandom(&mut salt, GetRandomFlags::empty())?;
    ensure!(filled == SALT, "the system returned too few random bytes");
    let cipher = secret.cipher(&salt, costs)?;
    let check = cipher.check();
    let header = Header { salt, costs, check };
    Ok((cipher, Some(NewHeader(header.encode()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Costs = Costs {
        memory_kib: 8,
        passes: 1,
        lanes: 1,
    };

    fn is_key(content: &[u8]) -> Option<bool> {
        let secret = Secret::parse(content, false).ok()?;
        Some(!matches!(secret, Secret::Passphrase(_)))
    }

    /// A passphrase may have any length, also that of a key.
    #[test]
    fn keys_are_told_from_passphrases() {
        let bytes: Vec<u8> = (100..164).collect();
        assert_eq!(is_key(&bytes), Some(true));
        assert_eq!(is_key(&bytes[1..]), None);
        assert_eq!(is_key(("0f".repeat(63) + "0e").as_bytes()), Some(true));
        assert_eq!(is_key(("0F".repeat(63) + "0E\r\n").as_bytes()), Some(true));
        assert_eq!(is_key("+f".repeat(64).as_bytes()), Some(false));
        assert_eq!(is_key("x".repeat(64).as_bytes()), Some(false));
        assert_eq!(is_key("\u{e9}".repeat(32).as_bytes()), Some(false));
        assert_eq!(is_key(("x".repeat(63) + "\n").as_bytes()), Some(false));
        assert_eq!(is_key(b"correct horse battery staple\n"), Some(false));
        assert_eq!(is_key(b"short"), None);
        assert_eq!(is_key(b""), None);
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header {
            salt: [3; SALT],
            costs: COSTS,
            check: [4; CHECK],
        };
        let bytes = header.encode();
        assert_eq!(bytes.len(), HEADER);
        assert_eq!(Header::decode(&bytes).as_ref(), Some(&header));
        for at in 0..MAGIC.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Header::decode(&other), None);
        }
    }

    /// A header may come from anywhere.
    #[test]
    fn a_header_cannot_ask_for_endless_work() {
        let secret = Secret::parse(b"correct horse battery staple", false).unwrap();
        for costs in [
            Costs {
                memory_kib: u32::MAX,
                ..CHEAP
            },
            Costs {
                passes: u32::MAX,
                ..CHEAP
            },
            Costs {
                lanes: u32::MAX,
                ..CHEAP
            },
            Costs { lanes: 0, ..CHEAP },
        ] {
            assert!(secret.cipher(&[0; SALT], costs).is_err(), "{costs:?}");
        }
    }

    #[test]
    fn each_new_file_has_a_salt_of_its_own() {
        let secret = Secret::parse(b"correct horse battery staple", false).unwrap();
        let checks = [0, 1].map(|_| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(1 << 20).unwrap();
            let (made, header) = open_by(&file, false, &secret, CHEAP, false).unwrap();
            assert!(!is_encrypted(&file).unwrap(), "nothing is written yet");
            header.unwrap().write(&file).unwrap();
            assert!(is_encrypted(&file).unwrap());
            let made = made.check();
            let (found, header) = open_by(&file, true, &secret, COSTS, false).unwrap();
            assert!(header.is_none());
            assert_eq!(made, found.check(), "the costs are the file's");
            let other = Secret::parse(b"correct horse battery stable", false).unwrap();
            assert!(open_by(&file, false, &other, CHEAP, false).is_err());
            made
        });
        assert!(checks[0] != checks[1]);
    }
}
