//! Tokens that nobody made, that come twice, late or damaged, against a live set. The oracle knows
//! which tokens are out: exactly these are accepted, once, with their data, and nothing is lost.

use inflight_tags::{AllocOptions, RedeemError, Tag, TagSet};
use std::collections::BTreeMap;

/// What the slots hold: the number of the submission.
type Set = TagSet<u64>;

const HW_QUEUES: usize = 3;
const DEPTH: usize = 7;
const RESERVED: usize = 2;

/// A splitmix generator: the inputs of one case all come from its words.
#[derive(Clone, Debug)]
pub(crate) struct Words(pub(crate) u64);

impl Words {
    /// The next word.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A live set, and what is true of it.
pub(crate) struct Attack {
    set: Set,
    other: Set,
    dev: inflight_tags::Tenant<u64>,
    held: Vec<Tag<u64>>,
    /// Tokens out, with their data, and whether they are marked.
    out: BTreeMap<u64, (u64, bool)>,
    /// Tokens that were accepted once.
    spent: Vec<u64>,
    submissions: u64,
    /// How many tokens were tried that must be refused.
    pub(crate) refused: u64,
    /// How many were out, and came back.
    pub(crate) accepted: u64,
}

fn set() -> Set {
    TagSet::builder()
        .hw_queues(HW_QUEUES)
        .depth(DEPTH)
        .reserved(RESERVED)
        .ages(false)
        .build(|_, _| 0)
        .expect("a legal geometry")
}

impl Default for Attack {
    fn default() -> Self {
        let set = set();
        Self {
            dev: set.add_tenant("attacked").unwrap(),
            other: self::set(),
            set,
            held: vec![],
            out: BTreeMap::new(),
            spent: vec![],
            submissions: 0,
            refused: 0,
            accepted: 0,
        }
    }
}

impl Attack {
    /// A number made from the word: a token of the past, a token that is out with a bit or two
    /// changed, one with the right place and another generation, or anything.
    fn forged(&self, word: u64) -> u64 {
        let of = |tokens: &mut dyn Iterator<Item = &u64>, n: usize| {
            tokens.nth((word >> 8) as usize % n.max(1)).copied()
        };
        let out = of(&mut self.out.keys(), self.out.len()).unwrap_or(word);
        match word % 6 {
            0 => of(&mut self.spent.iter(), self.spent.len()).unwrap_or(word),
            1 => out ^ (1 << ((word >> 32) % 64)),
            2 => out ^ (1 << ((word >> 32) % 64)) ^ (1 << ((word >> 40) % 64)),
            3 => (out & 0x3fff_ffff) | (word & !0x3fff_ffff),
            4 => (word & !0xff_ffff) | (word % (HW_QUEUES * DEPTH) as u64),
            _ => word,
        }
    }

    /// Tries a number as a token, and as one that has timed out.
    fn try_token(&mut self, token: u64) {
        let (known, marked) = match self.out.get(&token) {
            Some(&(data, marked)) => (Some(data), marked),
            None => (None, false),
        };
        match self.set.redeem(token) {
            Ok(tag) => {
                assert_eq!(Some(*tag), known, "{token:#x} was not out");
                assert!(!marked, "{token:#x} had timed out");
                self.accepted(token, tag);
                assert!(self.set.redeem(token).is_err(), "twice");
                return;
            }
            Err(error) if known.is_some() => assert!(matches!(error, RedeemError::TimedOut { .. })),
            Err(_) => self.refused += 1,
        }
        assert!(known.is_none() || marked, "{token:#x} is lost");
        match self.set.redeem_timed_out(token) {
            Ok(tag) => {
                assert!(marked && known == Some(*tag), "{token:#x} was not marked");
                self.accepted(token, tag);
            }
            Err(_) => assert!(known.is_none(), "{token:#x} is lost"),
        }
        assert_eq!(
            matches!(self.other.redeem(token), Err(RedeemError::Foreign { .. })),
            (token >> 24) & 63 != self.other_number(),
        );
    }

    /// The number that stands in the other set's tokens.
    fn other_number(&self) -> u64 {
        let tag = self.other.add_tenant("q").unwrap().alloc_blocking();
        let token = tag.expect("it is empty").into_token();
        drop(self.other.redeem(token).expect("it is out"));
        (token >> 24) & 63
    }

    fn accepted(&mut self, token: u64, tag: Tag<u64>) {
        self.out.remove(&token);
        self.accepted += 1;
        self.spent.push(token);
        if self.spent.len() > 500 {
            self.spent.swap_remove(token as usize % 500);
        }
        self.held.push(tag);
    }

    /// One step, chosen by the word.
    pub(crate) fn step(&mut self, word: u64) {
        let pick = (word >> 8) as usize;
        match word % 16 {
            0..=2 => {
                let options = AllocOptions::new().hw_queue(pick % HW_QUEUES);
                let options = if pick % 5 == 0 {
                    options.reserved()
                } else {
                    options
                };
                self.held.extend(self.dev.try_alloc_with(options).ok());
            }
            3..=5 if !self.held.is_empty() => {
                let mut tag = self.held.swap_remove(pick % self.held.len());
                self.submissions += 1;
                *tag = self.submissions;
                let token = tag.into_token();
                assert!(token != 0 && token != u64::MAX);
                let before = self.out.insert(token, (self.submissions, false));
                assert!(
                    before.is_none() && !self.spent.contains(&token),
                    "a token twice"
                );
            }
            6 if !self.held.is_empty() => drop(self.held.swap_remove(pick % self.held.len())),
            7 | 8 => {
                let n = self.out.len();
                if let Some(&token) = self.out.keys().nth(pick % n.max(1)) {
                    self.try_token(token);
                }
            }
            9 => {
                let n = self.out.len().max(1);
                let mut i = 0;
                self.set.for_each_in_flight(|t| {
                    let out = self
                        .out
                        .get_mut(&t.token())
                        .expect("only what is out is seen");
                    if i == pick % n {
                        assert_eq!(t.mark_timed_out(), !out.1);
                        out.1 = true;
                    }
                    i += 1;
                });
                assert_eq!(i, self.out.len(), "all that is out is seen");
            }
            _ => {
                let token = self.forged(word.rotate_left(17));
                self.try_token(token);
            }
        }
    }

    /// Everything comes back, and the set is as new.
    pub(crate) fn finish(mut self) {
        assert_eq!(self.set.in_flight(), self.out.len());
        assert_eq!(self.set.held(), self.held.len());
        while let Some((&token, _)) = self.out.iter().next() {
            self.try_token(token);
        }
        self.held.clear();
        assert_eq!(self.set.in_use(), 0);
        let all: Vec<_> = (0..HW_QUEUES)
            .flat_map(|hwq| {
                let options = AllocOptions::new().hw_queue(hwq);
                let normal = self.dev.try_alloc_batch_with(DEPTH, options);
                let reserved = self.dev.try_alloc_batch_with(DEPTH, options.reserved());
                [normal, reserved].map(|tags| tags.expect("all are free"))
            })
            .flatten()
            .collect();
        assert_eq!(all.len(), HW_QUEUES * DEPTH);
    }
}
