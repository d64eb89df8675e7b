//! No restartable sections on this target; no `Rseq` exists to call them with.

use super::Stopped;
use super::stack::Stack;
use crate::rseq::Rseq;

pub(super) const fn pop(_: Rseq, _: &[Stack]) -> Result<u16, Stopped> {
    Err(Stopped::Refused)
}

pub(super) const fn push(_: Rseq, _: &[Stack], _: u16) -> Result<(), Stopped> {
    Err(Stopped::Refused)
}
