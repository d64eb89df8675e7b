//! One client: bytes in, requests out to the export, replies back in whatever order they end.
//!
//! A client holds no tags while its bytes are on the way, in either direction. What it may have
//! under way is bounded; then nothing more is read from it until something has been sent.

use std::fmt::Display;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use nbd_export::incoming::{self, Incoming};
use nbd_export::negotiate::{Agreed, Described, Negotiation, Next};
use nbd_export::proto::{Command, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::readv;

use crate::memory::Share;
use crate::output::Output;
use crate::reactor::{Buffer, Reactor, Ready, Running};
use crate::request::{Reply, Session};
use crate::server::{ClientPermit, Shared};
use crate::stall::Stall;

/// How many requests of one client are under way, or answered and the answer not sent.
const MAX_REQUESTS: usize = 256;
/// And how many bytes they have, roughly.
const MAX_BYTES: usize = 64 << 20;
/// A client that holds memory others wait for is sent away if it is its turn to take or to send
/// something, and it has stalled for so long.
const STALLED: Duration = Duration::from_secs(10);
/// How many bytes are started at once; then the answers are sent before more is started. With more,
/// a client of short requests waits for the server, and then the server for the client.
const BURST: usize = 128 << 10;
/// A request counts for so many of them at least, also if it is refused.
const LEAST: usize = 512;
/// A client that has not chosen an export, and not asked for anything else, for so long is sent
/// away.
const NEGOTIATION: Duration = Duration::from_secs(10);
/// Bytes read at once, unless a payload is longer.
const INPUT: usize = 128 << 10;
/// Nothing is read while so much is there that has not been understood.
const AHEAD_OF_PARSE: usize = 16 << 10;
/// The same behind a write that is as long as `INPUT` or longer: another one like it may follow,
/// whose payload is to be read into its place.
const BEHIND_LONG: usize = 4 << 10;
/// Memory for so much of a payload is there before it comes; then for as much as has come.
const AHEAD: usize = 512 << 10;

/// A write whose data is on the way.
struct Receiving {
    request: Request,
    pieces: Vec<Buffer>,
    /// The piece that is being filled, and how far.
    piece: usize,
    filled: usize,
    /// Bytes that have come, and those for which there is no memory yet.
    received: usize,
    missing: usize,
}

/// How reading or writing went.
enum Io {
    Progress,
    Blocked,
    Ended,
}

pub(crate) struct Connection {
    socket: OwnedFd,
    reactor: Rc<Reactor>,
    shared: Arc<Shared>,
    described: Vec<Described>,
    negotiation: Negotiation,
    session: Option<Rc<Session>>,
    /// What comes when there is a session.
    incoming: Option<Incoming>,
    input: Vec<u8>,
    /// How much is read that has no place yet.
    read_ahead: usize,
    receiving: Option<Receiving>,
    requests: FuturesUnordered<LocalBoxFuture<'static, Reply>>,
    /// Memory for their data, when there is a session.
    share: Option<Share>,
    /// The next request, which waits for memory.
    waiting: Option<Request>,
    /// It is the client's turn to take answers.
    takes: Stall,
    /// It is its turn to send the rest of a payload.
    sends: Stall,
    /// What may be started before others have their turn.
    burst: usize,
    output: Output,
    can_read: Option<Running>,
    can_write: Option<Running>,
    /// When the negotiation went on last.
    since: Instant,
    asked_for_tick: Option<u64>,
    /// Nothing more is read.
    ended: bool,
    /// Nothing more is sent.
    broken: bool,
    /// The last field, so that it is given up when the socket is closed and the memory is free.
    permit: ClientPermit,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, reactor: &Rc<Reactor>, permit: ClientPermit) -> Self {
        let shared = permit.shared.clone();
        let mut output = Output::default();
        output.push(Negotiation::greeting());
        Self {
            socket,
            reactor: reactor.clone(),
            described: shared.exports.iter().map(|e| e.described.clone()).collect(),
            shared,
            negotiation: Negotiation::new(),
            session: None,
            incoming: None,
            input: Vec::new(),
            read_ahead: INPUT,
            receiving: None,
            requests: FuturesUnordered::new(),
            share: None,
            waiting: None,
            takes: Stall::default(),
            sends: Stall::default(),
            burst: BURST,
            output,
            can_read: None,
            can_write: None,
            since: Instant::now(),
            asked_for_tick: None,
            ended: false,
            broken: false,
            permit,
        }
    }

    /// Whether a request may be started.
    fn may_start(&self) -> bool {
        let used = self.share.as_ref().map_or(0, Share::used);
        let requests = self.requests.len() + self.output.replies();
        let room = requests < MAX_REQUESTS && used < MAX_BYTES;
        !self.ended && room && self.burst > 0
    }

    fn may_read(&self) -> bool {
        self.may_start() && self.waiting.is_none()
    }

    /// Takes what has been received apart.
    fn parse(&mut self, cx: &mut Context<'_>) {
        let mut input = std::mem::take(&mut self.input);
        let mut at = 0;
        while !self.ended {
            if let Some(request) = self.waiting.take() {
                self.admit(request, cx);
                if self.waiting.is_some() {
                    break;
                }
            }
            let rest = &input[at..];
            if rest.is_empty() {
                break;
            }
            let taken = if self.receiving.is_some() {
                self.fill(rest)
            } else if self.session.is_none() && !self.output.is_empty() {
                // First it takes what was answered.
                0
            } else if self.session.is_none() {
                self.negotiate(rest)
            } else if self.may_start() {
                self.request(rest)
            } else {
                0
            };
            if taken == 0 {
                break;
            }
            at += taken;
        }
        if at == input.len() {
            input.clear();
        } else {
            input.drain(..at);
        }
        self.input = input;
    }

    fn negotiate(&mut self, input: &[u8]) -> usize {
        let mut answers = Vec::new();
        let (taken, next) = self
            .negotiation
            .receive(input, &self.described, &mut answers);
        if !answers.is_empty() {
            self.since = Instant::now();
            self.output.push(answers);
        }
        match next {
            Next::More => {}
            Next::Transmit(agreed) => self.begin(agreed),
            Next::Goodbye => self.ended = true,
            Next::Close(why) => {
                self.log_sent_away(&why);
                self.ended = true;
            }
        }
        taken
    }

    fn begin(&mut self, agreed: Agreed) {
        let export = self.shared.exports[agreed.export].clone();
        let tenant = match self.shared.tenant_for(&export) {
            Ok(tenant) => tenant,
            Err(error) => {
                self.log_sent_away(&error);
                self.ended = true;
                return;
            }
        };
        let clients = export.stats.clients.fetch_add(1, Ordering::Relaxed) + 1;
        let (name, who) = (&export.described.name, self.permit.who);
        let line = format!("{name}: {who} has come, {clients} in all");
        self.shared.log_of_client(&line);
        let limits = agreed.limits(&export.described);
        self.share = Some(Share::new(export.disk.memory.clone()));
        self.incoming = Some(Incoming::new(limits));
        self.session = Some(Rc::new(Session {
            reactor: self.reactor.clone(),
            tenant,
            workers: self.shared.workers.clone(),
            limits,
            agreed,
            max_split: self.shared.max_split,
            export,
        }));
        self.described = Vec::new();
    }

    fn log_sent_away(&self, why: &dyn Display) {
        let line = format!("{} was sent away: {why}", self.permit.who);
        self.shared.log_of_client(&line);
    }

    fn request(&mut self, input: &[u8]) -> usize {
        let Some(incoming) = &mut self.incoming else {
            return 0;
        };
        let (taken, next) = incoming.next(input);
        match next {
            incoming::Next::More => {}
            incoming::Next::Request(request) => self.waiting = Some(request),
            incoming::Next::Refused(request, _) => self.start(request, Vec::new()),
            incoming::Next::Goodbye => self.ended = true,
            incoming::Next::Close(why) => {
                self.log_sent_away(&why);
                self.ended = true;
            }
        }
        taken
    }

    /// Begins a request, if there is memory for it. Else it goes on waiting.
    fn admit(&mut self, request: Request, cx: &mut Context<'_>) {
        let (Some(session), Some(share)) = (&self.session, &mut self.share) else {
            return;
        };
        let needed = session.memory_for(&request);
        if share.poll_take(needed, cx).is_pending() {
            self.waiting = Some(request);
            return;
        }
        let split = session.max_split;
        let is_write = request.command == Some(Command::Write);
        let is_long = is_write && needed >= INPUT;
        self.read_ahead = if is_long { BEHIND_LONG } else { INPUT };
        if !is_write {
            return self.start(request, Vec::new());
        }
        let mut receiving = Receiving {
            request,
            pieces: Vec::new(),
            piece: 0,
            filled: 0,
            received: 0,
            missing: request.length as usize,
        };
        receiving.make_room(&self.reactor, split);
        self.receiving = Some(receiving);
    }

    fn start(&mut self, request: Request, data: Vec<Buffer>) {
        let session = self
            .session
            .clone()
            .expect("a request before the end of the negotiation");
        let counts = session.memory_for(&request).max(LEAST);
        self.burst = self.burst.saturating_sub(counts);
        self.requests.push(Box::pin(session.handle(request, data)));
    }

    /// Copies what has come of a payload.
    fn fill(&mut self, input: &[u8]) -> usize {
        let Some(receiving) = &mut self.receiving else {
            return 0;
        };
        let mut taken = 0;
        while taken < input.len() && receiving.piece < receiving.pieces.len() {
            let piece = &mut receiving.pieces[receiving.piece];
            let now = (piece.len() - receiving.filled).min(input.len() - taken);
            piece[receiving.filled..][..now].copy_from_slice(&input[taken..][..now]);
            taken += now;
            receiving.advance(now);
            receiving.make_room(&self.reactor, self.shared.max_split);
        }
        self.start_if_received();
        taken
    }

    fn start_if_received(&mut self) {
        let whole = |receiving: &mut Receiving| receiving.piece == receiving.pieces.len();
        if let Some(receiving) = self.receiving.take_if(whole) {
            self.start(receiving.request, receiving.pieces);
        }
    }

    /// Reads what is there: the rest of a payload into its place, and more behind it.
    fn read(&mut self) -> io::Result<Io> {
        let mut extra = self.reactor.buffer(self.read_ahead);
        let mut slices = Vec::new();
        let mut wanted = 0;
        if let Some(receiving) = &mut self.receiving {
            let from = receiving.filled;
            let pieces = receiving.pieces[receiving.piece..].iter_mut().enumerate();
            for (n, piece) in pieces.take(62) {
                let part = &mut piece[if n == 0 { from } else { 0 }..];
                wanted += part.len();
                slices.push(IoSliceMut::new(part));
            }
        }
        slices.push(IoSliceMut::new(&mut extra));
        let read = match readv(&self.socket, &mut slices) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                self.reactor.recycle(extra);
                return Ok(Io::Blocked);
            }
            Err(error) => return Err(error.into()),
            Ok(0) => return Ok(Io::Ended),
            Ok(read) => read,
        };
        drop(slices);
        self.sends.moved(read);
        let own = read.min(wanted);
        if let Some(receiving) = &mut self.receiving {
            receiving.advance(own);
            receiving.make_room(&self.reactor, self.shared.max_split);
        }
        self.start_if_received();
        if read > own {
            self.input.extend_from_slice(&extra[..read - own]);
        }
        self.reactor.recycle(extra);
        Ok(Io::Progress)
    }

    fn write(&mut self) -> io::Result<Io> {
        match self.output.send(&self.socket, &self.reactor) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Io::Blocked),
            Err(error) => Err(error.into()),
            Ok(sent) => {
                self.give_back(sent.freed);
                self.takes.moved(sent.bytes);
                Ok(Io::Progress)
            }
        }
    }

    fn reply(&mut self, reply: Reply) {
        let request = reply.request;
        let Some(session) = &self.session else { return };
        if reply.result.is_err() {
            session.export.news().for_each(|it| self.shared.log(&it));
        }
        let checked = request.check(&session.limits);
        let needed = checked.map_or(0, |()| session.memory_for(&request));
        if self.broken {
            return self.give_back(needed);
        }
        let structured = session.agreed.structured;
        let data = self.output.reply(&request, reply.result, structured);
        // What is to be sent needs it still.
        self.give_back(needed.saturating_sub(data));
    }

    fn give_back(&mut self, bytes: usize) {
        if let Some(share) = &mut self.share {
            share.give_back(bytes);
        }
    }

    /// Sends a client away that holds up others, or that does not send what it has begun to.
    fn look_for_stall(&mut self) {
        let takes = self.takes.stalled_for(self.can_write.is_some());
        let receives = self.receiving.is_some() && self.can_read.is_some();
        let sends = self.sends.stalled_for(receives);
        let is_wanted = || self.share.as_ref().is_some_and(Share::is_wanted);
        let why = if takes.max(sends) >= STALLED && is_wanted() {
            "it does not get on, and holds memory that others wait for"
        } else if sends >= self.shared.payload_timeout {
            "it does not send the data of a write that it has begun"
        } else {
            return;
        };
        if !self.broken {
            self.log_sent_away(&why);
            self.break_off();
        }
    }

    /// Nothing more goes to the client, and nothing comes from it. It holds memory for those of its
    /// requests only that are under way.
    fn break_off(&mut self) {
        (self.broken, self.ended) = (true, true);
        let unsent = std::mem::take(&mut self.output).data_bytes();
        let payload = self.receiving.take().map_or(0, |it| it.request.length);
        self.waiting = None;
        if let Some(share) = &mut self.share {
            share.give_up();
            share.give_back(unsent + payload as usize);
        }
        self.wait_for_nothing();
    }

    fn wait_for_nothing(&mut self) {
        (self.can_read, self.can_write) = (None, None);
    }

    /// While a request waits for memory nothing is read from the client, so its end is looked for
    /// here, once a second or more often. One that has left waits no more: others behind it have
    /// their turn. One that has closed its side only sends nothing more, and is answered.
    fn look_for_end(&mut self) {
        if self.waiting.is_none() || self.ended {
            return;
        }
        // What ends a connection is told of in any case.
        let mut socket = [PollFd::new(&self.socket, PollFlags::empty())];
        let asked = poll(&mut socket, Some(&Timespec::default()));
        let has_left = socket[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR);
        if asked.is_ok() && has_left {
            self.break_off();
        }
    }

    /// What can be done now. Whether anything was.
    fn step(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while let Poll::Ready(Some(reply)) = self.requests.poll_next_unpin(cx) {
            self.reply(reply);
            progress = true;
        }
        if let Some(ready) = &mut self.can_write {
            if Pin::new(ready).poll(cx).is_ready() {
                self.can_write = None;
            }
        }
        while self.can_write.is_none() && !self.output.is_empty() {
            match self.write() {
                Ok(Io::Progress) => progress = true,
                Ok(_) => {
                    let mut ready = self.reactor.ready(self.socket.as_raw_fd(), Ready::Write);
                    let _ = Pin::new(&mut ready).poll(cx);
                    self.can_write = Some(ready);
                }
                Err(_) => self.break_off(),
            }
        }
        if (!self.input.is_empty() || self.waiting.is_some()) && self.may_start() {
            let (before, waited) = (self.input.len(), self.waiting.is_some());
            self.parse(cx);
            progress |= self.input.len() != before || self.waiting.is_some() != waited;
        }
        if let Some(ready) = &mut self.can_read {
            if Pin::new(ready).poll(cx).is_ready() {
                self.can_read = None;
            }
        }
        // One read at a time: others have their turn.
        if self.can_read.is_none() && self.may_read() && self.input.len() < AHEAD_OF_PARSE {
            match self.read() {
                Ok(Io::Progress) => {
                    self.parse(cx);
                    progress = true;
                }
                Ok(Io::Blocked) => {
                    if self.input.is_empty() {
                        self.input = Vec::new();
                    }
                    let mut ready = self.reactor.ready(self.socket.as_raw_fd(), Ready::Read);
                    let _ = Pin::new(&mut ready).poll(cx);
                    self.can_read = Some(ready);
                }
                Ok(Io::Ended) | Err(_) => self.ended = true,
            }
        }
        progress
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let draining = this.shared.draining();
        let late = this.session.is_none() && this.since.elapsed() > NEGOTIATION;
        if late && !this.ended {
            this.log_sent_away(&"it does not choose an export");
        }
        this.ended |= draining || late;
        this.burst = BURST;
        while this.step(cx) {}
        this.look_for_end();
        this.look_for_stall();
        if this.burst == 0 && !this.ended {
            cx.waker().wake_by_ref();
        }
        let unread = !this.output.is_empty() && !late && !this.shared.overdue();
        if this.ended && this.requests.is_empty() && !unread {
            return Poll::Ready(());
        }
        this.reactor
            .wake_on_tick(cx.waker(), &mut this.asked_for_tick);
        Poll::Pending
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Before the socket goes.
        self.wait_for_nothing();
        if let Some(session) = &self.session {
            let clients = session.export.stats.clients.fetch_sub(1, Ordering::Relaxed) - 1;
            let (name, who) = (&session.export.described.name, self.permit.who);
            let line = format!("{name}: {who} has left, {clients} are left");
            self.shared.log_of_client(&line);
        }
    }
}

impl Receiving {
    /// Memory for what comes next, in pieces as [`Session::piece_lengths`] says. One who announces
    /// much and sends little gets little.
    fn make_room(&mut self, reactor: &Reactor, split: usize) {
        let room: usize = self.pieces[self.piece..].iter().map(|p| p.len()).sum();
        let mut room = room - self.filled;
        while self.missing > 0 && room < AHEAD.max(self.received) {
            let len = self.missing.min(split);
            self.pieces.push(reactor.buffer(len));
            self.missing -= len;
            room += len;
        }
    }

    fn advance(&mut self, mut by: usize) {
        self.received += by;
        while by > 0 {
            let now = (self.pieces[self.piece].len() - self.filled).min(by);
            by -= now;
            self.filled += now;
            if self.filled == self.pieces[self.piece].len() {
                (self.piece, self.filled) = (self.piece + 1, 0);
            }
        }
    }
}
