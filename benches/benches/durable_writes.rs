//! Blocks of 4 KiB that are to be durable on return: what a flush domain costs or saves beside a
//! write and an `fdatasync`, or a file with `O_DSYNC`, of each thread.
//!
//! On a file of a real file system; skipped where nothing counts what reaches the disk. Contenders
//! run in turn, several rounds of all of them; ratios are to `fdatasync` in the same round. After
//! each turn all that was acknowledged is read back, and the disk's counters must agree.

use anyhow::Result;
use inflight_benches::durable::{Outcome, Way, Writer, refusal};
use inflight_benches::machine::Machine;
use inflight_benches::rounds::{median, rotate};
use std::path::Path;
use std::time::Duration;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let test = args.iter().any(|a| a == "--test") || args.iter().all(|a| a != "--bench");
    let (rounds, window) = if test { (1, 5) } else { (9, 200) };
    println!("{}", Machine::prepare());
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    if let Some(reason) = refusal(folder.path()) {
        println!("skipped in {}: {reason}", folder.path().display());
        return Ok(());
    }
    println!("{rounds} rounds of {window} ms; medians over the rounds");
    let threads: &[usize] = if test { &[1, 4] } else { &[1, 2, 4, 8] };
    for &threads in threads {
        table(
            folder.path(),
            threads,
            rounds,
            Duration::from_millis(window),
        )?;
    }
    Ok(())
}

fn table(folder: &Path, threads: usize, rounds: usize, window: Duration) -> Result<()> {
    let writers: Result<Vec<Writer>> = Way::ALL
        .into_iter()
        .map(|way| Writer::new(way, folder))
        .collect();
    let writers = writers?;
    let samples = rotate(writers.len(), rounds, |i| writers[i].run(threads, window));
    let samples: Result<Vec<Vec<Outcome>>> = samples
        .into_iter()
        .map(|outcomes| outcomes.into_iter().collect())
        .collect();
    let samples = samples?;
    println!("\n{threads} threads");
    let head = [
        "writes/s",
        "ratio",
        "least",
        "greatest",
        "asked/w",
        "of disk/w",
    ];
    println!("{:20} {}", "", head.map(|h| format!("{h:>10}")).join(" "));
    for (way, outcomes) in Way::ALL.into_iter().zip(&samples) {
        let middle = |of: fn(&Outcome) -> f64| median(outcomes.iter().map(of));
        let mut ratios: Vec<f64> = outcomes
            .iter()
            .zip(&samples[0])
            .map(|(ours, baseline)| ours.per_second / baseline.per_second)
            .collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "{:20} {:>10.0} {:>10.2} {:>10.2} {:>10.2} {:>10.3} {:>10.3}",
            way.name(),
            middle(|o| o.per_second),
            median(ratios.iter().copied()),
            ratios[0],
            ratios[ratios.len() - 1],
            middle(|o| o.asked_per_write),
            middle(|o| o.disk_per_write),
        );
    }
    Ok(())
}
