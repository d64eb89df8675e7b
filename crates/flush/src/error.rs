//! The errors of this crate.

use std::fmt;
use std::io;

/// The system's error when a device failed: a copyable [`io::Error`] for all callers that shared
/// the flush.
///
/// ```
/// use inflight_flush::DeviceError;
/// let error = DeviceError::from(&std::io::Error::from_raw_os_error(5));
/// assert_eq!(error.raw_os_error(), Some(5));
/// assert_eq!(std::io::Error::from(error).raw_os_error(), Some(5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceError {
    kind: io::ErrorKind,
    os: Option<i32>,
    message: Option<&'static str>,
}

impl DeviceError {
    /// The caller that used the device has left or panicked before the call had ended. Not
    /// `Interrupted`, on which callers try again.
    pub(crate) const UNHEARD: Self = Self {
        kind: io::ErrorKind::Other,
        os: None,
        message: Some("abandoned before its result was known"),
    };

    /// Returns the kind of the system's error.
    #[must_use]
    pub const fn kind(self) -> io::ErrorKind {
        self.kind
    }

    /// Returns the system's number of the error, if it came from the system.
    #[must_use]
    pub const fn raw_os_error(self) -> Option<i32> {
        self.os
    }
}

impl From<io::ErrorKind> for DeviceError {
    fn from(kind: io::ErrorKind) -> Self {
        Self {
            kind,
            os: None,
            message: None,
        }
    }
}

impl From<&io::Error> for DeviceError {
    fn from(error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            os: error.raw_os_error(),
            message: None,
        }
    }
}

impl From<DeviceError> for io::Error {
    fn from(error: DeviceError) -> Self {
        match (error.os, error.message) {
            (Some(os), _) => Self::from_raw_os_error(os),
            (None, Some(message)) => Self::new(error.kind, message),
            (None, None) => error.kind.into(),
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl std::error::Error for DeviceError {}

/// The error of a flush.
///
/// ```
/// use inflight_flush::{FlushDomain, FlushError, MemoryDevice};
/// let device = MemoryDevice::new(4096);
/// device.fail_flushes(1);
/// let domain = FlushDomain::new(device);
/// assert!(matches!(domain.flush_blocking(), Err(FlushError::Device(_))));
/// assert!(domain.is_poisoned());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushError {
    /// The device failed. Earlier writes may be lost, and a later successful flush does not restore
    /// them, because the system may have dropped them.
    Device(DeviceError),
    /// The time was up before the flush had ended. The flush may still end.
    TimedOut,
    /// A flush is needed, and the call was one that does not wait.
    WouldBlock,
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(f, "the device failed: {error}"),
            Self::TimedOut => f.write_str("timed out before the flush had ended"),
            Self::WouldBlock => f.write_str("a flush is needed, which would block"),
        }
    }
}

impl std::error::Error for FlushError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) => Some(error),
            Self::TimedOut | Self::WouldBlock => None,
        }
    }
}

impl From<FlushError> for io::Error {
    fn from(error: FlushError) -> Self {
        match error {
            FlushError::Device(error) => error.into(),
            FlushError::TimedOut => io::ErrorKind::TimedOut.into(),
            FlushError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        }
    }
}

/// The error of a write with flushes around it.
///
/// ```
/// use inflight_flush::{FlushDomain, MemoryDevice, WriteError};
/// let domain = FlushDomain::new(MemoryDevice::new(4096));
/// let full = || Err::<(), _>(std::io::ErrorKind::StorageFull.into());
/// assert!(matches!(domain.write_fua_blocking(full), Err(WriteError::Write(_))));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The write itself failed.
    Write(io::Error),
    /// A flush before or after it failed: see [`FlushError::Device`].
    Flush(DeviceError),
    /// The time was up. It is not known whether the write was done, and is durable.
    TimedOut,
    /// A flush is needed, or the end of a call that is under way, and the call was one that does
    /// not wait. Nothing was written.
    WouldBlock,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(error) => write!(f, "the write failed: {error}"),
            Self::Flush(error) => write!(f, "a flush for the write failed: {error}"),
            Self::TimedOut => f.write_str("timed out before the write was durable"),
            Self::WouldBlock => {
                f.write_str("the write would have to wait for a flush or for another write")
            }
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write(error) => Some(error),
            Self::Flush(error) => Some(error),
            Self::TimedOut | Self::WouldBlock => None,
        }
    }
}

impl From<FlushError> for WriteError {
    fn from(error: FlushError) -> Self {
        match error {
            FlushError::Device(error) => Self::Flush(error),
            FlushError::TimedOut => Self::TimedOut,
            FlushError::WouldBlock => Self::WouldBlock,
        }
    }
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Write(error) => error,
            WriteError::Flush(error) => error.into(),
            WriteError::TimedOut => io::ErrorKind::TimedOut.into(),
            WriteError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        }
    }
}
