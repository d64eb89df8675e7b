//! The number that distinguishes sets in tokens.
//!
//! A process-wide table, because tokens of two independent sets must differ. A new set gets a
//! number that the fewest living sets have: none, while there are fewer than 64. If two sets share
//! a number, only the generation refuses a token of the other. In a model there is no state outside
//! the model, so all sets there have number 0.

/// A set's number; given back when dropped.
#[derive(Debug)]
pub(crate) struct SetId(u8);

impl SetId {
    pub(crate) const fn number(&self) -> u8 {
        self.0
    }
}

#[cfg(any(loom, shuttle))]
impl SetId {
    pub(crate) const fn new() -> Self {
        Self(0)
    }
}

#[cfg(not(any(loom, shuttle)))]
mod table {
    use super::SetId;
    use crate::token::MAX_SETS;
    use inflight_sync::Mutex;

    struct Table {
        /// How many living sets have each number.
        users: [u32; MAX_SETS],
        /// Where the search begins, so that a number is not reused soon.
        next: usize,
    }

    static TABLE: Mutex<Table> = Mutex::new(Table {
        users: [0; MAX_SETS],
        next: 0,
    });

    impl SetId {
        pub(crate) fn new() -> Self {
            let mut table = TABLE.lock();
            let number = (table.next..table.next + MAX_SETS)
                .map(|number| number % MAX_SETS)
                .min_by_key(|&number| table.users[number])
                .expect("there are 64 numbers");
            table.users[number] += 1;
            table.next = (number + 1) % MAX_SETS;
            Self(u8::try_from(number).expect("a number is below 64"))
        }
    }

    impl Drop for SetId {
        fn drop(&mut self) {
            TABLE.lock().users[usize::from(self.0)] -= 1;
        }
    }
}
