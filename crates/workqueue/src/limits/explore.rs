//! `Share::Lend` in every order of its steps, and protocols that are not it, which must be caught.
//!
//! The steps are the shipped ones. One agent submits each item, another releases it when it has
//! started, a third may change the limit. After each step the invariants of `PROTOCOL-limits.md`
//! are checked, and at the end that everything ran.

use super::fronts::Fronts;
use super::rules::Tuning;
use super::steps::Op;
use super::tokens::{Tokens, Touches, plain};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A protocol with one thing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// Who has joined the line does not try again.
    NoRetry,
    /// The starving are read before the token is published.
    LooksFirst,
    /// A look does not see the own line.
    ForgetsOwnLine,
    /// The group is marked after the retry.
    MarksLate,
    /// A token found in the retry is dropped when the line is empty.
    DropsInRetry,
    /// A token is lost at a mark that is stale.
    LosesAtStaleMark,
    /// A mark is cleared without the lock.
    ClearsUnlocked,
    /// Whoever releases does not see the debt.
    IgnoresDebt,
    /// What lowering has collected too much goes to the stock, and nobody looks.
    SpillsBlindly,
}

/// An agent between two steps: where it is, and what a mutant has made of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Agent {
    At(Op<u8>),
    /// It does this step and goes on there, whatever the step says.
    Then(Op<u8>, Op<u8>),
    /// It sets or clears this mark and goes on there.
    Mark(usize, bool, Op<u8>),
    /// It retries and marks this group afterwards.
    Late(Op<u8>, usize),
}

#[derive(Clone, Debug)]
struct State {
    fronts: Fronts<u8>,
    tokens: Tokens,
    /// Who submits each item, who releases it, who changes the limit.
    agents: Vec<Agent>,
    started: u32,
}

#[derive(Clone)]
struct Setup {
    limit: usize,
    groups: usize,
    /// The group of each item.
    homes: &'static [usize],
    /// The limit is changed to this.
    to: Option<usize>,
    tuning: Tuning,
    mutant: Option<Mutant>,
}

/// No constants in the way: no reserve, nothing by turns, and a group's own count.
const BARE: Tuning = Tuning {
    central_below: 0,
    reserve_divisor: 0,
    give_every: 0,
    batch: 32,
};

fn lend(limit: usize, groups: usize, homes: &'static [usize]) -> Setup {
    Setup {
        limit,
        groups,
        homes,
        to: None,
        tuning: BARE,
        mutant: None,
    }
}

impl State {
    fn new(setup: &Setup) -> Self {
        let mut fronts = Fronts::new(setup.groups);
        for group in 0..setup.groups {
            fronts.add(group, false);
        }
        let tokens = Tokens::new(setup.limit, &vec![1; setup.groups], setup.tuning);
        let submit = |(item, home): (usize, &usize)| {
            Agent::At(Op::Try {
                front: *home,
                item: item as u8,
                place: 0,
            })
        };
        let mut agents: Vec<_> = setup.homes.iter().enumerate().map(submit).collect();
        agents.extend(setup.homes.iter().map(|_| Agent::At(Op::Done)));
        let mut state = Self {
            fronts,
            tokens,
            agents,
            started: 0,
        };
        if let Some(to) = setup.to {
            // From here on it may be as late as it likes.
            let ops = state.tokens.change(to);
            state.agents.extend(ops.map(Agent::At));
        }
        state
    }

    fn key(&mut self) -> u128 {
        self.tokens.touches = Touches::default();
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, &self.fronts, &self.tokens).hash(&mut hasher);
            (&self.agents, self.started).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }

    fn is_at_rest(&self, agent: usize) -> bool {
        self.agents[agent] == Agent::At(Op::Done)
    }

    /// One step of the shipped protocol by this agent.
    fn step(&mut self, op: Op<u8>, items: usize) -> Op<u8> {
        let Self {
            fronts,
            tokens,
            agents,
            started,
        } = self;
        op.step(&mut plain(fronts, tokens), &mut |front, item| {
            assert_eq!(*started & (1 << item), 0, "{item} starts twice");
            *started |= 1 << item;
            agents[items + usize::from(item)] = Agent::At(Op::Release { front });
        })
    }

    /// One step of an agent under the mutant.
    fn advance(&mut self, agent: usize, setup: &Setup) {
        let items = setup.homes.len();
        let next = match self.agents[agent].clone() {
            Agent::At(op) => match setup.mutant {
                None => Agent::At(self.step(op, items)),
                Some(mutant) => self.step_wrongly(mutant, agent, op, items),
            },
            Agent::Then(op, then) => {
                let _ = self.step(op, items);
                Agent::At(then)
            }
            Agent::Mark(group, set, then) => {
                self.tokens.starving &= !(1 << group);
                self.tokens.starving |= u64::from(set) << group;
                Agent::At(then)
            }
            Agent::Late(op, group) => match self.step(op, items) {
                retry @ Op::Retry { .. } => Agent::Late(retry, group),
                then => Agent::Mark(group, true, then),
            },
        };
        self.agents[agent] = next;
    }

    fn step_wrongly(&mut self, mutant: Mutant, agent: usize, op: Op<u8>, items: usize) -> Agent {
        let submits = agent < items;
        let sets = agent >= 2 * items;
        match (mutant, &op) {
            (Mutant::NoRetry, Op::Join { .. }) => {
                let _ = self.step(op, items);
                return Agent::At(Op::Done);
            }
            (Mutant::LooksFirst, Op::Publish { group, .. }) => {
                let look = Op::Look { group: *group };
                let seen = self.step(look, items);
                return Agent::Then(op, seen);
            }
            (Mutant::MarksLate, Op::Join { front, .. }) => {
                let group = self.fronts.group(*front);
                let before = self.tokens.starving;
                let retry = self.step(op, items);
                self.tokens.starving = before;
                return Agent::Late(retry, group);
            }
            (Mutant::ClearsUnlocked, Op::Give { to, .. }) if *to != 0 => {
                let before = self.tokens.starving;
                let then = self.step(op, items);
                let cleared = before & !self.tokens.starving;
                if cleared != 0 {
                    self.tokens.starving = before;
                    return Agent::Mark(cleared.trailing_zeros() as usize, false, then);
                }
                return Agent::At(then);
            }
            (Mutant::IgnoresDebt, _) if !sets => {
                let debt = std::mem::take(&mut self.tokens.debt);
                let then = self.step(op, items);
                self.tokens.debt += debt;
                return Agent::At(then);
            }
            _ => {}
        }
        let was = op.clone();
        let then = self.step(op, items);
        let wrong = match (mutant, &was, &then) {
            (Mutant::ForgetsOwnLine, Op::Look { .. }, Op::TakeBack { to: 0, .. }) => {
                self.tokens.debt == 0
            }
            (Mutant::DropsInRetry, Op::Keep { .. }, Op::Publish { .. }) => submits,
            (Mutant::LosesAtStaleMark, Op::Give { .. }, Op::Give { .. }) => true,
            (Mutant::SpillsBlindly, Op::Spill { .. }, Op::Look { .. }) => sets,
            _ => false,
        };
        Agent::At(if wrong { Op::Done } else { then })
    }

    /// What is wrong with this state.
    fn fault(&self, setup: &Setup) -> Option<&'static str> {
        let held = |agent: &Agent| match agent {
            Agent::At(op) | Agent::Then(op, _) | Agent::Mark(_, _, op) | Agent::Late(op, _) => {
                op.in_hand()
            }
        };
        let in_hand: usize = self.agents.iter().map(held).sum();
        let t = &self.tokens;
        if t.idle() + t.active() + in_hand != t.limit + t.debt {
            return Some("sum");
        }
        if t.active() > setup.limit.max(setup.to.unwrap_or(0)) {
            return Some("over");
        }
        let late = |agent: &Agent| matches!(agent, Agent::Mark(..) | Agent::Late(..));
        let unmarked =
            |group: usize| t.starving & (1u64 << group) == 0 && self.fronts.waiting(group) > 0;
        if setup.groups > 1 && (0..setup.groups).any(unmarked) && !self.agents.iter().any(late) {
            return Some("unmarked");
        }
        if (0..self.agents.len()).any(|agent| !self.is_at_rest(agent)) {
            return None;
        }
        if self.started.count_ones() as usize != setup.homes.len() {
            return Some("stuck");
        }
        (t.debt > 0).then_some("debt left")
    }
}

/// All states that can be reached, or what is wrong with one.
fn explore(setup: &Setup) -> Result<usize, &'static str> {
    let mut first = State::new(setup);
    let mut seen = HashSet::from([first.key()]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        if let Some(fault) = state.fault(setup) {
            return Err(fault);
        }
        for agent in 0..state.agents.len() {
            if state.is_at_rest(agent) {
                continue;
            }
            let mut next = state.clone();
            next.advance(agent, setup);
            if seen.insert(next.key()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// The small ones in a debug build, all in an optimised one.
fn setups() -> Vec<Setup> {
    let mut setups = vec![
        lend(1, 1, &[0, 0]),
        lend(1, 2, &[0, 1]),
        lend(2, 2, &[0, 0, 1]),
    ];
    if !cfg!(debug_assertions) {
        setups.extend([
            lend(1, 1, &[0, 0, 0]),
            lend(1, 2, &[0, 0, 1]),
            lend(1, 3, &[0, 1, 2]),
            lend(2, 3, &[0, 1, 2]),
            lend(3, 2, &[0, 0, 0, 1]),
        ]);
    }
    setups
}

fn changes() -> Vec<Setup> {
    let to = |setup: Setup, to| Setup {
        to: Some(to),
        ..setup
    };
    let mut setups = vec![
        to(lend(2, 1, &[0, 0]), 1),
        to(lend(2, 2, &[0, 1]), 1),
        to(lend(1, 2, &[0, 1]), 2),
        to(lend(0, 2, &[1, 1]), 2),
    ];
    if !cfg!(debug_assertions) {
        setups.extend([to(lend(2, 2, &[0, 0, 1]), 1), to(lend(2, 3, &[0, 1, 2]), 1)]);
    }
    setups
}

fn check(setup: &Setup) -> usize {
    let seen = explore(setup);
    let Setup {
        limit, homes, to, ..
    } = setup;
    println!("limit {limit} to {to:?}, items at {homes:?}: {seen:?} states");
    seen.unwrap_or_else(|fault| panic!("limit {limit} to {to:?}, items at {homes:?}: {fault}"))
}

#[test]
fn no_order_of_steps_breaks_an_invariant_or_forgets_an_item() {
    for setup in setups().iter().chain(&changes()) {
        assert!(check(setup) > 10);
    }
}

#[test]
fn nor_with_one_count_for_all_and_everybody_in_turn() {
    let central = Tuning {
        central_below: 32,
        give_every: 1,
        ..BARE
    };
    let both = setups().into_iter().chain(changes());
    for setup in both.filter(|setup| setup.homes.len() < 4) {
        check(&Setup {
            tuning: central,
            ..setup
        });
    }
}

#[test]
fn nor_when_the_mode_changes_with_the_limit() {
    let tuning = Tuning {
        central_below: 2,
        give_every: 1,
        ..BARE
    };
    for (limit, to) in [(1, 2), (2, 1)] {
        let setup = Setup {
            to: Some(to),
            tuning,
            ..lend(limit, 2, &[0, 1])
        };
        assert_ne!(
            Tokens::new(limit, &[1, 1], tuning).central,
            Tokens::new(to, &[1, 1], tuning).central
        );
        check(&setup);
    }
}

#[test]
fn nor_with_a_reserve_and_passing_on() {
    let tuning = Tuning {
        reserve_divisor: 1,
        give_every: 2,
        ..BARE
    };
    for setup in setups().iter().chain(&changes()).take(5) {
        check(&Setup {
            tuning,
            ..setup.clone()
        });
    }
}

#[test]
fn every_mutant_is_caught() {
    let mutants = [
        (Mutant::NoRetry, "stuck"),
        (Mutant::LooksFirst, "stuck"),
        (Mutant::ForgetsOwnLine, "stuck"),
        (Mutant::MarksLate, "stuck"),
        (Mutant::DropsInRetry, "sum"),
        (Mutant::LosesAtStaleMark, "sum"),
        (Mutant::ClearsUnlocked, "unmarked"),
        (Mutant::IgnoresDebt, "debt left"),
        (Mutant::SpillsBlindly, "stuck"),
    ];
    for (mutant, expected) in mutants {
        let wrong = |setup: &Setup| Setup {
            mutant: Some(mutant),
            ..setup.clone()
        };
        let mut all = setups();
        all.extend(changes());
        let found = all.iter().find_map(|setup| explore(&wrong(setup)).err());
        assert_eq!(found, Some(expected), "{mutant:?}");
    }
}
