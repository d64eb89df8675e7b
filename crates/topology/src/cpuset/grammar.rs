//! The two text forms of a CPU set: lists (`0-5,24-29`) and masks (`00000000,3f00003f`).

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use super::CpuSet;

/// Bits in one word of the mask form.
const MASK_WORD_BITS: usize = u32::BITS as usize;

/// Why a text is no CPU set.
///
/// Items are counted from 1, in the order they are written.
///
/// ```
/// use inflight_topology::{CpuSet, ParseCpuSetError};
///
/// let error = "0-3,8-".parse::<CpuSet>().unwrap_err();
/// assert_eq!(error, ParseCpuSetError::NotANumber { item: 2 });
/// assert_eq!(error.to_string(), "item 2 of the CPU list is neither a number nor a range");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseCpuSetError {
    /// An item of a list is neither a number nor a range of numbers.
    NotANumber {
        /// Which item.
        item: usize,
    },
    /// A range ends before it begins.
    Reversed {
        /// Which item.
        item: usize,
    },
    /// A `:used/group` suffix does not say `1 <= used <= group`.
    BadGroup {
        /// Which item.
        item: usize,
    },
    /// A word of a mask is not one to eight hexadecimal digits.
    BadMaskWord {
        /// Which word.
        item: usize,
    },
    /// A CPU id is [`CpuSet::ID_LIMIT`] or more.
    TooLarge {
        /// Which item or word.
        item: usize,
    },
}

impl fmt::Display for ParseCpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber { item } => {
                write!(
                    f,
                    "item {item} of the CPU list is neither a number nor a range"
                )
            }
            Self::Reversed { item } => {
                write!(f, "item {item} of the CPU list ends before it begins")
            }
            Self::BadGroup { item } => write!(
                f,
                "item {item} of the CPU list has a group that is not `used/group` with \
                 1 <= used <= group"
            ),
            Self::BadMaskWord { item } => {
                write!(
                    f,
                    "word {item} of the CPU mask is not one to eight hexadecimal digits"
                )
            }
            Self::TooLarge { item } => {
                write!(
                    f,
                    "item {item} names a CPU id above {}",
                    CpuSet::ID_LIMIT - 1
                )
            }
        }
    }
}

impl Error for ParseCpuSetError {}

/// The list form: items between commas, each `a`, `a-b` or `a-b:used/group` (the first `used` of
/// every `group` CPUs from `a` to `b`). White space around the list and its items is allowed, and
/// an empty list is the empty set, as files under `/sys` show it.
///
/// ```
/// use inflight_topology::CpuSet;
///
/// let first_two_of_eight: CpuSet = " 0-31:2/8\n".parse()?;
/// assert_eq!(first_two_of_eight.to_string(), "0-1,8-9,16-17,24-25");
/// # Ok::<(), inflight_topology::ParseCpuSetError>(())
/// ```
impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(list: &str) -> Result<Self, ParseCpuSetError> {
        let mut set = Self::new();
        if list.trim().is_empty() {
            return Ok(set);
        }
        for (index, text) in list.split(',').enumerate() {
            insert_item(&mut set, text.trim(), index + 1)?;
        }
        Ok(set)
    }
}

/// Adds one item of a list.
fn insert_item(set: &mut CpuSet, text: &str, item: usize) -> Result<(), ParseCpuSetError> {
    let (range, group) = match text.split_once(':') {
        Some((range, group)) => (range, Some(group)),
        None => (text, None),
    };
    let Some((start, end)) = range.split_once('-') else {
        if group.is_some() {
            return Err(ParseCpuSetError::BadGroup { item });
        }
        set.insert(cpu_id(range, item)?);
        return Ok(());
    };
    let (start, end) = (cpu_id(start, item)?, cpu_id(end, item)?);
    if end < start {
        return Err(ParseCpuSetError::Reversed { item });
    }
    let (used, group) = match group {
        Some(group) => used_and_group(group).ok_or(ParseCpuSetError::BadGroup { item })?,
        None => (1, 1),
    };
    set.insert_groups(start, end, used, group);
    Ok(())
}

fn cpu_id(text: &str, item: usize) -> Result<usize, ParseCpuSetError> {
    if !is_decimal(text) {
        return Err(ParseCpuSetError::NotANumber { item });
    }
    // Only digits, so the one way to fail is a number too large for a usize.
    match text.parse() {
        Ok(cpu) if cpu < CpuSet::ID_LIMIT => Ok(cpu),
        _ => Err(ParseCpuSetError::TooLarge { item }),
    }
}

fn used_and_group(text: &str) -> Option<(usize, usize)> {
    let (used, group) = text.split_once('/')?;
    if !is_decimal(used) || !is_decimal(group) {
        return None;
    }
    let (used, group) = (used.parse().ok()?, group.parse().ok()?);
    (1 <= used && used <= group).then_some((used, group))
}

/// Digits and nothing else. The standard library's own parser would also take a plus sign.
pub(crate) fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The list form, in ascending order and with ranges as long as they get; the empty set is an
/// empty text.
///
/// ```
/// use inflight_topology::CpuSet;
///
/// assert_eq!(CpuSet::from([3, 0, 1, 2, 9]).to_string(), "0-3,9");
/// ```
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(start) = cpus.next() {
            let mut end = start;
            while let Some(next) = cpus.next_if_eq(&(end + 1)) {
                end = next;
            }
            match end - start {
                0 => write!(f, "{separator}{start}")?,
                _ => write!(f, "{separator}{start}-{end}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl CpuSet {
    /// Reads the mask form: hexadecimal words of 32 bits between commas, the most significant word
    /// first. White space around the mask is allowed, and an empty text is the empty set.
    ///
    /// # Errors
    ///
    /// [`ParseCpuSetError::BadMaskWord`] if a word is not one to eight hexadecimal digits,
    /// [`ParseCpuSetError::TooLarge`] if a bit at or above [`CpuSet::ID_LIMIT`] is set.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let set = CpuSet::from_mask_str("1,0000000f")?;
    /// assert_eq!(set, CpuSet::from([0, 1, 2, 3, 32]));
    /// # Ok::<(), inflight_topology::ParseCpuSetError>(())
    /// ```
    pub fn from_mask_str(mask: &str) -> Result<Self, ParseCpuSetError> {
        let mask = mask.trim();
        let mut set = Self::new();
        if mask.is_empty() {
            return Ok(set);
        }
        let words = mask.split(',').count();
        for (index, text) in mask.split(',').enumerate() {
            let item = index + 1;
            let mut bits = mask_word(text).ok_or(ParseCpuSetError::BadMaskWord { item })?;
            let base = (words - item) * MASK_WORD_BITS;
            if bits != 0 && base >= Self::ID_LIMIT {
                return Err(ParseCpuSetError::TooLarge { item });
            }
            while bits != 0 {
                set.insert(base + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        Ok(set)
    }

    /// The mask form: hexadecimal words of 32 bits between commas, the most significant word
    /// first, each with all its eight digits, and as many words as the highest id needs (at least
    /// one).
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert_eq!(CpuSet::from([0, 4, 33]).to_mask_string(), "00000002,00000011");
    /// assert_eq!(CpuSet::new().to_mask_string(), "00000000");
    /// ```
    #[must_use]
    pub fn to_mask_string(&self) -> String {
        let words = self.last().map_or(1, |last| last / MASK_WORD_BITS + 1);
        let mut bits = vec![0_u32; words];
        for cpu in self {
            bits[words - 1 - cpu / MASK_WORD_BITS] |= 1 << (cpu % MASK_WORD_BITS);
        }
        let texts: Vec<String> = bits.iter().map(|word| format!("{word:08x}")).collect();
        texts.join(",")
    }
}

fn mask_word(text: &str) -> Option<u32> {
    let digits = (1..=8).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !digits {
        return None;
    }
    u32::from_str_radix(text, 16).ok()
}
