//! Puts records into frames, and frames into segments.

use super::frame::{FRAME_HEADER, FrameHeader, SEGMENT_HEADER, SegmentHeader, fitting};
use crate::device::Device;
use inflight_sync::Arc;
use std::io;

/// Records that are written together, and the fields of their frames. Chosen in one step under the
/// log's lock.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// Where in the log they begin.
    pub(super) first: u64,
    pub(super) durable: u64,
    pub(super) tail: u64,
    /// The data that was written in place before has to be durable first.
    pub(super) flush_before: bool,
}

impl Batch {
    pub(super) fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }
}

/// The segment that is written.
pub(super) struct Writer {
    log: u64,
    buffer_size: usize,
    segment: Arc<dyn Device>,
    /// Where the next frame goes.
    offset: u64,
    len: u64,
    /// Bytes before `offset` that are not written yet: the head of the segment.
    scratch: Vec<u8>,
    frames: u64,
    /// Whether `wants_next` has returned `true` for this segment.
    has_asked: bool,
}

/// Where a writer continues.
pub(super) struct Position {
    pub(super) segment: Arc<dyn Device>,
    pub(super) offset: u64,
}

impl Writer {
    /// Continues after what was recovered.
    pub(super) fn new(log: u64, buffer_size: usize, position: Position) -> io::Result<Self> {
        Ok(Self {
            len: position.segment.len()?,
            log,
            buffer_size,
            segment: position.segment,
            offset: position.offset,
            scratch: Vec::new(),
            frames: 0,
            has_asked: false,
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

    /// Whether it is time to make the next segment: `true` once for each segment, when half of it
    /// is full.
    pub(super) const fn wants_next(&mut self) -> bool {
        let wants = !self.has_asked && self.offset > self.len / 2;
        self.has_asked |= wants;
        wants
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

    /// The least length of a segment with room for the frame that begins at `at` of the batch.
    pub(super) fn least(&self, batch: &Batch, at: usize) -> u64 {
        let len = fitting(&batch.bytes[at..], self.buffer_size);
        (SEGMENT_HEADER + FRAME_HEADER + len) as u64
    }

    /// Writes the batch from `at` on, as far as it fits into the segment, and returns up to where.
    /// `fua` only if all of it is [one frame that fits](Writer::frames_that_fit).
    pub(super) fn write(&mut self, batch: &Batch, mut at: usize, fua: bool) -> io::Result<usize> {
        let start = self.offset - self.scratch.len() as u64;
        while at < batch.bytes.len() {
            let len = fitting(&batch.bytes[at..], self.buffer_size);
            if self.offset + (FRAME_HEADER + len) as u64 > self.len {
                break;
            }
            let header = FrameHeader {
                log: self.log,
                offset: self.offset,
                first: batch.first + at as u64,
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
        if fua {
            self.segment.write_fua_at(&self.scratch, start)?;
        } else if !self.scratch.is_empty() {
            self.segment.write_at(&self.scratch, start)?;
        }
        self.scratch.clear();
        Ok(at)
    }

    /// Continues in another segment. The last one is durable by then, so all segments but the last
    /// are durable. The head of the new one is written with its first frame, and becomes durable
    /// with it.
    pub(super) fn begin_segment(
        &mut self,
        (number, segment): (u64, Arc<dyn Device>),
        base: u64,
        tail: u64,
    ) -> io::Result<()> {
        let header = SegmentHeader {
            log: self.log,
            number,
            base,
            tail,
        };
        self.len = segment.len()?;
        self.has_asked = false;
        self.segment = segment;
        self.offset = SEGMENT_HEADER as u64;
        self.scratch.extend_from_slice(&header.encode());
        Ok(())
    }
}
