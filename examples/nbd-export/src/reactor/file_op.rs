//! What the kernel is asked to do with a file.

/// What the kernel is asked to do with a file. Buffers come back with the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileOp {
    Read {
        offset: u64,
    },
    Write {
        offset: u64,
    },
    Flush,
    PunchHole {
        offset: u64,
        len: u64,
    },
    ZeroRange {
        offset: u64,
        len: u64,
    },
    /// It will be read soon.
    ReadAhead {
        offset: u64,
        len: u64,
    },
}

impl FileOp {
    /// The same in a file whose data begins at `start`.
    pub(crate) const fn behind(self, start: u64) -> Self {
        match self {
            Self::Read { offset } => Self::Read {
                offset: start + offset,
            },
            Self::Write { offset } => Self::Write {
                offset: start + offset,
            },
            Self::PunchHole { offset, len } => Self::PunchHole {
                offset: start + offset,
                len,
            },
            Self::ZeroRange { offset, len } => Self::ZeroRange {
                offset: start + offset,
                len,
            },
            Self::ReadAhead { offset, len } => Self::ReadAhead {
                offset: start + offset,
                len,
            },
            Self::Flush => Self::Flush,
        }
    }
}
