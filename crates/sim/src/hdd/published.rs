//! The published tables, as they are in `data/`.

/// A row of the table of split IOs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Jobs.
    pub jobs: usize,
    /// MiB/s of Linux v5.18.
    pub v5_18: f64,
    /// MiB/s of the patched kernel.
    pub patched: f64,
}

/// A row of the table of single IOs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleIo {
    /// Size of the IO in KiB.
    pub kib: u64,
    /// MiB/s.
    pub mib_s: f64,
}

/// 1 MiB random writes split into pieces of 128 KiB, by number of jobs.
///
/// ```
/// let last = inflight_sim::hdd::split_io().last().copied().unwrap();
/// assert_eq!((last.jobs, last.v5_18, last.patched), (512, 31.8, 57.9));
/// ```
#[must_use]
pub fn split_io() -> Vec<Published> {
    let rows = rows(include_str!("../../data/hdd_split.csv"));
    let row = |[jobs, v5_18, patched]: [f64; 3]| Published {
        jobs: jobs as usize,
        v5_18,
        patched,
    };
    rows.into_iter().map(row).collect()
}

/// One write at a time, by its size.
///
/// ```
/// let first = inflight_sim::hdd::single_io()[0];
/// assert_eq!((first.kib, first.mib_s), (128, 20.1));
/// ```
#[must_use]
pub fn single_io() -> Vec<SingleIo> {
    let rows = rows(include_str!("../../data/hdd_single_io.csv"));
    let row = |[kib, mib_s]: [f64; 2]| SingleIo {
        kib: kib as u64,
        mib_s,
    };
    rows.into_iter().map(row).collect()
}

/// The numbers below the heading.
fn rows<const N: usize>(csv: &str) -> Vec<[f64; N]> {
    let row = |line: &str| {
        let mut numbers = line.split(',').map(|n| n.trim().parse());
        std::array::from_fn(|_| {
            let number = numbers.next().expect("a number for each column");
            number.expect("data/ holds numbers")
        })
    };
    csv.lines().skip(1).map(row).collect()
}
