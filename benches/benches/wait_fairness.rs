//! More threads than ids: how fast ids go round, how long one waits, and how evenly.
//!
//! Contenders run in turn, several rounds of all of them. Criterion has no place for what is asked
//! here, so the table is printed by hand.

use inflight_benches::machine::Machine;
use inflight_benches::rounds::{median, rotate};
use inflight_benches::scarce::{Idle, Load, Outcome, run};
use inflight_benches::{ours_waiting, waiting_rivals};
use std::time::Duration;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let test = args.iter().any(|a| a == "--test") || args.iter().all(|a| a != "--bench");
    let (rounds, window) = if test { (1, 5) } else { (9, 200) };
    println!("{}", Machine::prepare());
    println!("{rounds} rounds of {window} ms; medians over the rounds, waits in microseconds");
    for idle in [Idle::Polls, Idle::Sleeps] {
        for (threads, depth) in [(8, 4), (64, 16), (64, 64)] {
            let load = Load {
                threads,
                depth,
                idle,
                warm: Duration::from_millis(window / 10),
                window: Duration::from_millis(window),
            };
            table(load, rounds);
        }
    }
}

fn table(load: Load, rounds: usize) {
    let contenders: Vec<_> = ours_waiting().into_iter().chain(waiting_rivals()).collect();
    let samples = rotate(contenders.len(), rounds, |i| {
        run((contenders[i].make)(load.depth), load)
    });
    println!(
        "\n{} threads, {} ids, completer {:?}",
        load.threads, load.depth, load.idle
    );
    let head = ["kops/s", "max/min", "mean", "p50", "p99", "longest"];
    println!("{:34} {}", "", head.map(|h| format!("{h:>9}")).join(" "));
    for (contender, samples) in contenders.iter().zip(samples) {
        let outcomes: Vec<Outcome> = samples.iter().copied().flatten().collect();
        if outcomes.len() < samples.len() {
            let stranded = samples.len() - outcomes.len();
            println!(
                "{:34} left waiters behind in {stranded} rounds",
                contender.name
            );
            continue;
        }
        let middle = |of: fn(&Outcome) -> f64| median(outcomes.iter().map(of));
        let figures = [
            middle(|o| o.per_second) / 1e3,
            middle(|o| o.spread),
            middle(|o| o.mean),
            middle(|o| o.p50),
            middle(|o| o.p99),
            middle(|o| o.longest),
        ];
        let figures = figures.map(|figure| format!("{figure:>9.2}")).join(" ");
        println!("{:34} {figures}", contender.name);
    }
}
