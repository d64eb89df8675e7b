//! The builder of a queue.

use crate::batched::Batched;
use crate::bitmap::Sbitmap;
use crate::builder::SbitmapBuilder;
use crate::engine::Engine;
use crate::error::BuildError;
use crate::fairness::{BatchedOptions, Fairness};
use crate::local::PerCpuStore;
use crate::queue::{Inner, SbitmapQueue};
use crate::rules::Rules;
use crate::store::SharedStore;
use crate::turns::{ModeRules, Turns};
use inflight_sync::time::Clock;

/// Builds a [`SbitmapQueue`].
///
/// ```
/// use inflight_sbitmap::{Clock, Engine, Fairness, SbitmapQueue};
/// let builder = SbitmapQueue::builder(64)
///     .max_depth(512)
///     .shift(2)
///     .round_robin(true)
///     .checked(true) // or `trusted(true)`
///     .fairness(Fairness::fifo())
///     .engine(Engine::Shared)
///     .clock(Clock::manual());
/// assert_eq!(builder.build().unwrap().try_get(), Some(0));
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing exists before `build`"]
pub struct SbitmapQueueBuilder {
    map: SbitmapBuilder,
    pub(crate) fairness: Fairness,
    engine: Engine,
    pub(crate) clock: Clock,
}

impl SbitmapQueueBuilder {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            map: SbitmapBuilder::new(depth),
            fairness: Fairness::default(),
            engine: Engine::default(),
            clock: Clock::system(),
        }
    }

    /// Sets the largest depth, as [`SbitmapBuilder::max_depth`].
    pub fn max_depth(mut self, max_depth: usize) -> Self {
        self.map = self.map.max_depth(max_depth);
        self
    }

    /// Sets the bits of a word, as [`SbitmapBuilder::shift`]. The local [`Engine`] has words of at
    /// most 32 bits, also with a larger shift. [`SbitmapQueue::bits_per_word`] returns the result.
    pub fn shift(mut self, shift: u32) -> Self {
        self.map = self.map.shift(shift);
        self
    }

    /// Hands ids out in order, as [`SbitmapBuilder::round_robin`]. With [`Engine::Auto`] it chooses
    /// [`Engine::Shared`].
    pub fn round_robin(mut self, on: bool) -> Self {
        self.map = self.map.round_robin(on);
        self
    }

    /// Detects double frees that race, as [`SbitmapBuilder::checked`].
    pub fn checked(mut self, on: bool) -> Self {
        self.map = self.map.checked(on);
        self
    }

    /// Does not check puts, as [`SbitmapBuilder::trusted`].
    pub fn trusted(mut self, on: bool) -> Self {
        self.map = self.map.trusted(on);
        self
    }

    /// Sets the order of waiters: a [`Fairness`], or the options of one. Default:
    /// [`Fairness::Fair`].
    pub fn fairness(mut self, fairness: impl Into<Fairness>) -> Self {
        self.fairness = fairness.into();
        self
    }

    /// Sets where the ids are kept. Default: [`Engine::Auto`].
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Sets the clock of timed waits. Default: the system's clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    ///
    /// The errors of [`SbitmapBuilder::build`]. If [`Engine::Local`] was chosen and cannot be used:
    /// [`BatchedNeedsShared`](BuildError::BatchedNeedsShared),
    /// [`RoundRobinNeedsShared`](BuildError::RoundRobinNeedsShared) or
    /// [`DepthNeedsShared`](BuildError::DepthNeedsShared).
    pub fn build(self) -> Result<SbitmapQueue, BuildError> {
        self.build_with_rules(Rules::default())
    }

    /// As [`build`](SbitmapQueueBuilder::build), with the rules of the crate above.
    #[doc(hidden)]
    pub fn build_with_rules(self, rules: Rules) -> Result<SbitmapQueue, BuildError> {
        let local = match self.engine {
            Engine::Shared => None,
            // Models of a user's code stay small; the local engine has its own models.
            Engine::Auto if cfg!(loom) => None,
            _ if matches!(self.fairness, Fairness::Batched(_)) => {
                Some(Err(BuildError::BatchedNeedsShared))
            }
            Engine::Auto | Engine::Local => Some(self.map.build_local(rules.users)),
        };
        match local {
            Some(Ok(local)) => Ok(SbitmapQueue::on_local(local, self, rules)),
            Some(Err(e)) if self.engine == Engine::Local => Err(e),
            // The build of the shared engine reports what it cannot do either.
            _ => Ok(SbitmapQueue::on_shared(
                self.map.clone().build()?,
                self,
                rules,
            )),
        }
    }

    /// Returns the rules for waiting in turns; `None` with batches.
    pub(crate) const fn mode_rules(&self) -> Option<ModeRules> {
        match self.fairness {
            Fairness::Batched(_) => None,
            Fairness::Fair(options) if options.completer_polls => Some(ModeRules::FAIR_POLLED),
            Fairness::Fair(_) => Some(ModeRules::FAIR),
            Fairness::Fifo => Some(ModeRules::FIFO),
        }
    }
}

impl SbitmapQueue {
    /// Returns the builder of a queue of `depth` bits, all free.
    pub fn builder(depth: usize) -> SbitmapQueueBuilder {
        SbitmapQueueBuilder::new(depth)
    }

    pub(crate) fn on_shared(map: Sbitmap, of: SbitmapQueueBuilder, rules: Rules) -> Self {
        let bits_per_word = map.bits_per_word();
        let inner = match of.mode_rules() {
            None => {
                let options = match of.fairness {
                    Fairness::Batched(options) => options,
                    _ => BatchedOptions::new(),
                };
                Inner::Batched(Batched::new(
                    map,
                    options,
                    rules.newcomers,
                    rules.shares,
                    of.clock.clone(),
                ))
            }
            Some(mode) => {
                let store = SharedStore::new(map);
                Inner::Shared(Turns::new(store, mode, of.clock.clone(), rules.shares))
            }
        };
        Self::new(inner, bits_per_word, of)
    }

    /// The mode is not [`Fairness::Batched`].
    pub(crate) fn on_local(ids: PerCpuStore, of: SbitmapQueueBuilder, rules: Rules) -> Self {
        let bits_per_word = ids.bits_per_word();
        let mode = of
            .mode_rules()
            .expect("Fairness::Batched was refused before");
        let fast_path = ids.fast_path();
        let queue = Turns::new(ids, mode, of.clock.clone(), rules.shares);
        let inner = match fast_path {
            Some(rseq) => Inner::Rseq(queue, rseq),
            None => Inner::Local(queue),
        };
        Self::new(inner, bits_per_word, of)
    }

    fn new(inner: Inner, bits_per_word: usize, of: SbitmapQueueBuilder) -> Self {
        Self {
            inner,
            fairness: of.fairness,
            bits_per_word,
            clock: of.clock,
        }
    }
}
