//! The state of a map or queue at one moment, for people and tools.
//!
//! The text has the form of the block layer's debug files: one `name=value` a line, in this order,
//! and after that the values that those files do not have.

use crate::engine::BackEnd;
use crate::fairness::Fairness;
use crate::layout::{Layout, MAX_DEPTH};
use std::fmt;

/// The state of a [`Sbitmap`](crate::Sbitmap). Inexact while others get and put.
///
/// ```
/// let map = inflight_sbitmap::Sbitmap::builder(16).build().unwrap();
/// let text = map.snapshot().to_string();
/// assert!(text.starts_with("depth=16\nbusy=0\ncleared=0\nbits_per_word=4\nmap_nr=4\n"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of bits to hand out.
    pub depth: usize,
    /// The largest depth the map can have.
    pub max_depth: usize,
    /// The number of bits in use. Those of a queue include bits that waiters were given and have
    /// not yet fetched; see [`QueueSnapshot::granted`] and [`QueueSnapshot::collected`].
    pub busy: usize,
    /// The number of bits that are freed and not yet moved back.
    pub cleared: usize,
    /// The number of bits used in each word.
    pub bits_per_word: usize,
    /// The number of words of the depth.
    pub map_nr: usize,
    /// The bits in use, word by word. More than `map_nr` words if bits above the depth are still in
    /// use after a shrink.
    pub words: Vec<u64>,
    /// Whether bits are handed out round robin.
    pub round_robin: bool,
    /// Where the search of each CPU begins.
    pub alloc_hint: Vec<u32>,
}

impl Snapshot {
    /// Returns the bits in use as hexadecimal bytes, 16 a line, each line with its offset; bits are
    /// packed densely, lowest first. Bits above the depth appear while they are in use.
    ///
    /// Empty for a snapshot that no map can have had, such as one that was damaged before it was
    /// read back.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(16).build().unwrap();
    /// let mut bits = Vec::new();
    /// map.try_get_batch(16, &mut bits);
    /// assert_eq!(map.snapshot().hex_dump(), "00000000: ffff\n");
    /// ```
    #[must_use]
    pub fn hex_dump(&self) -> String {
        let word = self.bits_per_word;
        if !word.is_power_of_two() || word > 64 || self.depth > MAX_DEPTH {
            return String::new();
        }
        let layout = Layout {
            depth: self.depth,
            shift: self.bits_per_word.trailing_zeros(),
        };
        let in_use = self.words.iter().enumerate().flat_map(|(i, &word)| {
            crate::layout::offsets(word).map(move |offset| layout.bit(i, offset))
        });
        let mut bytes = vec![0_u8; self.depth.div_ceil(8)];
        for bit in in_use {
            if bit / 8 >= bytes.len() {
                bytes.resize(bit / 8 + 1, 0);
            }
            bytes[bit / 8] |= 1 << (bit % 8);
        }
        let mut text = String::new();
        for (line, chunk) in bytes.chunks(16).enumerate() {
            text += &format!("{:08x}:", line * 16);
            for (i, byte) in chunk.iter().enumerate() {
                text += if i % 2 == 0 { " " } else { "" };
                text += &format!("{byte:02x}");
            }
            text.push('\n');
        }
        text
    }

    fn write_map(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (depth, busy, cleared) = (self.depth, self.busy, self.cleared);
        writeln!(f, "depth={depth}\nbusy={busy}\ncleared={cleared}")?;
        let (bits_per_word, map_nr) = (self.bits_per_word, self.map_nr);
        writeln!(f, "bits_per_word={bits_per_word}\nmap_nr={map_nr}")?;
        let hints: Vec<String> = self.alloc_hint.iter().map(u32::to_string).collect();
        writeln!(f, "alloc_hint={{{}}}", hints.join(", "))
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_map(f)?;
        let (round_robin, max_depth) = (u8::from(self.round_robin), self.max_depth);
        writeln!(f, "round_robin={round_robin}\nmax_depth={max_depth}")
    }
}

/// The state of a [`SbitmapQueue`](crate::SbitmapQueue). Inexact while others get and put.
///
/// ```
/// use inflight_sbitmap::{Fairness, SbitmapQueue};
/// let builder = SbitmapQueue::builder(64).fairness(Fairness::batched());
/// let queue = builder.build().unwrap();
/// let snapshot = queue.snapshot();
/// assert_eq!(snapshot.wake_batch, 8);
/// assert!(snapshot.to_string().contains("\nwake_batch=8\n"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct QueueSnapshot {
    /// The bitmap.
    pub map: Snapshot,
    /// The order of waiters.
    pub fairness: Fairness,
    /// What keeps the bits.
    pub back_end: BackEnd,
    /// The number of waiters woken for as many freed bits. 1 except with [`Fairness::Batched`].
    pub wake_batch: u32,
    /// The wait queue that is served next. 0 except with [`Fairness::Batched`].
    pub wake_index: usize,
    /// The number of waiters. With [`Fairness::Batched`] it includes woken waiters that have not
    /// run yet; in the other modes it does not, because these have their bit (see `granted`).
    pub ws_active: usize,
    /// Bits freed while there were waiters; wraps. 0 except with [`Fairness::Batched`].
    pub completions: u32,
    /// With [`Fairness::Batched`] it follows `completions` in steps of `wake_batch`; else the
    /// number of waiters to which another thread granted all they wanted. Wraps.
    pub wakeups: u32,
    /// The number of waiters in each queue, without woken ones. One queue except with
    /// [`Fairness::Batched`].
    pub waiters: Vec<usize>,
    /// Bits granted to waiters that have not yet run (threads) or been polled (futures). If it
    /// stays above 0, there are futures that are not polled. 0 with [`Fairness::Batched`], which
    /// grants nothing.
    pub granted: usize,
    /// Bits collected so far by waiters for several that have not yet all they want. Not known,
    /// hence 0, with [`Fairness::Batched`].
    pub collected: usize,
    /// The smallest limit of shallow users, if one was announced; [`Fairness::Batched`] only.
    pub least_share: Option<usize>,
}

impl QueueSnapshot {
    /// Returns the snapshot of a queue without waiters.
    pub(crate) fn idle(map: Snapshot, fairness: Fairness, back_end: BackEnd) -> Self {
        Self {
            map,
            fairness,
            back_end,
            wake_batch: 1,
            wake_index: 0,
            ws_active: 0,
            completions: 0,
            wakeups: 0,
            waiters: Vec::new(),
            granted: 0,
            collected: 0,
            least_share: None,
        }
    }
}

impl fmt::Display for QueueSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.write_map(f)?;
        let (batch, index, active) = (self.wake_batch, self.wake_index, self.ws_active);
        writeln!(f, "wake_batch={batch}\nwake_index={index}")?;
        writeln!(f, "ws_active={active}\nws={{")?;
        for waiters in &self.waiters {
            let wait = if *waiters > 0 { "active" } else { "inactive" };
            writeln!(f, "\t{{.wait={wait}, .waiters={waiters}}},")?;
        }
        writeln!(f, "}}\nround_robin={}", u8::from(self.map.round_robin))?;
        let limit = self.least_share.map(|limit| limit.to_string());
        writeln!(f, "least_share={}", limit.as_deref().unwrap_or("none"))?;
        let (max_depth, fairness, back_end) = (self.map.max_depth, self.fairness, self.back_end);
        writeln!(f, "max_depth={max_depth}\nfairness={fairness}")?;
        writeln!(f, "back_end={back_end:?}")?;
        writeln!(f, "granted={}\ncollected={}", self.granted, self.collected)
    }
}

/// Counts since a [`SbitmapQueue`](crate::SbitmapQueue) was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct QueueStats {
    /// How often a user joined a wait queue. One that was woken in vain and queued again
    /// ([`Fairness::Batched`] only) counts twice.
    pub waits: u64,
    /// The number of waiters that were woken.
    pub wakeups: u64,
}
