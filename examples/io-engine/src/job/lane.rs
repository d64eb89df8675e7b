//! A lane: one block at a time, from the choice of its place to the check of its data.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use inflight::flush::{Flags, FlushError, WriteError};
use inflight::tags::Tag;

use super::plan::{Next, Task};
use super::{Job, Shared};
use crate::block::{self, Verdict, Version};
use crate::buffer::AlignedBuf;
use crate::engine::Engine;
use crate::pattern;
use crate::slot::{Op, Owner, Slot};

/// A block as the requests see it: pieces of at most `--max-split`.
type Block = Vec<AlignedBuf>;

/// What a lane has in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// The lane's pieces; those under way are empty here.
    pub(super) pieces: Block,
    pub(super) under_way: usize,
    /// The first error, and where in the file.
    pub(super) failure: Option<(u64, io::Error)>,
    /// When the last piece came back.
    pub(super) landed: Option<Instant>,
    /// Whether the lane waits for its pieces.
    pub(super) waits: bool,
}

impl Flight {
    /// A lane with a block of memory; without, if the run is stopped already.
    pub(super) fn prepare(shared: &Shared, lane: usize) -> Result<Self> {
        if shared.control.stopped() {
            return Ok(Self::default());
        }
        let config = &shared.config;
        let mut pieces = AlignedBuf::pieces(config.bs, config.max_split)
            .with_context(|| format!("no memory for {} blocks of {}", config.iodepth, config.bs))?;
        if config.rw.writes() && shared.checksums.is_none() {
            for (piece, buf) in pieces.iter_mut().enumerate() {
                pattern::fill_noise(shared.run ^ (lane << 16 | piece) as u64, buf);
            }
        }
        Ok(Self {
            pieces,
            ..Self::default()
        })
    }
}

/// How far the start of a block's pieces has come.
struct Begun {
    op: Op,
    /// Of the next piece.
    offset: u64,
    piece: usize,
    /// When the first was started.
    started: Option<Instant>,
    /// Whether a tag was waited for.
    waited: bool,
}

/// The future's output; notes whether it had to wait.
async fn noting<F: Future>(future: F, waited: &mut bool) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        *waited |= polled.is_pending();
        polled
    })
    .await
}

impl<E: Engine> Job<'_, E> {
    /// Works until there is nothing more to do.
    pub(super) async fn lane(&self, lane: usize) -> Result<()> {
        let mut block = mem::take(&mut self.flights[lane].borrow_mut().pieces);
        while let Some(task) = self.next_task(lane).await {
            let done = if task.write {
                self.write(lane, task.block, block).await
            } else {
                self.read(lane, task.block, block).await
            };
            self.release(task);
            match done? {
                Some(back) => block = back,
                None => break,
            }
        }
        Ok(())
    }

    async fn next_task(&self, lane: usize) -> Option<Task> {
        poll_fn(|_| {
            if self.shared.control.stopped() {
                return Poll::Ready(None);
            }
            match self.plan.borrow_mut().next() {
                Next::Do(task) => Poll::Ready(Some(task)),
                Next::Done => Poll::Ready(None),
                Next::WaitForRelease => {
                    self.released.borrow_mut().push(lane);
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn release(&self, task: Task) {
        self.plan.borrow_mut().release(task);
        let mut released = self.released.borrow_mut();
        released.drain(..).for_each(|lane| self.woken.push(lane));
    }

    /// Seals and writes a block and gives its memory back; none if the run was stopped before the
    /// first piece was on its way. Nothing of the block is in the file then.
    async fn write(&self, lane: usize, number: u64, mut block: Block) -> Result<Option<Block>> {
        let offset = self.offset(number);
        let index = self.index(number);
        let generation = self
            .generations
            .borrow()
            .get(index)
            .map(|&written| written + 1);
        if let (Some(generation), Some(checksums)) = (generation, &self.shared.checksums) {
            let format = self.shared.format();
            let version = Version {
                run: self.shared.run,
                generation: generation.into(),
            };
            let shared = Arc::clone(self.shared);
            let sealed = checksums.spawn(move || {
                let stopped = || shared.control.stopped();
                block::seal(format, offset, version, &mut block, stopped).then_some(block)
            });
            match sealed.await.context("sealing a block")? {
                Some(sealed) => block = sealed,
                None => return Ok(None),
            }
        }
        let Some((block, latency)) = self.written_block(lane, offset, block).await? else {
            return Ok(None);
        };
        if let Some(generation) = generation {
            self.generations.borrow_mut()[index] = generation;
        }
        self.stats.borrow_mut().write_lat.record(latency);
        self.live.count_write();
        self.sync_if_due(lane).await?;
        Ok(Some(block))
    }

    async fn sync_if_due(&self, lane: usize) -> Result<()> {
        let every = self.shared.config.fsync;
        let writes = self.writes_since_sync.get() + 1;
        if every == 0 || writes < every {
            self.writes_since_sync.set(writes);
            return Ok(());
        }
        self.writes_since_sync.set(0);
        let asked = Instant::now();
        let flushed = self.shared.domain.flush_with(|| self.sync(lane)).await;
        self.flushed(flushed)?;
        self.stats.borrow_mut().sync_lat.record(asked.elapsed());
        Ok(())
    }

    /// The write of a block, durable with `--fua`: then the latency runs to the end of its flush.
    async fn written_block(
        &self,
        lane: usize,
        offset: u64,
        block: Block,
    ) -> Result<Option<(Block, Duration)>> {
        if !self.shared.config.fua {
            return self.transfer(lane, Op::Write, offset, block).await;
        }
        let domain = &self.shared.domain;
        let begun = domain.begin_with(Flags::write().fua(), || self.sync(lane));
        // Nothing is flushed before the data, so this does not wait.
        let sequence = begun.await.context("beginning a durable write")?;
        let written = self.transfer(lane, Op::Write, offset, block).await?;
        let Some((block, latency)) = written else {
            return Ok(None);
        };
        let landed = Instant::now();
        let finished = sequence.finish_with(Ok(()), || self.sync(lane)).await;
        self.flushed(finished.map_err(|error| match error {
            WriteError::Flush(error) => FlushError::Device(error),
            _ => FlushError::TimedOut,
        }))?;
        Ok(Some((block, latency + landed.elapsed())))
    }

    /// The flush of the file, by this job's engine, for all who share it.
    async fn sync(&self, lane: usize) -> io::Result<()> {
        let nothing = vec![AlignedBuf::default()];
        let flushed = self.transfer(lane, Op::Sync, 0, nothing).await;
        let flushed = flushed.map_err(io::Error::other)?;
        flushed.map(drop).ok_or(io::ErrorKind::Interrupted.into())
    }

    fn flushed(&self, flushed: Result<(), FlushError>) -> Result<()> {
        flushed.map_err(|error| anyhow!("{}: fdatasync: {error}", self.shared.name))
    }

    /// Reads and checks a block and gives its memory back; none if the run was stopped before the
    /// first piece was on its way.
    async fn read(&self, lane: usize, number: u64, block: Block) -> Result<Option<Block>> {
        let offset = self.offset(number);
        let Some((mut block, latency)) = self.transfer(lane, Op::Read, offset, block).await? else {
            return Ok(None);
        };
        self.stats.borrow_mut().read_lat.record(latency);
        self.live.count_read();
        if let Some(checksums) = &self.shared.checksums {
            let format = self.shared.format();
            let written = self.written(number);
            let checked = checksums.spawn(move || {
                let verdict = block::check(format, offset, written, &block);
                (block, verdict)
            });
            let verdict;
            (block, verdict) = checked.await.context("checking a block")?;
            self.take_verdict(verdict)?;
        }
        Ok(Some(block))
    }

    /// What this run last wrote to a block, if anything.
    fn written(&self, number: u64) -> Option<Version> {
        match self.generations.borrow()[self.index(number)] {
            0 => None,
            generation => Some(Version {
                run: self.shared.run,
                generation: generation.into(),
            }),
        }
    }

    fn take_verdict(&self, verdict: Verdict) -> Result<()> {
        let mut stats = self.stats.borrow_mut();
        match verdict {
            Verdict::Intact => stats.intact += 1,
            Verdict::NeverWritten => stats.never_written += 1,
            Verdict::Corrupt(corruption) => {
                stats.verify_errors += 1;
                self.shared.control.corrupted(corruption);
            }
            Verdict::OtherFormat(what) => return Err(anyhow!("{}: {what}", self.shared.name)),
        }
        Ok(())
    }

    /// Sends a block's pieces through the engine, one tag each, and waits for all of them. The
    /// latency runs from the start of the first piece to the end of the last. `None` if the run was
    /// stopped before the first piece of a read, or of a write that is not durable; a block that
    /// was begun is finished.
    async fn transfer(
        &self,
        lane: usize,
        op: Op,
        offset: u64,
        block: Block,
    ) -> Result<Option<(Block, Duration)>> {
        self.flights[lane].borrow_mut().pieces = block;
        let started = self.start_pieces(lane, op, offset).await;
        // Whatever happened, the kernel may still have pieces.
        self.landing(lane).await;
        let flight = mem::take(&mut *self.flights[lane].borrow_mut());
        let Some(started) = started? else {
            return Ok(None);
        };
        match flight.failure {
            Some((offset, error)) => {
                let (op, name) = (op.name(), &self.shared.name);
                Err(anyhow!("{name}: {op} at offset {offset}: {error}"))
            }
            None => {
                let landed = flight.landed.unwrap_or(started);
                let latency = landed.saturating_duration_since(started);
                Ok(Some((flight.pieces, latency)))
            }
        }
    }

    /// Starts pieces as tags come; tells when the first was started. None waits for the others, so
    /// any number of tags is enough for any number of pieces. The tags of a block are asked for as
    /// one split: what they wait for, and before whom, is the admission policy's.
    async fn start_pieces(&self, lane: usize, op: Op, offset: u64) -> Result<Option<Instant>> {
        let pieces = self.flights[lane].borrow().pieces.len();
        let asked = Instant::now();
        let mut begun = Begun {
            op,
            offset,
            piece: 0,
            started: None,
            waited: false,
        };
        if pieces == 1 {
            // A split of one piece would cost more.
            let tag = self.queue.alloc_with(self.tags(op));
            let tag = noting(tag, &mut begun.waited).await;
            self.start_piece(lane, &mut begun, tag.context("waiting for a tag")?, asked);
        } else {
            let mut tags = self.queue.split_with(pieces, self.tags(op));
            loop {
                let tag = noting(tags.next(), &mut begun.waited).await;
                let Some(tag) = tag.context("waiting for a tag")? else {
                    break;
                };
                if !self.start_piece(lane, &mut begun, tag, asked) {
                    break;
                }
            }
        }
        // Who did not wait spares himself the clock.
        let tag_wait = if begun.waited {
            asked.elapsed()
        } else {
            Duration::ZERO
        };
        self.stats.borrow_mut().tag_wait.record(tag_wait);
        Ok(begun.started)
    }

    /// Starts the next piece of a block, unless the run was stopped before the first, or a piece
    /// has failed.
    fn start_piece(
        &self,
        lane: usize,
        begun: &mut Begun,
        mut tag: Tag<Slot>,
        asked: Instant,
    ) -> bool {
        // A block that was written waits for its flush, and a sequence that was begun for its data.
        let may_stop = match begun.op {
            Op::Read => true,
            Op::Write => !self.shared.config.fua,
            Op::Sync => false,
        };
        if may_stop && begun.started.is_none() && self.shared.control.stopped() {
            return false;
        }
        let mut flight = self.flights[lane].borrow_mut();
        if flight.failure.is_some() {
            return false;
        }
        let piece = begun.piece;
        flight.under_way += 1;
        let buf = mem::take(&mut flight.pieces[piece]);
        drop(flight);
        let len = buf.len() as u64;
        let job = self.index_of_job;
        tag.set(begun.op, Owner { job, lane, piece }, begun.offset, buf);
        begun.offset += len;
        begun.piece += 1;
        let waited = begun.waited;
        let now = || if waited { Instant::now() } else { asked };
        begun.started.get_or_insert_with(now);
        self.engine.borrow_mut().start(tag);
        self.stats.borrow_mut().requests += 1;
        true
    }

    /// Waits until no piece is under way.
    async fn landing(&self, lane: usize) {
        poll_fn(|_| {
            let mut flight = self.flights[lane].borrow_mut();
            if flight.under_way == 0 {
                return Poll::Ready(());
            }
            flight.waits = true;
            Poll::Pending
        })
        .await;
    }

    fn offset(&self, number: u64) -> u64 {
        number * self.shared.config.bs as u64
    }

    fn index(&self, number: u64) -> usize {
        (number - self.first_block) as usize
    }
}
