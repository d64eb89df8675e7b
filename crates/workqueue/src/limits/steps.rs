//! The protocol of `Share::Lend`, step by step.
//!
//! Each [`Op`] is where a thread stands between two atomic steps; `PROTOCOL-limits.md` has the same
//! names and the proof. [`Op::run`] takes the steps of one operation in a row. The explicit-state
//! search of the tests takes them in every order with those of others, over plain numbers; threads
//! take them over atomics.

use super::Started;
use super::rules::{Touch, Words};

/// Where a thread stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op<T> {
    /// A: a new item looks for a token, at the n-th place.
    Try { front: usize, item: T, place: usize },
    /// J: it joins its front end's line, and its group is marked as starving.
    Join { front: usize, item: T },
    /// B: for the group's line all places are tried once more.
    Retry { group: usize, place: usize },
    /// R: an active item of the front end has ended.
    Release { front: usize },
    /// R0: a token in hand, for the debt before all.
    Pay { group: usize },
    /// A token in hand: has another group earned it?
    Serve { group: usize },
    /// K: a token in hand that others are to have, and then the own line.
    Pass { group: usize, to: u64 },
    /// R1: tokens in hand, for the own line.
    Keep { group: usize, tokens: usize },
    /// R2: tokens in hand, which nobody of the own line needs.
    Publish { group: usize, tokens: usize },
    /// More than the group keeps is about to go to the stock.
    Trim { group: usize },
    /// Tokens in hand, for the stock.
    Spill { group: usize, tokens: usize },
    /// R3: does somebody wait whom this thread's tokens would serve?
    Look { group: usize },
    /// R4: one is taken back.
    TakeBack { group: usize, to: u64 },
    /// R5, R6: a token in hand, for the debt, the own line or one of these.
    Give { group: usize, to: u64 },
    /// The limit is lowered: idle tokens are collected as long as there is debt.
    Collect { place: usize },
    /// Tokens in hand, for the debt; what is too much goes back.
    Destroy { tokens: usize, place: usize },
    /// The central count is on: what lies with the group goes to the stock.
    Gather { group: usize },
    /// Nothing is left to do.
    Done,
}

/// Who speaks for the setter of limits, which belongs to no group.
const SETTER: usize = 0;

/// What the step after a setter's is: there are no more places.
const NOWHERE: usize = usize::MAX;

impl<T> Op<T> {
    /// Takes all steps.
    pub(super) fn run(mut self, words: &mut impl Words<T>, started: &mut Started<'_, T>) {
        while !matches!(self, Self::Done) {
            self = self.step(words, started);
        }
    }

    /// Tokens this thread has in hand.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn in_hand(&self) -> usize {
        match self {
            Self::Keep { tokens, .. }
            | Self::Publish { tokens, .. }
            | Self::Spill { tokens, .. }
            | Self::Destroy { tokens, .. } => *tokens,
            Self::Pay { .. } | Self::Serve { .. } | Self::Pass { .. } | Self::Give { .. } => 1,
            _ => 0,
        }
    }

    /// Takes one atomic step: one word is read or written, or one lock is held.
    pub(super) fn step(self, w: &mut impl Words<T>, started: &mut Started<'_, T>) -> Self {
        match self {
            Self::Try { front, item, place } => try_new(w, started, front, item, place),
            Self::Join { front, item } => {
                let group = w.group(front);
                w.join(front, item);
                Self::Retry { group, place: 0 }
            }
            Self::Retry { group, place } => match look_at(w, group, place) {
                Found::Tokens(tokens) => Self::Keep { group, tokens },
                Found::Nothing => Self::Retry {
                    group,
                    place: place + 1,
                },
                Found::End => Self::Done,
            },
            Self::Release { front } => Self::Pay {
                group: w.finish(front),
            },
            Self::Pay { group } => match w.pay(1) {
                0 => Self::Serve { group },
                _ => Self::Done,
            },
            Self::Serve { group } => match passes_on(w, group) {
                0 => Self::Keep { group, tokens: 1 },
                to => Self::Pass { group, to },
            },
            Self::Pass { group, to } => match serve_one(w, started, group, to) {
                Ok(()) => Self::Done,
                Err(0) => Self::Keep { group, tokens: 1 },
                Err(to) => Self::Pass { group, to },
            },
            Self::Keep { group, tokens } => match tokens - w.serve(group, tokens, started) {
                0 => Self::Done,
                tokens => Self::Publish { group, tokens },
            },
            Self::Publish { group, tokens } => {
                if w.is_central() {
                    w.put_into_stock(tokens);
                    return Self::Look { group };
                }
                w.add_free(group, tokens);
                Self::Trim { group }
            }
            Self::Trim { group } => trim(w, group),
            Self::Spill { group, tokens } => {
                w.put_into_stock(tokens);
                Self::Look { group }
            }
            Self::Look { group } => look(w, group),
            Self::TakeBack { group, to } => take_back(w, group, to),
            Self::Give { group, to } => give(w, started, group, to),
            Self::Collect { place } => collect(w, place),
            Self::Destroy { tokens, place } => match tokens - w.pay(tokens) {
                0 if place == NOWHERE => Self::Done,
                0 => Self::Collect { place },
                tokens => Self::Spill {
                    group: SETTER,
                    tokens,
                },
            },
            Self::Gather { group } => match w.take_free(group, |free| free) {
                0 => Self::Done,
                tokens => Self::Spill { group, tokens },
            },
            Self::Done => Self::Done,
        }
    }
}

/// What a look at one place has brought.
enum Found {
    Tokens(usize),
    Nothing,
    End,
}

/// The places in the order in which a group looks for tokens: its own, the stock, the others.
fn look_at<T>(w: &mut impl Words<T>, group: usize, place: usize) -> Found {
    let groups = w.groups();
    let tokens = match place {
        0 => w.take_free(group, |free| free.min(1)),
        1 => w.take_batch(group),
        _ if place > groups => return Found::End,
        _ => {
            let needy = w.active(group) == 0;
            w.take_foreign((group + place - 1) % groups, needy)
        }
    };
    if tokens == 0 {
        Found::Nothing
    } else {
        Found::Tokens(tokens)
    }
}

/// A for who does not wait: a token from any place, for an item that the caller counts. What else
/// came with it is to be published.
pub(super) fn take_any<T>(w: &mut impl Words<T>, group: usize) -> Option<Op<T>> {
    (0..)
        .map(|place| look_at(w, group, place))
        .find_map(|found| match found {
            Found::Tokens(1) => Some(Some(Op::Done)),
            Found::Tokens(tokens) => Some(Some(Op::Publish {
                group,
                tokens: tokens - 1,
            })),
            Found::Nothing => None,
            Found::End => Some(None),
        })?
}

/// B for several that have joined: until there is no token left, or nobody.
pub(super) fn retry_all<T>(w: &mut impl Words<T>, group: usize, started: &mut Started<'_, T>) {
    while w.has_line(group) {
        let mut op = Op::Retry { group, place: 0 };
        while matches!(op, Op::Retry { .. }) {
            op = op.step(w, started);
        }
        if matches!(op, Op::Done) {
            return;
        }
        op.run(w, started);
    }
}

fn try_new<T>(
    w: &mut impl Words<T>,
    started: &mut Started<'_, T>,
    front: usize,
    item: T,
    place: usize,
) -> Op<T> {
    let group = w.group(front);
    if place == 0 {
        w.demand(group);
        // Not past those that wait.
        if w.must_wait(front) {
            return Op::Join { front, item };
        }
    }
    match look_at(w, group, place) {
        Found::Nothing => Op::Try {
            front,
            item,
            place: place + 1,
        },
        Found::End => Op::Join { front, item },
        Found::Tokens(tokens) => {
            w.count(group);
            w.start(front);
            started(front, item);
            match tokens - 1 {
                0 => Op::Done,
                tokens => Op::Publish { group, tokens },
            }
        }
    }
}

/// Tries to give the token in hand to the first of these after the own one. `Err` has those that
/// are left; the mark of the one that had nobody is cleared under its lock.
fn serve_one<T>(
    w: &mut impl Words<T>,
    started: &mut Started<'_, T>,
    group: usize,
    to: u64,
) -> Result<(), u64> {
    let after = to & (u64::MAX << group);
    let first = if after == 0 { to } else { after }.trailing_zeros() as usize;
    w.touched(Touch::Foreign);
    if w.serve_or_unmark(first, started) {
        return Ok(());
    }
    Err(to & !(1 << first))
}

/// K: whom the token in hand goes to although the own line may want it.
fn passes_on<T>(w: &mut impl Words<T>, group: usize) -> u64 {
    let every = w.tuning().give_every;
    if w.is_alone() || every == 0 || !w.has_line(group) {
        return 0;
    }
    let grace = w.grace(group) + 1;
    if !w.is_central() && grace < every {
        w.set_grace(group, grace);
        return 0;
    }
    w.set_grace(group, 0);
    w.worse_off(group)
}

fn trim<T>(w: &mut impl Words<T>, group: usize) -> Op<T> {
    let high = w.high(group);
    let too_many = |free| match free {
        free if free <= high => 0,
        free if high == 0 => free,
        free => free / 2,
    };
    match w.take_free(group, too_many) {
        0 => Op::Look { group },
        tokens => Op::Spill { group, tokens },
    }
}

fn look<T>(w: &mut impl Words<T>, group: usize) -> Op<T> {
    w.fence();
    let others = w.starving_beside(group);
    if others == 0 && w.debt() == 0 && !w.has_line(group) {
        return Op::Done;
    }
    Op::TakeBack { group, to: others }
}

fn take_back<T>(w: &mut impl Words<T>, group: usize, to: u64) -> Op<T> {
    let needy = w.debt() > 0 || w.has_line(group) || w.any_idle(to);
    let kept = w.kept(group, needy);
    if w.take_free(group, |free| free.saturating_sub(kept).min(1)) > 0 {
        return Op::Give { group, to };
    }
    if w.take_spare(|spare| spare.min(1)) > 0 {
        w.touched(Touch::Spare);
        return Op::Give { group, to };
    }
    Op::Done
}

fn give<T>(w: &mut impl Words<T>, started: &mut Started<'_, T>, group: usize, to: u64) -> Op<T> {
    if w.pay(1) == 1 || w.serve(group, 1, started) == 1 {
        return Op::Look { group };
    }
    if to == 0 {
        return Op::Publish { group, tokens: 1 };
    }
    match serve_one(w, started, group, to) {
        Ok(()) => Op::Look { group },
        Err(to) => Op::Give { group, to },
    }
}

fn collect<T>(w: &mut impl Words<T>, place: usize) -> Op<T> {
    let debt = w.debt();
    if debt == 0 || place > w.groups() {
        return Op::Done;
    }
    let tokens = match place {
        0 => w.take_spare(|spare| spare.min(debt)),
        _ => w.take_free(place - 1, |free| free.min(debt)),
    };
    match tokens {
        0 => Op::Collect { place: place + 1 },
        tokens => Op::Destroy { tokens, place },
    }
}

/// What a setter does who has changed the limit, and with it the debt, from `old`. `gathers`: all
/// tokens are in the stock from now on and were not before.
pub(super) fn change<T>(
    old: usize,
    limit: usize,
    groups: usize,
    gathers: bool,
) -> impl Iterator<Item = Op<T>> {
    let first = match limit.checked_sub(old) {
        None => Some(Op::Collect { place: 0 }),
        Some(0) => None,
        Some(tokens) => Some(Op::Destroy {
            tokens,
            place: NOWHERE,
        }),
    };
    let gather = |group| Op::Gather { group };
    let groups = if gathers { groups } else { 0 };
    first.into_iter().chain((0..groups).map(gather))
}
