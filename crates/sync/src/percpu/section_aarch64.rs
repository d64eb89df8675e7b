//! The restartable sections, aarch64.
//!
//! The shape is that of the x86-64 ones: see `section_x86_64.rs`. The limit is read by a
//! load-acquire, so that the length read after it is not older: here loads may be reordered.

use super::counter::{ADDED, Part};
use super::stack::Stack;
use super::{ABORTED, REFUSED};
use crate::rseq::Rseq;
use core::arch::asm;

/// A section: the register for the address of its description, its steps, and the code that reports
/// an abort.
macro_rules! section {
    (
        $address:literal,
        [$($step:literal),+ $(,)?],
        aborted: $aborted:literal,
        operands: $($operands:tt)*
    ) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "33:",
            ".long 0, 0",
            ".quad 22f, (25f - 22f), 44f",
            ".popsection",
            concat!("adrp {", $address, "}, 33b"),
            concat!("add {", $address, "}, {", $address, "}, :lo12:33b"),
            concat!("str {", $address, "}, [{area}, #8]"),
            "22:",
            $($step,)+
            "25:",
            ".pushsection .text.inflight_rseq_abort, \"ax\"",
            ".inst 0xd428bc00",
            "44:",
            $aborted,
            "b 25b",
            ".popsection",
            $($operands)*
            refused = const REFUSED,
            aborted = const ABORTED,
            options(nostack),
        )
    };
}

/// The id, or why there is none.
#[inline(always)]
pub(super) fn pop(rseq: Rseq, stacks: &[Stack]) -> i64 {
    let mut result: i64;
    // SAFETY: `rseq` proves that `area` is this thread's registered area. The CPU number is
    // compared with the length of the table before it indexes it; the length of a stack is at most
    // its capacity, so the id read lies in the stack. All memory is atomic to Rust, and plain
    // aligned loads and stores are what Relaxed is here. No stack is used, nothing is called,
    // flags and the named registers are declared.
    unsafe {
        section!(
            "top",
            [
                "ldr {cpu:w}, [{area}, #4]",
                "mov {result}, #{refused}",
                "cmp {cpu:w}, {cpus:w}",
                "b.hs 25f",
                "add {cpu}, {table}, {cpu}, lsl #8",
                "add {top}, {cpu}, #4",
                "ldar {top:w}, [{top}]",
                "cmp {top:w}, #0",
                "b.le 25f",
                "ldr {top:w}, [{cpu}]",
                "cbz {top:w}, 25f",
                "sub {top:w}, {top:w}, #1",
                "add {place}, {cpu}, {top}, lsl #2",
                "ldr {result:w}, [{place}, #24]",
                "str {top:w}, [{cpu}]",
            ],
            aborted: "mov {result}, #{aborted}",
            operands:
            top = out(reg) _,
            place = out(reg) _,
            cpu = out(reg) _,
            result = out(reg) result,
            area = in(reg) rseq.area(),
            table = in(reg) stacks.as_ptr(),
            cpus = in(reg) stacks.len(),
        );
    }
    result
}

/// The new length, or why it is the old one.
#[inline(always)]
pub(super) fn push(rseq: Rseq, stacks: &[Stack], id: u32) -> i32 {
    let mut result: i32;
    // SAFETY: as in `pop`; an id is stored only below the limit, which is at most the capacity.
    unsafe {
        section!(
            "len",
            [
                "ldr {cpu:w}, [{area}, #4]",
                "mov {result:w}, #{refused}",
                "cmp {cpu:w}, {cpus:w}",
                "b.hs 25f",
                "add {cpu}, {table}, {cpu}, lsl #8",
                "add {limit}, {cpu}, #4",
                "ldar {limit:w}, [{limit}]",
                "ldr {len:w}, [{cpu}]",
                "cmp {len:w}, {limit:w}",
                "b.ge 25f",
                "add {limit}, {cpu}, {len}, lsl #2",
                "str {id:w}, [{limit}, #24]",
                "add {len:w}, {len:w}, #1",
                "mov {result:w}, {len:w}",
                "str {len:w}, [{cpu}]",
            ],
            aborted: "mov {result:w}, #{aborted}",
            operands:
            len = out(reg) _,
            limit = out(reg) _,
            cpu = out(reg) _,
            result = out(reg) result,
            area = in(reg) rseq.area(),
            table = in(reg) stacks.as_ptr(),
            cpus = in(reg) stacks.len(),
            id = in(reg) id,
        );
    }
    result
}

/// [`ADDED`], or why not. Touches no part after the addition.
#[inline(always)]
pub(super) fn add(rseq: Rseq, parts: *const [Part], n: u64) -> i32 {
    let mut result: i32;
    // SAFETY: as in `pop`; the one store is that of the sum.
    unsafe {
        section!(
            "sum",
            [
                "ldr {cpu:w}, [{area}, #4]",
                "mov {result:w}, #{refused}",
                "cmp {cpu:w}, {cpus:w}",
                "b.hs 25f",
                "add {cpu}, {table}, {cpu}, lsl #7",
                "ldr {sum:w}, [{cpu}, #8]",
                "cbnz {sum:w}, 25f",
                "ldr {sum}, [{cpu}]",
                "add {sum}, {sum}, {n}",
                "mov {result:w}, #{added}",
                "str {sum}, [{cpu}]",
            ],
            aborted: "mov {result:w}, #{aborted}",
            operands:
            sum = out(reg) _,
            cpu = out(reg) _,
            result = out(reg) result,
            area = in(reg) rseq.area(),
            table = in(reg) parts.cast::<Part>(),
            cpus = in(reg) parts.len(),
            n = in(reg) n,
            added = const ADDED,
        );
    }
    result
}
