//! Reads a log after a stop or a crash: up to the last whole record.
//!
//! Records that were being written when the power failed may be there in parts, in any order. A
//! record that cannot be read is *torn* if nothing says that it was ever durable. It is *corrupt*
//! if something behind it does: a frame that was written when the log was durable beyond the
//! record, or a later segment, which is made after those before it were flushed. Damage to what was
//! written last, with nothing behind it, looks like a torn write, and counts as one.
//!
//! What can be read may be only in the system's cache, where a failed flush has marked it as
//! written: then no later flush writes it. So everything that is not known to be durable is written
//! again, and flushed. It is all in the last segment.

use super::frame::{
    FRAME_HEADER, FrameHeader, Head, Kind, MOST_BYTES, RECORD_HEADER, SEGMENT_HEADER,
    SegmentHeader, decode_record,
};
use super::storage::Storage;
use super::writer::Position;
use super::{Lsn, OpenError};
use crate::device::Device;
use inflight_sync::Arc;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRecord {
    /// Its end in the log.
    pub lsn: Lsn,
    /// The bytes that were appended.
    pub payload: Vec<u8>,
}

/// The result of opening a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The records after the tail, in order; those of a checkpoint count from its commit on, and
    /// are listed with it. Empty if they were passed to a function instead.
    pub records: Vec<RecoveredRecord>,
    /// The end of the last whole record, at which the log continues.
    pub end: Lsn,
    /// Records up to it are no longer needed, that of this position included: the last one that was
    /// [set](super::Log::set_tail) and is durable.
    pub tail: Lsn,
    /// A record, or the head of a segment, was being written when the log was stopped. It was never
    /// durable, and is gone.
    pub torn: bool,
    /// Checkpoints without their end. Their records are left out.
    pub unfinished_checkpoints: usize,
}

/// All that a log needs to continue.
pub(super) struct Found {
    pub(super) recovery: Recovery,
    pub(super) log: Option<u64>,
    pub(super) segments: VecDeque<(u64, u64)>,
    /// Where the log continues in the last segment, if it does.
    pub(super) position: Option<Position>,
    /// A segment of zeros behind the last one.
    pub(super) next: Option<Arc<dyn Device>>,
    pub(super) last_checkpoint: u32,
}

struct Segment {
    device: Arc<dyn Device>,
    header: SegmentHeader,
}

/// How many bytes of a segment that was not begun are read at once.
const PIECE: usize = 64 << 10;

/// Reads everything. `visit` gets each record that counts; `flush` makes durable what is written
/// again.
pub(super) fn read(
    storage: &dyn Storage,
    segment_size: u64,
    visit: &mut dyn FnMut(RecoveredRecord),
    flush: &dyn Fn(&dyn Device) -> io::Result<()>,
) -> Result<Found, OpenError> {
    let mut scan = Scan {
        visit,
        recovery: Recovery::default(),
        checkpoints: BTreeMap::new(),
        last_checkpoint: 0,
        lsn: 0,
        durable: 0,
    };
    let mut segments = VecDeque::new();
    let mut not_begun = Vec::new();
    let mut log = None;
    let mut previous: Option<u64> = None;
    let mut position: Option<Position> = None;
    // One segment is in memory at a time.
    let mut last: Option<(Arc<dyn Device>, Vec<u8>, Stop)> = None;
    for number in storage.segments()? {
        let corrupt = Err(OpenError::Corrupt(Lsn(scan.lsn)));
        // They are made in order and removed from the ends, each durably before the next one. So a
        // stop or a crash leaves no gap.
        if previous.is_some_and(|previous| previous.checked_add(1) != Some(number)) {
            return corrupt;
        }
        previous = Some(number);
        let segment = match load(storage, number, log)? {
            // A segment is begun only when those before it are durable.
            Loaded::Segment(_) if !not_begun.is_empty() => return corrupt,
            Loaded::Segment(segment) => segment,
            Loaded::Headless(device) => {
                let is_first = not_begun.is_empty();
                let is_zeros = scan.headless(&*device, log, is_first)?;
                scan.recovery.torn |= !is_zeros;
                let fits = is_zeros && device.len()? == segment_size;
                not_begun.push((number, fits));
                continue;
            }
            Loaded::Foreign => return corrupt,
            Loaded::OtherVersion => return Err(OpenError::OtherVersion { segment: number }),
        };
        if log.is_none() {
            (scan.lsn, log) = (segment.header.base, Some(segment.header.log));
        }
        if segment.header.base != scan.lsn {
            return Err(OpenError::Corrupt(Lsn(scan.lsn)));
        }
        scan.recovery.tail = scan.recovery.tail.max(Lsn(segment.header.tail));
        // The one before was durable when this one was begun, so it need not be written again.
        drop(last.take());
        let bytes = read_all(&*segment.device)?;
        let stop = scan.segment(&bytes, segment.header.log)?;
        segments.push_back((number, segment.header.base));
        // A torn end of an earlier segment was found when the log was opened before.
        scan.recovery.torn = !stop.clean;
        position = stop.clean.then(|| Position {
            segment: segment.device.clone(),
            offset: stop.offset as u64,
        });
        last = Some((segment.device, bytes, stop));
    }
    // A segment goes only when a tail behind it is durable, in one that was begun.
    let tail = scan.recovery.tail;
    let is_missing = match segments.front() {
        Some(&(_, base)) => tail < Lsn(base),
        None => not_begun.first().is_some_and(|&(number, _)| number > 0),
    };
    if is_missing {
        return Err(OpenError::Corrupt(tail));
    }
    if let Some((device, bytes, stop)) = last {
        let unproven = &bytes[stop.unproven..stop.read];
        device.write_at(unproven, stop.unproven as u64)?;
        flush(&*device)?;
    }
    let number = segments.back().map_or(0, |&(number, _)| number + 1);
    let mut next = None;
    // The last one first: none is there without those before it, also if this is cut short.
    for (at, fits) in not_begun.into_iter().rev() {
        if fits && at == number {
            next = Some(storage.open(at)?);
        } else {
            storage.remove(at)?;
        }
    }
    let (recovery, last_checkpoint) = (scan.finish(), scan.last_checkpoint);
    Ok(Found {
        recovery,
        log,
        segments,
        position,
        next,
        last_checkpoint,
    })
}

enum Loaded {
    Segment(Segment),
    /// It has no head: it was not begun, or its head was not durable.
    Headless(Arc<dyn Device>),
    /// No log has made it, or its head is whole, but this log has not written it here.
    Foreign,
    OtherVersion,
}

/// No position and no number of a segment is beyond this. So those of a log that goes on do not
/// overflow, nor look like a failure.
const FARTHEST: u64 = 1 << 62;

/// No segment is longer: it is as long as the options allow, or as one record.
const LONGEST: u64 = (SEGMENT_HEADER + FRAME_HEADER) as u64 + MOST_BYTES as u64;

fn load(storage: &dyn Storage, number: u64, log: Option<u64>) -> Result<Loaded, OpenError> {
    let device = storage.open(number)?;
    let len = device.len()?;
    if len > LONGEST || number > FARTHEST {
        return Ok(Loaded::Foreign);
    }
    let mut head = [0; SEGMENT_HEADER];
    if len >= head.len() as u64 {
        device.read_at(&mut head, 0)?;
    }
    Ok(match SegmentHeader::decode(&head) {
        Head::None => Loaded::Headless(device),
        Head::Ours(header)
            if header.number == number
                && header.base <= FARTHEST
                && log.is_none_or(|log| header.log == log) =>
        {
            Loaded::Segment(Segment { device, header })
        }
        Head::Ours(_) => Loaded::Foreign,
        Head::OtherVersion => Loaded::OtherVersion,
    })
}

/// Whether nothing but zeros follows the place of a segment's head.
fn is_head_only(bytes: &[u8]) -> bool {
    bytes.iter().skip(SEGMENT_HEADER).all(|&byte| byte == 0)
}

fn read_all(device: &dyn Device) -> Result<Vec<u8>, OpenError> {
    let len = usize::try_from(device.len()?).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = vec![0; len];
    device.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Where the records of a segment end.
struct Stop {
    offset: usize,
    /// A frame proves that what is before this was durable.
    unproven: usize,
    /// Everything before this was read, including the whole records of a torn frame.
    read: usize,
    /// Nothing but zeros follows.
    clean: bool,
}

struct Scan<'a> {
    visit: &'a mut dyn FnMut(RecoveredRecord),
    recovery: Recovery,
    /// Records of checkpoints whose end has not come yet.
    checkpoints: BTreeMap<u32, Vec<RecoveredRecord>>,
    last_checkpoint: u32,
    lsn: u64,
    /// Up to where the log was durable, as frames say.
    durable: u64,
}

impl Scan<'_> {
    /// Whether a segment without a head is all zeros. Its head was not durable, so a frame in it
    /// that proves otherwise is corruption. So is anything behind the head of a log's first
    /// segment, because that head is durable before a frame is written, and before a later segment
    /// is begun.
    fn headless(
        &self,
        device: &dyn Device,
        log: Option<u64>,
        is_first: bool,
    ) -> Result<bool, OpenError> {
        let (len, mut is_zeros) = (device.len()?, true);
        let mut at = 0;
        while at < len {
            // Pieces overlap by a frame's head.
            let piece = (len - at).min((PIECE + FRAME_HEADER) as u64);
            let mut bytes = vec![0; piece as usize];
            device.read_at(&mut bytes, at)?;
            if bytes.iter().any(|&byte| byte != 0) {
                match log {
                    Some(log) => self.look_for_evidence(&bytes, at as usize, log)?,
                    None if is_first && at == 0 && is_head_only(&bytes) => {}
                    None => return Err(OpenError::Corrupt(Lsn(self.lsn))),
                }
                is_zeros = false;
            }
            at += PIECE as u64;
        }
        Ok(is_zeros)
    }

    fn segment(&mut self, bytes: &[u8], log: u64) -> Result<Stop, OpenError> {
        let mut offset = SEGMENT_HEADER;
        // Where each frame begins in the segment, and where it ends in the log. The head counts
        // with the first one, because it becomes durable with it.
        let mut frames = Vec::new();
        let (mut begin, mut read) = (0, SEGMENT_HEADER);
        while let Some(frame) = FrameHeader::decode(&bytes[offset..], offset as u64, log) {
            if frame.first != self.lsn {
                break;
            }
            let start = offset + FRAME_HEADER;
            let end = start.saturating_add(frame.len as usize);
            let taken = self.frame(&bytes[start..end.min(bytes.len())]);
            if taken > 0 {
                read = start + taken;
            }
            if end > bytes.len() {
                // No frame is written beyond the end of a segment, so this one was cut.
                return Err(OpenError::Corrupt(Lsn(self.lsn)));
            }
            if taken < frame.len as usize {
                break;
            }
            self.recovery.tail = self.recovery.tail.max(Lsn(frame.tail));
            self.durable = self.durable.max(frame.durable);
            frames.push((begin, self.lsn));
            (begin, read, offset) = (end, end, end);
        }
        let rest = &bytes[offset..];
        let clean = rest.iter().all(|&byte| byte == 0);
        if !clean {
            self.look_for_evidence(rest, offset, log)?;
        }
        let unproven = frames.iter().find(|(_, end)| *end > self.durable);
        let unproven = unproven.map_or(begin, |&(begin, _)| begin);
        Ok(Stop {
            offset,
            unproven,
            read,
            clean,
        })
    }

    /// Reads the whole records of a frame. Returns how many bytes they have.
    fn frame(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(record) = decode_record(&bytes[at..], self.lsn) {
            let taken = RECORD_HEADER + record.payload.len();
            self.lsn += taken as u64;
            self.record(record.kind, record.checkpoint, &bytes[at..][record.payload]);
            at += taken;
        }
        at
    }

    fn record(&mut self, kind: Kind, checkpoint: u32, payload: &[u8]) {
        self.last_checkpoint = self.last_checkpoint.max(checkpoint);
        let record = RecoveredRecord {
            lsn: Lsn(self.lsn),
            payload: payload.to_owned(),
        };
        match kind {
            Kind::Data if checkpoint == 0 => self.deliver(record),
            Kind::Data => self.checkpoints.entry(checkpoint).or_default().push(record),
            Kind::Commit => {
                let records = self.checkpoints.remove(&checkpoint).unwrap_or_default();
                records.into_iter().for_each(|record| self.deliver(record));
            }
        }
    }

    fn deliver(&mut self, record: RecoveredRecord) {
        (self.visit)(record);
    }

    /// Searches behind damage for a frame that proves that the damaged part was durable.
    fn look_for_evidence(&self, rest: &[u8], offset: usize, log: u64) -> Result<(), OpenError> {
        for at in 0..rest.len().saturating_sub(FRAME_HEADER) {
            let frame = FrameHeader::decode(&rest[at..], (offset + at) as u64, log);
            if frame.is_some_and(|frame| frame.durable > self.lsn) {
                return Err(OpenError::Corrupt(Lsn(self.lsn)));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Recovery {
        let mut recovery = std::mem::take(&mut self.recovery);
        recovery.end = Lsn(self.lsn);
        recovery.tail = recovery.tail.min(recovery.end);
        recovery.unfinished_checkpoints = self.checkpoints.len();
        recovery
    }
}
