//! `stop_cycles [N [NAME]]`: N stop cycles for every way to wait, or those whose name contains
//! NAME; what `ci/stop-cycles.sh` runs.

use inflight_benches::{every_queue, stop};
use std::process::ExitCode;
use std::time::Instant;

/// Ids and waiters. On a machine of two CPUs the stacks of the local engine come and go with 8 ids,
/// and with 3 there are none.
const CROWDS: [(usize, usize); 2] = [(3, 8), (8, 12)];

fn main() -> ExitCode {
    let cycles = std::env::args().nth(1).map_or(Ok(1_000), |n| n.parse());
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let Ok(cycles) = cycles else {
        eprintln!("usage: stop_cycles [CYCLES [NAME]]");
        return ExitCode::from(2);
    };
    let (mut stranded, mut known) = (0, false);
    for (ids, waiters) in CROWDS {
        for (name, queue) in every_queue(ids) {
            let name = format!("{name}, {ids} ids");
            if !name.contains(&wanted) {
                continue;
            }
            known = true;
            let start = Instant::now();
            match stop::cycles(queue, waiters, cycles) {
                Ok(()) => println!(
                    "{name}: {cycles} cycles, 0 stranded, {:.1?}",
                    start.elapsed()
                ),
                Err(cycle) => {
                    stranded += 1;
                    println!("{name}: cycle {cycle} did not end");
                }
            }
        }
    }
    if !known {
        eprintln!("stop_cycles: no way to wait has {wanted:?} in its name");
        return ExitCode::from(2);
    }
    ExitCode::from(u8::from(stranded > 0))
}
