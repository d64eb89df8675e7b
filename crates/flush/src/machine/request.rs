//! The flags of a request, the capabilities of a device, and the steps that follow from both.

use std::time::Duration;

/// The capabilities of a device's cache.
///
/// ```
/// use inflight_flush::Caps;
/// let disk = Caps::volatile(); // a cache that a power failure empties, and no durable writes
/// assert!(disk.volatile_cache && !disk.native_fua);
/// assert_eq!(Caps::durable(), Caps { volatile_cache: false, native_fua: false });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caps {
    /// Whether a power failure can lose completed writes until a flush has ended.
    pub volatile_cache: bool,
    /// Whether a single write can be made durable without a flush (force unit access).
    pub native_fua: bool,
}

impl Caps {
    /// A volatile cache; only a flush makes writes durable.
    #[must_use]
    pub const fn volatile() -> Self {
        Self {
            volatile_cache: true,
            native_fua: false,
        }
    }

    /// A volatile cache, and durable writes that bypass it.
    #[must_use]
    pub const fn volatile_with_fua() -> Self {
        Self {
            volatile_cache: true,
            native_fua: true,
        }
    }

    /// Every completed write is durable: nothing is ever flushed.
    #[must_use]
    pub const fn durable() -> Self {
        Self {
            volatile_cache: false,
            native_fua: false,
        }
    }
}

/// When a flush may wait for data that is being written.
///
/// Requests that shared a flush before their data will soon need one after it. A flush that waits
/// until their data is written serves them all.
///
/// ```
/// use inflight_flush::{Caps, Deferral};
/// use std::time::Duration;
/// assert_eq!(Deferral::for_caps(Caps::volatile_with_fua()), Deferral::Off);
/// assert_eq!(
///     Deferral::for_caps(Caps::volatile()),
///     Deferral::Bounded(Duration::from_millis(10)),
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deferral {
    /// A flush is issued as soon as none is in flight.
    Off,
    /// No flush is issued while data of a sequence is being written, unless a caller has waited for
    /// it longer than this.
    Bounded(Duration),
}

impl Deferral {
    /// The default: 10 ms, because callers wait for the flush. Off if the device has durable writes
    /// of its own: then no flush follows the data.
    #[must_use]
    pub const fn for_caps(caps: Caps) -> Self {
        if caps.native_fua {
            Self::Off
        } else {
            Self::Bounded(Duration::from_millis(10))
        }
    }
}

/// The parts of a request.
///
/// ```
/// use inflight_flush::Flags;
/// let commit = Flags::write().preflush().fua();
/// assert!(commit.data && commit.preflush && commit.fua);
/// assert!(!Flags::flush().data);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Whether it writes data.
    pub data: bool,
    /// Whether writes completed before it must be durable before its data is written.
    pub preflush: bool,
    /// Whether its data must be durable when it completes.
    pub fua: bool,
}

impl Flags {
    /// Only a flush.
    #[must_use]
    pub const fn flush() -> Self {
        Self {
            data: false,
            preflush: true,
            fua: false,
        }
    }

    /// A plain write.
    #[must_use]
    pub const fn write() -> Self {
        Self {
            data: true,
            preflush: false,
            fua: false,
        }
    }

    /// Adds a flush before the data.
    #[must_use]
    pub const fn preflush(mut self) -> Self {
        self.preflush = true;
        self
    }

    /// Makes the data durable when the request completes.
    #[must_use]
    pub const fn fua(mut self) -> Self {
        self.fua = true;
        self
    }
}

/// An invalid combination of flags.
///
/// ```
/// use inflight_flush::{Caps, Flags, FlagsError};
/// use inflight_flush::machine::steps;
/// assert_eq!(steps(Flags::flush().fua(), Caps::durable()), Err(FlagsError::FuaWithoutData));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlagsError {
    /// `fua` concerns the request's data, but the request has none.
    FuaWithoutData,
}

impl std::fmt::Display for FlagsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FuaWithoutData => f.write_str("a request without data cannot have fua"),
        }
    }
}

impl std::error::Error for FlagsError {}

/// The remaining steps, as a mask: the lowest bit is the next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Steps(u8);

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A flush before the data.
    Pre,
    /// The data.
    Data,
    /// A flush after the data.
    Post,
}

impl Step {
    const fn bit(self) -> u8 {
        match self {
            Self::Pre => 1,
            Self::Data => 2,
            Self::Post => 4,
        }
    }
}

impl Steps {
    /// The next step.
    ///
    /// ```
    /// use inflight_flush::machine::{Step, steps};
    /// use inflight_flush::{Caps, Flags};
    /// let steps = steps(Flags::write().fua(), Caps::volatile()).unwrap();
    /// assert_eq!(steps.next(), Some(Step::Data));
    /// ```
    #[must_use]
    pub const fn next(self) -> Option<Step> {
        match self.0.trailing_zeros() {
            0 => Some(Step::Pre),
            1 => Some(Step::Data),
            2 => Some(Step::Post),
            _ => None,
        }
    }

    /// Whether the step remains.
    #[must_use]
    pub const fn has(self, step: Step) -> bool {
        self.0 & step.bit() != 0
    }

    /// Removes the next step.
    pub(crate) const fn advance(&mut self) {
        self.0 &= self.0.wrapping_sub(1);
    }

    const fn with(mut self, step: Step, wanted: bool) -> Self {
        if wanted {
            self.0 |= step.bit();
        }
        self
    }
}

/// The steps that a request takes on a device.
///
/// # Errors
///
/// [`FlagsError`] for an invalid combination of flags.
///
/// ```
/// use inflight_flush::machine::{Step, steps};
/// use inflight_flush::{Caps, Flags};
/// let commit = Flags::write().preflush().fua();
/// let on_disk = steps(commit, Caps::volatile()).unwrap();
/// assert!(on_disk.has(Step::Pre) && on_disk.has(Step::Data) && on_disk.has(Step::Post));
/// assert!(!steps(commit, Caps::volatile_with_fua()).unwrap().has(Step::Post));
/// assert_eq!(steps(commit, Caps::durable()).unwrap().next(), Some(Step::Data));
/// ```
pub const fn steps(flags: Flags, caps: Caps) -> Result<Steps, FlagsError> {
    if flags.fua && !flags.data {
        return Err(FlagsError::FuaWithoutData);
    }
    Ok(Steps(0)
        .with(Step::Pre, caps.volatile_cache && flags.preflush)
        .with(Step::Data, flags.data)
        .with(
            Step::Post,
            caps.volatile_cache && flags.fua && !caps.native_fua,
        ))
}
