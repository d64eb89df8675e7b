//! How soon a worker runs that was sent a message, and how many messages are answered.

use inflight_benches::machine::Machine;
use inflight_benches::rounds::{median, rotate};
use inflight_benches::wakeup::{LOADS, Outcome, contenders, run};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let test = args.iter().any(|a| a == "--test") || args.iter().all(|a| a != "--bench");
    let (rounds, messages) = if test { (1, 200) } else { (5, 4_000) };
    println!("{}", Machine::prepare());
    println!("{rounds} rounds of {messages} messages, by turns; medians over the rounds, in us");
    let contenders = contenders();
    for load in LOADS {
        println!("\n{load}");
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
