//! Where completions ran.

use inflight::tags::Steering;
use inflight::tags::steering::SteeringStats;
use serde::Serialize;

use crate::options::Config;

#[derive(Debug, Serialize)]
pub(crate) struct SteeringReport {
    policy: &'static str,
    completed: u64,
    /// Run where they were seen, and why.
    inline: u64,
    inline_same_cpu: u64,
    inline_same_cache: u64,
    inline_policy: u64,
    inline_polled: u64,
    /// For any other reason.
    inline_fallback: u64,
    redirected: u64,
    wakeups: u64,
    batches: u64,
    max_batch: u64,
    /// What chose the CPU of redirected completions.
    wake: &'static str,
    /// Wakeups for another CPU than the one that submitted.
    placed: u64,
}

impl SteeringReport {
    pub(crate) fn new(config: &Config, stats: &SteeringStats, placed: u64) -> Self {
        let (cpu, cache) = (stats.inline_same_cpu, stats.inline_same_cache);
        Self {
            policy: config.steering.name(),
            completed: stats.completed(),
            inline: stats.inlined(),
            inline_same_cpu: cpu,
            inline_same_cache: cache,
            inline_policy: stats.inline_policy,
            inline_polled: stats.inline_polled,
            inline_fallback: stats.inlined()
                - cpu
                - cache
                - stats.inline_policy
                - stats.inline_polled,
            redirected: stats.redirected,
            wakeups: stats.redirect_wakeups,
            batches: stats.batches,
            max_batch: stats.max_batch,
            wake: config.wake.name(),
            placed,
        }
    }

    /// For the table; none if nothing is steered.
    pub(crate) fn row(&self) -> Option<String> {
        if self.policy == Steering::Inline.name() {
            return None;
        }
        Some(format!(
            "{}: inline {} (same cpu {}, same cache {}, polled {}, other {}); redirected {}, \
             wakeups {}, largest batch {}; {}: {} elsewhere",
            self.policy,
            self.inline,
            self.inline_same_cpu,
            self.inline_same_cache,
            self.inline_polled,
            self.inline_policy + self.inline_fallback,
            self.redirected,
            self.wakeups,
            self.max_batch,
            self.wake,
            self.placed
        ))
    }
}
