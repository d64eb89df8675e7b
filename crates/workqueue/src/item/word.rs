//! The word that holds an item's state.
//!
//! | bits | field | valid | written by |
//! |---|---|---|---|
//! | 0 | PENDING: it has a live entry, or a timer | always | queue sets; claim and cancel clear |
//! | 1 | RUNNING | always | claim sets; end clears |
//! | 2 | PARKED: its entry is only here, with its slot and its colour | always | park sets; end and cancel clear |
//! | 3 | AWAITED: a thread waits for its end, or did | always | waiter sets; end and cancel clear |
//! | 4 | DISABLED. For a closure: its result has been taken | always | under the lock of `Extra`; the handle |
//! | 5 | CANCELLING: it refuses queueing until a cancel has ended. For a closure: its waiter is being notified | always | under the lock of `Extra`; the runner |
//! | 6 | HANDLES: there is a handle | always | the last handle clears |
//! | 7 | TIMER: it waits for its delay | while PENDING | queue sets; the timer and cancel clear |
//! | 8..12 | colour of the parked entry | while PARKED | park; end and cancel clear |
//! | 12..32 | pwq of the live entry | while PENDING, without TIMER | queue, redirect; claim and cancel clear |
//! | 32..64 | sequence number of the last queueing | always | queue adds one |

// For their meaning see the table.
pub(crate) const PENDING: u64 = 1;
pub(crate) const RUNNING: u64 = 1 << 1;
pub(crate) const PARKED: u64 = 1 << 2;
pub(crate) const AWAITED: u64 = 1 << 3;
pub(crate) const DISABLED: u64 = 1 << 4;
pub(crate) const CANCELLING: u64 = 1 << 5;
/// For a closure: it has ended, and the worker still notifies the waiter.
pub(crate) const TELLING: u64 = 1 << 5;
pub(crate) const HANDLES: u64 = 1 << 6;
pub(crate) const TIMER: u64 = 1 << 7;

/// If one of these is set, queueing is refused.
pub(crate) const REFUSING: u64 = DISABLED | CANCELLING;

const COLOUR_SHIFT: u32 = 8;
pub(crate) const COLOUR: u64 = 0xf << COLOUR_SHIFT;
const PWQ_SHIFT: u32 = 12;
/// The number of bits for the number of a pwq.
pub(crate) const PWQ_BITS: u32 = 20;
pub(crate) const PWQ: u64 = ((1 << PWQ_BITS) - 1) << PWQ_SHIFT;
const SEQ_SHIFT: u32 = 32;
pub(crate) const SEQ_ONE: u64 = 1 << SEQ_SHIFT;

/// The number of a queueing of an item. Wraps after 2^32.
pub(crate) type Seq = u32;

pub(crate) const fn seq(word: u64) -> Seq {
    (word >> SEQ_SHIFT) as Seq
}

pub(crate) const fn colour(word: u64) -> u8 {
    ((word & COLOUR) >> COLOUR_SHIFT) as u8
}

pub(crate) const fn with_colour(word: u64, colour: u8) -> u64 {
    word & !COLOUR | (colour as u64) << COLOUR_SHIFT
}

pub(crate) const fn pwq(word: u64) -> u32 {
    ((word & PWQ) >> PWQ_SHIFT) as u32
}

pub(crate) const fn with_pwq(word: u64, pwq: u32) -> u64 {
    word & !PWQ | (pwq as u64) << PWQ_SHIFT
}

/// Whether the queueing with that number is still live in the word.
pub(crate) const fn is_live(word: u64, seq: Seq) -> bool {
    word & PENDING != 0 && self::seq(word) == seq
}

/// Whether `seq` is `last` or before it; the two must be close to each other.
pub(crate) const fn is_up_to(seq: Seq, last: Seq) -> bool {
    last.wrapping_sub(seq) as i32 >= 0
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let word = with_colour(with_pwq(PENDING | HANDLES | (7 * SEQ_ONE), 0xf_ffff), 15);
        assert_eq!((pwq(word), colour(word), seq(word)), (0xf_ffff, 15, 7));
        assert_eq!(word & 0xff, PENDING | HANDLES);
        assert_eq!(
            with_colour(with_pwq(word, 0), 0),
            PENDING | HANDLES | (7 * SEQ_ONE)
        );
    }

    #[test]
    fn numbers_of_queueings_come_round() {
        assert!(is_up_to(u32::MAX, 1) && !is_up_to(1, u32::MAX));
        assert!(is_live(PENDING | (3 * SEQ_ONE), 3) && !is_live(3 * SEQ_ONE, 3));
    }
}
