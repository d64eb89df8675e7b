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
    /// Which job it belongs to.
    pub(crate) job: usize,
    /// Which lane of the job waits for it.
    pub(crate) lane: usize,
    /// Which piece of the lane's block it is.
    pub(crate) piece: usize,
    /// Where in the file the buffer belongs.
    pub(crate) offset: u64,
    pub(crate) buf: AlignedBuf,
    /// What the last transfer moved, or why it did not; none until it is back.
    pub(crate) result: Option<io::Result<usize>>,
    /// How many bytes are through.
    done: usize,
}

/// Which piece of which job's block a request is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owner {
    pub(crate) job: usize,
    pub(crate) lane: usize,
    pub(crate) piece: usize,
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
    pub(crate) fn set(&mut self, op: Op, owner: Owner, offset: u64, buf: AlignedBuf) {
        let Owner { job, lane, piece } = owner;
        *self = Self {
            op,
            job,
            lane,
            piece,
            offset,
            buf,
            result: None,
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
    pub(crate) fn advance(&mut self) -> Progress {
        let lost = || Err(io::Error::other("the request was not carried out"));
        match self.result.take().unwrap_or_else(lost) {
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
        slot.set(
            op,
            Owner::default(),
            8192,
            AlignedBuf::zeroed(4096).unwrap(),
        );
        slot
    }

    fn advance(slot: &mut Slot, result: io::Result<usize>) -> Progress {
        slot.result = Some(result);
        slot.advance()
    }

    #[test]
    fn a_request_without_a_result_has_failed() {
        let Progress::Finished(Err(error)) = slot(Op::Write).advance() else {
            panic!()
        };
        assert_eq!(error.to_string(), "the request was not carried out");
    }

    #[test]
    fn a_short_transfer_goes_on_where_it_stopped() {
        let mut slot = slot(Op::Read);
        assert!(matches!(advance(&mut slot, Ok(1024)), Progress::Again));
        assert_eq!((slot.next_offset(), slot.rest_mut().len()), (9216, 3072));
        assert!(matches!(
            advance(&mut slot, Ok(3072)),
            Progress::Finished(Ok(()))
        ));
    }

    #[test]
    fn an_interrupted_transfer_is_started_again() {
        let mut slot = slot(Op::Write);
        assert!(matches!(
            advance(&mut slot, Err(io::ErrorKind::Interrupted.into())),
            Progress::Again
        ));
        assert_eq!(slot.next_offset(), 8192);
    }

    #[test]
    fn nothing_moved_is_an_error_and_not_a_loop() {
        let Progress::Finished(Err(error)) = advance(&mut slot(Op::Read), Ok(0)) else {
            panic!()
        };
        assert_eq!(error.to_string(), "end of file");
        assert!(matches!(
            advance(&mut slot(Op::Write), Ok(0)),
            Progress::Finished(Err(_))
        ));
        assert!(matches!(
            advance(&mut slot(Op::Sync), Ok(0)),
            Progress::Finished(Ok(()))
        ));
    }
}
