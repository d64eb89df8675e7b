//! Small records that are to be durable: what commits cost that share flushes, and that do not.
//!
//! On a disk in memory whose flush takes a millisecond, on a real file system, and on one in memory
//! where flushes cost nothing. Contenders run in turn, several rounds of all of them; ratios are to
//! one `fdatasync` for each record, in the same round.
//!
//! A run fails if a commit costs more flushes than is promised: one for one committer, 0.35 for
//! eight and more on the disk in memory, and 0.6 for four and more on a file.

use anyhow::{Result, ensure};
use inflight_benches::commits::{Outcome, Place, Way, run};
use inflight_benches::machine::Machine;
use inflight_benches::rounds::{median, rotate};
use inflight_flush::log::GroupMode;
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
    for &committers in committers {
        // A file system in memory, where there is one.
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            break;
        };
        let place = Place::MemoryFolder(folder.path().to_owned());
        table(&place, committers, rounds, window)?;
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
        Place::MemoryFolder(_) => "a file in memory".to_owned(),
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
        let asked: Vec<f64> = outcomes.iter().filter_map(|o| o.asked_per_commit).collect();
        if !asked.is_empty() {
            let asked = median(asked);
            let most = most_flushes(*way, place, committers);
            // One short round says nothing.
            ensure!(
                rounds == 1 || asked <= most,
                "{}: {asked} flushes for each commit, at most {most}",
                way.name()
            );
        }
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

/// How many flushes a commit may cost.
fn most_flushes(way: Way, place: &Place, committers: usize) -> f64 {
    match (way, place) {
        (Way::Ours(GroupMode::Off) | Way::FlushEach | Way::DurableWriteEach | Way::Okaywal, _) => {
            1.0
        }
        (_, Place::Memory(_)) if committers >= 8 => 0.35,
        (_, Place::Folder(_)) if committers >= 4 => 0.6,
        _ => 1.0,
    }
}
