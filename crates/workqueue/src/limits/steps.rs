//! The protocol of `Share::Lend`, step by step.
//!
//! Each [`Op`] is where a thread stands between two atomic steps; `PROTOCOL-limits.md` has the same
//! names and the proof. [`run`] takes the steps of one operation in a row. The explicit-state
//! search of the tests takes them in every order with those of others.

use super::Started;
use super::fronts::Fronts;
use super::tokens::Tokens;

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
    pub(super) fn run(
        mut self,
        fronts: &mut Fronts<T>,
        tokens: &mut Tokens,
        started: &mut Started<'_, T>,
    ) {
        while !matches!(self, Self::Done) {
            self = self.step(fronts, tokens, started);
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
    pub(super) fn step(
        self,
        fronts: &mut Fronts<T>,
        t: &mut Tokens,
        started: &mut Started<'_, T>,
    ) -> Self {
        match self {
            Self::Try { front, item, place } => try_new(fronts, t, started, front, item, place),
            Self::Join { front, item } => {
                let group = fronts.group(front);
                fronts.join(front, item);
                mark(t, group);
                Self::Retry { group, place: 0 }
            }
            Self::Retry { group, place } => match look_at(t, group, place) {
                Found::Tokens(tokens) => Self::Keep { group, tokens },
                Found::Nothing => Self::Retry {
                    group,
                    place: place + 1,
                },
                Found::End => Self::Done,
            },
            Self::Release { front } => {
                let group = fronts.finish(front);
                t.groups[group].active -= 1;
                Self::Pay { group }
            }
            Self::Pay { .. } if t.debt > 0 => {
                t.debt -= 1;
                Self::Done
            }
            Self::Pay { group } => Self::Serve { group },
            Self::Serve { group } => match passes_on(fronts, t, group) {
                0 => Self::Keep { group, tokens: 1 },
                to => Self::Pass { group, to },
            },
            Self::Pass { group, to } => match serve_one(fronts, t, started, group, to) {
                Ok(()) => Self::Done,
                Err(0) => Self::Keep { group, tokens: 1 },
                Err(to) => Self::Pass { group, to },
            },
            Self::Keep { group, tokens } => keep(fronts, t, started, group, tokens),
            Self::Publish { group, tokens } => {
                if t.central {
                    t.add_spare(tokens);
                    return Self::Look { group };
                }
                t.groups[group].free += tokens;
                Self::Trim { group }
            }
            Self::Trim { group } => trim(t, group),
            Self::Spill { group, tokens } => {
                t.add_spare(tokens);
                Self::Look { group }
            }
            Self::Look { group } => look(fronts, t, group),
            Self::TakeBack { group, to } => take_back(fronts, t, group, to),
            Self::Give { group, to } => give(fronts, t, started, group, to),
            Self::Collect { place } => collect(t, place),
            Self::Destroy { tokens, place } => {
                let destroyed = tokens.min(t.debt);
                t.debt -= destroyed;
                match tokens - destroyed {
                    0 if place == NOWHERE => Self::Done,
                    0 => Self::Collect { place },
                    tokens => Self::Spill {
                        group: SETTER,
                        tokens,
                    },
                }
            }
            Self::Gather { group } => match std::mem::take(&mut t.groups[group].free) {
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
fn look_at(t: &mut Tokens, group: usize, place: usize) -> Found {
    let groups = t.groups.len();
    let tokens = match place {
        0 => match &mut t.groups[group].free {
            0 => 0,
            free => {
                *free -= 1;
                1
            }
        },
        1 => t.take_spare(group),
        _ if place > groups => return Found::End,
        _ => {
            let needy = t.groups[group].active == 0;
            t.take_foreign((group + place - 1) % groups, needy)
        }
    };
    if tokens == 0 {
        Found::Nothing
    } else {
        Found::Tokens(tokens)
    }
}

fn try_new<T>(
    fronts: &mut Fronts<T>,
    t: &mut Tokens,
    started: &mut Started<'_, T>,
    front: usize,
    item: T,
    place: usize,
) -> Op<T> {
    let group = fronts.group(front);
    if place == 0 {
        t.demand(group);
        // Not past those that wait.
        if fronts.must_wait(front) || fronts.has_line(group) {
            return Op::Join { front, item };
        }
    }
    match look_at(t, group, place) {
        Found::Nothing => Op::Try {
            front,
            item,
            place: place + 1,
        },
        Found::End => Op::Join { front, item },
        Found::Tokens(tokens) => {
            t.count(group);
            fronts.start(front);
            started(front, item);
            match tokens - 1 {
                0 => Op::Done,
                tokens => Op::Publish { group, tokens },
            }
        }
    }
}

/// The group is marked as one in which somebody waits. Under its lock.
fn mark(t: &mut Tokens, group: usize) {
    if !t.is_alone() && t.starving & (1 << group) == 0 {
        t.starving |= 1 << group;
        t.touches.bits += 1;
    }
}

/// The first of the group's line becomes active. Under its lock.
fn serve<T>(
    fronts: &mut Fronts<T>,
    t: &mut Tokens,
    started: &mut Started<'_, T>,
    group: usize,
) -> bool {
    let Some((front, item)) = fronts.next(group) else {
        return false;
    };
    t.count(group);
    started(front, item);
    true
}

/// Tries to give the token in hand to the first of these after the own one. `Err` has those that
/// are left; the mark of the one that had nobody is cleared under its lock.
fn serve_one<T>(
    fronts: &mut Fronts<T>,
    t: &mut Tokens,
    started: &mut Started<'_, T>,
    group: usize,
    to: u64,
) -> Result<(), u64> {
    let after = to & (u64::MAX << group);
    let first = if after == 0 { to } else { after }.trailing_zeros() as usize;
    t.touches.foreign += 1;
    if serve(fronts, t, started, first) {
        return Ok(());
    }
    if t.starving & (1 << first) != 0 {
        t.starving &= !(1 << first);
        t.touches.bits += 1;
    }
    Err(to & !(1 << first))
}

/// K: whom the token in hand goes to although the own line may want it.
fn passes_on<T>(fronts: &Fronts<T>, t: &mut Tokens, group: usize) -> u64 {
    if t.is_alone() || t.tuning.give_every == 0 || !fronts.has_line(group) {
        return 0;
    }
    let mine = &mut t.groups[group];
    mine.grace += 1;
    if !t.central && mine.grace < t.tuning.give_every {
        return 0;
    }
    mine.grace = 0;
    t.worse_off(group)
}

fn keep<T>(
    fronts: &mut Fronts<T>,
    t: &mut Tokens,
    started: &mut Started<'_, T>,
    group: usize,
    mut tokens: usize,
) -> Op<T> {
    while tokens > 0 && serve(fronts, t, started, group) {
        tokens -= 1;
    }
    match tokens {
        0 => Op::Done,
        tokens => Op::Publish { group, tokens },
    }
}

fn trim<T>(t: &mut Tokens, group: usize) -> Op<T> {
    let high = t.high(group);
    let free = &mut t.groups[group].free;
    if *free <= high {
        return Op::Look { group };
    }
    let tokens = if high == 0 { *free } else { *free / 2 };
    *free -= tokens;
    Op::Spill { group, tokens }
}

fn look<T>(fronts: &Fronts<T>, t: &Tokens, group: usize) -> Op<T> {
    let others = t.starving_beside(group);
    if others == 0 && t.debt == 0 && !fronts.has_line(group) {
        return Op::Done;
    }
    Op::TakeBack { group, to: others }
}

fn take_back<T>(fronts: &Fronts<T>, t: &mut Tokens, group: usize, to: u64) -> Op<T> {
    let needy = t.debt > 0 || fronts.has_line(group) || t.any_idle(to);
    if t.takeable(group, needy) > 0 {
        t.groups[group].free -= 1;
        return Op::Give { group, to };
    }
    if t.spare > 0 {
        t.spare -= 1;
        t.touches.spare += 1;
        return Op::Give { group, to };
    }
    Op::Done
}

fn give<T>(
    fronts: &mut Fronts<T>,
    t: &mut Tokens,
    started: &mut Started<'_, T>,
    group: usize,
    to: u64,
) -> Op<T> {
    if t.debt > 0 {
        t.debt -= 1;
        return Op::Look { group };
    }
    if serve(fronts, t, started, group) {
        return Op::Look { group };
    }
    if to == 0 {
        return Op::Publish { group, tokens: 1 };
    }
    match serve_one(fronts, t, started, group, to) {
        Ok(()) => Op::Look { group },
        Err(to) => Op::Give { group, to },
    }
}

fn collect<T>(t: &mut Tokens, place: usize) -> Op<T> {
    if t.debt == 0 || place > t.groups.len() {
        return Op::Done;
    }
    let from = match place {
        0 => &mut t.spare,
        _ => &mut t.groups[place - 1].free,
    };
    let tokens = t.debt.min(*from);
    *from -= tokens;
    match tokens {
        0 => Op::Collect { place: place + 1 },
        tokens => Op::Destroy { tokens, place },
    }
}

/// The limit has been changed, in one step with the debt.
pub(super) fn change<T>(t: &mut Tokens, limit: usize) -> Vec<Op<T>> {
    let old = std::mem::replace(&mut t.limit, limit);
    let was_central = t.central;
    t.central = t.wants_central();
    let mut ops = Vec::new();
    if limit < old {
        t.debt += old - limit;
        ops.push(Op::Collect { place: 0 });
    } else if limit > old {
        ops.push(Op::Destroy {
            tokens: limit - old,
            place: NOWHERE,
        });
    }
    if t.central && !was_central {
        let gather = |group| Op::Gather { group };
        ops.extend((0..t.groups.len()).map(gather));
    }
    ops
}
