//! What a client asks to be durable: flushes, and writes with `FUA`. All clients of an export share
//! its flushes.
//!
//! A system tells of a flush that failed once, and the next one succeeds without what was lost. So
//! after a failure nothing of the export is called durable any more.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;

use inflight::flush::{Flags, FlushError, Sequence, WriteError};
use nbd_export::proto::Errno;

use crate::reactor::{Buffer, FileOp};
use crate::request::Session;

/// One request's part in it. Nothing happens unless `fua` asks for it.
pub(crate) struct Durable<'a> {
    session: &'a Session,
    fua: bool,
    begun: RefCell<Option<Sequence>>,
}

impl<'a> Durable<'a> {
    pub(crate) fn new(session: &'a Session, fua: bool) -> Self {
        Self {
            session,
            fua,
            begun: RefCell::new(None),
        }
    }

    /// Its data goes to the file now, the first of it: a flush that others ask for may be put off
    /// for it. So this comes behind all that it waits for, tags for instance.
    pub(crate) async fn begin(&self) -> Result<(), Errno> {
        if !self.fua || self.begun.borrow().is_some() {
            return Ok(());
        }
        let (session, domain) = (self.session, &self.session.export.domain);
        session.nothing_is_lost()?;
        let begun = domain.begin_with(Flags::write().fua(), || session.flush_file());
        let begun = session.in_time(begun).await;
        let sequence = begun.map_err(|error| flush_errno(&error))?;
        self.begun.replace(Some(sequence));
        Ok(())
    }

    /// Makes what was done durable.
    pub(crate) async fn finish(self, done: Result<(), Errno>) -> Result<(), Errno> {
        let Some(sequence) = self.begun.into_inner() else {
            return done;
        };
        let session = self.session;
        let data = done.map_err(|_| io::Error::from(io::ErrorKind::Other));
        let finished = sequence.finish_with(data, || session.flush_file());
        let durable = match session.in_time(finished).await {
            Ok(()) => Ok(()),
            Err(WriteError::Flush(error)) => Err(Errno::from(&io::Error::from(error))),
            Err(_) => done.and(Err(Errno::Io)),
        };
        durable.and(session.nothing_is_lost())
    }
}

impl Session {
    pub(crate) async fn flush(&self) -> Result<(), Errno> {
        self.nothing_is_lost()?;
        let domain = &self.export.domain;
        let flushed = self.in_time(domain.flush_with(|| self.flush_file())).await;
        flushed.map_err(|error| flush_errno(&error))?;
        // Another one may have failed meanwhile, and have been told what this one was not.
        self.nothing_is_lost()
    }

    /// The device's flush, by this thread's ring or workers.
    async fn flush_file(&self) -> io::Result<()> {
        let flushed = self.file(FileOp::Flush, Buffer::default(), None);
        flushed.await.0.map(drop)
    }

    /// Waits for the export's flushes. Whatever was done may have put one off: this thread sees to
    /// it that it is not put off for too long.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            self.reactor.see_to_flushes(&self.export);
            polled
        })
        .await
    }

    /// Whether no flush of the file has failed since the server began.
    fn nothing_is_lost(&self) -> Result<(), Errno> {
        if self.export.domain.is_poisoned() {
            return Err(Errno::Io);
        }
        Ok(())
    }
}

fn flush_errno(error: &FlushError) -> Errno {
    Errno::from(&io::Error::from(*error))
}
