//! How soon a worker runs that was sent a message, and how many messages are answered.

use inflight_benches::machine::Machine;
use inflight_benches::rounds::{median, rotate};
use inflight_benches::wakeup::{Load, Outcome, contenders, run};
use std::time::Duration;

/// Message threads, workers of each, what an answer computes, and how long a message thread sleeps
/// before it sends again, in us.
const LOADS: [(usize, usize, u64, u64); 7] = [
    (1, 1, 5, 0),
    (1, 4, 5, 0),
    (2, 2, 5, 0),
    (2, 8, 5, 0),
    (2, 16, 20, 0),
    (1, 4, 5, 200),
    (2, 8, 20, 1000),
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let test = args.iter().any(|a| a == "--test") || args.iter().all(|a| a != "--bench");
    let (rounds, messages) = if test { (1, 200) } else { (5, 4_000) };
    println!("{}", Machine::prepare());
    println!("{rounds} rounds of {messages} messages, by turns; medians over the rounds, in us");
    let contenders = contenders();
    for (messengers, workers, compute, pause) in LOADS {
        let load = Load {
            messengers,
            workers,
            compute: Duration::from_micros(compute),
            pause: Duration::from_micros(pause),
        };
        println!("\n{messengers} x {workers}, {compute} us each, pause {pause} us");
        let samples = rotate(contenders.len(), rounds, |i| {
            run(&*contenders[i].target, load, messages)
        });
        let head = ["p50", "p99", "p99.9", "per s"];
        println!("{:28} {}", "", head.map(|h| format!("{h:>10}")).join(" "));
        for (contender, samples) in contenders.iter().zip(samples) {
            let middle = |of: fn(&Outcome) -> f64| median(samples.iter().map(of));
            let figures = [
                middle(|o| o.p50),
                middle(|o| o.p99),
                middle(|o| o.p999),
                middle(|o| o.per_second),
            ];
            let figures = figures.map(|figure| format!("{figure:>10.1}")).join(" ");
            println!("{:28} {figures}", contender.name);
        }
    }
}
