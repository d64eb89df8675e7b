//! What is done for a request.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use nbd_export::negotiate::Agreed;
use nbd_export::proto::{Command, Errno, Limits, Request, STATE_HOLE_ZERO, flag};
use rustix::fs::{SeekFrom, seek};

use crate::adapter::{Held, Tenant, Workers};
use crate::crypto::Cipher;
use crate::durable::Durable;
use crate::export::{Export, Stats};
use crate::reactor::{Buffer, FileOp, PAGE, Reactor, Running};

/// A request that is refused for longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pieces of files in memory that are as long as this are passed on and not copied. For shorter
/// ones a copy is cheaper than two calls.
const PASSED_ON: usize = 32 << 10;
/// The most extents in one answer.
const MAX_EXTENTS: usize = 1024;

/// A client and the export it has chosen.
pub(crate) struct Session {
    pub(crate) reactor: Rc<Reactor>,
    pub(crate) export: Arc<Export>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) tenant: Tenant,
    pub(crate) agreed: Agreed,
    pub(crate) limits: Limits,
    pub(crate) max_split: usize,
}

/// What a reply carries.
#[derive(Debug)]
pub(crate) enum Body {
    Nothing,
    /// The bytes of a read, piece by piece.
    Data(Vec<Buffer>),
    /// Extents: length and flags.
    Status(Vec<(u32, u32)>),
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) request: Request,
    pub(crate) result: Result<Body, Errno>,
}

impl Session {
    /// Lengths of the pieces of `len` bytes.
    pub(crate) fn piece_lengths(&self, len: usize) -> impl Iterator<Item = usize> + use<> {
        let most = self.max_split;
        (0..len.div_ceil(most)).map(move |n| most.min(len - n * most))
    }

    /// The memory that the data of a request needs.
    pub(crate) fn memory_for(&self, request: &Request) -> usize {
        let len = request.length as usize;
        match request.command {
            Some(Command::Read | Command::Write) => len,
            // Piece by piece, if the file cannot be told to have zeros.
            Some(Command::WriteZeroes) => len.min(self.max_split),
            Some(Command::BlockStatus) => MAX_EXTENTS * size_of::<(u32, u32)>(),
            _ => 0,
        }
    }

    /// Carries a request out. `data` are the pieces of a write.
    pub(crate) async fn handle(self: Rc<Self>, request: Request, data: Vec<Buffer>) -> Reply {
        let stats = &self.export.stats;
        let result = match self.limits_of(&request) {
            Err(errno) => Err(errno),
            Ok(command) => self.perform(command, &request, data).await,
        };
        let bytes = u64::from(request.length);
        match request.command {
            _ if result.is_err() => Stats::add(&stats.errors, 1),
            Some(Command::Read) => {
                Stats::add(&stats.reads, 1);
                Stats::add(&stats.read_bytes, bytes);
            }
            Some(Command::Write) => {
                Stats::add(&stats.writes, 1);
                Stats::add(&stats.written_bytes, bytes);
            }
            _ => Stats::add(&stats.other, 1),
        }
        Reply { request, result }
    }

    fn limits_of(&self, request: &Request) -> Result<Command, Errno> {
        request.check(&self.limits)?;
        if request.flags & flag::DF != 0 && !self.agreed.structured {
            return Err(Errno::Inval);
        }
        request.command.ok_or(Errno::Inval)
    }

    async fn perform(
        &self,
        command: Command,
        request: &Request,
        data: Vec<Buffer>,
    ) -> Result<Body, Errno> {
        let durable = Durable::new(self, request.flags & flag::FUA != 0);
        let (offset, len) = (request.offset, u64::from(request.length));
        match command {
            Command::Read => return Ok(Body::Data(self.read(offset, len).await?)),
            Command::BlockStatus => {
                let one = request.flags & flag::REQ_ONE != 0;
                return Ok(Body::Status(self.block_status(offset, len, one).await?));
            }
            Command::Write => {
                let done = self.write(offset, data, &durable).await;
                durable.finish(done).await?;
            }
            Command::WriteZeroes => {
                let flags = request.flags;
                let done = self.write_zeroes(flags, offset, len, &durable).await;
                durable.finish(done).await?;
            }
            Command::Trim => {
                let done = self.trim(offset, len, &durable).await;
                durable.finish(done).await?;
            }
            Command::Flush => self.flush().await?,
            Command::Cache => {
                // Advice: nothing is wrong if it is not taken.
                let _ = self
                    .plain(FileOp::ReadAhead { offset, len }, &durable)
                    .await?;
            }
            Command::Disconnect => {}
        }
        Ok(Body::Nothing)
    }

    pub(crate) fn file(&self, op: FileOp, buffer: Buffer, tag: Option<Held>) -> Running {
        let export = &self.export;
        let op = op.behind(export.start);
        self.reactor.file(export, op, buffer, tag)
    }

    async fn read(&self, offset: u64, len: u64) -> Result<Vec<Buffer>, Errno> {
        let lengths = self.piece_lengths(len as usize);
        let as_it_is = self.export.in_memory && self.export.cipher.is_none();
        let pipe = |len| {
            let pays = as_it_is && len >= PASSED_ON;
            pays.then(|| self.reactor.pipe(len)).flatten()
        };
        let buffer = |len| pipe(len).unwrap_or_else(|| self.reactor.buffer(len));
        let buffers = lengths.map(buffer).collect();
        let buffers = self.transfer(offset, buffers, None).await?;
        self.encipher(offset, buffers, Cipher::decrypt).await
    }

    async fn write(
        &self,
        offset: u64,
        mut data: Vec<Buffer>,
        durable: &Durable<'_>,
    ) -> Result<(), Errno> {
        match (&self.export.cipher, &mut data[..]) {
            // A hop to a worker costs more than to encrypt so little.
            (Some(cipher), [piece]) if piece.len() <= PAGE && self.reactor.has_one_client() => {
                cipher.encrypt(piece, offset);
            }
            _ => data = self.encipher(offset, data, Cipher::encrypt).await?,
        }
        let buffers = self.transfer(offset, data, Some(durable)).await?;
        buffers.into_iter().for_each(|b| self.reactor.recycle(b));
        Ok(())
    }

    /// Has workers encrypt or decrypt pieces that lie one behind the other, if that is to be done.
    async fn encipher(
        &self,
        mut offset: u64,
        mut pieces: Vec<Buffer>,
        apply: fn(&Cipher, &mut [u8], u64),
    ) -> Result<Vec<Buffer>, Errno> {
        let Some(cipher) = &self.export.cipher else {
            return Ok(pieces);
        };
        let mut begun = Vec::with_capacity(pieces.len());
        for mut bytes in pieces.drain(..) {
            let (cipher, at) = (cipher.clone(), offset);
            offset += bytes.len() as u64;
            begun.push(self.workers.compute(move || {
                apply(&cipher, &mut bytes, at);
                bytes
            }));
        }
        for piece in begun {
            let piece = self.reactor.computed(piece).await;
            pieces.push(piece.ok_or(Errno::Shutdown)?);
        }
        Ok(pieces)
    }

    /// Reads or writes pieces that lie one behind the other, each with a tag. `written` says how
    /// durably, and that they are written.
    async fn transfer(
        &self,
        offset: u64,
        mut buffers: Vec<Buffer>,
        written: Option<&Durable<'_>>,
    ) -> Result<Vec<Buffer>, Errno> {
        let write = written.is_some();
        let mut tags = self.tenant.pieces(buffers.len());
        if let [buffer] = &mut buffers[..] {
            let waiting = self.export.stats.wait();
            let tag = tags.next().await.ok_or(Errno::Shutdown)?;
            drop(waiting);
            if let Some(durable) = written {
                durable.begin().await?;
            }
            let bytes = std::mem::take(buffer);
            let (done, bytes) = self.piece(tag, offset, bytes, write).await;
            *buffer = bytes;
            return done.map(|()| buffers).map_err(|error| Errno::from(&error));
        }
        let mut running = FuturesUnordered::new();
        let mut failed = None;
        let mut at = offset;
        for number in 0..buffers.len() {
            let buffer = std::mem::take(&mut buffers[number]);
            let tag = {
                let _waiting = self.export.stats.wait();
                // A piece that ends frees its tag, which may be the one that is waited for.
                let mut next = pin!(tags.next());
                loop {
                    if running.is_empty() {
                        break next.await;
                    }
                    match select(&mut next, running.next()).await {
                        Either::Left((tag, _)) => break tag,
                        Either::Right((Some(ended), _)) => {
                            collect(ended, &mut buffers, &mut failed);
                        }
                        Either::Right((None, _)) => {}
                    }
                }
            };
            let tag = tag.ok_or(Errno::Shutdown)?;
            if let Some(durable) = written {
                durable.begin().await?;
            }
            let (start, len) = (at, buffer.len() as u64);
            let piece = async move {
                let (done, bytes) = self.piece(tag, start, buffer, write).await;
                (number, done, bytes)
            };
            running.push(Box::pin(piece));
            at += len;
        }
        while let Some(ended) = running.next().await {
            collect(ended, &mut buffers, &mut failed);
        }
        match failed {
            Some(error) => Err(Errno::from(&error)),
            None => Ok(buffers),
        }
    }

    /// Carries out an operation. One that the file refuses for now is sent again.
    async fn attempt(
        &self,
        tag: &mut Option<Held>,
        op: FileOp,
        mut buffer: Buffer,
    ) -> (io::Result<usize>, Buffer) {
        let began = Instant::now();
        loop {
            let (done, bytes, held) = self.file(op, buffer, tag.take()).await;
            let for_now = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
            match (&done, held) {
                (Err(error), Some(held)) if for_now(error) && began.elapsed() < PATIENCE => {
                    Stats::add(&self.export.stats.requeued, 1);
                    *tag = self.tenant.again(held).await;
                    buffer = bytes;
                }
                (_, held) => {
                    *tag = held;
                    return (done, bytes);
                }
            }
        }
    }

    /// Reads or writes one piece, all of it, and gives its tag back.
    async fn piece(
        &self,
        tag: Held,
        offset: u64,
        buffer: Buffer,
        write: bool,
    ) -> (io::Result<()>, Buffer) {
        let op = |offset| match write {
            true => FileOp::Write { offset },
            false => FileOp::Read { offset },
        };
        let mut tag = Some(tag);
        let (done, mut buffer) = self.attempt(&mut tag, op(offset), buffer).await;
        let mut at = match done {
            Ok(done) if done == buffer.len() => return (Ok(()), buffer),
            // All that the file has is there.
            Ok(_) if buffer.is_pipe() => {
                self.export.note_shorter();
                return (Err(io::ErrorKind::UnexpectedEof.into()), buffer);
            }
            Ok(done) => done,
            Err(error) => return (Err(error), buffer),
        };
        // The rest of a short transfer goes through a buffer of its own.
        while at < buffer.len() {
            let rest = buffer[at..].to_vec().into();
            let more = self.attempt(&mut tag, op(offset + at as u64), rest);
            match more.await {
                (Ok(0), _) => {
                    if !write {
                        self.export.note_shorter();
                    }
                    return (Err(io::ErrorKind::UnexpectedEof.into()), buffer);
                }
                (Ok(done), rest) => {
                    if !write {
                        buffer[at..at + done].copy_from_slice(&rest[..done]);
                    }
                    at += done;
                }
                (Err(error), _) => return (Err(error), buffer),
            }
        }
        (Ok(()), buffer)
    }

    /// An operation without data, with one tag: what the file said.
    async fn plain(&self, op: FileOp, durable: &Durable<'_>) -> Result<io::Result<()>, Errno> {
        let tag = self.tenant.pieces(1).next().await;
        let mut tag = Some(tag.ok_or(Errno::Shutdown)?);
        durable.begin().await?;
        let (done, _) = self.attempt(&mut tag, op, Buffer::default()).await;
        Ok(done.map(drop))
    }

    async fn trim(&self, offset: u64, len: u64, durable: &Durable<'_>) -> Result<(), Errno> {
        match self
            .plain(FileOp::PunchHole { offset, len }, durable)
            .await?
        {
            // Nobody needs the bytes: that they stay is no error.
            Err(error) if is_unsupported(&error) => Ok(()),
            done => done.map_err(|error| Errno::from(&error)),
        }
    }

    async fn write_zeroes(
        &self,
        flags: u16,
        offset: u64,
        len: u64,
        durable: &Durable<'_>,
    ) -> Result<(), Errno> {
        let fast = flags & flag::FAST_ZERO != 0;
        // What is encrypted reads as zeros only if zeros were encrypted.
        if self.export.cipher.is_none() {
            let op = if flags & flag::NO_HOLE == 0 {
                FileOp::PunchHole { offset, len }
            } else {
                FileOp::ZeroRange { offset, len }
            };
            match self.plain(op, durable).await? {
                Err(error) if is_unsupported(&error) => {}
                done => return done.map_err(|error| Errno::from(&error)),
            }
        }
        if fast {
            return Err(Errno::NotSup);
        }
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(self.max_split as u64);
            let mut zeros = self.reactor.buffer(part as usize);
            zeros.fill(0);
            self.write(at, vec![zeros], durable).await?;
            at += part;
        }
        Ok(())
    }

    async fn block_status(
        &self,
        offset: u64,
        len: u64,
        one: bool,
    ) -> Result<Vec<(u32, u32)>, Errno> {
        if self.export.cipher.is_some() {
            // A hole does not read as zeros.
            return Ok(vec![(len as u32, 0)]);
        }
        let file = self.export.file.clone();
        let most = if one { 1 } else { MAX_EXTENTS };
        let found = self
            .export
            .disk
            .files
            .block(move || extents(&file, offset, len, most));
        found.await.ok_or(Errno::Shutdown)
    }
}

type Ended = (usize, io::Result<()>, Buffer);

fn collect((number, done, bytes): Ended, buffers: &mut [Buffer], failed: &mut Option<io::Error>) {
    buffers[number] = bytes;
    if let Err(error) = done {
        failed.get_or_insert(error);
    }
}

/// Data and holes of a part of a file. One that cannot be asked is all data.
fn extents(file: &std::fs::File, offset: u64, len: u64, most: usize) -> Vec<(u32, u32)> {
    let end = offset + len;
    let mut extents = Vec::new();
    let mut at = offset;
    while at < end && extents.len() < most {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            // A hole up to the file's end. A part that the file has lost is called data: reading it
            // is an error.
            Err(rustix::io::Errno::NXIO) => file.metadata().map_or(at, |file| file.len()).min(end),
            Err(_) => at,
        };
        let (upto, state) = if data > at {
            (data, STATE_HOLE_ZERO)
        } else {
            let hole = seek(file, SeekFrom::Hole(at)).unwrap_or(end);
            (hole.clamp(at + 1, end), 0)
        };
        extents.push(((upto - at) as u32, state));
        at = upto;
    }
    extents
}

fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS | Errno::INVAL)
    )
}
