//! A tag in flight as one number: a ring's user data. `redeem.rs` turns it back into the tag, and
//! refuses stale and foreign ones. From the highest bit on: generation of the slot, set, flat slot
//! index. PROTOCOL.md has a picture.
//!
//! Invariant: a generation is in `FIRST..=LAST`, so a token is never 0 and never all ones; rings
//! use both for "no user data".

use std::fmt;

const INDEX_BITS: u32 = 24;
const SET_BITS: u32 = 6;
const GENERATION_BITS: u32 = 34;
const _: () = assert!(INDEX_BITS + SET_BITS + GENERATION_BITS == u64::BITS);

/// How many slots a set can have.
pub(crate) const MAX_SLOTS: usize = 1 << INDEX_BITS;
/// How many sets have their own numbers.
pub(crate) const MAX_SETS: usize = 1 << SET_BITS;

/// The use of its slot that a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    const FIRST: u64 = 1;
    const LAST: u64 = (1 << GENERATION_BITS) - 2;

    /// A valid generation from any number.
    pub(crate) const fn new(number: u64) -> Self {
        Self(Self::FIRST + number % Self::LAST)
    }

    /// The first generation of a slot. Neighbours start far apart, so that a token with a damaged
    /// index finds a slot whose generation does not match.
    pub(crate) fn start() -> Self {
        // A model must run the same way each time.
        let model = cfg!(any(loom, shuttle));
        Self::new(if model { 0 } else { fastrand::u64(..) })
    }

    #[inline]
    pub(crate) const fn next(self) -> Self {
        match self.0 {
            Self::LAST => Self::after_last(),
            bits => Self(bits + 1),
        }
    }

    /// Not inlined: the other case is 2^34 times as frequent.
    #[cold]
    #[inline(never)]
    const fn after_last() -> Self {
        Self(Self::FIRST)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`bits`](Self::bits), for words this crate wrote.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The slot that a token names: the token's lower bits, which are the same for all uses of the
/// slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

impl SlotId {
    pub(crate) const fn new(set: u8, index: usize) -> Self {
        debug_assert!(index < MAX_SLOTS && (set as usize) < MAX_SETS);
        Self((set as u32) << INDEX_BITS | index as u32)
    }

    /// Its index in a table of slots whose first slot is `first`. A slot of another set gets an
    /// index beyond the table.
    #[inline]
    pub(crate) const fn from(self, first: Self) -> usize {
        self.0.wrapping_sub(first.0) as usize
    }

    pub(crate) const fn set(self) -> u8 {
        (self.0 >> INDEX_BITS) as u8
    }

    /// The token of one use of it.
    #[inline]
    pub(crate) const fn token(self, generation: Generation) -> u64 {
        let slot = self;
        Token { generation, slot }.encode()
    }
}

/// The contents of a token: a slot, and one use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// For a token from outside, this may be an invalid generation, which matches no slot.
    pub(crate) generation: Generation,
    pub(crate) slot: SlotId,
}

impl Token {
    /// Whether it is one of the numbers that are not tokens.
    pub(crate) const fn is_none(self) -> bool {
        matches!(self.encode(), 0 | u64::MAX)
    }

    pub(crate) fn tail(self) -> TokenTail {
        self.encode().into()
    }

    #[inline]
    pub(crate) const fn encode(self) -> u64 {
        (self.generation.bits() << (SET_BITS + INDEX_BITS)) | self.slot.0 as u64
    }

    /// Decodes any number.
    #[inline]
    pub(crate) const fn decode(token: u64) -> Self {
        Self {
            generation: Generation::from_bits(token >> (SET_BITS + INDEX_BITS)),
            slot: SlotId(token as u32 & ((1 << (SET_BITS + INDEX_BITS)) - 1)),
        }
    }
}

/// A token in an error, as its lower 56 bits: the slot, the set, and all but the highest eight bits
/// of the generation. So a `Result` with a tag or an error is as small as a tag.
///
/// Its text is `0x..` and the last 14 hexadecimal digits of the token: search a log of the ring's
/// user data for them.
///
/// ```
/// use inflight_tags::TokenTail;
/// let token = 0x1234_5678_9abc_def0;
/// assert_eq!(TokenTail::from(token), token);
/// assert_eq!(TokenTail::from(token).to_string(), "0x..3456789abcdef0");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenTail([u8; 7]);

impl From<u64> for TokenTail {
    fn from(token: u64) -> Self {
        let [_, tail @ ..] = token.to_be_bytes();
        Self(tail)
    }
}

impl PartialEq<u64> for TokenTail {
    fn eq(&self, token: &u64) -> bool {
        *self == Self::from(*token)
    }
}

impl fmt::Display for TokenTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x..")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(generation: u64, set: u8, index: usize) -> u64 {
        let generation = Generation::from_bits(generation);
        let slot = SlotId::new(set, index);
        Token { generation, slot }.encode()
    }

    #[test]
    fn layout_vectors() {
        assert_eq!(token(1, 0, 0), 0x0000_0000_4000_0000);
        assert_eq!(token(1, 1, 0), 0x0000_0000_4100_0000);
        assert_eq!(token(1, 63, 0xff_ffff), 0x0000_0000_7fff_ffff);
        assert_eq!(token(0x2_0000_0000, 5, 0x12_3456), 0x8000_0000_0512_3456);
        assert_eq!(
            token(Generation::LAST, 63, 0xff_ffff),
            0xffff_ffff_bfff_ffff
        );
    }

    #[test]
    fn generations_wrap_past_the_two_forbidden_numbers() {
        assert_eq!(
            Generation::from_bits(Generation::LAST).next().bits(),
            Generation::FIRST
        );
        assert_eq!(Generation::from_bits(Generation::FIRST).next().bits(), 2);
        assert_eq!(
            Generation::new(u64::MAX).bits(),
            1 + u64::MAX % Generation::LAST
        );
    }

    proptest! {
        #[test]
        fn encode_and_decode_are_inverse(number: u64, set in 0u8..64, index in 0..MAX_SLOTS) {
            let (generation, slot) = (Generation::new(number), SlotId::new(set, index));
            let token = Token { generation, slot };
            prop_assert_eq!(Token::decode(token.encode()), token);
            prop_assert!(token.encode() != 0 && token.encode() != u64::MAX);
        }

        #[test]
        fn a_slot_of_another_set_is_beyond_every_table(
            own in 0u8..64, set in 0u8..64, index in 0..MAX_SLOTS,
        ) {
            let from = SlotId::new(set, index).from(SlotId::new(own, 0));
            prop_assert_eq!(SlotId::new(set, index).set(), set);
            if set == own {
                prop_assert_eq!(from, index);
            } else {
                prop_assert!(from >= MAX_SLOTS);
            }
        }

        #[test]
        fn decode_takes_anything(bits: u64) {
            prop_assert_eq!(Token::decode(bits).encode(), bits);
        }

        #[test]
        fn a_generation_comes_back_only_after_all_others(number: u64, steps in 1u64..1000) {
            let start = Generation::new(number);
            let mut now = start;
            for _ in 0..steps {
                now = now.next();
                prop_assert!((Generation::FIRST..=Generation::LAST).contains(&now.bits()));
                prop_assert_ne!(now, start);
            }
        }
    }
}
