//! A set, and a record of who has which of its tags.
//!
//! The record is of what threads know: a tag is in it from after its allocation until before it is
//! freed. So whatever it says is out is out, and what it finds wrong is wrong.

use super::modes::{Mode, Size, builder};
use super::{PLAIN, RESERVED};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_tags::{Admission, AllocError, FrozenGuard, QuiesceGuard, RedeemError, Tag, TagSet};

/// What is in a slot: who uses it, 0 for nobody.
#[derive(Debug, Default)]
pub(crate) struct Slot(usize);

#[derive(Debug, Default)]
struct Record {
    /// How many have been given out.
    given: usize,
    /// How many of each table are out, normal and reserved ones.
    out: Vec<[usize; 2]>,
    most: usize,
    /// By the hardware queue that they are of, and which of these is drained.
    of_hw_queue: [usize; 8],
    closed: [bool; 8],
    /// Guards of freezes and quiesces that exist, and those of them that nothing is out under.
    stopped: usize,
    drained: usize,
    /// How often the last of them has gone.
    thaws: usize,
    /// Whether requests have been looked for whose time is up.
    expires: bool,
}

impl Record {
    fn sum(&self) -> usize {
        self.out.iter().flatten().sum()
    }
}

/// A set of two CPUs with a hardware queue each, the tokens on their way, and the record.
pub(crate) struct World {
    pub(crate) set: TagSet<Slot>,
    pub(crate) clock: Clock,
    pub(crate) mode: Mode,
    /// Reserved tags of each table, and those beyond the depth.
    reserved: usize,
    extra: usize,
    ring: Mutex<Vec<(u64, usize)>>,
    record: Mutex<Record>,
}

impl World {
    pub(crate) fn new(mode: Mode, size: Size) -> Arc<Self> {
        let clock = Clock::manual();
        let set = builder(mode, size, &clock)
            .build(|_, _| Slot::default())
            .unwrap();
        let extra = match mode.admission {
            Admission::ElasticOvercommit { max_extra, .. } => max_extra,
            _ => 0,
        };
        Arc::new(Self {
            set,
            clock,
            mode,
            reserved: size.reserved,
            extra,
            ring: Mutex::default(),
            record: Mutex::new(Record {
                most: size.max_depth,
                out: vec![[0; 2]; 8],
                ..Record::default()
            }),
        })
    }

    /// Somebody is about to ask for a tag.
    pub(crate) fn ask(&self) -> Ask<'_> {
        let record = self.record.lock();
        Ask {
            world: self,
            stopped: (record.stopped > 0).then_some(record.thaws),
        }
    }

    /// Tags that are out, as far as their owners know.
    pub(crate) fn out(&self) -> usize {
        self.record.lock().sum()
    }

    /// How many have been given out, as far as their owners know.
    pub(crate) fn given(&self) -> usize {
        self.record.lock().given
    }

    /// A freeze has returned: nothing is out until its guard goes.
    pub(crate) fn frozen(&self, guard: FrozenGuard) -> Stopped<'_, FrozenGuard> {
        Stopped::new(self, guard, true)
    }

    /// A quiesce has returned: nobody who asks from now on gets a tag.
    pub(crate) fn quiesced(&self, guard: QuiesceGuard) -> Stopped<'_, QuiesceGuard> {
        Stopped::new(self, guard, false)
    }

    /// A hardware queue has been drained, or is about to serve again.
    pub(crate) fn close_hw_queue(&self, hw_queue: usize, closed: bool) {
        let mut record = self.record.lock();
        assert_eq!(record.of_hw_queue[hw_queue], 0, "one of its tags is out");
        record.closed[hw_queue] = closed;
    }

    /// Puts it in flight, and completes whatever is.
    pub(crate) fn submit(&self, held: Held<'_>) {
        let request = held.into_token();
        self.ring.lock().push(request);
        self.complete_all();
    }

    pub(crate) fn complete_all(&self) {
        while let Some(request) = { self.ring.lock().pop() } {
            drop(self.redeem_if(request));
        }
    }

    /// Nobody marks requests as timed out.
    pub(crate) fn redeem(&self, request: (u64, usize)) -> Held<'_> {
        self.redeem_if(request).expect("it is in flight")
    }

    /// `None`: its time was up.
    fn redeem_if(&self, (token, me): (u64, usize)) -> Option<Held<'_>> {
        let held = self.set.redeem(token).map(|tag| self.again(tag, me));
        let again = self.set.redeem(token).unwrap_err();
        match held {
            Ok(held) => {
                let held_now = matches!(again, RedeemError::NotInFlight { .. });
                assert!(held_now, "{again:?}");
                Some(held)
            }
            Err(error) => {
                assert!(self.record.lock().expires, "{error:?}");
                for error in [error, again] {
                    // Stale: it was handled already.
                    let late = matches!(
                        error,
                        RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
                    );
                    assert!(late, "{error:?}");
                }
                None
            }
        }
    }

    /// Ends the requests whose time is up.
    pub(crate) fn expire(&self) {
        self.record.lock().expires = true;
        let mut late = Vec::new();
        self.set.expire(|token| late.push(token));
        for token in late {
            let tag = self.set.redeem_timed_out(token).unwrap();
            let me = tag.0;
            self.again(tag, me).use_it();
        }
    }

    /// The tag that has come back.
    pub(crate) fn again(&self, tag: Tag<Slot>, me: usize) -> Held<'_> {
        assert_eq!(tag.0, me, "another request's tag");
        Held {
            world: self,
            tag: Some(tag),
            me,
        }
    }

    /// As one who gets a tag, runs out of time, or whose kind there is not.
    pub(crate) fn submit_if(&self, result: Result<Held<'_>, AllocError>) -> bool {
        match result {
            Ok(held) => self.submit(held),
            Err(
                AllocError::TimedOut
                | AllocError::Exhausted
                | AllocError::Frozen
                | AllocError::Quiesced
                | AllocError::InactiveHwQueue { .. }
                | AllocError::NoSuchHwQueue { .. }
                | AllocError::Unmapped { .. },
            ) => return false,
            Err(error) => panic!("{error:?}"),
        }
        true
    }

    fn tables(&self) -> usize {
        match self.mode.shared {
            true => 1,
            false => self.set.hw_queues().len(),
        }
    }

    /// Nothing is out, nobody waits, the numbers agree, and one tenant alone can have every tag
    /// there is.
    pub(crate) fn assert_whole(&self) {
        assert_eq!(self.out(), 0);
        assert_eq!((self.set.in_use(), self.set.in_flight()), (0, 0));
        assert_eq!((self.set.held(), self.set.any_in_flight()), (0, false));
        assert!(!self.set.is_frozen() && !self.set.is_quiesced());
        let stats = self.set.stats();
        assert_eq!(stats.allocs, stats.frees);
        self.set.reclaim_idle_shares();
        let last = self.set.add_tenant("last").unwrap();
        let mut all = Vec::new();
        for hw_queue in 0..self.set.hw_queues().len() {
            for options in [PLAIN, RESERVED] {
                let options = options.hw_queue(hw_queue);
                all.extend(std::iter::from_fn(|| last.try_alloc_with(options).ok()));
            }
        }
        assert_eq!(
            all.len(),
            self.set.depth() * self.tables(),
            "a tag was lost"
        );
    }
}

/// Before an allocation.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    world: &'a World,
    /// Which of the stops there was then.
    stopped: Option<usize>,
}

impl<'a> Ask<'a> {
    /// Afterwards.
    pub(crate) fn got(self, mut tag: Tag<Slot>) -> Held<'a> {
        let world = self.world;
        let mut record = world.record.lock();
        assert_eq!(record.drained, 0, "a tag while nothing is to be out");
        if record.stopped > 0 && self.stopped == Some(record.thaws) {
            panic!("a tag for who asked after the stop and got it before the end");
        }
        record.given += 1;
        let reserved = tag.index() < world.reserved;
        let table = table(world, &tag);
        record.out[table][usize::from(reserved)] += 1;
        let [normal, out_reserved] = record.out[table];
        assert!(out_reserved <= world.reserved);
        assert!(
            normal <= record.most - world.reserved + world.extra,
            "beyond the depth"
        );
        record.of_hw_queue[tag.hw_queue()] += 1;
        assert!(
            !record.closed[tag.hw_queue()],
            "its hardware queue is drained"
        );
        let hw_queues = world.set.hw_queues().len();
        assert!(tag.hw_queue() < hw_queues, "its hardware queue is gone");
        assert_eq!(tag.0, 0, "two owners");
        let me = record.given;
        tag.0 = me;
        drop(record);
        Held {
            world,
            tag: Some(tag),
            me,
        }
    }

    pub(crate) fn result(
        self,
        result: Result<Tag<Slot>, AllocError>,
    ) -> Result<Held<'a>, AllocError> {
        result.map(|tag| self.got(tag))
    }
}

fn table(world: &World, tag: &Tag<Slot>) -> usize {
    match world.mode.shared {
        true => 0,
        false => tag.hw_queue(),
    }
}

/// A tag in the record. Frees it when dropped.
pub(crate) struct Held<'a> {
    world: &'a World,
    tag: Option<Tag<Slot>>,
    me: usize,
}

impl Held<'_> {
    fn check(&self) {
        let owner = self.tag.as_ref().map(|tag| tag.0);
        assert_eq!(owner, Some(self.me), "two owners");
        assert_eq!(
            self.world.record.lock().drained,
            0,
            "it is out, and nothing is to be"
        );
    }

    pub(crate) fn use_it(&self) {
        self.check();
        thread::yield_now();
        self.check();
    }

    pub(crate) fn tag(&mut self) -> &mut Tag<Slot> {
        self.tag.as_mut().unwrap()
    }

    /// Its token and who it is; the record keeps it.
    pub(crate) fn into_token(mut self) -> (u64, usize) {
        self.check();
        (self.tag.take().unwrap().into_token(), self.me)
    }

    /// Out of the record.
    pub(crate) fn into_tag(mut self) -> Tag<Slot> {
        self.check();
        let mut tag = self.tag.take().unwrap();
        tag.0 = 0;
        let reserved = tag.index() < self.world.reserved;
        let table = table(self.world, &tag);
        let mut record = self.world.record.lock();
        record.out[table][usize::from(reserved)] -= 1;
        record.of_hw_queue[tag.hw_queue()] -= 1;
        drop(record);
        tag
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.tag.is_some() && !thread::panicking() {
            let tag = Held {
                world: self.world,
                tag: self.tag.take(),
                me: self.me,
            };
            drop(tag.into_tag());
        }
    }
}

/// A guard in the record.
pub(crate) struct Stopped<'a, G> {
    world: &'a World,
    guard: Option<G>,
    drained: bool,
}

impl<'a, G> Stopped<'a, G> {
    fn new(world: &'a World, guard: G, drained: bool) -> Self {
        let mut this = Self {
            world,
            guard: Some(guard),
            drained: false,
        };
        world.record.lock().stopped += 1;
        if drained {
            this.drained();
        }
        this
    }

    pub(crate) fn guard(&self) -> &G {
        self.guard.as_ref().unwrap()
    }

    /// Nothing is out from now on.
    pub(crate) fn drained(&mut self) {
        self.drained = true;
        self.world.record.lock().drained += 1;
        self.check();
    }

    pub(crate) fn check(&self) {
        if self.drained {
            assert_eq!(self.world.out(), 0);
            assert_eq!(self.world.set.in_use(), 0);
        }
    }
}

impl<G> Drop for Stopped<'_, G> {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        self.check();
        let mut record = self.world.record.lock();
        record.stopped -= 1;
        record.drained -= usize::from(self.drained);
        record.thaws += usize::from(record.stopped == 0);
        drop(record);
        drop(self.guard.take());
    }
}
