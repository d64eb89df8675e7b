//! A request's needs, a device's capabilities, and the steps that follow from the two.

use std::time::Duration;

/// What the device's cache needs.
///
/// ```
/// use inflight_flush::Caps;
/// let disk = Caps::volatile(); // a cache that loses power, and no write that passes it
/// assert!(disk.volatile_cache && !disk.native_fua);
/// assert_eq!(Caps::durable(), Caps { volatile_cache: false, native_fua: false });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caps {
    /// Completed writes can be lost with the power until a flush has ended.
    pub volatile_cache: bool,
    /// A single write can be made durable without a flush (force unit access).
    pub native_fua: bool,
}

impl Caps {
    /// A volatile cache, and flushes are the only way to make a write durable.
    #[must_use]
    pub const fn volatile() -> Self {
        Self {
            volatile_cache: true,
            native_fua: false,
        }
    }

    /// A volatile cache, and writes that pass it.
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

/// When a flush may wait for data that is under way.
///
/// Requests that shared a flush before their data are about to need one after it. A flush that
/// waits until their data is written serves them all.
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
    /// While data of a sequence is under way, no flush is issued, unless somebody has waited for it
    /// longer than this.
    Bounded(Duration),
}

impl Deferral {
    /// The default: 10 ms, because callers wait for it; off where the device has writes of its own
    /// that are durable, as then no data is followed by a flush.
    #[must_use]
    pub const fn for_caps(caps: Caps) -> Self {
        if caps.native_fua {
            Self::Off
        } else {
            Self::Bounded(Duration::from_millis(10))
        }
    }
}

/// What a request asks for.
///
/// ```
/// use inflight_flush::Flags;
/// let commit = Flags::write().preflush().fua();
/// assert!(commit.data && commit.preflush && commit.fua);
/// assert!(!Flags::flush().data);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags {
    /// It writes something.
    pub data: bool,
    /// What was completed before it is durable before its data starts.
    pub preflush: bool,
    /// Its data is durable when it completes.
    pub fua: bool,
}

impl Flags {
    /// A flush and nothing else.
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

    /// The same, after a flush.
    #[must_use]
    pub const fn preflush(mut self) -> Self {
        self.preflush = true;
        self
    }

    /// The same, durable when it completes.
    #[must_use]
    pub const fn fua(mut self) -> Self {
        self.fua = true;
        self
    }
}

/// The request asks for something that does not exist.
///
/// ```
/// use inflight_flush::{Caps, Flags, FlagsError};
/// use inflight_flush::machine::steps;
/// assert_eq!(steps(Flags::flush().fua(), Caps::durable()), Err(FlagsError::FuaWithoutData));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlagsError {
    /// `fua` is about the request's data, and it has none.
    FuaWithoutData,
}

impl std::fmt::Display for FlagsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FuaWithoutData => f.write_str("fua is asked for by a request without data"),
        }
    }
}

impl std::error::Error for FlagsError {}

/// The steps that are left, as a mask: the lowest bit is the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Steps(u8);

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A flush before the data.
    Pre,
    /// The data.
    Data,
    /// A flush behind the data.
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
    /// The step to take now.
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

    /// Whether the step is left.
    #[must_use]
    pub const fn has(self, step: Step) -> bool {
        self.0 & step.bit() != 0
    }

    /// The next step is done.
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
/// If it asks for something that does not exist.
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
