//! What a tag carries: one request, as the kernel will see it.

use std::io;

use crate::buffer::AlignedBuf;

/// What a request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Op {
    #[default]
    Read,
    Write,
    /// fdatasync of the whole file; its buffer is empty.
    Sync,
}

impl Op {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "fdatasync",
        }
    }
}

/// The payload of a tag. While the tag is in flight the buffer lies here, out of everybody's
/// reach; its owner lends it at the start and takes it back at the end.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) op: Op,
    /// Which lane of the job waits for it.
    pub(crate) lane: usize,
    /// Which piece of the lane's block it is.
    pub(crate) piece: usize,
    /// Where in the file the buffer belongs.
    pub(crate) offset: u64,
    pub(crate) buf: AlignedBuf,
    /// How many bytes are through.
    done: usize,
}

/// What a result means for a request.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Short or interrupted: start the rest.
    Again,
    Finished(io::Result<()>),
}

impl Slot {
    /// Describes a new request.
    pub(crate) fn set(&mut self, op: Op, lane: usize, piece: usize, offset: u64, buf: AlignedBuf) {
        *self = Self {
            op,
            lane,
            piece,
            offset,
            buf,
            done: 0,
        };
    }

    /// Where the next transfer starts.
    pub(crate) fn next_offset(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// What the next transfer moves.
    pub(crate) fn rest_mut(&mut self) -> &mut [u8] {
        &mut self.buf[self.done..]
    }

    /// Takes the result of a transfer into account.
    pub(crate) fn advance(&mut self, result: io::Result<usize>) -> Progress {
        match result {
            Err(error) if is_transient(&error) => Progress::Again,
            Err(error) => Progress::Finished(Err(error)),
            Ok(_) if self.op == Op::Sync => Progress::Finished(Ok(())),
            Ok(0) => Progress::Finished(Err(self.nothing_moved())),
            Ok(bytes) => {
                self.done += bytes.min(self.buf.len() - self.done);
                if self.done < self.buf.len() {
                    Progress::Again
                } else {
                    Progress::Finished(Ok(()))
                }
            }
        }
    }

    fn nothing_moved(&self) -> io::Error {
        match self.op {
            Op::Read => io::Error::new(io::ErrorKind::UnexpectedEof, "end of file"),
            Op::Write | Op::Sync => io::ErrorKind::WriteZero.into(),
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(op: Op) -> Slot {
        let mut slot = Slot::default();
        slot.set(op, 0, 0, 8192, AlignedBuf::zeroed(4096).unwrap());
        slot
    }

    #[test]
    fn a_short_transfer_goes_on_where_it_stopped() {
        let mut slot = slot(Op::Read);
        assert!(matches!(slot.advance(Ok(1024)), Progress::Again));
        assert_eq!((slot.next_offset(), slot.rest_mut().len()), (9216, 3072));
        assert!(matches!(slot.advance(Ok(3072)), Progress::Finished(Ok(()))));
    }

    #[test]
    fn an_interrupted_transfer_is_started_again() {
        let mut slot = slot(Op::Write);
        assert!(matches!(
            slot.advance(Err(io::ErrorKind::Interrupted.into())),
            Progress::Again
        ));
        assert_eq!(slot.next_offset(), 8192);
    }

    #[test]
    fn nothing_moved_is_an_error_and_not_a_loop() {
        let Progress::Finished(Err(error)) = slot(Op::Read).advance(Ok(0)) else {
            panic!()
        };
        assert_eq!(error.to_string(), "end of file");
        assert!(matches!(
            slot(Op::Write).advance(Ok(0)),
            Progress::Finished(Err(_))
        ));
        assert!(matches!(
            slot(Op::Sync).advance(Ok(0)),
            Progress::Finished(Ok(()))
        ));
    }
}
