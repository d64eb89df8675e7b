//! Runs beside the published ones: what must not happen, and what each rule is worth.

use super::model::{Load, Machine, Recent, Side};
use super::published::Which;
use inflight_topology::wake::{PullOrder, Reach};

/// Two sides on one machine that differ in one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// Its name in tables and in JSON.
    pub name: &'static str,
    /// What the sides differ in, and all else that is unlike the published table.
    pub about: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The two sides.
    pub sides: [Side; 2],
}

/// How many clients they are run with.
pub const CLIENTS: [usize; 6] = [1, 2, 4, 8, 16, 64];

/// All of them.
#[must_use]
pub fn controls() -> Vec<Control> {
    let (requeue, bound) = (Load::Requeue, Load::RequeueBoundJournal);
    let [pulled, near] = Which::IrqMigrate.sides();
    let previous = |side: Side| side.rule(|rules| rules.pull_order = PullOrder::PreviousFirst);
    let by_load = |side: Side| side.rule(|rules| rules.load = Reach::Anywhere);
    let woken = |side: Side| side.recent(Recent::Woken);
    let control = |name, about, machine, sides| Control {
        name,
        about,
        machine,
        sides,
    };
    vec![
        control(
            "no_bound_worker_uma8",
            "no stack rule, stack rule: interrupts wake the clients (ext4)",
            Machine::uma8(),
            [Side::unstacked(Load::Direct), Side::stacked(Load::Direct)],
        ),
        control(
            "no_bound_worker_numa48",
            "the same",
            Machine::numa48(),
            [Side::unstacked(Load::Direct), Side::stacked(Load::Direct)],
        ),
        control(
            "journal_unbound",
            "journal worker bound, unbound: no stack rule",
            Machine::numa48(),
            [Side::unstacked(bound), Side::unstacked(requeue)],
        ),
        control(
            "journal_unbound_stacked",
            "journal worker bound, unbound: with the stack rule",
            Machine::numa48(),
            [Side::stacked(bound), Side::stacked(requeue)],
        ),
        control(
            "recent_of_the_woken",
            "no stack rule, stack rule: threads remember the CPU they left",
            Machine::numa48(),
            [
                woken(Side::unstacked(requeue)),
                woken(Side::stacked(requeue)),
            ],
        ),
        control(
            "pull_order",
            "pull first, previous CPU first: pulled within the cache",
            Machine::numa40(),
            [near, previous(near)],
        ),
        control(
            "irq_previous_first",
            "pulled anywhere, within the cache: previous CPU first",
            Machine::numa40(),
            [previous(pulled), previous(near)],
        ),
        control(
            "irq_load_anywhere",
            "pulled anywhere, within the cache: load moves threads across nodes",
            Machine::numa40(),
            [by_load(pulled), by_load(near)],
        ),
    ]
}
