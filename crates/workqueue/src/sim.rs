//! The pure state machines, for the simulator. Nothing here is promised to stay as it is.

pub use crate::lending::{
    Costs, Crowd, Lately, Lending, LendingCounters, Load, Notice, Pod, Reason, Wake,
};
pub use crate::limits::{
    FrontEnd, Full, Limits, Ordered, Share, Shares, Slots, Touches, Tuning, Waits,
    default_min_active, shares,
};
use crate::machine::{Action, Core, Item, Next};
use crate::pool::PATIENCE;

/// What a pool does after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bring {
    /// Nothing.
    Nobody,
    /// This worker is woken.
    Wake(usize),
    /// A thread is started; it reports itself by [`Pool::created`].
    Create,
}

impl From<Action> for Bring {
    fn from(action: Action) -> Self {
        match action {
            Action::None => Self::Nobody,
            Action::Wake(worker) => Self::Wake(worker),
            Action::Create => Self::Create,
        }
    }
}

/// An item of which no two are the same.
#[derive(Clone, Copy, Debug)]
struct Unique(usize);

impl Item for Unique {
    type Key = usize;

    fn key(&self) -> usize {
        self.0
    }

    fn may_be_running(&self) -> bool {
        false
    }

    fn is_intensive(&self) -> bool {
        false
    }
}

/// The core of a worker pool. Items are numbers; what they do is the simulator's business.
#[derive(Debug)]
pub struct Pool(Core<Unique>);

impl Pool {
    /// A pool of which so many workers may run at once. Its first is being created.
    #[must_use]
    pub fn new(target: usize) -> Self {
        Self(Core::new(target))
    }

    /// As shipped where pools lend: whoever takes an item brings the next worker, unless what is
    /// left is too little, or has a better place.
    #[must_use]
    pub fn lender(target: usize) -> Self {
        let mut core = Core::new(target);
        core.be_patient(PATIENCE);
        Self(core)
    }

    /// Until this is taken back others have better places for what waits.
    pub fn hold(&mut self, held: bool) {
        self.0.hold(held);
    }

    /// An item has taken so many ns.
    pub fn took(&mut self, ns: u64) {
        self.0.took(ns);
    }

    /// Whether the worker, which asks for an item, is to look at other pools.
    pub fn may_look(&mut self, worker: usize) -> bool {
        self.0.may_look(worker)
    }

    /// Whether items wait for those that run: somebody is to look at the pool in a while.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.0.waits()
    }

    /// From now on somebody does.
    pub fn begin_looks(&mut self) {
        self.0.begin_looks();
    }

    /// A look.
    pub fn look(&mut self) -> Bring {
        self.0.look().into()
    }

    /// What it knows of itself.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            waiting: self.0.unattended(),
            awake: self.0.running(),
            service: self.0.estimate(),
            ..Load::default()
        }
    }

    /// A thread has arrived to be a worker; returns its number.
    pub fn created(&mut self) -> usize {
        self.0.created()
    }

    /// An item has come; whom to wake is decided elsewhere.
    pub fn append(&mut self, item: usize) {
        self.0.append(Unique(item));
    }

    /// One worker is wanted.
    pub fn invite(&mut self) -> Bring {
        self.0.invite().into()
    }

    /// An item has come.
    pub fn push(&mut self, item: usize) -> Bring {
        self.0.push(Unique(item)).into()
    }

    /// The worker asks for an item. `None`: it sleeps until it is woken.
    pub fn next(&mut self, worker: usize) -> (Option<usize>, Bring) {
        let (next, action) = self.0.next(worker);
        (item(next), action.into())
    }

    /// As `next`, and nobody else is brought.
    pub fn take(&mut self, worker: usize) -> Option<usize> {
        item(self.0.take(worker))
    }

    /// The oldest item, for a worker of another pool.
    pub fn lend(&mut self) -> Option<usize> {
        self.0.lend().map(|item| item.0)
    }

    /// The worker runs an item of another pool; if one of its own has come it brings the next.
    pub fn adopt(&mut self, worker: usize, item: usize) -> Bring {
        self.0.adopt(worker, &Unique(item)).into()
    }

    /// Items that no worker has taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.listed()
    }
}

fn item(next: Next<Unique>) -> Option<usize> {
    match next {
        Next::Run(item) => Some(item.0),
        // A simulation has no mailboxes.
        Next::Fetch | Next::Sleep | Next::Exit => None,
    }
}
