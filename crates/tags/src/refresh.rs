//! Another machine under a set that is in use: CPUs that came or left for good.

use crate::group::Machine;
use crate::set::TagSet;
use crate::steering::first_of;
use inflight_topology::Topology;
use std::panic::resume_unwind;

impl<T: Send + 'static> TagSet<T> {
    /// Follows a machine that has changed: CPUs are spread over the hardware queues as a set built
    /// [with this topology](crate::TagSetBuilder::topology) would spread them, and all
    /// [`Completions`](crate::Completions) of the set steer by it. Returns the hardware queues that
    /// turned [active or inactive](TagSet::is_active) with that.
    ///
    /// Live and without a freeze: tags that are out stay with their hardware queue, submitters that
    /// wait stay in line, and whoever asks meanwhile gets a tag by the old map or by the new one.
    /// CPUs that left by [`cpu_offline`](TagSet::cpu_offline) stay away until
    /// [`cpu_online`](TagSet::cpu_online), whatever the topology says. Where the map had better
    /// stay as it is, because each hardware queue is a ring that belongs to the thread of a CPU,
    /// say, use these two alone.
    ///
    /// The mailboxes of CPUs that are not in the topology are closed, and what is in them runs on
    /// the calling thread; they open again when their CPUs are back. CPUs that nobody knew get
    /// theirs, with a runner of the [sink](crate::CompletionSink). What was submitted on a CPU that
    /// is gone completes where it is seen. Each topology that the set has not seen before costs
    /// some memory, which stays until the `Completions` are dropped.
    ///
    /// Waits for no request; for the build closure of a change of size that is making slots.
    ///
    /// # Panics
    ///
    /// With the first panic of a callback that ran here, after all of them have been called, and
    /// everything has changed; in the build closure of this set.
    ///
    /// The idea is blk-mq's, which maps its queues anew when CPUs come; Linux does so under a
    /// freeze.
    ///
    /// ```
    /// use inflight_tags::TagSet;
    /// use inflight_topology::Topology;
    /// let all = Topology::synthetic("core:4")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&all).build(|_, _| ())?;
    /// let map = || [0, 1, 2, 3].map(|cpu| set.hw_queue_of(cpu));
    /// assert_eq!(map(), [0, 0, 1, 1]);
    /// // CPUs 0 and 1 were taken from us. Their hardware queue gets one of the others.
    /// set.refresh(&Topology::synthetic("core:4 offline:0-1")?);
    /// assert_eq!(map()[2..], [0, 1]);
    /// set.refresh(&all); // as `Topology::refresh` finds it
    /// assert_eq!(map(), [0, 0, 1, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Why: who drains nothing has no use for it.
    #[allow(clippy::must_use_candidate)]
    pub fn refresh(&self, topology: &Topology) -> Vec<usize> {
        let (shared, machine) = (self.shared(), Machine::new(topology));
        let size = shared.bitmaps.size();
        // Held past the lock: dropping one may run callbacks.
        let followers = shared.followers();
        let (turned, left) = {
            let _change = size.change();
            let change = || shared.map.set_machine(machine, size.hw_queues());
            let turned = shared.turned_by(change);
            let bitmaps = &shared.bitmaps;
            bitmaps.set_users(&shared.map.users(bitmaps.geometry().shared));
            let follow = followers.iter().map(|follower| follower.refresh(topology));
            (turned, follow.collect::<Vec<_>>())
        };
        let ran = first_of(left.into_iter().map(|left| left()));
        ran.unwrap_or_else(|panic| resume_unwind(panic));
        turned
    }
}
