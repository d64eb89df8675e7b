//! Linux: `/sys` and the affinity calls.
//!
//! The calls are used through libc with a buffer of our own, because the C library's set type ends
//! at CPU 1023 and its helpers do not check that.
#![allow(unsafe_code)]

use std::ffi::c_ulong;
use std::io;
use std::path::Path;

use crate::model::Description;
use crate::{Assumption, CpuSet, PinError, sysfs};

const WORD_BITS: usize = c_ulong::BITS as usize;

/// Bits of the first buffer handed to the kernel; enough for most kernels.
const FIRST_BITS: usize = 1024;

pub(crate) fn describe() -> Option<Description> {
    let affinity = affinity(FIRST_BITS);
    let mut description = sysfs::read(Path::new("/sys"), affinity.as_ref().ok())?;
    if let Err(errno) = affinity {
        description
            .assumptions
            .push(Assumption::AffinityUnknown { errno });
    }
    Some(description)
}

pub(crate) fn pin(cpus: &CpuSet) -> Result<CpuSet, PinError> {
    let previous = current(cpus)?;
    set(cpus)?;
    Ok(previous)
}

pub(crate) fn current(cpus: &CpuSet) -> Result<CpuSet, PinError> {
    affinity(FIRST_BITS).map_err(|errno| PinError::Os {
        cpus: cpus.clone(),
        errno,
    })
}

pub(crate) fn set(cpus: &CpuSet) -> Result<(), PinError> {
    let words = cpus.last().map_or(1, |last| last / WORD_BITS + 1);
    let mut mask: Vec<c_ulong> = vec![0; words];
    for cpu in cpus {
        mask[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
    }
    // SAFETY: the call reads `size_of_val(mask)` bytes from the pointer: that is the whole vector,
    // which lives until the end of this function. Its elements have the type the kernel expects,
    // so the alignment is right. Process 0 is the calling thread.
    let result =
        unsafe { libc::sched_setaffinity(0, size_of_val(&mask[..]), mask.as_ptr().cast()) };
    if result == 0 {
        return Ok(());
    }
    let (cpus, errno) = (cpus.clone(), last_errno());
    Err(match errno {
        libc::EINVAL => PinError::NoUsableCpu { cpus, errno },
        _ => PinError::Os { cpus, errno },
    })
}

/// The affinity mask of the calling thread, or the error number. The buffer begins with room for
/// `bits` CPUs, a multiple of the word size.
fn affinity(mut bits: usize) -> Result<CpuSet, i32> {
    loop {
        // All zero, because the kernel writes no more than it has CPUs.
        let mut mask: Vec<c_ulong> = vec![0; bits / WORD_BITS];
        // SAFETY: the call writes at most `size_of_val(mask)` bytes to the pointer: that is the
        // whole vector, borrowed exclusively. Its elements are plain numbers of the type the
        // kernel writes. Process 0 is the calling thread.
        let result =
            unsafe { libc::sched_getaffinity(0, size_of_val(&mask[..]), mask.as_mut_ptr().cast()) };
        if result == 0 {
            return Ok(mask_to_set(&mask));
        }
        match last_errno() {
            // The kernel knows more CPUs than the buffer can hold.
            libc::EINVAL if bits < CpuSet::ID_LIMIT => bits *= 2,
            errno => return Err(errno),
        }
    }
}

fn mask_to_set(mask: &[c_ulong]) -> CpuSet {
    let is_set = |cpu: &usize| mask[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1;
    (0..mask.len() * WORD_BITS).filter(is_set).collect()
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{FIRST_BITS, WORD_BITS, affinity};
    use crate::CpuSet;

    #[test]
    fn the_buffer_grows_until_the_mask_fits() {
        // Too small for a kernel built for more CPUs than a word has bits.
        let mask = affinity(WORD_BITS).expect("the own mask");
        assert!(!mask.is_empty());
        assert_eq!(affinity(FIRST_BITS), Ok(mask.clone()));
        assert_eq!(affinity(CpuSet::ID_LIMIT), Ok(mask));
    }
}
