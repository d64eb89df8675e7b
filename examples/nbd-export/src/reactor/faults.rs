//! Operations that fail on purpose, to try what then happens.

use std::cell::Cell;

use rustix::io::Errno;

use super::FileOp;

/// Which operations fail without asking the kernel, or move less than they are asked to: each so
/// many-th; 0 is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Only those of this export.
    pub(crate) export: Option<String>,
    /// Reads and writes are refused for now.
    again: u32,
    /// Reads and writes are short.
    short: u32,
    read: u32,
    write: u32,
    flush: u32,
    /// The thread ends.
    thread: u32,
}

impl std::str::FromStr for Faults {
    type Err = String;

    /// `again=N,short=N,read=N,write=N,flush=N,thread=N,export=NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        let mut said = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let refused = || {
                let known = "again=N, short=N, read=N, write=N, flush=N, thread=N, export=NAME";
                format!("{part:?} is none of {known}")
            };
            let (name, value) = part.split_once('=').ok_or_else(refused)?;
            if said.contains(&name) {
                return Err(format!("{name} is given twice"));
            }
            said.push(name);
            let every = match name {
                "export" => {
                    faults.export = Some(value.to_owned());
                    continue;
                }
                "again" => &mut faults.again,
                "short" => &mut faults.short,
                "read" => &mut faults.read,
                "write" => &mut faults.write,
                "flush" => &mut faults.flush,
                "thread" => &mut faults.thread,
                _ => return Err(refused()),
            };
            let number = value.parse().ok().filter(|&n| n > 0);
            let most = u32::MAX;
            *every =
                number.ok_or_else(|| format!("{part:?}: N is a whole number from 1 to {most}"))?;
        }
        Ok(faults)
    }
}

/// What is wrong with an operation.
pub(super) enum Fault {
    Fails(Errno),
    /// It moves half of its bytes.
    IsShort,
}

/// Operations of each kind that were asked for.
#[derive(Debug, Default)]
pub(super) struct Injector {
    faults: Faults,
    all: Cell<u32>,
    transfers: Cell<u32>,
    reads: Cell<u32>,
    writes: Cell<u32>,
    flushes: Cell<u32>,
}

impl Injector {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    /// What is wrong with the next operation of an export.
    pub(super) fn next(&self, op: FileOp, export: &str) -> Option<Fault> {
        let only = self.faults.export.as_deref();
        if only.is_some_and(|only| only != export) {
            return None;
        }
        let faults = &self.faults;
        counted(&self.all);
        let turn = |count: u32, every: u32| every != 0 && count % every == 0;
        let io = |fails: bool| fails.then_some(Fault::Fails(Errno::IO));
        match op {
            FileOp::Read { .. } | FileOp::Write { .. } => {
                let all = counted(&self.transfers);
                let fails = match op {
                    FileOp::Read { .. } => turn(counted(&self.reads), faults.read),
                    _ => turn(counted(&self.writes), faults.write),
                };
                let again = turn(all, faults.again).then_some(Fault::Fails(Errno::AGAIN));
                let short = turn(all, faults.short).then_some(Fault::IsShort);
                again.or(io(fails)).or(short)
            }
            FileOp::Flush => io(turn(counted(&self.flushes), faults.flush)),
            FileOp::PunchHole { .. } | FileOp::ZeroRange { .. } | FileOp::ReadAhead { .. } => None,
        }
    }

    /// Whether the thread has carried out so many operations that it is to end.
    pub(super) fn ends_thread(&self) -> bool {
        self.faults.thread != 0 && self.all.get() >= self.faults.thread
    }
}

fn counted(count: &Cell<u32>) -> u32 {
    count.set(count.get().wrapping_add(1));
    count.get()
}
