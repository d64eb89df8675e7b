//! What is known of a run.

/// What came out of one run.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// MiB/s of reads; about as much was written.
    pub mib_s: f64,
    /// CPU time used, in percent of all CPUs.
    pub cpu_pct: f64,
    /// CPU time of one IO, in us.
    pub cpu_us_per_io: f64,
    /// Part of the items that ran in another cache than that of their issuer.
    pub off_home: f64,
    /// Threads pulled from one cache into another, for each item.
    pub pulls: f64,
    /// Workers that began in their cache although they had last run in another, for each item.
    pub repatriations: f64,
    /// Items taken by another pod, for each item.
    pub takes: f64,
    /// Those of them that left their node.
    pub far_takes: f64,
    /// How often a worker without work looked at other pods, for each item.
    pub scans: f64,
    /// Threads put on a CPU, for each item.
    pub switches: f64,
    /// Issuers that changed cache, a second.
    pub issuer_moves_per_s: f64,
    /// From submission to completion, the median, in ms.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The part of the time for which the CPUs of each cache were busy, least and most.
    pub cache_busy: (f64, f64),
}

/// The mean of some runs.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Means.
    #[serde(flatten)]
    pub mean: Outcome,
    /// Standard deviation of `mib_s`.
    pub mib_s_sd: f64,
    /// Standard deviation of `cpu_pct`.
    pub cpu_pct_sd: f64,
}

impl Summary {
    pub(super) fn of(outcomes: &[Outcome]) -> Self {
        let mean = |f: fn(&Outcome) -> f64| {
            outcomes.iter().map(f).sum::<f64>() / outcomes.len().max(1) as f64
        };
        let sd = |f: fn(&Outcome) -> f64| {
            let middle = mean(f);
            let squares = outcomes.iter().map(|o| (f(o) - middle).powi(2));
            (squares.sum::<f64>() / outcomes.len().max(1) as f64).sqrt()
        };
        Self {
            mib_s_sd: sd(|o| o.mib_s),
            cpu_pct_sd: sd(|o| o.cpu_pct),
            mean: Outcome {
                mib_s: mean(|o| o.mib_s),
                cpu_pct: mean(|o| o.cpu_pct),
                cpu_us_per_io: mean(|o| o.cpu_us_per_io),
                off_home: mean(|o| o.off_home),
                pulls: mean(|o| o.pulls),
                repatriations: mean(|o| o.repatriations),
                takes: mean(|o| o.takes),
                far_takes: mean(|o| o.far_takes),
                scans: mean(|o| o.scans),
                switches: mean(|o| o.switches),
                issuer_moves_per_s: mean(|o| o.issuer_moves_per_s),
                p50_ms: mean(|o| o.p50_ms),
                p99_ms: mean(|o| o.p99_ms),
                cache_busy: (mean(|o| o.cache_busy.0), mean(|o| o.cache_busy.1)),
            },
        }
    }
}
