//! Operations that are refused on purpose, to try what then happens.

use std::cell::Cell;

use super::FileOp;

/// Which operations are refused without asking the kernel: each so many-th; 0 is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Only those of this export.
    export: Option<String>,
    /// Reads and writes, for now.
    again: u32,
    flush: u32,
}

impl std::str::FromStr for Faults {
    type Err = String;

    /// `export=NAME,again=N,flush=N`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let number = |text: &str| text.parse().ok().filter(|&n: &u32| n > 0);
            let refused = || format!("{part:?} is none of export=NAME, again=N, flush=N");
            match part.split_once('=') {
                Some(("export", name)) => faults.export = Some(name.to_owned()),
                Some(("again", n)) => faults.again = number(n).ok_or_else(refused)?,
                Some(("flush", n)) => faults.flush = number(n).ok_or_else(refused)?,
                _ => return Err(refused()),
            }
        }
        Ok(faults)
    }
}

/// Operations of each kind that were asked for, and which of them are refused.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    faults: Faults,
    transfers: Cell<u32>,
    flushes: Cell<u32>,
}

impl Refusal {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    pub(super) fn of(&self, op: FileOp, export: &str) -> Option<rustix::io::Errno> {
        let only = self.faults.export.as_deref();
        if only.is_some_and(|only| only != export) {
            return None;
        }
        let turn = |count: &Cell<u32>, every: u32| {
            count.set(count.get().wrapping_add(1));
            every != 0 && count.get() % every == 0
        };
        match op {
            FileOp::Read { .. } | FileOp::Write { .. } => {
                turn(&self.transfers, self.faults.again).then_some(rustix::io::Errno::AGAIN)
            }
            FileOp::Flush => {
                turn(&self.flushes, self.faults.flush).then_some(rustix::io::Errno::IO)
            }
            FileOp::PunchHole { .. } | FileOp::ZeroRange { .. } | FileOp::ReadAhead { .. } => None,
        }
    }
}
