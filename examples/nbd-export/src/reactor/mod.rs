//! One thread's executor and its way into the kernel: a ring of io_uring, or an epoll set with a
//! workqueue for files.
//!
//! Tasks stay on their thread. An operation owns its buffer until it has ended, also if nobody
//! waits for it any more; so dropping a task is safe at any moment.

mod arrivals;
mod buffer;
mod faults;
mod file_op;
mod notifier;
mod pipe;
mod psync;
mod put_off;
mod uring;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use slab::Slab;

pub(crate) use arrivals::Ended;
#[cfg(test)]
pub(crate) use arrivals::Inbox;
use arrivals::{Arrival, Arrivals};
use buffer::Fixed;
pub(crate) use buffer::{Buffer, PAGE};
pub(crate) use faults::Faults;
use faults::{Fault, Injector};
pub(crate) use file_op::FileOp;
pub(crate) use notifier::Remote;
use notifier::{Notifier, Spawn};
use pipe::Pipes;
use psync::{Psync, Report};
use put_off::PutOff;
use uring::Uring;

use crate::adapter::{Completer, Held};
use crate::export::Export;

/// How the kernel answered, the buffer, and the tag.
pub(crate) type Answer = (io::Result<usize>, Buffer, Option<Held>);

/// The key of an operation, and how the kernel answered.
type Finished = (usize, i32);

/// The answer as the kernel gives it.
fn answer(done: io::Result<usize>) -> i32 {
    match done {
        Ok(done) => i32::try_from(done).unwrap_or(i32::MAX),
        Err(error) => -error.raw_os_error().unwrap_or(5),
    }
}

/// What a socket is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ready {
    Read,
    Write,
}

/// An operation that nobody has taken the answer of.
struct Op {
    waker: Option<Waker>,
    /// The kernel may use it until there is a result.
    buffer: Buffer,
    result: Option<i32>,
    /// Its place at the files, unless that is on its way with the answer.
    tag: Option<Held>,
    /// It waits for a socket, and not for a file.
    poll: bool,
    /// Nobody waits for it any more.
    abandoned: bool,
}

impl Op {
    const fn new(buffer: Buffer, tag: Option<Held>, poll: bool) -> Self {
        Self {
            waker: None,
            buffer,
            result: None,
            tag,
            poll,
            abandoned: false,
        }
    }
}

enum Backend {
    Uring(Box<Uring>),
    Psync(Psync),
}

/// One thread's executor.
pub(crate) struct Reactor {
    ops: RefCell<Slab<Op>>,
    backend: RefCell<Backend>,
    notifier: Arc<Notifier>,
    inbox: Arc<Mutex<Vec<Spawn>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    fixed: Option<Fixed>,
    pipes: Arc<Pipes>,
    /// The longest piece.
    longest: usize,
    /// Clients, most of the time: tasks that it has.
    tasks: Cell<usize>,
    under_way: Cell<usize>,
    /// Tasks for which workers compute something.
    computing: Cell<usize>,
    injector: Injector,
    kind: Kind,
    one_disk: bool,
    /// Operations on files in memory, and how they ended.
    done_at_once: RefCell<Vec<Finished>>,
    completer: Completer,
    arrivals: Arc<Arrivals>,
    put_off: PutOff,
    /// Tasks that are woken about every second.
    on_tick: RefCell<Vec<Waker>>,
    ticks: Cell<u64>,
}

/// Which engine, as the command line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Uring,
    Psync,
}

/// What all threads do alike.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    pub(crate) faults: Faults,
    /// Bytes of each thread's buffers that its ring is told of.
    pub(crate) registered: usize,
    /// The longest piece.
    pub(crate) longest: usize,
    /// Reads and writes through buffers that the ring was told of.
    pub(crate) with_registered: Arc<AtomicU64>,
    pub(crate) completer: Completer,
    /// If exports are on several disks: how many operations may block at once, so that they do not
    /// keep those of other disks from the kernel.
    pub(crate) may_block: Option<u32>,
}

/// How long a thread sleeps at most: time limits of connections are looked at this often.
const TICK: Duration = Duration::from_secs(1);
/// Buffers kept for the next request, in bytes.
const KEPT: usize = 8 << 20;

impl Reactor {
    /// The calling thread's. `refused` is told why the kernel does not want to know the buffers.
    pub(crate) fn new(setup: &Setup, refused: impl FnOnce(&io::Error)) -> io::Result<Rc<Self>> {
        let notifier = Arc::new(Notifier::new()?);
        let raw = notifier.fd.as_raw_fd();
        let arrivals = Arrivals::new(&notifier);
        let mut fixed = None;
        let backend = match setup.kind {
            Kind::Uring => {
                let mut uring = Uring::new(raw, setup.with_registered.clone())?;
                if let Some(operations) = setup.may_block {
                    uring.let_block(operations);
                }
                if setup.registered > 0 {
                    match uring.register(setup.registered, setup.longest) {
                        Ok(registered) => fixed = Some(registered),
                        Err(error) => refused(&error),
                    }
                }
                Backend::Uring(Box::new(uring))
            }
            Kind::Psync => Backend::Psync(Psync::new(&notifier)?),
        };
        Ok(Rc::new(Self {
            ops: RefCell::default(),
            backend: RefCell::new(backend),
            notifier,
            inbox: Arc::default(),
            buffers: RefCell::default(),
            fixed,
            pipes: Arc::default(),
            longest: setup.longest,
            tasks: Cell::new(0),
            under_way: Cell::new(0),
            computing: Cell::new(0),
            injector: Injector::new(setup.faults.clone()),
            kind: setup.kind,
            one_disk: setup.may_block.is_none(),
            done_at_once: RefCell::default(),
            completer: setup.completer.clone(),
            arrivals,
            put_off: PutOff::default(),
            on_tick: RefCell::default(),
            ticks: Cell::new(0),
        }))
    }

    /// Whether the kernel lets us use rings.
    pub(crate) fn probe() -> io::Result<()> {
        Uring::probe()
    }

    pub(crate) fn remote(&self) -> Remote {
        Remote {
            notifier: self.notifier.clone(),
            inbox: self.inbox.clone(),
        }
    }

    /// A buffer of `len` bytes; what is in it is old.
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        if let Some(buffer) = self.fixed.as_ref().and_then(|fixed| fixed.take(len)) {
            return buffer;
        }
        let mut buffers = self.buffers.borrow_mut();
        let fits =
            |buffer: &Vec<u8>| buffer.capacity() >= len && buffer.capacity() <= 2 * len + 4096;
        let mut buffer = match buffers.iter().rposition(fits) {
            Some(at) => buffers.swap_remove(at),
            // Memory that the system gives when it is touched.
            None => vec![0; len],
        };
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        buffer.truncate(len);
        buffer.into()
    }

    /// A buffer for `len` bytes of a file in memory, which are sent and not looked at. None if
    /// there is no pipe for them.
    pub(crate) fn pipe(&self, len: usize) -> Option<Buffer> {
        Buffer::pipe(&self.pipes, len, self.longest)
    }

    /// Gives a buffer back.
    pub(crate) fn recycle(&self, buffer: Buffer) {
        let Some(buffer) = buffer.into_heap() else {
            return;
        };
        let mut buffers = self.buffers.borrow_mut();
        let kept: usize = buffers.iter().map(Vec::capacity).sum();
        if kept + buffer.capacity() <= KEPT && buffers.len() < 256 {
            buffers.push(buffer);
        }
    }

    /// Whether nobody but its own client waits for what this thread does: there is one client, and
    /// no other operation of it is elsewhere.
    pub(crate) fn has_one_client(&self) -> bool {
        self.tasks.get() == 1 && self.under_way.get() == self.done_at_once.borrow().len()
    }

    /// Whether a write is done at once: for an only client, without a ring, if the others that come
    /// to this thread are of the same disk. A ring writes what does not block without help.
    fn writes_at_once(&self) -> bool {
        self.one_disk && self.kind == Kind::Psync && self.has_one_client()
    }

    /// Carries out an operation on a file. Reads and writes of files in memory do not block, so
    /// they are done at once, and so is a [write](Self::writes_at_once) of an only client; the
    /// answer comes with those of the others, after the tasks that run now.
    pub(crate) fn file(
        self: &Rc<Self>,
        export: &Export,
        op: FileOp,
        buffer: Buffer,
        tag: Option<Held>,
    ) -> Running {
        let Export {
            file, in_memory, ..
        } = export;
        let at_once = match op {
            FileOp::Write { .. } => *in_memory || self.writes_at_once(),
            FileOp::Read { .. } | FileOp::Flush => *in_memory,
            // However long the range is.
            FileOp::PunchHole { .. } | FileOp::ZeroRange { .. } | FileOp::ReadAhead { .. } => false,
        };
        let mut ops = self.ops.borrow_mut();
        let key = ops.insert(Op::new(buffer, tag, false));
        self.under_way.set(self.under_way.get() + 1);
        let Op { buffer, tag, .. } = &mut ops[key];
        let mut len = buffer.len();
        match self.injector.next(op, &export.described.name) {
            None => {}
            // What is in a pipe is not looked at, so nothing can be appended.
            Some(Fault::IsShort) if buffer.is_pipe() => {}
            Some(Fault::IsShort) => len = len.div_ceil(2),
            Some(Fault::Fails(errno)) => {
                let result = -errno.raw_os_error();
                self.done_at_once.borrow_mut().push((key, result));
                return self.running(key);
            }
        }
        match &mut *self.backend.borrow_mut() {
            _ if at_once => {
                let passed_on = match op {
                    FileOp::Read { offset } => buffer.fill_from(file, offset),
                    _ => None,
                };
                let done =
                    passed_on.unwrap_or_else(|| psync::perform(file, &op, &mut buffer[..len]));
                let result = answer(done);
                self.done_at_once.borrow_mut().push((key, result));
            }
            Backend::Uring(uring) => {
                if let Some(tag) = tag {
                    tag.submit_here();
                }
                uring.file(file, &op, &mut buffer[..len], key);
            }
            Backend::Psync(psync) => {
                let ended = Ended {
                    arrival: Arrival {
                        key,
                        result: -rustix::io::Errno::IO.raw_os_error(),
                        buffer: None,
                        tag: None,
                    },
                    arrivals: self.arrivals.clone(),
                };
                let report = Report::new(ended, tag.take(), &self.completer);
                psync.file(export, op, (std::mem::take(buffer), len), report);
            }
        }
        self.running(key)
    }

    fn running(self: &Rc<Self>, key: usize) -> Running {
        Running {
            reactor: self.clone(),
            key: Some(key),
        }
    }

    /// Waits for a worker that computes something.
    pub(crate) async fn computed<T>(&self, work: impl Future<Output = T>) -> T {
        struct One<'a>(&'a Cell<usize>);
        impl Drop for One<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        self.computing.set(self.computing.get() + 1);
        let _one = One(&self.computing);
        work.await
    }

    /// Wakes a task within a second or so. `asked` is the tick at which it asked last: it asks once
    /// for each.
    pub(crate) fn wake_on_tick(&self, waker: &Waker, asked: &mut Option<u64>) {
        let tick = self.ticks.get();
        if asked.replace(tick) != Some(tick) {
            self.on_tick.borrow_mut().push(waker.clone());
        }
    }

    fn tick(&self, last: &mut Instant, now: bool) {
        if now || last.elapsed() >= TICK {
            *last = Instant::now();
            self.ticks.set(self.ticks.get() + 1);
            let wakers = std::mem::take(&mut *self.on_tick.borrow_mut());
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Has a flush of the export that was put off go on when its time has come.
    pub(crate) fn see_to_flushes(&self, export: &Arc<Export>) {
        self.put_off.note(export);
    }

    /// Waits until a socket can be read or written, or is closed by the other side.
    pub(crate) fn ready(self: &Rc<Self>, socket: RawFd, ready: Ready) -> Running {
        let key = self
            .ops
            .borrow_mut()
            .insert(Op::new(Buffer::default(), None, true));
        match &mut *self.backend.borrow_mut() {
            Backend::Uring(uring) => uring.poll(socket, ready, key),
            Backend::Psync(psync) => psync.poll(socket, ready, key),
        }
        self.running(key)
    }

    /// The ring has said how an operation ended. Where it goes on is for its tag's policy.
    fn seen(&self, key: usize, result: i32) {
        let mut arrival = Arrival {
            key,
            result,
            buffer: None,
            tag: None,
        };
        let tag = self
            .ops
            .borrow_mut()
            .get_mut(key)
            .and_then(|op| op.tag.take());
        if let Some(tag) = tag {
            let ended = Ended {
                arrival,
                arrivals: self.arrivals.clone(),
            };
            let Some((ended, tag)) = self.completer.steer(tag, ended) else {
                return;
            };
            arrival = ended.arrival;
            arrival.tag = Some(tag);
        }
        self.complete(arrival);
    }

    fn complete(&self, arrival: Arrival) {
        let Arrival { key, result, .. } = arrival;
        let mut ops = self.ops.borrow_mut();
        let Some(op) = ops.get_mut(key).filter(|op| op.result.is_none()) else {
            return;
        };
        if !op.poll {
            self.under_way.set(self.under_way.get() - 1);
        }
        op.result = Some(result);
        if let Some(buffer) = arrival.buffer {
            op.buffer = buffer;
        }
        if arrival.tag.is_some() {
            op.tag = arrival.tag;
        }
        let waker = op.waker.take();
        let gone = op.abandoned.then(|| ops.remove(key));
        drop(ops);
        drop(gone);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Runs tasks until `done` says so and none is left.
    pub(crate) fn run(self: &Rc<Self>, done: impl Fn() -> bool) -> io::Result<()> {
        let waker = Waker::from(self.notifier.clone());
        let mut cx = Context::from_waker(&waker);
        let mut tasks: FuturesUnordered<LocalBoxFuture<'static, ()>> = FuturesUnordered::new();
        let (mut last_tick, mut ending) = (Instant::now(), false);
        loop {
            // All tasks hear of the end, once.
            let begins_to_end = done() && !std::mem::replace(&mut ending, done());
            self.tick(&mut last_tick, begins_to_end);
            // Ordering: AcqRel, pairs with the swap in `notify`: what was done before is seen
            // below.
            self.notifier.notified.swap(false, Ordering::AcqRel);
            let arrived = {
                let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *inbox)
            };
            for spawn in arrived {
                tasks.push(spawn(self));
            }
            for arrival in self.arrivals.take() {
                self.complete(arrival);
            }
            self.tasks.set(tasks.len());
            while let Poll::Ready(Some(())) = tasks.poll_next_unpin(&mut cx) {}
            if self.injector.ends_thread() {
                return Err(io::Error::other("an injected fault"));
            }
            if done() && tasks.is_empty() && self.under_way.get() == 0 {
                return Ok(());
            }
            let at_once = std::mem::take(&mut *self.done_at_once.borrow_mut());
            let wait = !self.notifier.notified.load(Ordering::Acquire) && at_once.is_empty();
            let limit = wait.then(|| self.put_off.left().unwrap_or(TICK).min(TICK));
            let mut seen = Vec::new();
            match &mut *self.backend.borrow_mut() {
                Backend::Uring(uring) => {
                    uring.wait(limit, self.computing.get(), &mut seen)?;
                }
                Backend::Psync(psync) => psync.wait(limit, &mut seen)?,
            }
            self.put_off.go_on();
            for (key, result) in at_once {
                self.complete(Arrival {
                    key,
                    result,
                    buffer: None,
                    tag: None,
                });
            }
            for (key, result) in seen {
                self.seen(key, result);
            }
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // A thread that ends by an error or a panic has operations under way, and the kernel may
        // use their buffers yet. Their tags are free: other threads may wait for them.
        let mut ops = self.ops.take();
        if self.under_way.get() > 0 {
            for (_, op) in &mut ops {
                drop(op.tag.take());
            }
            std::mem::forget(ops);
        }
    }
}

/// An operation under way. It goes on if this is dropped.
pub(crate) struct Running {
    reactor: Rc<Reactor>,
    key: Option<usize>,
}

impl Future for Running {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        let key = this.key.expect("polled after its end");
        let mut ops = this.reactor.ops.borrow_mut();
        let Some(result) = ops[key].result else {
            ops[key].waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let op = ops.remove(key);
        drop(ops);
        this.key = None;
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Poll::Ready((result, op.buffer, op.tag))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut ops = self.reactor.ops.borrow_mut();
        let op = &mut ops[key];
        if op.result.is_some() {
            ops.remove(key);
            return;
        }
        // The entry keeps the buffer until the kernel has answered.
        op.abandoned = true;
        if op.poll {
            match &mut *self.reactor.backend.borrow_mut() {
                Backend::Uring(uring) => uring.cancel(key),
                Backend::Psync(psync) => {
                    psync.forget(key);
                    ops.remove(key);
                }
            }
        }
    }
}
