//! What the users of a log know, and what may be found after the power was lost.

use inflight_flush::log::{Lsn, Recovery};
use std::collections::BTreeMap;

/// How a checkpoint ended, as far as its owner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was given up before its commit.
    Never,
    /// The commit failed: it counts or not.
    Unknown,
    /// It was committed, and the log was here.
    At(Lsn),
}

#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) records: Vec<(Lsn, Vec<u8>)>,
    pub(crate) end: End,
}

/// All that was appended, and what of it was acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) plain: Vec<(Lsn, Vec<u8>)>,
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// Up to where the log was acknowledged as durable.
    pub(crate) durable: Lsn,
    /// The furthest tail that was asked for.
    pub(crate) tail: Lsn,
}

impl History {
    pub(crate) fn acknowledge(&mut self, lsn: Lsn) {
        self.durable = self.durable.max(lsn);
    }

    /// What is found is what was appended between the tail and the end that were found, each
    /// record once and nothing else; the end is not before what was acknowledged; the tail not
    /// behind what was asked for; and a checkpoint is there, or nothing of it is.
    pub(crate) fn check(&self, found: &Recovery, context: &str) {
        let (tail, end) = (found.tail, found.end);
        assert!(end >= self.durable, "{context}: ends at {end}: {self:?}");
        assert!(tail <= self.tail, "{context}: the tail is at {tail}");
        let mut left: BTreeMap<Lsn, &[u8]> = BTreeMap::new();
        for record in &found.records {
            let twice = left.insert(record.lsn, &record.payload);
            assert!(twice.is_none(), "{context}: {} comes twice", record.lsn);
        }
        let mut take = |(lsn, payload): &(Lsn, Vec<u8>)| {
            let is_there = left.remove(lsn) == Some(payload);
            assert!(is_there, "{context}: {lsn} is missing, tail {tail}, {end}");
        };
        let counts = |(lsn, _): &&(Lsn, Vec<u8>)| *lsn > tail && *lsn <= end;
        self.plain.iter().filter(counts).for_each(&mut take);
        for checkpoint in &self.checkpoints {
            let is_there = match checkpoint.end {
                End::Never => false,
                End::At(at) => at <= end,
                End::Unknown => checkpoint.is_in(found),
            };
            if is_there {
                checkpoint.records.iter().filter(counts).for_each(&mut take);
            }
        }
        assert!(left.is_empty(), "{context}: never appended: {left:?}");
    }

    /// The log goes on behind what was found: that is durable now, and the rest never comes back.
    pub(crate) fn go_on(&mut self, found: &Recovery) {
        self.plain.retain(|(lsn, _)| *lsn <= found.end);
        self.checkpoints.retain_mut(|checkpoint| {
            if checkpoint.end == End::Unknown && checkpoint.is_in(found) {
                checkpoint.end = End::At(found.end);
            }
            matches!(checkpoint.end, End::At(_))
        });
        self.durable = found.end;
        self.tail = found.tail;
    }
}

impl Checkpoint {
    /// Whether one of its records is among those that were found.
    fn is_in(&self, found: &Recovery) -> bool {
        let mine = |lsn: Lsn| self.records.iter().any(|(own, _)| *own == lsn);
        found.records.iter().any(|record| mine(record.lsn))
    }
}
