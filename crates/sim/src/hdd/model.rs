//! All constants of the model, in one place. Every policy runs with the same.

use std::time::Duration;

/// Bytes of a MiB.
pub(crate) const MIB: u64 = 1 << 20;

/// The disk, the machine and the load.
///
/// The defaults are the published machine: what the source of the tables says of it, or what was
/// fitted to its tables. `docs/simulator.md` has the derivations.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Seek and half a turn before a write that does not continue the last one. Fitted to the
    /// table of single IOs, with `media_rate`: 2.3 % at most from any of its points.
    pub seek: Duration,
    /// What passes under the head, in MiB/s. Fitted as `seek`.
    pub media_rate: f64,
    /// The most the drive sustains, in MiB/s: the table's best.
    pub top_rate: f64,
    /// Pieces of 128 KiB the drive's write cache holds. Acknowledged when they are in it, written
    /// in one-way sorted order. Fitted to the v5.18 column of the table of split IOs (42.5 MiB); 0
    /// is a drive whose cache is off.
    pub cache_pieces: usize,
    /// A full cache takes the next request when it has room for one, but now and then waits until
    /// it has room for 1 to this many pieces, as many as the other: then completions come in a
    /// burst. Fitted to the patched column of the table of split IOs; 1 is never.
    pub burst: usize,
    /// The chance of that, each time it has taken requests. Fitted as `burst`.
    pub burst_chance: f64,
    /// Requests the drive takes without a cache: the published queue depth.
    pub drive_depth: usize,
    /// A job's time to submit a piece once it has the tag. Fitted as `cache_pieces`.
    pub submit: Duration,
    /// Mean of the exponential latency from a wake to the woken job's first step. Fitted as
    /// `cache_pieces`.
    pub wake_mean: Duration,
    /// What each wake adds to the latency of the next ones of the same batch.
    pub wake_rank: Duration,
    /// Tags: the published `nr_requests`.
    pub tags: usize,
    /// CPUs of the published machine.
    pub cpus: usize,
    /// Bytes of one IO of a job.
    pub io: u64,
    /// Bytes of a piece: the published `max_sectors_kb`.
    pub piece: u64,
    /// Bytes of a small IO.
    pub small_io: u64,
    /// Where IOs begin: multiples of `io` below this.
    pub span: u64,
    /// In which order requests with a tag go to the drive.
    pub dispatch: Dispatch,
}

/// In which order requests that have a tag go to the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// As they were submitted.
    #[default]
    Fifo,
    /// One-way by position, as an elevator does that sorts. For long queues.
    Sorted,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            seek: Duration::from_micros(4950),
            media_rate: 103.0,
            top_rate: 82.9,
            cache_pieces: 340,
            burst: 24,
            burst_chance: 0.01,
            drive_depth: 32,
            submit: Duration::from_micros(30),
            wake_mean: Duration::from_micros(50),
            wake_rank: Duration::from_micros(3),
            tags: 64,
            cpus: 96,
            io: MIB,
            piece: MIB / 8,
            small_io: 4096,
            span: MIB << 20,
            dispatch: Dispatch::Fifo,
        }
    }
}

impl Model {
    /// Pieces of one large IO.
    #[must_use]
    pub fn pieces(&self) -> usize {
        usize::try_from(self.io.div_ceil(self.piece)).unwrap_or(usize::MAX)
    }

    /// How many requests of a large IO are as large as so many pieces of 128 KiB; at least 1.
    pub(super) fn requests(&self, pieces: usize) -> usize {
        let len = self.piece.min(self.io).max(1);
        let bytes = (pieces as u64).saturating_mul(MIB / 8);
        usize::try_from(bytes / len).unwrap_or(usize::MAX).max(1)
    }

    /// Time for a contiguous run of `bytes`, from the seek on.
    ///
    /// ```
    /// let model = inflight_sim::hdd::Model::default();
    /// let one_mib = model.run_time(1 << 20).as_secs_f64();
    /// assert!((1.0 / one_mib - 68.2).abs() < 0.05);
    /// ```
    #[must_use]
    pub fn run_time(&self, bytes: u64) -> Duration {
        let mib = bytes as f64 / MIB as f64;
        let moved = self.seek + Duration::from_secs_f64(mib / self.media_rate);
        moved.max(Duration::from_secs_f64(mib / self.top_rate))
    }
}
