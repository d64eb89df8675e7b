//! One run.

use super::clients::Clients;
use super::measure::Outcome;
use super::model::{Machine, Side};

/// A run of `clients` clients under these rules.
///
/// # Panics
///
/// If there is no client, or the machine's topology describes none.
#[must_use]
pub fn run(machine: &Machine, side: Side, clients: usize, seed: u64) -> Outcome {
    let mut all = Clients::new(machine, side, clients, seed);
    all.run();
    let sum = |of: &dyn Fn(&super::clients::Counted) -> f64| all.counted().map(of).sum::<f64>();
    let files = sum(&|counted| counted.files as f64);
    let ios = files * machine.ios_per_file as f64;
    let moves = |of: fn(&super::cpus::Moves) -> f64| sum(&|c| c.moves.as_ref().map_or(0.0, of));
    Outcome {
        file_ms: sum(&|counted| counted.time as f64) / files / 1e6,
        migrations_per_io: moves(|m| m.migrations as f64) / ios,
        cross_node_per_io: moves(|m| m.cross_node as f64) / ios,
        cpus_visited: moves(|m| m.visited as f64) / clients as f64,
        cpus_used: all.cpus_used() as f64,
        idle_exit_us_per_io: all.idle_exit_per_io(),
    }
}
