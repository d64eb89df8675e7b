//! The constants.

/// When the cache is flushed for a log buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// When a push begins, and again with the buffer: the published "bad" kernel.
    Eager,
    /// With the buffer: the published "good" kernel.
    FlushBefore,
}

/// A machine and its load. All times in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// As the published table calls it.
    pub machine: &'static str,
    /// Work of a client between two commits, for which nobody waits.
    pub think: f64,
    /// The disk's time for what a client writes between two commits; one after the other.
    pub service: f64,
    /// A flush, from its issue to its end, on a disk that is idle.
    pub flush: f64,
    /// The part of it during which the disk does nothing else, and for which it waits behind what
    /// the disk has to do before.
    pub flush_stalls: f64,
    /// A log buffer.
    pub log_write: f64,
    /// Times vary by so much, up and down.
    pub jitter: f64,
    /// Pushes under way at once, at most.
    pub workers: usize,
    /// Commits of a load file.
    pub commits_per_file: usize,
    /// Load files of each client that count, for one client; more clients do fewer each.
    pub files: usize,
}

impl Model {
    /// The two published machines. They differ in their disks only; what is not said of them is
    /// fitted to the "good" column, the flush to the first row of the "bad" one.
    #[must_use]
    pub fn published() -> [Self; 2] {
        let sata = Self {
            machine: "cpu48_sata_ssd",
            think: 262.0,
            service: 265.0,
            flush: 88.0,
            flush_stalls: 0.04,
            log_write: 28.0,
            jitter: 0.5,
            workers: 4,
            commits_per_file: 100,
            files: 240,
        };
        let raid = Self {
            machine: "cpu8_raid_ssd",
            think: 240.0,
            service: 330.0,
            flush: 377.0,
            flush_stalls: 1.0,
            log_write: 32.0,
            ..sata.clone()
        };
        [sata, raid]
    }
}
