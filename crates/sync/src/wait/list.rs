//! A FIFO of waiters, in which a waiter can leave from any position.
//!
//! Plain data for the inside of a lock: a doubly linked list over the indices of a `Vec`, so that a
//! cancelled waiter leaves in constant time, nothing is allocated once the list has reached its
//! largest size, and no pointer to a waiter's stack or future exists.

use super::Notify;
const NIL: u32 = u32::MAX;

/// Names one wait of one waiter in a [`WaitList`]. The key of a waiter that has left matches
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterKey {
    index: u32,
    serial: u64,
}

#[derive(Debug)]
struct WaitEntry {
    /// `None` while the slot is free.
    notify: Option<Notify>,
    /// The caller's data, by which it chooses a waiter.
    data: u64,
    /// Of the wait the slot holds or held last.
    serial: u64,
    prev: u32,
    /// Next waiter, or next free slot.
    next: u32,
}

/// A first-in-first-out list of waiters. Keep it inside a [`Mutex`](crate::Mutex).
///
/// ```
/// use inflight_sync::{Parker, wait::{Notify, WaitList, WaiterKey}};
/// let me = || Notify::Thread(Parker::current().unparker());
/// let mut list = WaitList::new();
/// let first: WaiterKey = list.push_back(me(), 0);
/// let second = list.push_back(me(), 0);
/// assert!(list.remove(first).is_some(), "it was still waiting");
/// assert!(list.contains(second) && list.replace(second, me()).is_ok());
/// assert!(list.pop_front().is_some());
/// assert!(list.remove(second).is_none(), "it had been chosen");
/// list.push_back(me(), 3);
/// assert_eq!(list.drain().len(), 1);
/// assert!(list.is_empty() && list.len() == 0);
/// ```
#[derive(Debug)]
pub struct WaitList {
    slots: Vec<WaitEntry>,
    head: u32,
    tail: u32,
    free: u32,
    len: usize,
    next_serial: u64,
}

impl Default for WaitList {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitList {
    /// Makes an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            head: NIL,
            tail: NIL,
            free: NIL,
            len: 0,
            next_serial: 0,
        }
    }

    /// Returns the number of waiters.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no waiters.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a waiter behind all others, with data by which [`pop_first`](WaitList::pop_first)
    /// chooses.
    pub fn push_back(&mut self, notify: Notify, data: u64) -> WaiterKey {
        let serial = self.next_serial;
        self.next_serial += 1;
        let slot = WaitEntry {
            notify: Some(notify),
            data,
            serial,
            prev: self.tail,
            next: NIL,
        };
        let index = if self.free == NIL {
            let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 waiters");
            self.slots.push(slot);
            index
        } else {
            let index = self.free;
            self.free = std::mem::replace(&mut self.slots[index as usize], slot).next;
            index
        };
        match self.tail {
            NIL => self.head = index,
            tail => self.slots[tail as usize].next = index,
        }
        self.tail = index;
        self.len += 1;
        WaiterKey { index, serial }
    }

    /// Returns whether the waiter is still in the list.
    #[must_use]
    pub fn contains(&self, key: WaiterKey) -> bool {
        self.slots
            .get(key.index as usize)
            .is_some_and(|s| s.serial == key.serial && s.notify.is_some())
    }

    /// Replaces how a waiter is woken. Returns the old `Notify`, or the new one if the waiter has
    /// left.
    ///
    /// Drop the result without the lock: the last handle of a waker may
    /// drop a whole task, and that may lead back here.
    ///
    /// # Errors
    ///
    /// The new `notify`, if the waiter has left.
    pub fn replace(&mut self, key: WaiterKey, notify: Notify) -> Result<Notify, Notify> {
        if !self.contains(key) {
            return Err(notify);
        }
        let old = self.slots[key.index as usize].notify.replace(notify);
        Ok(old.expect("a waiter in the list has a `Notify`"))
    }

    /// Removes a waiter from any position. `None` if it had been chosen or removed before.
    ///
    /// Drop the result without the lock, as with [`replace`](WaitList::replace).
    #[must_use = "drop it after the lock is released"]
    pub fn remove(&mut self, key: WaiterKey) -> Option<Notify> {
        if self.contains(key) {
            self.unlink(key.index)
        } else {
            None
        }
    }

    /// Removes the waiter that has waited longest.
    #[must_use = "it is to be woken"]
    pub fn pop_front(&mut self) -> Option<Notify> {
        match self.head {
            NIL => None,
            head => self.unlink(head),
        }
    }

    /// Removes the first waiter whose data is `wanted`, and returns it with its data. Skips those
    /// before it.
    ///
    /// ```
    /// # use inflight_sync::{Parker, wait::{Notify, WaitList}};
    /// let me = || Notify::Thread(Parker::current().unparker());
    /// let mut list = WaitList::new();
    /// let first = list.push_back(me(), 0);
    /// let second = list.push_back(me(), 3);
    /// assert!(list.pop_first(|data| data == 3).is_some());
    /// assert!(list.contains(first) && !list.contains(second));
    /// ```
    #[must_use = "it is to be woken"]
    pub fn pop_first(&mut self, mut wanted: impl FnMut(u64) -> bool) -> Option<(Notify, u64)> {
        let mut at = self.head;
        while let Some(slot) = self.slots.get(at as usize) {
            let data = slot.data;
            if wanted(data) {
                return self.unlink(at).map(|notify| (notify, data));
            }
            at = slot.next;
        }
        None
    }

    /// Removes all waiters, longest wait first.
    #[must_use = "they are to be woken"]
    pub fn drain(&mut self) -> Vec<Notify> {
        let mut all = Vec::with_capacity(self.len);
        all.extend(std::iter::from_fn(|| self.pop_front()));
        all
    }

    fn unlink(&mut self, index: u32) -> Option<Notify> {
        let slot = &mut self.slots[index as usize];
        let notify = slot.notify.take();
        let (prev, next) = (slot.prev, slot.next);
        slot.next = self.free;
        self.free = index;
        match prev {
            NIL => self.head = next,
            prev => self.slots[prev as usize].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => self.slots[next as usize].prev = prev,
        }
        self.len -= 1;
        notify
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// Writes its number where the test can read who was woken.
    struct Numbered(usize, Arc<AtomicUsize>);
    impl Wake for Numbered {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0, Ordering::Relaxed);
        }
    }

    fn number_of(notify: Notify, seen: &AtomicUsize) -> usize {
        notify.notify();
        seen.load(Ordering::Relaxed)
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push,
        Pop,
        Remove(usize),
        Contains(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => Just(Op::Push),
            2 => Just(Op::Pop),
            2 => (0..64usize).prop_map(Op::Remove),
            1 => (0..64usize).prop_map(Op::Contains),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

        /// Against a plain vector of numbers, with every key ever handed out kept for reuse.
        #[test]
        fn behaves_like_a_vector(ops in proptest::collection::vec(op(), 0..200)) {
            let seen = Arc::new(AtomicUsize::new(0));
            let mut list = WaitList::new();
            let mut oracle: Vec<usize> = Vec::new();
            let mut keys: Vec<WaiterKey> = Vec::new();
            for op in ops {
                match op {
                    Op::Push => {
                        let n = keys.len();
                        let waker = Arc::new(Numbered(n, seen.clone())).into();
                        keys.push(list.push_back(Notify::Task(waker), 0));
                        oracle.push(n);
                    }
                    Op::Pop => {
                        let expected = (!oracle.is_empty()).then(|| oracle.remove(0));
                        prop_assert_eq!(list.pop_front().map(|n| number_of(n, &seen)), expected);
                    }
                    Op::Remove(n) if n < keys.len() => {
                        let at = oracle.iter().position(|&m| m == n);
                        prop_assert_eq!(list.remove(keys[n]).is_some(), at.is_some());
                        at.map(|at| oracle.remove(at));
                    }
                    Op::Contains(n) if n < keys.len() => {
                        prop_assert_eq!(list.contains(keys[n]), oracle.contains(&n));
                    }
                    Op::Remove(_) | Op::Contains(_) => {}
                }
                prop_assert_eq!(list.len(), oracle.len());
            }
            let rest: Vec<usize> = list.drain().into_iter().map(|n| number_of(n, &seen)).collect();
            prop_assert_eq!(rest, oracle);
        }
    }
}
