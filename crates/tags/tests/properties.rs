//! Random operations against a naive oracle.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::time::Clock;
use inflight_tags::{AllocError, AllocOptions, FrozenGuard, RedeemError, Tag, TagSet, Tenant};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

const HW_QUEUES: usize = 2;
const DEPTH: usize = 4;
const RESERVED: usize = 1;

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        hwq: usize,
        reserved: bool,
    },
    Batch(usize),
    Write(usize, u32),
    Drop(usize),
    Submit(usize),
    /// Redeems any token ever made, also stale ones.
    Redeem(usize),
    /// Redeems such a token with one bit flipped.
    Damaged(usize, u32),
    Foreign(usize),
    Advance(u64),
    /// Marks what is older than that many seconds.
    Mark(u64),
    TakeOver(usize),
    Freeze,
    Thaw,
}

fn op() -> impl Strategy<Value = Op> {
    let which = 0usize..1000;
    prop_oneof![
        6 => (0..HW_QUEUES, prop::bool::weighted(0.2))
            .prop_map(|(hwq, reserved)| Op::Alloc { hwq, reserved }),
        1 => (0..DEPTH + 2).prop_map(Op::Batch),
        3 => (which.clone(), any::<u32>()).prop_map(|(i, value)| Op::Write(i, value)),
        3 => which.clone().prop_map(Op::Drop),
        5 => which.clone().prop_map(Op::Submit),
        5 => which.clone().prop_map(Op::Redeem),
        2 => (which.clone(), 0u32..64).prop_map(|(i, bit)| Op::Damaged(i, bit)),
        1 => which.clone().prop_map(Op::Foreign),
        1 => (0u64..5).prop_map(Op::Advance),
        2 => (0u64..5).prop_map(Op::Mark),
        3 => which.prop_map(Op::TakeOver),
        1 => Just(Op::Freeze),
        1 => Just(Op::Thaw),
    ]
}

type Place = (usize, usize);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    InFlight,
    Overdue,
    Redeemed,
    Handled,
    /// Handled, and its slot is free and was not used since.
    Late,
    Stale,
}

/// What is true by the documentation, in maps.
#[derive(Default)]
struct Oracle {
    values: HashMap<Place, u32>,
    in_use: BTreeSet<Place>,
    /// Every token ever made: where, since when, and what became of it.
    tokens: BTreeMap<u64, (Place, u64, Known)>,
    now: u64,
}

impl Oracle {
    fn free(&self, hwq: usize, reserved: bool) -> usize {
        let numbers = if reserved {
            0..RESERVED
        } else {
            RESERVED..DEPTH
        };
        numbers
            .filter(|&tag| !self.in_use.contains(&(hwq, tag)))
            .count()
    }

    /// A tag of this place is free again, or has another token.
    fn end(&mut self, place: Place, freed: bool) {
        for (at, _, known) in self.tokens.values_mut() {
            if *at == place {
                *known = match *known {
                    Known::Handled if freed => Known::Late,
                    _ => Known::Stale,
                };
            }
        }
    }

    fn in_flight(&self) -> BTreeSet<u64> {
        let flying = |known| matches!(known, Known::InFlight | Known::Overdue);
        let all = self.tokens.iter();
        all.filter(|(_, t)| flying(t.2))
            .map(|(&token, _)| token)
            .collect()
    }

    fn token(&self, i: usize) -> Option<u64> {
        let n = self.tokens.len();
        (n > 0).then(|| *self.tokens.keys().nth(i % n).unwrap())
    }
}

struct Machine {
    clock: Clock,
    set: TagSet<u32>,
    other: TagSet<u32>,
    dev: Tenant<u32>,
    held: Vec<Tag<u32>>,
    frozen: Vec<FrozenGuard>,
    oracle: Oracle,
}

fn place(tag: &Tag<u32>) -> Place {
    (tag.hw_queue(), tag.index())
}

impl Machine {
    fn new() -> Self {
        let clock = Clock::manual();
        let set = || {
            let set = TagSet::builder()
                .hw_queues(HW_QUEUES)
                .depth(DEPTH)
                .reserved(RESERVED);
            set.clock(clock.clone()).build(|_, _| 0).unwrap()
        };
        let (set, other) = (set(), set());
        let dev = set.add_tenant("q").unwrap();
        Self {
            clock,
            set,
            other,
            dev,
            held: vec![],
            frozen: vec![],
            oracle: Oracle::default(),
        }
    }

    fn hold(&mut self, tag: Tag<u32>) {
        let at = place(&tag);
        assert!(self.oracle.in_use.insert(at), "a tag that was in use");
        assert_eq!(*tag, self.oracle.values.get(&at).copied().unwrap_or(0));
        self.held.push(tag);
    }

    fn pick_held(&mut self, i: usize) -> Option<Tag<u32>> {
        let n = self.held.len();
        (n > 0).then(|| self.held.swap_remove(i % n))
    }

    fn alloc(&mut self, hwq: usize, reserved: bool) {
        let options = AllocOptions::new().hw_queue(hwq);
        let options = if reserved {
            options.reserved()
        } else {
            options
        };
        match self.dev.try_alloc_with(options) {
            Ok(tag) => {
                assert!(self.frozen.is_empty());
                assert_eq!((tag.hw_queue(), tag.index() < RESERVED), (hwq, reserved));
                self.hold(tag);
            }
            Err(AllocError::Frozen) => assert!(!self.frozen.is_empty()),
            Err(error) => {
                assert_eq!(error, AllocError::Exhausted);
                assert_eq!(self.oracle.free(hwq, reserved), 0);
            }
        }
    }

    fn batch(&mut self, n: usize) {
        let tags = self.dev.try_alloc_batch(n);
        if !self.frozen.is_empty() {
            assert!(tags.is_empty());
        } else if let Some(first) = tags.first() {
            let free = self.oracle.free(first.hw_queue(), false);
            assert_eq!(tags.len(), n.min(free));
        }
        tags.into_iter().for_each(|tag| self.hold(tag));
    }

    fn submit(&mut self, i: usize) {
        let Some(tag) = self.pick_held(i) else { return };
        let at = place(&tag);
        self.oracle.end(at, false);
        let token = tag.into_token();
        assert!(token != 0 && token != u64::MAX);
        let known = (at, self.oracle.now, Known::InFlight);
        assert!(
            self.oracle.tokens.insert(token, known).is_none(),
            "a token made twice"
        );
    }

    fn redeem(&mut self, token: u64) {
        let found = self.set.redeem(token);
        let Some((at, _, known)) = self.oracle.tokens.get_mut(&token) else {
            assert!(found.is_err());
            return;
        };
        match found {
            Ok(tag) => {
                assert_eq!((*known, *at), (Known::InFlight, place(&tag)));
                *known = Known::Redeemed;
                assert_eq!(*tag, self.oracle.values.get(at).copied().unwrap_or(0));
                self.held.push(tag);
            }
            Err(error) => {
                let named = token.into();
                let expected = match known {
                    Known::InFlight => panic!("refused: {error}"),
                    Known::Overdue | Known::Handled | Known::Late => {
                        RedeemError::TimedOut { token: named }
                    }
                    Known::Redeemed => RedeemError::NotInFlight { token: named },
                    Known::Stale => RedeemError::Stale { token: named },
                };
                assert_eq!(error, expected);
            }
        }
    }

    fn take_over(&mut self, token: u64) {
        let (at, _, known) = self.oracle.tokens.get_mut(&token).unwrap();
        match self.set.redeem_timed_out(token) {
            Ok(tag) => {
                assert_eq!((*known, *at), (Known::Overdue, place(&tag)));
                *known = Known::Handled;
                self.held.push(tag);
            }
            Err(error) => {
                let named = token.into();
                let expected = match known {
                    Known::Overdue => panic!("refused: {error}"),
                    Known::InFlight => RedeemError::NotTimedOut { token: named },
                    Known::Redeemed | Known::Handled => RedeemError::NotInFlight { token: named },
                    Known::Late | Known::Stale => RedeemError::Stale { token: named },
                };
                assert_eq!(error, expected);
            }
        }
    }

    fn mark(&mut self, limit: u64) {
        let oracle = &mut self.oracle;
        self.set.for_each_in_flight(|t| {
            let (at, since, known) = oracle.tokens.get_mut(&t.token()).unwrap();
            assert_eq!((t.hw_queue(), t.index()), *at);
            assert_eq!(t.age(), Duration::from_secs(oracle.now - *since));
            assert_eq!(t.is_timed_out(), *known == Known::Overdue);
            if t.age() > Duration::from_secs(limit) {
                assert_eq!(t.mark_timed_out(), *known == Known::InFlight);
                *known = Known::Overdue;
            }
        });
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Alloc { hwq, reserved } => self.alloc(hwq, reserved),
            Op::Batch(n) => self.batch(n),
            Op::Write(i, value) => {
                let n = self.held.len();
                if n > 0 {
                    let tag = &mut self.held[i % n];
                    **tag = value;
                    self.oracle.values.insert(place(tag), value);
                }
            }
            Op::Drop(i) => {
                if let Some(tag) = self.pick_held(i) {
                    let at = place(&tag);
                    self.oracle.in_use.remove(&at);
                    self.oracle.end(at, true);
                }
            }
            Op::Submit(i) => self.submit(i),
            Op::Redeem(i) => {
                if let Some(token) = self.oracle.token(i) {
                    self.redeem(token);
                }
            }
            Op::Damaged(i, bit) => {
                if let Some(token) = self.oracle.token(i) {
                    self.redeem(token ^ (1 << bit));
                }
            }
            Op::Foreign(i) => {
                if let Some(token) = self.oracle.token(i) {
                    assert!(matches!(
                        self.other.redeem(token),
                        Err(RedeemError::Foreign { .. })
                    ));
                }
            }
            Op::Advance(seconds) => {
                self.oracle.now += seconds;
                self.clock.advance(Duration::from_secs(seconds));
            }
            Op::Mark(limit) => self.mark(limit),
            Op::TakeOver(i) => {
                if let Some(token) = self.oracle.token(i) {
                    self.take_over(token);
                }
            }
            Op::Freeze => match self.set.try_freeze() {
                Ok(guard) => {
                    assert!(self.oracle.in_use.is_empty());
                    self.frozen.push(guard);
                }
                Err(_) => assert!(!self.oracle.in_use.is_empty()),
            },
            Op::Thaw => drop(self.frozen.pop()),
        }
    }

    fn check(&self) {
        let in_flight = self.oracle.in_flight();
        assert_eq!(self.set.in_use(), self.oracle.in_use.len());
        assert_eq!(self.set.in_flight(), in_flight.len());
        assert_eq!(self.set.held(), self.held.len());
        assert_eq!(self.set.is_frozen(), !self.frozen.is_empty());
        let mut seen = BTreeSet::new();
        self.set
            .for_each_in_flight(|t| assert!(seen.insert(t.token())));
        assert_eq!(seen, in_flight);
        let stats = self.set.stats();
        assert_eq!(stats.allocs - stats.frees, self.oracle.in_use.len() as u64);
        assert_eq!(stats.allocs, self.dev.stats().allocs);
    }
}

proptest! {
    #[test]
    fn behaves_as_documented(ops in prop::collection::vec(op(), 0..150)) {
        let mut machine = Machine::new();
        for op in ops {
            machine.step(op);
            machine.check();
        }
        // Nothing is lost: after freeing everything, each tag can be had once.
        for token in machine.oracle.in_flight() {
            let tag = machine.set.redeem(token).or_else(|_| machine.set.redeem_timed_out(token));
            drop(tag.unwrap());
        }
        machine.held.clear();
        machine.frozen.clear();
        prop_assert_eq!(machine.set.in_use(), 0);
        let tags: Vec<_> = (0..HW_QUEUES * DEPTH)
            .map(|i| {
                let options = AllocOptions::new().hw_queue(i / DEPTH);
                let reserved = i % DEPTH < RESERVED;
                machine.dev.try_alloc_with(if reserved { options.reserved() } else { options })
            })
            .collect::<Result<_, _>>()
            .unwrap();
        let places: BTreeSet<Place> = tags.iter().map(place).collect();
        prop_assert_eq!(places.len(), HW_QUEUES * DEPTH);
    }
}
