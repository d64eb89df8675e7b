//! What a job does next.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::options::{Config, Pattern};

/// How often a random place is drawn anew because a lane is busy there.
const DRAWS: usize = 16;

const WRITER: u32 = u32::MAX;

/// Spreads block numbers, which nobody chooses to do harm.
#[derive(Debug, Default)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        // The table looks at the lowest and at the highest bits: the product mixes into the high
        // ones, which are brought down.
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

/// One block to read or to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) write: bool,
    /// The block's number in the file.
    pub(crate) block: u64,
}

/// Draws a job's tasks and keeps lanes apart: no two are under way on one block if one of them
/// writes, because the reader could find half a write and call it corrupted.
#[derive(Debug)]
pub(crate) struct Plan {
    region: Range<u64>,
    pattern: Pattern,
    rwmixread: u8,
    rng: fastrand::Rng,
    /// The next block of sequential reads and of sequential writes.
    cursors: [u64; 2],
    /// How many tasks are left, if limited.
    left: Option<u64>,
    /// The blocks under way, with how many lanes read them, or `WRITER`. Unused without writes.
    busy: HashMap<u64, u32, BuildHasherDefault<BlockHasher>>,
    /// A sequential task that could not be claimed; it must come first.
    postponed: Option<Task>,
}

/// The next step of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Do(Task),
    /// Ask again when a lane has released its block.
    WaitForRelease,
    Done,
}

impl Plan {
    /// The plan of job number `job` on `region`, which is not empty.
    pub(crate) fn new(config: &Config, job: usize, region: Range<u64>) -> Self {
        Self {
            cursors: [region.start; 2],
            region,
            pattern: config.rw,
            rwmixread: config.rwmixread,
            rng: fastrand::Rng::with_seed(config.randseed.wrapping_add(job as u64)),
            left: config.number_ios,
            busy: HashMap::default(),
            postponed: None,
        }
    }

    /// The next block for a lane, which it has to give back to `release`.
    pub(crate) fn next(&mut self) -> Next {
        if self.left == Some(0) {
            return Next::Done;
        }
        let task = self.postponed.take().unwrap_or_else(|| self.draw());
        if !self.is_free(task) {
            self.postponed = Some(task);
            return Next::WaitForRelease;
        }
        self.left = self.left.map(|left| left - 1);
        self.claim(task);
        Next::Do(task)
    }

    fn claim(&mut self, task: Task) {
        if !self.pattern.writes() {
            return;
        }
        let users = self.busy.entry(task.block).or_insert(0);
        *users = if task.write { WRITER } else { *users + 1 };
    }

    pub(crate) fn release(&mut self, task: Task) {
        let Some(users) = self.busy.get_mut(&task.block) else {
            return;
        };
        *users = if task.write { 0 } else { *users - 1 };
        if *users == 0 {
            self.busy.remove(&task.block);
        }
    }

    fn draw(&mut self) -> Task {
        let write = match self.pattern {
            Pattern::Read | Pattern::Randread => false,
            Pattern::Write | Pattern::Randwrite | Pattern::Log => true,
            Pattern::Randrw | Pattern::Rw => self.rng.u8(..100) >= self.rwmixread,
        };
        if !self.pattern.random() {
            let cursor = &mut self.cursors[usize::from(write)];
            let block = *cursor;
            *cursor = if block + 1 == self.region.end {
                self.region.start
            } else {
                block + 1
            };
            return Task { write, block };
        }
        let mut task = Task {
            write,
            block: self.rng.u64(self.region.clone()),
        };
        for _ in 1..DRAWS {
            if self.is_free(task) {
                break;
            }
            task.block = self.rng.u64(self.region.clone());
        }
        task
    }

    fn is_free(&self, task: Task) -> bool {
        match self.busy.get(&task.block) {
            None => true,
            Some(&users) => !task.write && users != WRITER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use clap::Parser as _;

    fn plan(args: &[&str], region: Range<u64>) -> Plan {
        let args = ["io-engine", "--randseed", "7"]
            .into_iter()
            .chain(args.iter().copied());
        let config = Options::try_parse_from(args).unwrap().check().unwrap();
        Plan::new(&config, 0, region)
    }

    fn task(next: Next) -> Task {
        match next {
            Next::Do(task) => task,
            other => panic!("expected a task, found {other:?}"),
        }
    }

    #[test]
    fn sequential_reads_walk_the_region_and_wrap() {
        let mut plan = plan(&["--rw", "read"], 5..8);
        let blocks: Vec<u64> = (0..5).map(|_| task(plan.next()).block).collect();
        assert_eq!(blocks, [5, 6, 7, 5, 6]);
    }

    #[test]
    fn number_ios_ends_the_plan() {
        let mut plan = plan(&["--rw", "randread", "--number_ios", "2"], 0..100);
        task(plan.next());
        task(plan.next());
        assert_eq!(plan.next(), Next::Done);
    }

    #[test]
    fn a_sequential_write_waits_for_the_lane_that_is_there() {
        let mut plan = plan(&["--rw", "write", "--iodepth", "3"], 0..2);
        let first = task(plan.next());
        task(plan.next());
        assert_eq!(plan.next(), Next::WaitForRelease);
        plan.release(first);
        assert_eq!(task(plan.next()), first);
    }

    #[test]
    fn random_tasks_never_overlap_when_one_writes() {
        let mut plan = plan(&["--rw", "randrw", "--iodepth", "8"], 0..10);
        let mut held = [None::<Task>; 8];
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut reads, mut writes) = (0, 0);
        for _ in 0..20_000 {
            let lane = rng.usize(..8);
            if let Some(task) = held[lane].take() {
                plan.release(task);
                continue;
            }
            let Next::Do(task) = plan.next() else {
                continue;
            };
            for other in held
                .iter()
                .flatten()
                .filter(|other| other.block == task.block)
            {
                assert!(!other.write && !task.write, "{other:?} and {task:?}");
            }
            *(if task.write { &mut writes } else { &mut reads }) += 1;
            held[lane] = Some(task);
        }
        assert!(
            reads > 2000 && writes > 2000,
            "{reads} reads, {writes} writes"
        );
    }

    #[test]
    fn the_mix_follows_rwmixread() {
        for (percent, least, most) in [("0", 0, 0), ("100", 1000, 1000), ("70", 600, 800)] {
            let mut plan = plan(&["--rw", "randrw", "--rwmixread", percent], 0..1_000_000);
            let reads = (0..1000)
                .filter(|_| {
                    let task = task(plan.next());
                    plan.release(task);
                    !task.write
                })
                .count();
            assert!((least..=most).contains(&reads), "{percent}: {reads}");
        }
    }
}
