//! The errors of a log.

use super::Lsn;
use crate::error::DeviceError;
use std::fmt;
use std::io;

/// The error of an append or a commit.
///
/// ```
/// use inflight_flush::Power;
/// use inflight_flush::log::{Durability, LogError, LogOptions, Lsn, MemoryStorage};
/// let (log, _) = LogOptions::new().open(MemoryStorage::new(&Power::new()))?;
/// let beyond = log.commit_blocking(Lsn::from(99), Durability::Flushed);
/// assert_eq!(beyond, Err(LogError::NotAppended { lsn: Lsn::from(99), end: Lsn::from(0) }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// A write or a flush has failed, now or before. The log appends and commits nothing any more:
    /// open it again.
    Poisoned(DeviceError),
    /// The records that wait to be written are as many as may wait.
    Full,
    /// The record is longer than the limit for records that wait to be written.
    TooLong {
        /// Its length.
        len: usize,
        /// The longest possible.
        max: usize,
    },
    /// Nothing was appended at this position.
    NotAppended {
        /// The position.
        lsn: Lsn,
        /// The end of the log.
        end: Lsn,
    },
    /// The time was up.
    TimedOut,
    /// A write or a flush is needed, and the call was one that does not wait.
    WouldBlock,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisoned(error) => write!(f, "the log has failed and must be reopened: {error}"),
            Self::Full => {
                f.write_str("the records that wait to be written have reached max_buffered")
            }
            Self::TooLong { len, max } => {
                write!(f, "a record of {len} bytes is longer than {max} bytes")
            }
            Self::NotAppended { lsn, end } => {
                write!(f, "position {lsn} is beyond the log's end {end}")
            }
            Self::TimedOut => f.write_str("timed out"),
            Self::WouldBlock => f.write_str("a write or a flush is needed, which would block"),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poisoned(error) => Some(error),
            _ => None,
        }
    }
}

/// The error of opening a log.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The system's error.
    Io(io::Error),
    /// A record after this position was durable, and cannot be read. Those before it can.
    Corrupt(Lsn),
    /// A segment has another version of the format than this crate.
    OtherVersion {
        /// The number of the segment.
        segment: u64,
    },
    /// An option makes no sense.
    Options(OptionsError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the log cannot be opened: {error}"),
            Self::Corrupt(lsn) => write!(f, "the log is corrupt after position {lsn}"),
            Self::OtherVersion { segment } => {
                write!(
                    f,
                    "segment {segment} of the log has another version of the format"
                )
            }
            Self::Options(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Options(error) => Some(error),
            Self::Corrupt(_) | Self::OtherVersion { .. } => None,
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<io::ErrorKind> for OpenError {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Io(kind.into())
    }
}

impl From<OptionsError> for OpenError {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}

/// An option of a log makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    /// The size of a buffer, which is too small.
    BufferTooSmall(usize),
    /// The size of a segment, which has no room for one buffer, and the size that has.
    SegmentTooSmall(u64, u64),
    /// The size of a segment, which is more than a gibibyte.
    SegmentTooLarge(u64),
    /// The name of a limit, the limit, and the size of a buffer, which is larger.
    LimitBelowBuffer(&'static str, usize, usize),
    /// More than a gibibyte that is not written yet.
    LimitTooLarge(usize),
    /// Groups without members.
    NoMembers,
    /// A `log_domain` that is exclusive: the log's writes do not use it, so a flush that they need
    /// would be left out.
    ExclusiveLogDomain,
    /// A `data_domain` without a device: the log could not flush it.
    DataDomainWithoutDevice,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferTooSmall(bytes) => write!(f, "buffer_size {bytes} is less than 64"),
            Self::SegmentTooSmall(bytes, least) => {
                write!(
                    f,
                    "segment_size {bytes} is less than {least}, which one buffer needs"
                )
            }
            Self::SegmentTooLarge(bytes) => write!(f, "segment_size {bytes} is more than 1 GiB"),
            Self::LimitBelowBuffer(limit, bytes, buffer) => {
                write!(f, "{limit} {bytes} is less than buffer_size {buffer}")
            }
            Self::NoMembers => f.write_str("max_members must be at least 1"),
            Self::LimitTooLarge(bytes) => write!(f, "max_buffered {bytes} is more than 1 GiB"),
            Self::ExclusiveLogDomain => f.write_str("log_domain must not be exclusive"),
            Self::DataDomainWithoutDevice => {
                f.write_str("data_domain must have a device that the log can flush")
            }
        }
    }
}

impl std::error::Error for OptionsError {}
