//! No restartable sections on this target; no `Rseq` exists to call them with.

use super::REFUSED;
use super::counter::Part;
use super::stack::Stack;
use crate::rseq::Rseq;

pub(super) const fn pop(_: Rseq, _: &[Stack]) -> i64 {
    REFUSED as i64
}

pub(super) const fn push(_: Rseq, _: &[Stack], _: u32) -> i32 {
    REFUSED
}

pub(super) const fn add(_: Rseq, _: *const [Part], _: u64) -> i32 {
    REFUSED
}
