//! Choices made before a queue exists.

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

    /// As [`SbitmapBuilder::max_depth`].
    pub fn max_depth(mut self, max_depth: usize) -> Self {
        self.map = self.map.max_depth(max_depth);
        self
    }

    /// As [`SbitmapBuilder::shift`]. The local [`Engine`] has words of at most 32 bits, whatever is
    /// asked for; [`SbitmapQueue::bits_per_word`] says what it became.
    pub fn shift(mut self, shift: u32) -> Self {
        self.map = self.map.shift(shift);
        self
    }

    /// As [`SbitmapBuilder::round_robin`]. Chooses [`Engine::Shared`], if the engine is left open.
    pub fn round_robin(mut self, on: bool) -> Self {
        self.map = self.map.round_robin(on);
        self
    }

    /// As [`SbitmapBuilder::checked`].
    pub fn checked(mut self, on: bool) -> Self {
        self.map = self.map.checked(on);
        self
    }

    /// As [`SbitmapBuilder::trusted`].
    pub fn trusted(mut self, on: bool) -> Self {
        self.map = self.map.trusted(on);
        self
    }

    /// Who may overtake whom: a [`Fairness`], or the options of one. [`Fairness::Fair`] by default.
    pub fn fairness(mut self, fairness: impl Into<Fairness>) -> Self {
        self.fairness = fairness.into();
        self
    }

    /// Where the ids are kept. [`Engine::Auto`] by default.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// The clock of timed waits; the system's by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    ///
    /// As [`SbitmapBuilder::build`]; and if [`Engine::Local`] is asked for where it cannot be used,
    /// [`BatchedNeedsShared`](BuildError::BatchedNeedsShared),
    /// [`RoundRobinNeedsShared`](BuildError::RoundRobinNeedsShared) or
    /// [`DepthNeedsShared`](BuildError::DepthNeedsShared).
    pub fn build(self) -> Result<SbitmapQueue, BuildError> {
        self.build_with(Rules::default())
    }

    /// [`build`](SbitmapQueueBuilder::build), with rules from above.
    pub(crate) fn build_with(self, rules: Rules) -> Result<SbitmapQueue, BuildError> {
        let local = match self.engine {
            Engine::Shared => None,
            // Models of a user's code stay small; the local engine has its own.
            Engine::Auto if cfg!(loom) => None,
            _ if matches!(self.fairness, Fairness::Batched(_)) => {
                Some(Err(BuildError::BatchedNeedsShared))
            }
            Engine::Auto | Engine::Local => Some(self.map.build_local(rules.users)),
        };
        match local {
            Some(Ok(local)) => Ok(SbitmapQueue::on_local(local, self, rules)),
            Some(Err(e)) if self.engine == Engine::Local => Err(e),
            // What the shared engine cannot do either is found out by its own build.
            _ => Ok(SbitmapQueue::on_shared(
                self.map.clone().build()?,
                self,
                rules,
            )),
        }
    }

    /// What waiting in turns allows; `None` for batches.
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
    /// A queue of `depth` bits, all free.
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
        let mode = of.mode_rules().expect("the local engine serves no batches");
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
