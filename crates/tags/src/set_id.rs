//! The number that tells sets apart in tokens.
//!
//! A process-wide table, because tokens of two sets that know nothing of each other must differ. While
//! at most 64 sets live, no two have the same number. Later ones get a number in turn, and a
//! foreign token of theirs is refused only by its generation where the numbers meet.
//! In a model there is no state outside the model, so all sets have number 0 there.

/// A set's number; given back when dropped.
#[derive(Debug)]
pub(crate) struct SetId {
    number: u8,
    /// Whether the number is this set's alone.
    #[cfg(not(any(loom, shuttle)))]
    own: bool,
}

impl SetId {
    pub(crate) const fn number(&self) -> u8 {
        self.number
    }
}

#[cfg(any(loom, shuttle))]
impl SetId {
    pub(crate) const fn new() -> Self {
        Self { number: 0 }
    }
}

#[cfg(not(any(loom, shuttle)))]
mod table {
    use super::SetId;
    use crate::token::MAX_SETS;
    use inflight_sync::Mutex;

    const _: () = assert!(MAX_SETS == u64::BITS, "one bit of `taken` per number");

    struct Table {
        taken: u64,
        /// Where the search goes on, so that a number rests before it is used again.
        next: u32,
    }

    static TABLE: Mutex<Table> = Mutex::new(Table { taken: 0, next: 0 });

    impl SetId {
        pub(crate) fn new() -> Self {
            let mut table = TABLE.lock();
            let start = table.next;
            let free = (0..MAX_SETS)
                .map(|i| (start + i) % MAX_SETS)
                .find(|&number| table.taken & (1 << number) == 0);
            let number = free.unwrap_or(start);
            table.taken |= 1 << number;
            table.next = (number + 1) % MAX_SETS;
            let number = u8::try_from(number).expect("below 64");
            Self {
                number,
                own: free.is_some(),
            }
        }
    }

    impl Drop for SetId {
        fn drop(&mut self) {
            if self.own {
                TABLE.lock().taken &= !(1 << self.number);
            }
        }
    }
}
