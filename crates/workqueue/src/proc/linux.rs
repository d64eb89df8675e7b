//! From `/proc`.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::time::Duration;

pub(crate) fn this_thread() -> Option<u32> {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok()
}

/// The nice value of the process: that of its first thread.
pub(crate) fn nice_of_process() -> i32 {
    rustix::process::getpriority_process(Some(rustix::process::getpid())).unwrap_or(0)
}

/// Sets the calling thread's nice value, unless refused; 0 means that of the process.
pub(crate) fn set_nice(nice: i32, of_process: i32) -> Result<(), ErrorKind> {
    let me = Some(rustix::thread::gettid());
    let nice = if nice == 0 { of_process } else { nice };
    if rustix::process::getpriority_process(me) == Ok(nice) {
        return Ok(());
    }
    let set = rustix::process::setpriority_process(me, nice);
    set.map_err(|e| std::io::Error::from(e).kind())
}

/// The CPU time that the calling thread has used since it began.
pub(crate) fn used_here() -> Option<Duration> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).ok()
}

/// The CPU time of a thread, for any reader. The file stays open.
pub(crate) struct CpuClock(File);

impl CpuClock {
    /// `None` if the thread has ended, or the kernel has no such file.
    pub(crate) fn open(thread: u32) -> Option<Self> {
        let file = File::open(format!("/proc/self/task/{thread}/schedstat"));
        file.ok().map(Self)
    }

    pub(crate) fn read(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let read = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..read]).ok()?;
        let nanos = text.split_whitespace().next()?.parse().ok()?;
        Some(Duration::from_nanos(nanos))
    }
}

pub(crate) struct Files {
    thread: u32,
    stat: File,
    /// Opened on first use; not on every kernel.
    cpu: Option<CpuClock>,
}

impl Files {
    pub(crate) fn open(thread: u32) -> Option<Self> {
        let stat = File::open(format!("/proc/self/task/{thread}/stat"));
        Some(Self {
            thread,
            stat: stat.ok()?,
            cpu: None,
        })
    }

    /// Whether the thread sleeps. `false` in doubt.
    pub(crate) fn is_asleep(&self) -> bool {
        let mut text = [0; 96];
        let read = self.stat.read_at(&mut text, 0).unwrap_or(0);
        matches!(state(&text[..read]), Some(b'S' | b'D'))
    }

    pub(crate) fn cpu_time(&mut self) -> Option<Duration> {
        if self.cpu.is_none() {
            self.cpu = CpuClock::open(self.thread);
        }
        self.cpu.as_ref()?.read()
    }
}

/// The kernel stack of the thread, if the kernel shows it.
pub(crate) fn stack(thread: u32) -> Option<String> {
    let stack = std::fs::read_to_string(format!("/proc/self/task/{thread}/stack"));
    stack.ok().filter(|stack| !stack.is_empty())
}

/// The character of the state. It comes after the name, which may have blanks and parentheses.
fn state(stat: &[u8]) -> Option<u8> {
    let name_ends = stat.iter().rposition(|b| *b == b')')?;
    stat.get(name_ends + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::{Files, state, this_thread};

    #[test]
    fn the_state_comes_after_any_name() {
        assert_eq!(state(b"17 (a) S) (b) R 1 1"), Some(b'R'));
        assert_eq!(state(b"17 (inflight/0:1) D 1"), Some(b'D'));
        assert_eq!(state(b"17 (cut off"), None);
    }

    #[test]
    fn a_runner_is_not_seen_asleep() {
        let me = Files::open(this_thread().unwrap()).unwrap();
        assert!(!me.is_asleep(), "it looks at itself");
    }
}
