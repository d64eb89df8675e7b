//! Puts records into frames, and frames into segments.

use super::frame::{FRAME_HEADER, FrameHeader, SEGMENT_HEADER, SegmentHeader, fitting};
use super::storage::Storage;
use crate::device::Device;
use inflight_sync::Arc;
use std::collections::VecDeque;
use std::io;

/// Records that are written together, and what is stamped on their frames. Decided in one step
/// under the log's lock.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// Where in the log they begin.
    pub(super) first: u64,
    pub(super) durable: u64,
    pub(super) tail: u64,
    /// What was written in place before is to be durable first.
    pub(super) flush_before: bool,
}

impl Batch {
    pub(super) fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }
}

/// The segment that is written, and those before it.
pub(super) struct Writer {
    storage: Arc<dyn Storage>,
    log: u64,
    segment_size: u64,
    buffer_size: usize,
    segment: Arc<dyn Device>,
    /// Where the next frame goes.
    offset: u64,
    len: u64,
    /// The segments there are: number, and where in the log each begins.
    segments: VecDeque<(u64, u64)>,
    scratch: Vec<u8>,
    frames: u64,
}

/// Where a writer goes on.
pub(super) struct Position {
    pub(super) segment: Arc<dyn Device>,
    pub(super) offset: u64,
}

impl Writer {
    /// Goes on after what was recovered, or in a new segment.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        (segment_size, buffer_size): (u64, usize),
        (log, tail, end): (u64, u64, u64),
        mut segments: VecDeque<(u64, u64)>,
        position: Option<Position>,
    ) -> io::Result<Self> {
        let position = match position {
            Some(position) => position,
            None => {
                let number = segments.back().map_or(0, |&(number, _)| number + 1);
                let header = SegmentHeader {
                    log,
                    number,
                    base: end,
                    tail,
                };
                let segment = make_segment(&*storage, segment_size, &header)?;
                segments.push_back((number, end));
                Position {
                    segment,
                    offset: SEGMENT_HEADER as u64,
                }
            }
        };
        Ok(Self {
            len: position.segment.len()?,
            storage,
            log,
            segment_size,
            buffer_size,
            segment: position.segment,
            offset: position.offset,
            segments,
            scratch: Vec::new(),
            frames: 0,
        })
    }

    /// The segment that holds what was written last; the others are durable.
    pub(super) fn segment(&self) -> Arc<dyn Device> {
        self.segment.clone()
    }

    /// How many frames were written.
    pub(super) const fn frames(&self) -> u64 {
        self.frames
    }

    /// How many frames the batch takes, if the segment that is being written has room for them.
    pub(super) fn frames_that_fit(&self, batch: &Batch) -> Option<usize> {
        let (mut at, mut frames) = (0, 0);
        while at < batch.bytes.len() {
            at += fitting(&batch.bytes[at..], self.buffer_size);
            frames += 1;
        }
        let end = self.offset + (at + frames * FRAME_HEADER) as u64;
        (end <= self.len).then_some(frames)
    }

    fn fits(&self, len: usize) -> bool {
        self.offset + (FRAME_HEADER + len) as u64 <= self.len
    }

    /// Writes the batch; `fua` only if it is [one frame that fits](Writer::frames_that_fit).
    pub(super) fn write(&mut self, batch: &Batch, fua: bool) -> io::Result<()> {
        let (mut at, mut start) = (0, self.offset);
        self.scratch.clear();
        while at < batch.bytes.len() {
            let len = fitting(&batch.bytes[at..], self.buffer_size);
            let first = batch.first + at as u64;
            if !self.fits(len) {
                self.flush_scratch(start, false)?;
                self.rotate(first, batch.tail, len)?;
                start = self.offset;
            }
            let header = FrameHeader {
                log: self.log,
                offset: self.offset,
                first,
                durable: batch.durable,
                tail: batch.tail,
                len: len as u32,
            };
            self.scratch.extend_from_slice(&header.encode());
            self.scratch.extend_from_slice(&batch.bytes[at..at + len]);
            self.offset += (FRAME_HEADER + len) as u64;
            self.frames += 1;
            at += len;
        }
        self.flush_scratch(start, fua)
    }

    fn flush_scratch(&mut self, start: u64, fua: bool) -> io::Result<()> {
        if fua {
            self.segment.write_fua_at(&self.scratch, start)?;
        } else if !self.scratch.is_empty() {
            self.segment.write_at(&self.scratch, start)?;
        }
        self.scratch.clear();
        Ok(())
    }

    /// Goes on in a new segment with room for `len` bytes. The old one is flushed first, so that
    /// all segments but the last are durable, and a segment that is there says that those before it
    /// are whole.
    fn rotate(&mut self, base: u64, tail: u64, len: usize) -> io::Result<()> {
        self.segment.flush()?;
        let number = self.segments.back().map_or(0, |&(number, _)| number + 1);
        let header = SegmentHeader {
            log: self.log,
            number,
            base,
            tail,
        };
        let least = (SEGMENT_HEADER + FRAME_HEADER + len) as u64;
        self.segment = make_segment(&*self.storage, self.segment_size.max(least), &header)?;
        self.segments.push_back((number, base));
        self.offset = SEGMENT_HEADER as u64;
        self.len = self.segment.len()?;
        Ok(())
    }

    /// Removes the segments that end at or before `tail`, which is durable.
    pub(super) fn remove_before(&mut self, tail: u64) -> io::Result<()> {
        while self.segments.len() > 1 && self.segments[1].1 <= tail {
            self.storage.remove(self.segments[0].0)?;
            self.segments.pop_front();
        }
        Ok(())
    }

    /// How many segments there are.
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }
}

fn make_segment(
    storage: &dyn Storage,
    len: u64,
    header: &SegmentHeader,
) -> io::Result<Arc<dyn Device>> {
    let segment = storage.create(header.number, len)?;
    segment.write_at(&header.encode(), 0)?;
    segment.flush()?;
    Ok(segment)
}
