//! Items that wait for a slot, in the order they came; any of them can be taken back.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// There is room before it for what is put back.
const FIRST_TICKET: u64 = 1 << 32;

/// Items by ticket. One that has gone may have had the ticket of one that was put back.
#[derive(Clone, Debug)]
pub(crate) struct Inactive<T> {
    /// Each at its ticket minus that of the first place. The first place is never empty, others
    /// are when their item was taken back.
    places: VecDeque<Option<T>>,
    first_ticket: u64,
    /// Empty places aside.
    waiting: usize,
}

impl<T> Inactive<T> {
    pub(crate) const fn new() -> Self {
        Self {
            places: VecDeque::new(),
            first_ticket: FIRST_TICKET,
            waiting: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The ticket of the next to come.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.first_ticket + self.places.len() as u64
    }

    pub(crate) fn push(&mut self, item: T) {
        self.places.push_back(Some(item));
        self.waiting += 1;
    }

    /// Puts an item before all others. It is told its ticket.
    pub(crate) fn push_front(&mut self, make: impl FnOnce(u64) -> T) {
        self.first_ticket -= 1;
        self.places.push_front(Some(make(self.first_ticket)));
        self.waiting += 1;
    }

    /// Takes what has waited longest.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.places.pop_front()??;
        self.first_ticket += 1;
        self.waiting -= 1;
        self.skip_empty();
        Some(item)
    }

    /// What has waited longest, with its ticket.
    pub(crate) fn first(&self) -> Option<(u64, &T)> {
        let item = self.places.front()?.as_ref()?;
        Some((self.first_ticket, item))
    }

    pub(crate) fn get(&self, ticket: u64) -> Option<&T> {
        self.places.get(self.at(ticket)?)?.as_ref()
    }

    /// Takes that item back, if it is the one.
    pub(crate) fn remove(&mut self, ticket: u64, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.at(ticket)?;
        let item = self.places.get_mut(at)?.take_if(|item| is_it(item))?;
        self.waiting -= 1;
        self.skip_empty();
        Some(item)
    }

    /// The ticket of an item.
    #[cfg(any(test, feature = "unstable-sim"))]
    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<u64> {
        let at = self
            .places
            .iter()
            .position(|item| item.as_ref().is_some_and(&is_it))?;
        Some(self.first_ticket + at as u64)
    }

    fn at(&self, ticket: u64) -> Option<usize> {
        usize::try_from(ticket.checked_sub(self.first_ticket)?).ok()
    }

    fn skip_empty(&mut self) {
        while matches!(self.places.front(), Some(None)) {
            self.places.pop_front();
            self.first_ticket += 1;
        }
    }
}

/// What has gone makes no difference.
impl<T: PartialEq> PartialEq for Inactive<T> {
    fn eq(&self, other: &Self) -> bool {
        self.places == other.places
    }
}

impl<T: Eq> Eq for Inactive<T> {}

impl<T: Hash> Hash for Inactive<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.places.hash(state);
    }
}
