//! The disk: a state machine without time. Told what arrived and what was written, it says what is
//! acknowledged and how long the next write takes.

use super::model::{Dispatch, Model};
use fastrand::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A write of contiguous bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<T> {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// What the submitter knows it by.
    pub tag: T,
}

impl<T> Request<T> {
    const fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// What follows from an event.
#[derive(Debug)]
#[must_use]
pub struct Reaction<T> {
    /// Requests that are complete for their submitter.
    pub acknowledged: Vec<T>,
    /// A write to the media has begun and takes so long; then comes [`Disk::written`].
    pub writes_for: Option<Duration>,
}

/// A position, and a number that tells requests for one position apart.
type Place = (u64, u64);

/// A disk with a scheduler before it.
#[derive(Debug)]
pub struct Disk<T> {
    model: Model,
    /// Requests the drive has not taken.
    scheduled: Scheduler<T>,
    /// Requests in the drive by position: in its cache, or in its queue if that is off. Those
    /// in the cache are acknowledged.
    held: BTreeMap<Place, Request<Option<T>>>,
    arrived: u64,
    /// With so much room a full cache takes requests again.
    room: usize,
    rng: Rng,
    /// What is being written.
    writing: Option<Place>,
    /// Where the head stands, and how long the run is that ended there.
    head: u64,
    run: u64,
    issued: Issued,
}

/// What went from the scheduler to the drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Issued {
    /// Requests.
    pub requests: u64,
    /// Of these, how many began where the one before ended.
    pub sequential: u64,
    last_end: Option<u64>,
}

#[derive(Debug)]
enum Scheduler<T> {
    Fifo(VecDeque<Request<T>>),
    Sorted {
        requests: BTreeMap<Place, Request<T>>,
        from: u64,
    },
}

impl<T> Disk<T> {
    /// An idle disk with an empty cache. The seed is that of its bursts.
    #[must_use]
    pub fn new(model: Model, seed: u64) -> Self {
        let scheduled = match model.dispatch {
            Dispatch::Fifo => Scheduler::Fifo(VecDeque::new()),
            Dispatch::Sorted => Scheduler::Sorted {
                requests: BTreeMap::new(),
                from: 0,
            },
        };
        Self {
            model,
            scheduled,
            held: BTreeMap::new(),
            arrived: 0,
            room: 1,
            rng: Rng::with_seed(seed),
            writing: None,
            head: 0,
            run: 0,
            issued: Issued::default(),
        }
    }

    /// What went to the drive so far.
    #[must_use]
    pub const fn issued(&self) -> Issued {
        self.issued
    }

    /// A request arrives.
    pub fn submit(&mut self, request: Request<T>) -> Reaction<T> {
        self.arrived += 1;
        self.scheduled.add(request, self.arrived);
        self.go_on(Vec::new())
    }

    /// The write that was begun last is on the media.
    ///
    /// # Panics
    ///
    /// If none was begun.
    pub fn written(&mut self) -> Reaction<T> {
        let place = self.writing.take().expect("a write was begun");
        let request = self.held.remove(&place).expect("it is held until written");
        self.head = request.end();
        self.go_on(request.tag.into_iter().collect())
    }

    /// Takes what fits, then chooses what to write: a request that has just come counts.
    fn go_on(&mut self, mut acknowledged: Vec<T>) -> Reaction<T> {
        let takes = self.takes();
        while takes && self.held.len() < self.capacity() {
            let Some(request) = self.scheduled.next() else {
                break;
            };
            self.issued.requests += 1;
            self.issued.sequential += u64::from(self.issued.last_end == Some(request.start));
            self.issued.last_end = Some(request.end());
            let Request { start, len, tag } = request;
            let mut tag = Some(tag);
            if self.model.cache_pieces > 0 {
                acknowledged.extend(tag.take());
            }
            let place = (start, self.issued.requests);
            self.held.insert(place, Request { start, len, tag });
        }
        Reaction {
            acknowledged,
            writes_for: self.begin_write(),
        }
    }

    /// Whether there is room enough; how much is enough the next time is drawn anew.
    fn takes(&mut self) -> bool {
        let takes = self.capacity().saturating_sub(self.held.len()) >= self.room;
        let most = self.model.requests(self.model.burst).min(self.capacity());
        if takes && most > 1 && self.model.cache_pieces > 0 {
            let waits = self.rng.f64() < self.model.burst_chance;
            self.room = if waits { self.rng.usize(1..=most) } else { 1 };
        }
        takes
    }

    fn capacity(&self) -> usize {
        match self.model.cache_pieces {
            0 => self.model.drive_depth,
            pieces => self.model.requests(pieces),
        }
    }

    /// The next one upwards from the head, else the lowest.
    fn begin_write(&mut self) -> Option<Duration> {
        if self.writing.is_some() {
            return None;
        }
        let upwards = self.held.range((self.head, 0)..).next();
        let (&place, request) = upwards.or_else(|| self.held.iter().next())?;
        self.writing = Some(place);
        // Only what a longer run takes more: the drive's limit is on runs.
        let before = if request.start == self.head && self.run > 0 {
            self.run
        } else {
            0
        };
        self.run = before + request.len;
        let time = self.model.run_time(self.run);
        Some(match before {
            0 => time,
            _ => time - self.model.run_time(before),
        })
    }
}

impl<T> Scheduler<T> {
    fn add(&mut self, request: Request<T>, number: u64) {
        match self {
            Self::Fifo(requests) => requests.push_back(request),
            Self::Sorted { requests, .. } => {
                requests.insert((request.start, number), request);
            }
        }
    }

    fn next(&mut self) -> Option<Request<T>> {
        match self {
            Self::Fifo(requests) => requests.pop_front(),
            Self::Sorted { requests, from } => {
                let upwards = requests.range((*from, 0)..).next().map(|(&place, _)| place);
                let place = upwards.or_else(|| requests.keys().next().copied())?;
                let request = requests.remove(&place)?;
                *from = request.end();
                Some(request)
            }
        }
    }
}
