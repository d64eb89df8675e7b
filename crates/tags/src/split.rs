//! The tags of a large request that is split into pieces.

use crate::admission::Admission;
use crate::bitmaps::{Bitmaps, TagMap, TagMapId};
use crate::error::AllocError;
use crate::grant::{EndingWait, TagWait};
use crate::options::AllocOptions;
use crate::tag::Tag;
use crate::tenant_handle::Tenant;
use inflight_sbitmap::GetError;
use inflight_sbitmap::tenancy::{Request, Tenancy as _, Waiter};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::wait::WaiterKey;
use std::fmt;
use std::future::poll_fn;
use std::time::Duration;

/// The tags of one large request, a piece each: they come one after the other, as fast as the
/// set's [`Admission`] gives them. Made by [`Tenant::split`].
///
/// Under [`Admission::WholeIo`] all of them come before anybody else's who came later. Submit each
/// piece before you ask for the next tag: a request of more pieces than there are tags goes on when
/// its first pieces complete. Who keeps the pieces back until it has all of them can wait forever:
/// alone, for more than the depth or its tenant's share; and for another request that does the
/// same, while that one waits for this one's.
///
/// # Cancel safety
///
/// A future that is dropped, a wait that times out and a `Split` that is dropped give back whatever
/// had been collected for pieces to come. No tag and no wakeup is lost. The tags handed out are the
/// caller's.
///
/// # Fairness
///
/// See [`Admission`]. What a `Split` has collected is in use: it is kept from others, and a freeze
/// waits for it, until it is asked for or the `Split` is dropped. One that is given its tags in
/// parts (more pieces than a quarter of the depth) stays first of its tenant until its last part.
/// While a part waits to be asked for, the tenant's small requests get what else is free, and its
/// other splits wait, even beside free tags. So ask on without waiting for another `Split` in
/// between, and drop one that is no longer wanted.
///
/// ```
/// use inflight_tags::TagSet;
/// let set = TagSet::builder().depth(64).build(|_, _| 0u64)?;
/// let dev = set.add_tenant("sda")?;
/// let mut split = dev.split(8);
/// let mut offset = 0;
/// while let Some(mut tag) = split.next_blocking()? {
///     *tag = offset; // fill in the piece and submit it
///     offset += 128 << 10;
/// }
/// assert_eq!((offset, split.remaining()), (1 << 20, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it asks for nothing until it is called"]
pub struct Split<T: Send + 'static> {
    queue: Tenant<T>,
    options: AllocOptions,
    /// Pieces that have no tag yet.
    remaining: usize,
    /// Whether a piece has got its tag.
    begun: bool,
    /// Its place in the line, if it has had some of its parts and is to have more.
    place: Option<Waiter>,
    /// It was woken, and has not slept since.
    woken: bool,
    /// Bits collected for pieces to come, the next one last.
    collected: Vec<usize>,
    /// Where they are from, or where it waited last.
    from: TagMapId,
}

/// A request of more pieces than this part of the depth is given its tags in as many parts.
const PARTS: usize = 4;

/// The wait for a part: begun, or gone on with.
fn waiting<'a>(
    bitmaps: &'a Bitmaps,
    target: TagMapId,
    request: Request,
    place: &mut Option<Waiter>,
) -> EndingWait<'a> {
    let wait = match place.take() {
        Some(waiter) => TagWait::resume(bitmaps, target, waiter, request.class),
        None => bitmaps.wait_for(target, request),
    };
    wait.ending(bitmaps)
}

/// A place among those who wait for a thaw, given up when it is dropped.
struct Thaw<'a>(&'a Bitmaps, Option<WaiterKey>);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.gate().leave_thaw(&mut self.1);
    }
}

/// What the next piece needs.
enum Step<T> {
    Done(Result<Option<Tag<T>>, AllocError>),
    WaitForThaw(AllocError),
    /// Bits of this target.
    WaitForBits(TagMapId, Request),
}

impl<T: Send + 'static> Tenant<T> {
    /// A request that is split into `n` pieces, each with a normal tag of its own; see [`Split`].
    /// Nothing is asked for before its first call.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(16).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let mut split = dev.split(8);
    /// let mut tokens = Vec::new();
    /// while let Some(tag) = split.next_blocking()? {
    ///     tokens.push(tag.into_token()); // submit
    /// }
    /// assert_eq!(tokens.len(), 8);
    /// # for token in tokens { set.redeem(token)?; }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "it asks for nothing until it is called"]
    pub fn split(&self, n: usize) -> Split<T> {
        self.split_with(n, AllocOptions::new())
    }

    /// As [`split`](Tenant::split), for tags of the kind asked for.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(2).depth(16).build(|_, _| ())?;
    /// let mut split = set.add_tenant("nvme0n1")?.split_with(2, AllocOptions::new().hw_queue(1));
    /// assert_eq!(split.next_blocking()?.map(|tag| tag.hw_queue()), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "it asks for nothing until it is called"]
    pub fn split_with(&self, n: usize, options: AllocOptions) -> Split<T> {
        Split::new(self.clone(), options, n)
    }
}

impl<T: Send + 'static> Split<T> {
    pub(crate) fn new(queue: Tenant<T>, options: AllocOptions, n: usize) -> Self {
        Self {
            queue,
            options,
            remaining: n,
            begun: false,
            place: None,
            woken: false,
            collected: Vec::new(),
            from: TagMapId {
                hw_queue: 0,
                kind: TagMap::Normal,
            },
        }
    }

    /// How many pieces have no tag yet.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let mut split = set.add_tenant("sda")?.split(3);
    /// let _first = split.next_blocking()?;
    /// assert_eq!(split.remaining(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.remaining
    }

    /// The tag of the next piece, waiting as a task; `None` after the last one.
    ///
    /// # Errors
    ///
    /// As [`Tenant::alloc_with`].
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let mut split = set.add_tenant("sda")?.split(2);
    /// inflight_sync::block_on(async {
    ///     while let Some(tag) = split.next().await? {
    ///         drop(tag);
    ///     }
    ///     Ok::<(), inflight_tags::AllocError>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Not an iterator's: it waits.
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Result<Option<Tag<T>>, AllocError> {
        let mut since = None;
        let result = self.next_as_task(&mut since).await;
        self.queue.end_wait(since);
        result
    }

    async fn next_as_task(
        &mut self,
        since: &mut Option<Instant>,
    ) -> Result<Option<Tag<T>>, AllocError> {
        let mut asked = false;
        loop {
            match self.step(true) {
                Step::Done(done) => return done,
                Step::WaitForThaw(_) => {
                    self.queue.begin_wait(since);
                    let mut place = Thaw(self.queue.bitmaps(), None);
                    poll_fn(|cx| place.0.gate().poll_thaw(&mut place.1, cx)).await;
                }
                Step::WaitForBits(target, request) => {
                    if self.queue.before_wait(target, &mut asked) {
                        continue;
                    }
                    self.queue.begin_wait(since);
                    let mut bits = Vec::new();
                    let mut waiting =
                        waiting(self.queue.bitmaps(), target, request, &mut self.place);
                    (self.woken, self.from) = (true, target);
                    let part = poll_fn(|cx| waiting.poll(cx, &mut bits)).await;
                    self.place = waiting.keep();
                    self.keep(target, bits);
                    // A queue that is closed: the next step finds the set closed.
                    let _ = part;
                }
            }
        }
    }

    /// As [`next`](Split::next); the thread sleeps.
    ///
    /// # Errors
    ///
    /// As [`Tenant::alloc_blocking_with`].
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let mut none = set.add_tenant("sda")?.split(0);
    /// assert!(none.next_blocking()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_blocking(&mut self) -> Result<Option<Tag<T>>, AllocError> {
        self.next_sleeping(None)
    }

    /// As [`next`](Split::next); the thread sleeps at most for `timeout`. The `Split` can be asked
    /// again after its time was up.
    ///
    /// # Errors
    ///
    /// As [`Tenant::alloc_timeout_with`].
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let mut split = set.add_tenant("sda")?.split(2);
    /// let _first = split.next_blocking()?;
    /// let late = split.next_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(late, AllocError::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Tag<T>>, AllocError> {
        let clock = self.queue.bitmaps().clock().clone();
        let deadline = clock.now() + timeout;
        self.next_sleeping(Some((&clock, deadline)))
    }

    /// As [`next`](Split::next), if the tag can be had without waiting.
    ///
    /// # Errors
    ///
    /// As [`Tenant::try_alloc`].
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let mut split = set.add_tenant("sda")?.split(2);
    /// let first = split.try_next()?;
    /// assert_eq!(split.try_next().unwrap_err(), AllocError::Exhausted);
    /// drop(first);
    /// assert!(split.try_next()?.is_some());
    /// assert!(split.try_next()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_next(&mut self) -> Result<Option<Tag<T>>, AllocError> {
        loop {
            match self.step(false) {
                Step::Done(done) => return done,
                Step::WaitForThaw(why) => return Err(self.queue.refuse(why)),
                Step::WaitForBits(target, request) => {
                    // Only a part that is there already can be had.
                    let is_in_line = self.place.is_some();
                    let now = Instant::from_nanos(0);
                    if !is_in_line || !self.sleep(target, request, Some(now)) {
                        return Err(self.queue.refuse(AllocError::Exhausted));
                    }
                }
            }
        }
    }

    /// Waits as a thread. Returns whether a part came in time.
    fn sleep(&mut self, target: TagMapId, request: Request, until: Option<Instant>) -> bool {
        let mut bits = Vec::new();
        let mut waiting = waiting(self.queue.bitmaps(), target, request, &mut self.place);
        (self.woken, self.from) = (true, target);
        let part = waiting.block(until, &mut bits);
        self.place = waiting.keep();
        self.keep(target, bits);
        part != Err(GetError::TimedOut)
    }

    fn next_sleeping(
        &mut self,
        until: Option<(&Clock, Instant)>,
    ) -> Result<Option<Tag<T>>, AllocError> {
        let mut since = None;
        let result = self.next_as_thread(until, &mut since);
        self.queue.end_wait(since);
        result
    }

    fn next_as_thread(
        &mut self,
        until: Option<(&Clock, Instant)>,
        since: &mut Option<Instant>,
    ) -> Result<Option<Tag<T>>, AllocError> {
        let mut asked = false;
        loop {
            let in_time = match self.step(true) {
                Step::Done(done) => return done,
                Step::WaitForThaw(_) => {
                    self.queue.begin_wait(since);
                    self.queue.bitmaps().gate().wait_thaw(until)
                }
                Step::WaitForBits(target, request) => {
                    if self.queue.before_wait(target, &mut asked) {
                        continue;
                    }
                    self.queue.begin_wait(since);
                    let deadline = until.map(|(_, deadline)| deadline);
                    self.sleep(target, request, deadline)
                }
            };
            if !in_time {
                return Err(self.queue.refuse(AllocError::TimedOut));
            }
        }
    }

    /// One try, and what to wait for if it failed.
    fn step(&mut self, waits: bool) -> Step<T> {
        if self.remaining == 0 {
            return Step::Done(Ok(None));
        }
        loop {
            if let Err(error) = self.queue.check(self.options) {
                self.give_back();
                return Step::Done(Err(error));
            }
            if let Some(why) = self.queue.bitmaps().gate().state().refuses() {
                self.give_back();
                return match why {
                    AllocError::Closed => Step::Done(Err(why)),
                    _ => Step::WaitForThaw(why),
                };
            }
            if let Some(step) = self.collect(waits) {
                return step;
            }
            let bit = self.collected.pop().expect("at least one was collected");
            let bit = self.queue.bitmaps().in_hand(self.from, bit);
            if let Some(tag) = self.queue.admit(bit) {
                self.remaining -= 1;
                self.begun = true;
                return Step::Done(Ok(Some(tag)));
            }
            // Refused: what has changed is seen above.
            self.give_back();
        }
    }

    /// Collects at least one bit, or says what to wait for.
    fn collect(&mut self, waits: bool) -> Option<Step<T>> {
        if self.collected.is_empty() {
            // One that has its place in a line stays there; else the thread may have moved.
            let target = match self.place {
                Some(_) => self.from,
                None => self.queue.target(self.options),
            };
            let request = self.request(target);
            match self.try_get(target, &request, waits) {
                Some(bits) => self.keep(target, bits),
                None => match self.overcommit(target) {
                    Some(target) => self.from = target,
                    None => return Some(Step::WaitForBits(target, request)),
                },
            }
        }
        None
    }

    /// What is asked for.
    fn request(&self, target: TagMapId) -> Request {
        let bitmaps = self.queue.bitmaps();
        let depth = bitmaps.bitmap(target).depth();
        let one = Request::one(self.queue.class());
        match bitmaps.admission() {
            Admission::WholeIo => Request {
                want: self.remaining,
                // Why in parts: a wait for one does not keep all tags idle.
                part: depth.div_ceil(PARTS).max(1).min(self.remaining),
                large: true,
                ..one
            },
            _ => Request {
                privileged: self.begun,
                weight: u32::try_from(self.remaining).unwrap_or(u32::MAX),
                ..one
            },
        }
    }

    /// All bits that are asked for, at once: a request that has some of its bits would wait for
    /// others of its kind, and they for it.
    fn try_get(&self, target: TagMapId, request: &Request, waits: bool) -> Option<Vec<usize>> {
        let bitmaps = self.queue.bitmaps();
        let bitmap = bitmaps.bitmap(target);
        let newcomer = waits && !request.privileged;
        if self.place.is_some() || (newcomer && !bitmap.admits_newcomer()) {
            return None;
        }
        let n = if waits || request.want <= bitmap.depth() {
            request.want
        } else {
            // Who does not wait keeps nobody waiting.
            request.part
        };
        if n > bitmap.depth() {
            return None;
        }
        let class = self.queue.class();
        let all = bitmaps.try_get_all(target, n, class);
        if all.is_some() || waits {
            return all;
        }
        bitmaps.try_get_all(target, 1, class)
    }

    /// Collects a bit beyond the depth for a later piece, if the policy has any.
    fn overcommit(&mut self, near: TagMapId) -> Option<TagMapId> {
        let bitmaps = self.queue.bitmaps();
        if !self.begun || near.kind != TagMap::Normal || bitmaps.geometry().extra == 0 {
            return None;
        }
        let extra = TagMapId {
            kind: TagMap::Extra,
            ..near
        };
        self.collected = bitmaps.try_get_all(extra, 1, self.queue.class())?;
        Some(extra)
    }

    fn keep(&mut self, from: TagMapId, mut bits: Vec<usize>) {
        debug_assert!(self.collected.is_empty());
        // The lowest is the next.
        bits.sort_unstable_by(|a, b| b.cmp(a));
        self.collected = bits;
        self.from = from;
    }

    /// Leaves the line, and gives back what was collected.
    fn give_back(&mut self) {
        if let Some(place) = self.place.take() {
            let (bitmaps, class) = (self.queue.bitmaps(), self.queue.class());
            TagWait::resume(bitmaps, self.from, place, class).end(bitmaps);
        }
        let bits = std::mem::take(&mut self.collected);
        drop(self.queue.bitmaps().several_in_hand(self.from, bits));
    }
}

impl<T: Send + 'static> Drop for Split<T> {
    fn drop(&mut self) {
        self.give_back();
        if self.woken && self.remaining > 0 {
            // It was woken for more tags than it took.
            let bitmap = self.queue.bitmaps().bitmap(self.from);
            bitmap.pass_on(self.remaining);
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Split<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Split")
            .field("remaining", &self.remaining)
            .field("collected", &self.collected.len())
            .finish_non_exhaustive()
    }
}
