//! The restartable sections, x86-64.
//!
//! Each section is the range from label 22 to label 25. Its description (label 33: version and
//! flags, start, length, where to go on after an abort) is announced by storing its address in the
//! thread's area. If the kernel takes the thread off its CPU or delivers a signal inside the range,
//! the thread continues at label 44, which must follow a signature; there the section reports the
//! abort. A section that finds its stack closed, empty or full leaves for label 45, which says so.
//! The last instruction before label 25 is the only store that matters: before it nothing has
//! happened, after it everything has. An id written above the top is no id yet.
//!
//! A limit below 0 is one for users with a lock (see `stack.rs`), so limits are compared as signed.
//!
//! The limit is read **before** the length: in the other order a close, drain and reopening
//! between the two loads would bring drained ids back. Loads of this processor stay in order.

use super::counter::{ADDED, Part};
use super::stack::Stack;
use super::{ABORTED, REFUSED};
use crate::rseq::Rseq;
use core::arch::asm;

/// A section: the register for the address of its description, its steps, and the code that reports
/// an abort, or at label 45 a refusal.
macro_rules! section {
    (
        $address:literal,
        [$($step:literal),+ $(,)?],
        aborted: $aborted:literal,
        $(refused: $refused:literal,)?
        operands: $($operands:tt)*
    ) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "33:",
            ".long 0, 0",
            ".quad 22f, (25f - 22f), 44f",
            ".popsection",
            concat!("lea {", $address, "}, [rip + 33b]"),
            concat!("mov qword ptr fs:[{area} + 8], {", $address, "}"),
            "22:",
            $($step,)+
            "25:",
            ".pushsection .text.inflight_rseq_abort, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "44:",
            $aborted,
            "jmp 25b",
            $("45:", $refused, "jmp 25b",)?
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
    // SAFETY: `rseq` proves that this thread's area lies at that offset from the thread pointer
    // and is registered. The CPU number is compared with the length of the table before it indexes
    // it; the length of a stack is at most its capacity, so the id read lies in the stack. All
    // memory is atomic to Rust, and plain aligned loads and stores are what Relaxed is here. No
    // stack is used, nothing is called, flags and the named registers are declared.
    unsafe {
        section!(
            "top",
            [
                "mov {cpu:e}, dword ptr fs:[{area} + 4]",
                "cmp {cpu:e}, {cpus:e}",
                "jae 45f",
                "shl {cpu}, 8",
                "add {cpu}, {table}",
                "cmp dword ptr [{cpu} + 4], 0",
                "jle 45f",
                "mov {top:e}, dword ptr [{cpu}]",
                "sub {top:e}, 1",
                "jb 45f",
                "mov {result:e}, dword ptr [{cpu} + 4*{top} + 24]",
                "mov dword ptr [{cpu}], {top:e}",
            ],
            aborted: "mov {result}, {aborted}",
            refused: "mov {result}, {refused}",
            operands:
            top = out(reg) _,
            cpu = out(reg) _,
            result = out(reg) result,
            area = in(reg) rseq.offset(),
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
            "result:r",
            [
                "mov {cpu:e}, dword ptr fs:[{area} + 4]",
                "cmp {cpu:e}, {cpus:e}",
                "jae 45f",
                "shl {cpu}, 8",
                "add {cpu}, {table}",
                "mov {limit:e}, dword ptr [{cpu} + 4]",
                "mov {result:e}, dword ptr [{cpu}]",
                "cmp {result:e}, {limit:e}",
                "jge 45f",
                "mov dword ptr [{cpu} + 4*{result:r} + 24], {id:e}",
                "add {result:e}, 1",
                "mov dword ptr [{cpu}], {result:e}",
            ],
            aborted: "mov {result:e}, {aborted}",
            refused: "mov {result:e}, {refused}",
            operands:
            cpu = out(reg) _,
            limit = out(reg) _,
            result = out(reg) result,
            area = in(reg) rseq.offset(),
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
    // SAFETY: as in `pop`; the one store is the addition, a single instruction.
    unsafe {
        section!(
            "cpu",
            [
                "mov {cpu:e}, dword ptr fs:[{area} + 4]",
                "mov {result:e}, {refused}",
                "cmp {cpu:e}, {cpus:e}",
                "jae 25f",
                "shl {cpu}, 7",
                "add {cpu}, {table}",
                "cmp dword ptr [{cpu} + 8], 0",
                "jne 25f",
                "mov {result:e}, {added}",
                "add qword ptr [{cpu}], {n}",
            ],
            aborted: "mov {result:e}, {aborted}",
            operands:
            cpu = out(reg) _,
            result = out(reg) result,
            area = in(reg) rseq.offset(),
            table = in(reg) parts.cast::<Part>(),
            cpus = in(reg) parts.len(),
            n = in(reg) n,
            added = const ADDED,
        );
    }
    result
}
