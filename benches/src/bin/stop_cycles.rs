//! Stop cycles for every way to wait; what `ci/stop-cycles.sh` runs.

use clap::Parser;
use inflight_benches::distance::{State, probe};
use inflight_benches::rounds::median;
use inflight_benches::{every_queue, stop};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// More waiters than ids, everybody stops, all must finish: again and again.
///
/// The time of a cycle depends on how far apart the first two CPUs are, which the host of a virtual
/// machine changes within seconds. So the distance is probed before and after every 20 cycles, and
/// their times are shown by state (see `ratios --help`), with the distance.
#[derive(Debug, Parser)]
#[command(name = "stop_cycles")]
struct Cli {
    /// How many for every way to wait
    #[arg(default_value_t = 1_000)]
    cycles: usize,
    /// Only ways to wait with this in their name
    #[arg(default_value = "")]
    name: String,
}

/// Ids and waiters. On a machine of two CPUs the stacks of the local engine come and go with 8 ids,
/// and with 3 there are none.
const CROWDS: [(usize, usize); 2] = [(3, 8), (8, 12)];

/// Cycles between two probes.
const SAMPLE: usize = 20;

/// The time of a cycle in each sample, and where the CPUs were; `None` if they moved.
type Samples = Vec<(Option<State>, f64, f64)>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (mut stranded, mut known) = (0, false);
    for (ids, waiters) in CROWDS {
        for (name, queue) in every_queue(ids) {
            let name = format!("{name}, {ids} ids");
            if !name.contains(&cli.name) {
                continue;
            }
            known = true;
            let start = Instant::now();
            let mut samples = Samples::new();
            match all_cycles(&Arc::new(queue), waiters, cli.cycles, &mut samples) {
                Ok(()) => println!(
                    "{name}: {} cycles, 0 stranded, {:.1?}; {}",
                    cli.cycles,
                    start.elapsed(),
                    by_state(&samples)
                ),
                Err(cycle) => {
                    stranded += 1;
                    println!("{name}: cycle {cycle} did not end");
                }
            }
        }
    }
    if !known {
        eprintln!("stop_cycles: no way to wait has {:?} in its name", cli.name);
        return ExitCode::from(2);
    }
    ExitCode::from(u8::from(stranded > 0))
}

/// The number of the cycle that did not end is the error.
fn all_cycles(
    queue: &Arc<inflight_sbitmap::SbitmapQueue>,
    waiters: usize,
    cycles: usize,
    samples: &mut Samples,
) -> Result<(), usize> {
    for first in (0..cycles).step_by(SAMPLE) {
        let some = SAMPLE.min(cycles - first);
        let before = probe();
        let took = stop::cycles(queue, waiters, some).map_err(|cycle| first + cycle)?;
        let each = took.as_secs_f64() * 1e6 / some as f64;
        let after = probe();
        let distance = f64::midpoint(before, after);
        samples.push((State::of(before, after), distance, each));
    }
    Ok(())
}

fn by_state(samples: &Samples) -> String {
    let text = |wanted: Option<State>| {
        let of = samples.iter().filter(|(state, ..)| *state == wanted);
        let (distances, times): (Vec<_>, Vec<_>) = of.map(|(_, d, t)| (*d, *t)).unzip();
        if times.is_empty() {
            return None;
        }
        let n = times.len();
        let name = match wanted {
            Some(State::OneCpu) => "one CPU".to_owned(),
            Some(state) => format!("{state} {:.0} ns", median(distances)),
            None => "moved meanwhile".to_owned(),
        };
        Some(format!(
            "{name}: {:.0} us a cycle in {n} samples",
            median(times)
        ))
    };
    let states = State::ALL.into_iter().map(Some).chain([None]);
    let texts: Vec<_> = states.filter_map(text).collect();
    texts.join(", ")
}
