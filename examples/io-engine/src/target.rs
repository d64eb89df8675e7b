//! The file the load goes to.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, PosixFadviseAdvice, posix_fadvise};

use crate::block::{self, Format};
use crate::checksum::Checksum;
use crate::fio::ONE_FILE;
use crate::header::{HEADER_BYTES, Header};
use crate::options::Config;

/// How many blocks are looked at to find out with which options a file was written.
const PROBES: u64 = 1024;

/// How long a run that was killed may take to let go of its file.
const LET_GO: Duration = Duration::from_secs(2);

/// An open file, checked to be large enough.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) file: File,
    pub(crate) name: String,
    /// How many blocks the run uses.
    pub(crate) blocks: u64,
    /// Held during the run.
    pub(crate) lock: Option<Flock<File>>,
}

impl Target {
    /// Opens, creates or extends the file as the options say.
    ///
    /// A temporary file has no name from the start, so nothing that happens later can leave it
    /// behind.
    ///
    /// # Errors
    /// One line that names the file and what is wrong with it.
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let ((file, name, size), lock) = match &config.filename {
            None => (open_temporary(config)?, None),
            Some(path) => open_named(config, path)?,
        };
        if config.invalidate {
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
                .with_context(|| format!("{name}: --invalidate"))?;
        }
        Ok(Self {
            file,
            name,
            blocks: size / config.bs as u64,
            lock,
        })
    }

    /// The blocks of one of `jobs` jobs; together they cover the file without overlap.
    pub(crate) fn region(&self, job: usize, jobs: usize) -> Range<u64> {
        let (job, jobs) = (job as u64, jobs as u64);
        let (each, rest) = (self.blocks / jobs, self.blocks % jobs);
        let start = job * each + job.min(rest);
        start..start + each + u64::from(job < rest)
    }
}

/// Refuses a size that has not a block for each job.
fn check_size(config: &Config, name: &str, size: u64) -> Result<()> {
    let blocks = size / config.bs as u64;
    ensure!(
        blocks > 0,
        "{name}: {size} bytes are less than one block of {}",
        config.bs
    );
    ensure!(
        blocks >= config.numjobs as u64,
        "{name}: {blocks} blocks are not enough for {} jobs",
        config.numjobs
    );
    Ok(())
}

fn open_temporary(config: &Config) -> Result<Opened> {
    let dir = std::env::temp_dir();
    let name = format!("temporary file in {}", dir.display());
    let size = config.size.context("a temporary file needs a size")?;
    check_size(config, &name, size)?;
    let file = tempfile::tempfile_in(&dir).with_context(|| name.clone())?;
    file.set_len(size)
        .with_context(|| format!("{name}: making it {size} bytes long"))?;
    let file = if config.direct {
        reopen_direct(&file, true, &name)?
    } else {
        file
    };
    Ok((file, name, size))
}

type Opened = (File, String, u64);

fn open_named(config: &Config, path: &Path) -> Result<(Opened, Option<Flock<File>>)> {
    let name = path.display().to_string();
    let created = match std::fs::metadata(path) {
        Ok(found) => {
            // Asked before opening, because opening a FIFO waits for its other end.
            let kind = found.file_type();
            ensure!(!kind.is_dir(), "{name}: is a directory");
            ensure!(
                kind.is_file() || kind.is_block_device(),
                "{name}: is neither a regular file nor a block device"
            );
            false
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            ensure!(
                !path
                    .file_name()
                    .is_some_and(|name| name.as_encoded_bytes().contains(&b':')),
                "{name}: does not exist; with fio a colon stands between the names of several \
                 files: {ONE_FILE}"
            );
            ensure!(
                config.rw.writes(),
                "{name}: does not exist; a read run needs data: write it first with --rw write"
            );
            ensure!(
                config.size.is_some(),
                "{name}: {error}; give --size to create it"
            );
            true
        }
        Err(error) => bail!("{name}: {error}"),
    };
    let file = OpenOptions::new()
        .read(true)
        .write(config.rw.writes())
        .create_new(created)
        .open(path)
        .with_context(|| name.clone())?;
    let lock = lock(config, &file, &name)?;
    let ready = prepare_named(config, file, &name, created);
    if created && ready.is_err() {
        // Ours, and still without data. Why ignored: the error being returned says more.
        let _ = std::fs::remove_file(path);
    }
    ready.map(|(file, size)| ((file, name, size), lock))
}

/// Two runs that write would each find the other's blocks in place of its own, and so would one
/// that checks what another writes. A run that only reads, and checks nothing, locks nothing.
fn lock(config: &Config, file: &File, name: &str) -> Result<Option<Flock<File>>> {
    let how = match (config.rw.writes(), config.verify) {
        (true, _) => FlockArg::LockExclusiveNonblock,
        (false, Checksum::None) => return Ok(None),
        (false, _) => FlockArg::LockSharedNonblock,
    };
    let mut file = file.try_clone().with_context(|| name.to_owned())?;
    let start = Instant::now();
    loop {
        match Flock::lock(file, how) {
            Ok(lock) => return Ok(Some(lock)),
            Err((unlocked, Errno::EWOULDBLOCK)) if start.elapsed() < LET_GO => file = unlocked,
            Err((_, Errno::EWOULDBLOCK)) => bail!(
                "{name}: another program has locked it, another run perhaps; blocks that another \
                 run writes cannot be told from corrupted ones"
            ),
            // Some file systems have no locks.
            Err(_) => return Ok(None),
        }
        std::thread::sleep(LET_GO / 100);
    }
}

fn prepare_named(config: &Config, file: File, name: &str, created: bool) -> Result<(File, u64)> {
    let writes = config.rw.writes();
    if !created && config.verify != Checksum::None && config.rw.reads() {
        probe_format(config, &file, name)?;
    }
    let direct = config
        .direct
        .then(|| reopen_direct(&file, writes, name))
        .transpose()?;
    // Seeking works for block devices too, whose metadata says zero.
    let len = (&file)
        .seek(SeekFrom::End(0))
        .with_context(|| name.to_owned())?;
    let size = config.size.unwrap_or(len);
    ensure!(size > 0, "{name}: is empty; give --size");
    check_size(config, name, size)?;
    if size > len {
        let regular = file.metadata().with_context(|| name.to_owned())?.is_file();
        ensure!(
            regular && writes,
            "{name}: is {len} bytes long, shorter than --size {size}"
        );
        file.set_len(size)
            .with_context(|| format!("{name}: making it {size} bytes long"))?;
    }
    Ok((direct.unwrap_or(file), size))
}

/// The same file again, past the page cache. Opened through its descriptor, because a temporary
/// file has no name, and because creating with `O_DIRECT` may leave a file behind and still fail.
fn reopen_direct(file: &File, write: bool, name: &str) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .with_context(|| format!("{name}: cannot be opened with --direct"))
}

/// Refuses a file whose blocks have another size or checksum than this run's, before the reads
/// call all of them corrupted.
fn probe_format(config: &Config, file: &File, name: &str) -> Result<()> {
    let format = Format {
        kind: config.verify,
        block_len: config.bs,
    };
    let mut bytes = [0; HEADER_BYTES];
    for block in 0..PROBES {
        if file
            .read_exact_at(&mut bytes, block * config.bs as u64)
            .is_err()
        {
            break; // The end, or an error that the run will meet and report.
        }
        if let Ok(header) = Header::decode(&bytes) {
            return block::check_format(format, &header)
                .map_err(|other| anyhow::anyhow!("{name}: {other}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_cover_the_file_without_overlap() {
        for (blocks, jobs) in [(1, 1), (7, 3), (16, 4), (5, 5), (1000, 7)] {
            let file = tempfile::tempfile().unwrap();
            let target = Target {
                file,
                name: String::new(),
                blocks,
                lock: None,
            };
            let mut next = 0;
            for job in 0..jobs {
                let region = target.region(job, jobs);
                assert_eq!(region.start, next);
                assert!(!region.is_empty());
                next = region.end;
            }
            assert_eq!(next, blocks);
        }
    }
}
