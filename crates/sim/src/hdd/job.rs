//! The jobs and what they share: the set of tags and the disk.

use super::disk::{Disk, Reaction, Request};
use super::measure::Counters;
use super::model::Model;
use crate::exec::World;
use fastrand::Rng;
use inflight_tags::{AllocError, Tag, TagSet, Tenant};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// What a slot of the set holds: the request in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    job: usize,
    len: u64,
}

/// Everything of a run that its tasks and events share.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) model: Model,
    /// Whether a job has at most one piece under way.
    pub(super) one_piece: bool,
    /// Whether each piece asks on its own.
    pub(super) later_pieces_wait: bool,
    pub(super) set: TagSet<Piece>,
    pub(super) device: Tenant<Piece>,
    /// Requests are known to it by their tokens.
    pub(super) disk: RefCell<Disk<u64>>,
    pub(super) counters: RefCell<Counters>,
    pub(super) jobs: Vec<Job>,
}

/// What completions need to know of a job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) small: bool,
    /// Pieces of its IO that were submitted and are not acknowledged.
    unfinished: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl Job {
    pub(super) fn new(small: bool) -> Self {
        Self {
            small,
            unfinished: Cell::new(0),
            waker: RefCell::default(),
        }
    }

    fn begin_one(&self) {
        self.unfinished.set(self.unfinished.get() + 1);
    }

    /// Until all pieces that were begun are acknowledged.
    async fn finished(&self) {
        poll_fn(|cx| {
            if self.unfinished.get() == 0 {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn acknowledge_one(&self) {
        self.unfinished.set(self.unfinished.get() - 1);
        if self.unfinished.get() == 0 {
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Stage {
    /// One job's life: the next IO when the last is done.
    pub(super) async fn run_job(self: Rc<Self>, index: usize, mut rng: Rng) {
        let job = &self.jobs[index];
        let places = self.model.span / self.model.io;
        loop {
            let start = rng.u64(0..places) * self.model.io;
            let len = if job.small {
                self.model.small_io
            } else {
                self.model.io
            };
            let ends = start + len;
            if len <= self.model.piece {
                let tag = self.counted(job, self.device.alloc()).await;
                self.submit(index, tag, start..ends).await;
            } else {
                self.submit_split(index, start..ends).await;
            }
            job.finished().await;
            self.counters.borrow_mut().ios[index] += 1;
        }
    }

    async fn submit_split(self: &Rc<Self>, index: usize, bytes: Range<u64>) {
        let job = &self.jobs[index];
        let pieces = (bytes.end - bytes.start).div_ceil(self.model.piece);
        let pieces = usize::try_from(pieces).unwrap_or(usize::MAX);
        let mut split = self.device.split(pieces);
        for start in bytes.clone().step_by(self.model.piece as usize) {
            let tag = if self.later_pieces_wait {
                self.counted(job, self.device.alloc()).await
            } else {
                let tag = self.counted(job, split.next()).await;
                tag.expect("there is a tag for each piece")
            };
            let end = bytes.end.min(start + self.model.piece);
            self.submit(index, tag, start..end).await;
            if self.one_piece {
                job.finished().await;
            }
        }
    }

    /// Waits for a tag, and notes for how long and how often it was woken for that.
    async fn counted<R>(&self, job: &Job, wait: impl Future<Output = Result<R, AllocError>>) -> R {
        let asked = self.world.now();
        let mut wait = pin!(wait);
        let mut polls = 0;
        let tag = poll_fn(|cx| {
            polls += 1;
            wait.as_mut().poll(cx)
        })
        .await
        .expect("the set has normal tags");
        let waited = self.world.now() - asked;
        let mut counters = self.counters.borrow_mut();
        counters.wakes += polls - 1;
        if job.small {
            counters.small.add(waited);
        } else {
            counters.large.add(waited);
        }
        tag
    }

    /// Uses the CPU for a piece, and sends it.
    async fn submit(self: &Rc<Self>, job: usize, mut tag: Tag<Piece>, bytes: Range<u64>) {
        self.world.sleep(self.model.submit).await;
        let (start, len) = (bytes.start, bytes.end - bytes.start);
        *tag = Piece { job, len };
        let tag = tag.into_token();
        self.jobs[job].begin_one();
        let reaction = self.disk.borrow_mut().submit(Request { start, len, tag });
        self.react(reaction);
    }

    fn react(self: &Rc<Self>, reaction: Reaction<u64>) {
        if let Some(time) = reaction.writes_for {
            let stage = self.clone();
            self.world.call_after(time, move |_| {
                let reaction = stage.disk.borrow_mut().written();
                stage.react(reaction);
            });
        }
        for token in reaction.acknowledged {
            self.acknowledge(token);
        }
    }

    fn acknowledge(&self, token: u64) {
        let tag = self.set.redeem(token).expect("each token completes once");
        let Piece { job, len, .. } = *tag;
        self.counters.borrow_mut().bytes += len;
        self.jobs[job].acknowledge_one();
        drop(tag);
    }
}
