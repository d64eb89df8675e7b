//! Memory an `O_DIRECT` transfer may use.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// The alignment every device and file system accepts.
const ALIGN: usize = 4096;

/// Bytes whose address is a multiple of 4096 and stays the same wherever the value is moved.
///
/// The default value is empty; it stands in for a buffer that is away with a request.
#[derive(Default)]
pub(crate) struct AlignedBuf {
    // Invariant: never grown or shrunk after `zeroed`, so `start` stays aligned.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Result<Self, TryReserveError> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len + ALIGN)?;
        let address = bytes.as_ptr() as usize;
        bytes.resize(len + ALIGN, 0);
        Ok(Self {
            bytes,
            start: address.next_multiple_of(ALIGN) - address,
            len,
        })
    }

    /// The memory that `pieces` takes, in bytes.
    pub(crate) fn footprint(total: usize, piece: usize) -> usize {
        total + ALIGN * total.div_ceil(piece)
    }

    /// A block of `total` bytes as buffers of at most `piece` bytes.
    pub(crate) fn pieces(total: usize, piece: usize) -> Result<Vec<Self>, TryReserveError> {
        (0..total)
            .step_by(piece)
            .map(|start| Self::zeroed(piece.min(total - start)))
            .collect()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_aligned_and_stays_so_when_moved() {
        for len in [0, 1, 512, 4095, 4096, 1 << 20] {
            let buf = AlignedBuf::zeroed(len).unwrap();
            assert_eq!(buf.as_ptr() as usize % ALIGN, 0);
            assert_eq!(buf.len(), len);
            let address = buf.as_ptr();
            let moved = Box::new(buf);
            assert_eq!(moved.as_ptr(), address);
        }
    }

    #[test]
    fn pieces_add_up_and_only_the_last_is_short() {
        let lens: Vec<usize> = AlignedBuf::pieces(10_240, 4096)
            .unwrap()
            .iter()
            .map(|b| b.len())
            .collect();
        assert_eq!(lens, [4096, 4096, 2048]);
    }
}
