//! The published tables, as they are in `data/`.

use super::model::{Load, Machine, Side};
use inflight_topology::wake::Reach;

/// One of the published tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// A bound worker's wakee stays on the worker's CPU: 8 CPUs around one cache.
    StackUma8,
    /// The same on 48 CPUs, 24 around each cache.
    StackNuma48,
    /// An interrupt pulls a thread within the cache only.
    IrqMigrate,
}

impl Which {
    /// All of them, in the order they are printed.
    pub const ALL: [Self; 3] = [Self::StackUma8, Self::StackNuma48, Self::IrqMigrate];

    /// Its name in tables and in JSON.
    ///
    /// ```
    /// assert_eq!(inflight_sim::placement::Which::IrqMigrate.name(), "irq_migrate");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StackUma8 => "kworker_stack_uma8",
            Self::StackNuma48 => "kworker_stack_numa48_llc24",
            Self::IrqMigrate => "irq_migrate",
        }
    }

    /// The kernels before the patch and with it.
    #[must_use]
    pub fn sides(self) -> [Side; 2] {
        match self {
            Self::StackUma8 | Self::StackNuma48 => {
                [Side::unstacked(Load::Requeue), Side::stacked(Load::Requeue)]
            }
            // Older than the stack rule.
            Self::IrqMigrate => {
                let after = Side::unstacked(Load::Direct);
                [after.rule(|rules| rules.pull = Reach::Anywhere), after]
            }
        }
    }

    /// The machine it was measured on.
    #[must_use]
    pub fn machine(self) -> Machine {
        match self {
            Self::StackUma8 => Machine::uma8(),
            Self::StackNuma48 => Machine::numa48(),
            Self::IrqMigrate => Machine::numa40(),
        }
    }
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The table.
    pub table: Which,
    /// Clients.
    pub clients: usize,
    /// Mean time of a load file before the patch, in ms.
    pub before_ms: f64,
    /// The same with it.
    pub after_ms: f64,
}

impl Published {
    /// How much shorter it is with the patch, in percent of the time before.
    #[must_use]
    pub fn gain_pct(&self) -> f64 {
        (1.0 - self.after_ms / self.before_ms) * 100.0
    }
}

/// All rows of a table.
///
/// ```
/// use inflight_sim::placement::{Which, published};
/// let rows = published(Which::StackNuma48);
/// assert_eq!((rows.len(), rows[0].before_ms, rows[7].after_ms), (8, 58.69, 1372.64));
/// ```
#[must_use]
pub fn published(table: Which) -> Vec<Published> {
    let (csv, machine) = match table {
        Which::StackUma8 => (include_str!("../../data/kworker_stack.csv"), Some("uma8")),
        Which::StackNuma48 => {
            let csv = include_str!("../../data/kworker_stack.csv");
            (csv, Some("numa48_llc24"))
        }
        Which::IrqMigrate => (include_str!("../../data/irq_migrate.csv"), None),
    };
    let row = |line: &str| {
        let mut fields = line.split(',').map(str::trim);
        if machine.is_some() && fields.next() != machine {
            return None;
        }
        let mut number = || {
            let field = fields.next().expect("a number for each column");
            field.parse::<f64>().expect("data/ holds numbers")
        };
        Some(Published {
            table,
            clients: number() as usize,
            before_ms: number(),
            after_ms: number(),
        })
    };
    csv.lines().skip(1).filter_map(row).collect()
}
