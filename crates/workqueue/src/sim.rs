//! The pure state machines, for the simulator. Nothing here is promised to stay as it is.

pub use crate::lending::{Costs, Lately, Lending, LendingCounters, Load, Pod, Reason, Wake};
pub use crate::limits::{
    FrontEnd, Full, Limits, Ordered, Share, Shares, Slots, Touches, Tuning, Waits,
    default_min_active, shares,
};
use crate::machine::{Action, Core, Item, Next};

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

    /// Workers that run or are on their way.
    #[must_use]
    pub fn awake(&self) -> usize {
        self.0.running()
    }
}

fn item(next: Next<Unique>) -> Option<usize> {
    match next {
        Next::Run(item) => Some(item.0),
        // A simulation has no mailboxes.
        Next::Fetch | Next::Sleep | Next::Exit => None,
    }
}
