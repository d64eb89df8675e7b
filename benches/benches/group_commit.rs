//! Small records that are to be durable: what commits cost that share flushes, and that do not.
//!
//! On a disk in memory whose flush takes a millisecond, and on a real file system. Contenders run
//! in turn, several rounds of all of them; ratios are to one `fdatasync` for each record, in the
//! same round.

use anyhow::Result;
use inflight_benches::commits::{Outcome, Place, Way, run};
use inflight_benches::machine::Machine;
use inflight_benches::rounds::{median, rotate};
use std::time::Duration;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let test = args.iter().any(|a| a == "--test") || args.iter().all(|a| a != "--bench");
    let (rounds, window) = if test { (1, 5) } else { (5, 200) };
    println!("{}", Machine::prepare());
    println!("{rounds} rounds of {window} ms; medians over the rounds");
    let window = Duration::from_millis(window);
    let committers: &[usize] = if test { &[1, 4] } else { &[1, 2, 4, 8, 16, 32] };
    for &committers in committers {
        let memory = Place::Memory(Duration::from_millis(1));
        table(&memory, committers, rounds, window)?;
    }
    for &committers in committers {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        table(
            &Place::Folder(folder.path().to_owned()),
            committers,
            rounds,
            window,
        )?;
    }
    Ok(())
}

fn table(place: &Place, committers: usize, rounds: usize, window: Duration) -> Result<()> {
    let mut contenders = Vec::new();
    for way in Way::ALL {
        contenders.extend(way.make(place)?.map(|commits| (way, commits)));
    }
    let samples = rotate(contenders.len(), rounds, |i| {
        run(&*contenders[i].1, place, committers, window)
    });
    let kind = match place {
        Place::Memory(flush) => format!("a disk in memory, flush {flush:?}"),
        Place::Folder(_) => "a real file".to_owned(),
    };
    println!("\n{committers} committers on {kind}");
    let head = ["commits/s", "ratio", "flushes/c", "of disk/c"];
    println!("{:20} {}", "", head.map(|h| format!("{h:>10}")).join(" "));
    let baseline: Vec<f64> = samples[0].iter().map(|o| o.per_second).collect();
    for ((way, _), outcomes) in contenders.iter().zip(&samples) {
        let ratios = outcomes
            .iter()
            .zip(&baseline)
            .map(|(o, b)| o.per_second / b);
        let optional = |of: fn(&Outcome) -> Option<f64>| {
            let known: Vec<f64> = outcomes.iter().filter_map(of).collect();
            if known.is_empty() {
                format!("{:>10}", "-")
            } else {
                format!("{:>10.3}", median(known.into_iter()))
            }
        };
        println!(
            "{:20} {:>10.0} {:>10.2} {} {}",
            way.name(),
            median(outcomes.iter().map(|o| o.per_second)),
            median(ratios),
            optional(|o| o.asked_per_commit),
            optional(|o| o.disk_per_commit),
        );
    }
    Ok(())
}
