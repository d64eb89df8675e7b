//! 10,000 tasks on two threads want 64 ids, and hold each across one yield.

use inflight_benches::machine::Machine;
use inflight_benches::rounds::{median, rotate};
use inflight_benches::tasks::{Load, Outcome, contenders};
use std::time::Duration;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let test = args.iter().any(|a| a == "--test") || args.iter().all(|a| a != "--bench");
    let (rounds, window) = if test { (1, 10) } else { (9, 300) };
    println!("{}", Machine::prepare());
    println!("{rounds} rounds of {window} ms; medians over the rounds, waits in microseconds");
    let load = Load {
        tasks: 10_000,
        depth: 64,
        workers: 2,
        warm: Duration::from_millis(window / 5),
        window: Duration::from_millis(window),
    };
    let contenders = contenders();
    let samples = rotate(contenders.len(), rounds, |i| {
        (contenders[i].make)(load.depth).run(load)
    });
    let head = ["kops/s", "max/min", "p99", "longest"];
    println!("{:34} {}", "", head.map(|h| format!("{h:>10}")).join(" "));
    for (contender, samples) in contenders.iter().zip(samples) {
        let outcomes: Vec<Outcome> = samples.iter().copied().flatten().collect();
        if outcomes.len() < samples.len() {
            println!("{:34} left tasks behind", contender.name);
            continue;
        }
        let middle = |of: fn(&Outcome) -> f64| median(outcomes.iter().map(of));
        let figures = [
            middle(|o| o.per_second) / 1e3,
            middle(|o| o.spread),
            middle(|o| o.p99),
            middle(|o| o.longest),
        ];
        let figures = figures.map(|figure| format!("{figure:>10.2}")).join(" ");
        println!("{:34} {figures}", contender.name);
    }
}
