//! The live progress bar, on standard error.

use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::options::{Config, Pattern};
use crate::stats::Live;

/// The bar counts milliseconds of `--runtime`, or blocks if only their number ends the run.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    by_time: bool,
    rw: Pattern,
    block_len: u64,
    /// Reads and writes at the last update, and when that was.
    last: (u64, u64, Duration),
}

impl Progress {
    pub(crate) fn new(config: &Config) -> Self {
        let jobs = config.numjobs as u64;
        let (by_time, len) = match (config.runtime, config.number_ios) {
            (_, Some(blocks)) => (false, blocks.saturating_mul(jobs)),
            (runtime, None) => (true, runtime.unwrap_or_default().as_millis() as u64),
        };
        // A bar draws nothing unless standard error is a terminal.
        let target = if config.json {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(Some(len), target);
        // The figures are cut off where the terminal ends; a line that wraps cannot be redrawn.
        let style =
            ProgressStyle::with_template("{elapsed:>4} {percent:>3}% [{bar:10}] {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            bar,
            by_time,
            rw: config.rw,
            block_len: config.bs as u64,
            last: (0, 0, Duration::ZERO),
        }
    }

    /// Shows what is done after `elapsed`.
    pub(crate) fn update(&mut self, elapsed: Duration, jobs: &[Live]) {
        let reads: u64 = jobs.iter().map(Live::reads).sum();
        let writes: u64 = jobs.iter().map(Live::writes).sum();
        let (last_reads, last_writes, last_elapsed) = self.last;
        let seconds = elapsed.saturating_sub(last_elapsed).as_secs_f64().max(1e-3);
        let per_second = |now: u64, last: u64| ((now - last) as f64 / seconds) as u64;
        let (read_iops, write_iops) = (
            per_second(reads, last_reads),
            per_second(writes, last_writes),
        );
        let mib_s = ((read_iops + write_iops) * self.block_len) >> 20;
        let mut message = format!("{mib_s} MiB/s");
        for (does, name, iops) in [
            (self.rw.reads(), "read", read_iops),
            (self.rw.writes(), "write", write_iops),
        ] {
            if does {
                message += &format!("  {name} {} IOPS", HumanCount(iops));
            }
        }
        self.bar.set_message(message);
        let position = if self.by_time {
            elapsed.as_millis() as u64
        } else {
            reads + writes
        };
        self.bar
            .set_position(position.min(self.bar.length().unwrap_or(position)));
        self.last = (reads, writes, elapsed);
    }

    /// Prints a line on standard error without disturbing the bar.
    pub(crate) fn say(&self, line: &str) {
        self.bar.suspend(|| crate::say(line));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
