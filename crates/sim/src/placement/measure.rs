//! What is measured in a run.

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Mean time of a load file, in ms.
    pub file_ms: f64,
    /// How often a client was woken on another CPU than it ran on, for each IO.
    pub migrations_per_io: f64,
    /// How often on one of another node.
    pub cross_node_per_io: f64,
    /// On how many CPUs a client has run, on average.
    pub cpus_visited: f64,
    /// CPUs that were used at all, of all the machine's.
    pub cpus_used: f64,
    /// Mean time to leave idle states, for each IO, in us.
    pub idle_exit_us_per_io: f64,
}

impl Outcome {
    /// The means of several runs.
    #[must_use]
    pub fn mean(runs: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        Self {
            file_ms: mean(|o| o.file_ms),
            migrations_per_io: mean(|o| o.migrations_per_io),
            cross_node_per_io: mean(|o| o.cross_node_per_io),
            cpus_visited: mean(|o| o.cpus_visited),
            cpus_used: mean(|o| o.cpus_used),
            idle_exit_us_per_io: mean(|o| o.idle_exit_us_per_io),
        }
    }
}
