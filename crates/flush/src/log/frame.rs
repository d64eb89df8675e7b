//! The form of a log on its device.
//!
//! ```text
//! segment:  header (64 bytes)  frame  frame  …  zeros
//! frame:    header (56 bytes)  record  record  …            one buffer
//! record:   length, checksum, checkpoint, kind (16 bytes)  payload
//! ```
//!
//! An [`Lsn`](super::Lsn) counts the bytes of records, headers of records included and those of
//! frames not; that of a record is where it ends. The checksum of a record covers its position, so
//! an old record at another place is not valid. Each frame says up to where the log was durable
//! when it was written: damage before that is corruption, and damage after it may be a torn write.

use std::ops::Range;

/// The most that `max_buffered` and `segment_size` may be, in bytes.
pub(super) const MOST_BYTES: usize = 1 << 30;

pub(super) const SEGMENT_HEADER: usize = 64;
pub(super) const FRAME_HEADER: usize = 56;
pub(super) const RECORD_HEADER: usize = 16;

const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"IFLS");
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"IFLF");
const VERSION: u32 = 1;

/// Reads little-endian numbers one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> u32 {
        let (head, rest) = self
            .0
            .split_first_chunk()
            .expect("headers have fixed lengths");
        self.0 = rest;
        u32::from_le_bytes(*head)
    }

    fn u64(&mut self) -> u64 {
        let (head, rest) = self
            .0
            .split_first_chunk()
            .expect("headers have fixed lengths");
        self.0 = rest;
        u64::from_le_bytes(*head)
    }
}

/// Puts magic and checksum before the fields.
fn seal<const N: usize>(magic: u32, fields: &[&[u8]]) -> [u8; N] {
    let mut header = [0; N];
    header[..4].copy_from_slice(&magic.to_le_bytes());
    let mut at = 8;
    for field in fields {
        header[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    let sum = crc32c::crc32c(&header[8..]);
    header[4..8].copy_from_slice(&sum.to_le_bytes());
    header
}

/// The fields, if magic and checksum are right.
fn open(magic: u32, header: &[u8]) -> Option<Fields<'_>> {
    let mut fields = Fields(header);
    let right = fields.u32() == magic && fields.u32() == crc32c::crc32c(&header[8..]);
    right.then_some(fields)
}

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// A random number from when the log was made.
    pub(super) log: u64,
    pub(super) number: u64,
    /// Where the log was when the segment was begun. Everything before is durable.
    pub(super) base: u64,
    pub(super) tail: u64,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        seal(
            SEGMENT_MAGIC,
            &[
                &VERSION.to_le_bytes(),
                &[0; 4],
                &self.log.to_le_bytes(),
                &self.number.to_le_bytes(),
                &self.base.to_le_bytes(),
                &self.tail.to_le_bytes(),
            ],
        )
    }

    pub(super) fn decode(bytes: &[u8]) -> Head {
        let header = bytes.get(..SEGMENT_HEADER);
        let Some(mut fields) = header.and_then(|header| open(SEGMENT_MAGIC, header)) else {
            return Head::None;
        };
        if fields.u32() != VERSION {
            return Head::OtherVersion;
        }
        fields.u32();
        Head::Ours(Self {
            log: fields.u64(),
            number: fields.u64(),
            base: fields.u64(),
            tail: fields.u64(),
        })
    }
}

/// What the first bytes of a segment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// No valid head.
    None,
    Ours(SegmentHeader),
    /// A head of another version of the format.
    OtherVersion,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) log: u64,
    /// Where in its segment the frame is.
    pub(super) offset: u64,
    /// Where in the log its first record begins.
    pub(super) first: u64,
    /// Up to where the log was durable when the frame was written.
    pub(super) durable: u64,
    /// Records up to this are no longer needed.
    pub(super) tail: u64,
    /// The length of its records.
    pub(super) len: u32,
}

impl FrameHeader {
    pub(super) fn encode(&self) -> [u8; FRAME_HEADER] {
        seal(
            FRAME_MAGIC,
            &[
                &self.log.to_le_bytes(),
                &self.offset.to_le_bytes(),
                &self.first.to_le_bytes(),
                &self.durable.to_le_bytes(),
                &self.tail.to_le_bytes(),
                &self.len.to_le_bytes(),
            ],
        )
    }

    /// The frame at `offset` of a segment of this log.
    pub(super) fn decode(bytes: &[u8], offset: u64, log: u64) -> Option<Self> {
        let mut fields = open(FRAME_MAGIC, bytes.get(..FRAME_HEADER)?)?;
        let header = Self {
            log: fields.u64(),
            offset: fields.u64(),
            first: fields.u64(),
            durable: fields.u64(),
            tail: fields.u64(),
            len: fields.u32(),
        };
        (header.log == log && header.offset == offset).then_some(header)
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    /// The end of a checkpoint: its records count.
    Commit,
}

/// One record as it lies in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: Kind,
    /// The checkpoint that it belongs to, or 0.
    pub(super) checkpoint: u32,
    /// Where its payload is in the bytes that it was read from.
    pub(super) payload: Range<usize>,
}

/// Appends a record that begins at `start` of the log.
pub(super) fn encode_record(
    bytes: &mut Vec<u8>,
    start: u64,
    kind: Kind,
    checkpoint: u32,
    payload: &[u8],
) {
    let len = u32::try_from(payload.len()).expect("max_buffered is at most 1 GiB");
    let sum = checksum(start, kind, checkpoint, payload);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&checkpoint.to_le_bytes());
    bytes.extend_from_slice(&(kind as u32).to_le_bytes());
    bytes.extend_from_slice(payload);
}

/// The record at the start of `bytes`, which is at `start` of the log.
pub(super) fn decode_record(bytes: &[u8], start: u64) -> Option<Record> {
    let mut fields = Fields(bytes.get(..RECORD_HEADER)?);
    let (len, sum) = (fields.u32() as usize, fields.u32());
    let checkpoint = fields.u32();
    let kind = match fields.u32() {
        0 => Kind::Data,
        1 => Kind::Commit,
        _ => return None,
    };
    let payload = RECORD_HEADER..RECORD_HEADER.checked_add(len)?;
    let right = checksum(start, kind, checkpoint, bytes.get(payload.clone())?) == sum;
    right.then_some(Record {
        kind,
        checkpoint,
        payload,
    })
}

/// The length of the first record of `bytes`, which `encode_record` has written.
pub(super) fn record_len(bytes: &[u8]) -> usize {
    RECORD_HEADER + Fields(bytes).u32() as usize
}

/// How many bytes of whole records at the start of `bytes` fit into `limit`; at least one record.
pub(super) fn fitting(bytes: &[u8], limit: usize) -> usize {
    if bytes.len() <= limit {
        return bytes.len();
    }
    let mut end = record_len(bytes);
    while end < bytes.len() {
        let next = end + record_len(&bytes[end..]);
        if next > limit {
            break;
        }
        end = next;
    }
    end
}

fn checksum(start: u64, kind: Kind, checkpoint: u32, payload: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&start.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &(payload.len() as u64).to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &checkpoint.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &(kind as u32).to_le_bytes());
    crc32c::crc32c_append(sum, payload)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_and_records_come_back_and_no_flipped_bit_passes(
            numbers in any::<[u64; 5]>(), len in any::<u32>(), checkpoint in any::<u32>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100), bit in any::<usize>(),
        ) {
            let [log, offset, first, durable, tail] = numbers;
            let frame = FrameHeader { log, offset, first, durable, tail, len };
            let mut bytes = frame.encode();
            prop_assert_eq!(FrameHeader::decode(&bytes, offset, log), Some(frame));
            prop_assert_eq!(FrameHeader::decode(&bytes, offset ^ 1, log), None);
            let at = bit % (bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert_eq!(FrameHeader::decode(&bytes, offset, log), None);

            let segment = SegmentHeader { log, number: offset, base: first, tail };
            prop_assert_eq!(SegmentHeader::decode(&segment.encode()), Head::Ours(segment));

            let mut bytes = Vec::new();
            encode_record(&mut bytes, first, Kind::Commit, checkpoint, &payload);
            prop_assert_eq!(record_len(&bytes), bytes.len());
            let record = decode_record(&bytes, first).unwrap();
            prop_assert_eq!(&bytes[record.payload.clone()], &payload[..]);
            prop_assert_eq!((record.kind, record.checkpoint), (Kind::Commit, checkpoint));
            prop_assert_eq!(decode_record(&bytes, first.wrapping_add(1)), None);
            let at = bit % (bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert_eq!(decode_record(&bytes, first), None);
        }
    }

    #[test]
    fn records_are_not_cut() {
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for len in [10, 20, 30] {
            encode_record(&mut bytes, 0, Kind::Data, 0, &vec![1; len]);
            ends.push(bytes.len());
        }
        assert_eq!(fitting(&bytes, usize::MAX), ends[2]);
        assert_eq!(fitting(&bytes, ends[1]), ends[1]);
        assert_eq!(fitting(&bytes, ends[1] - 1), ends[0]);
        assert_eq!(fitting(&bytes, 1), ends[0], "one at least");
    }
}
