//! Files that are served.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use inflight::flush::FlushDomain;
use nbd_export::negotiate::{Described, MAX_NAME};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::adapter::Tenant;
use crate::crypto::{Cipher, UNIT};
use crate::disk::{Disk, Disks};
use crate::key::{self, HEADER, KeyFile, NewHeader, Opened};

/// The most a read or a write moves.
const MAX_PAYLOAD: u32 = 32 << 20;
/// The magic number of file systems in memory.
const TMPFS: u64 = 0x0102_1994;

/// What `--export` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    name: String,
    file: PathBuf,
    read_only: bool,
    weight: u32,
    key: Option<KeyFile>,
    /// The file is to be encrypted, whatever it holds.
    format: bool,
}

impl std::str::FromStr for Spec {
    type Err = String;

    /// `NAME=FILE[,ro][,weight=N][,key=KEYFILE|,passphrase=KEYFILE[,format]]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').ok_or("expected NAME=FILE")?;
        let mut parts = rest.split(',');
        let file = parts.next().unwrap_or_default();
        if name.is_empty() || file.is_empty() {
            return Err("expected NAME=FILE, neither of them empty".to_owned());
        }
        if name.len() > MAX_NAME {
            return Err(format!(
                "the name has {} bytes, more than {MAX_NAME}",
                name.len()
            ));
        }
        let mut spec = Self {
            name: name.to_owned(),
            file: file.into(),
            read_only: false,
            weight: 1,
            key: None,
            format: false,
        };
        let mut said = Vec::new();
        for part in parts {
            let option = part.split('=').next().unwrap_or_default();
            if said.contains(&option) {
                return Err(format!("{option} is given twice"));
            }
            said.push(option);
            match part.split_once('=') {
                None if part == "ro" => spec.read_only = true,
                None if part == "format" => spec.format = true,
                Some(("weight", weight)) => {
                    let weight = weight.parse().ok().filter(|w| (1..=10_000).contains(w));
                    let wrong = || format!("{part}: a weight is a whole number from 1 to 10000");
                    spec.weight = weight.ok_or_else(wrong)?;
                }
                Some(("key" | "passphrase", "")) => return Err(format!("{part} names no file")),
                Some(("key" | "passphrase", _)) if spec.key.is_some() => {
                    return Err("key and passphrase exclude each other".to_owned());
                }
                Some((kind @ ("key" | "passphrase"), path)) => {
                    spec.key = Some(KeyFile {
                        path: path.into(),
                        is_passphrase: kind == "passphrase",
                    });
                }
                _ => {
                    let known = "ro, weight=N, key=KEYFILE, passphrase=KEYFILE, format";
                    return Err(format!("{part:?} is none of {known}"));
                }
            }
        }
        if spec.format && spec.key.is_none() {
            return Err("format goes with key=KEYFILE or passphrase=KEYFILE".to_owned());
        }
        Ok(spec)
    }
}

/// What was done for an export.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) clients: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) other: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// Times that the file refused a request for now.
    pub(crate) requeued: AtomicU64,
    /// Requests that wait for a tag now.
    pub(crate) waiting: AtomicU64,
}

impl Stats {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts a request that waits for a tag, until the guard is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        Self::add(&self.waiting, 1);
        Waiting(&self.waiting)
    }
}

pub(crate) struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A file that is served.
pub(crate) struct Export {
    pub(crate) described: Described,
    pub(crate) file: Arc<File>,
    /// Calls on it do not block.
    pub(crate) in_memory: bool,
    /// Where its data begins in the file.
    pub(crate) start: u64,
    pub(crate) cipher: Option<Arc<Cipher>>,
    /// What its key file was taken for.
    pub(crate) key_is: Option<String>,
    /// What the file is to get before it is served.
    header: Option<NewHeader>,
    /// All its clients share its flushes.
    pub(crate) domain: FlushDomain,
    /// The log knows of a flush that failed.
    loss_is_logged: AtomicBool,
    /// A read has found the file's end where it should not be, and the log knows of it.
    is_shorter: AtomicBool,
    shortness_is_logged: AtomicBool,
    pub(crate) disk: Arc<Disk>,
    pub(crate) tenant: Tenant,
    pub(crate) weight: u32,
    pub(crate) stats: Stats,
}

impl Export {
    pub(crate) fn open(spec: &Spec, disks: &mut Disks) -> Result<Self> {
        let path = spec.file.display();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(!spec.read_only).open(&spec.file);
        let mut file = file.with_context(|| format!("opening {path}"))?;
        let kind = file.metadata()?.file_type();
        ensure!(
            kind.is_file() || kind.is_block_device(),
            "{path} is neither a file nor a block device"
        );
        lock(&file, spec.read_only).with_context(|| path.to_string())?;
        ensure!(
            spec.key.is_some() || spec.read_only || !key::is_encrypted(&file)?,
            "{path} is encrypted: give key=KEYFILE, or ro to serve the encrypted bytes"
        );
        let whole = file.seek(SeekFrom::End(0)).context("its size")?;
        let block = if spec.key.is_some() { UNIT as u32 } else { 1 };
        let start = if spec.key.is_some() { HEADER as u64 } else { 0 };
        let size = whole.saturating_sub(start);
        ensure!(size > 0, "{path} is empty: truncate -s SIZE {path}");
        if size % u64::from(block) != 0 {
            bail!("{path} has {size} bytes, not a multiple of the unit of encryption, {block}");
        }
        let opened = spec.key.as_ref().map(|key| {
            let opened = key::open(&file, spec.read_only, key, spec.format);
            opened.with_context(|| path.to_string())
        });
        let (cipher, key_is, header) = match opened.transpose()? {
            Some(Opened {
                cipher,
                key_is,
                header,
            }) => (Some(Arc::new(cipher)), Some(key_is), header),
            None => (None, None, None),
        };
        let disk = disks.of(&file)?;
        let tenant = disk.tags.tenant(&spec.name, spec.weight);
        let tenant = tenant.with_context(|| format!("two exports are called {}", spec.name))?;
        Ok(Self {
            described: Described {
                name: spec.name.clone(),
                size,
                block,
                preferred: 4096,
                max_payload: MAX_PAYLOAD,
                read_only: spec.read_only,
                // A device may write them, and what is encrypted has to be.
                fast_zeros: kind.is_file() && spec.key.is_none(),
            },
            // The node of a block device lies in memory, too.
            in_memory: kind.is_file()
                && rustix::fs::fstatfs(&file).is_ok_and(|fs| fs.f_type as u64 == TMPFS),
            file: Arc::new(file),
            start,
            cipher,
            key_is,
            header,
            domain: FlushDomain::builder().build(),
            loss_is_logged: AtomicBool::new(false),
            is_shorter: AtomicBool::new(false),
            shortness_is_logged: AtomicBool::new(false),
            disk,
            tenant,
            weight: spec.weight,
            stats: Stats::default(),
        })
    }
}

/// How long a server that was killed may take to let go of its files.
const LET_GO: Duration = Duration::from_secs(2);

/// No other export, of this process or another one, may write to the file, or read what is written
/// to it here.
fn lock(file: &File, read_only: bool) -> Result<()> {
    let operation = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let start = Instant::now();
    loop {
        match flock(file, operation) {
            Err(Errno::WOULDBLOCK) if start.elapsed() < LET_GO => {
                std::thread::sleep(LET_GO / 100);
            }
            Err(Errno::WOULDBLOCK) => bail!("already exported, or locked by another program"),
            // Some file systems have no locks.
            _ => return Ok(()),
        }
    }
}

impl Export {
    /// Everything else has been found good: a file that is to be encrypted gets its header.
    pub(crate) fn begin(&self) -> Result<()> {
        match &self.header {
            Some(header) => header.write(&self.file),
            None => Ok(()),
        }
    }

    /// A read has found the file's end within what is exported.
    pub(crate) fn note_shorter(&self) {
        self.is_shorter.store(true, Ordering::Relaxed);
    }

    /// What the log is told when a request has failed, if that is new.
    pub(crate) fn news(&self) -> impl Iterator<Item = String> + use<> {
        self.new_loss().into_iter().chain(self.new_shortness())
    }

    /// That the file has become shorter, once.
    fn new_shortness(&self) -> Option<String> {
        let is_new = self.is_shorter.load(Ordering::Relaxed)
            && !self.shortness_is_logged.swap(true, Ordering::Relaxed);
        is_new.then(|| {
            format!(
                "{}: the file has become shorter than it was at the start: what lay behind its end \
                 cannot be read",
                self.described.name
            )
        })
    }

    /// The first flush that has failed, once.
    fn new_loss(&self) -> Option<String> {
        let error = self.domain.poison()?;
        let known = self.loss_is_logged.swap(true, Ordering::Relaxed);
        (!known).then(|| {
            format!(
                "{}: a flush has failed ({error}): what was written may be lost; flushes and FUA \
                 fail until the server is started again",
                self.described.name
            )
        })
    }

    /// Makes all of it durable, when nobody writes to it any more.
    pub(crate) fn flush_at_end(&self) -> Result<()> {
        let name = &self.described.name;
        if self.described.read_only {
            return Ok(());
        }
        let synced = self.file.sync_all();
        synced.with_context(|| format!("flushing {name}"))?;
        match self.domain.poison() {
            Some(error) => bail!("what was written to {name} may be lost: a flush failed: {error}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_named_files_with_options() {
        let spec: Spec = "disk=/a/b.img,ro,weight=3,key=/k,format".parse().unwrap();
        assert!(spec.format);
        assert_eq!(
            (&spec.name[..], spec.read_only, spec.weight),
            ("disk", true, 3)
        );
        let key = spec.key.unwrap();
        assert_eq!((key.path, key.is_passphrase), ("/k".into(), false));
        let spec: Spec = "disk=x,passphrase=/k".parse().unwrap();
        assert!(spec.key.unwrap().is_passphrase);
        for wrong in [
            "disk",
            "=x",
            "disk=",
            "disk=x,rw",
            "disk=x,weight=0",
            "disk=x,key=",
            "disk=x,format",
        ] {
            assert!(wrong.parse::<Spec>().is_err(), "{wrong}");
        }
        // No client may ask for a longer name, and a list with one is none.
        let spec = |bytes: usize| format!("{}=x", "n".repeat(bytes)).parse::<Spec>();
        assert!(spec(MAX_NAME).is_ok() && spec(MAX_NAME + 1).is_err());
    }
}
