//! The CPU of the calling thread.

/// Returns the number of the calling thread's CPU.
///
/// A hint: the thread may run elsewhere before the number is used, and the number may name a CPU
/// that no [`Topology`](crate::Topology) has. Never fails. It takes about a nanosecond on Linux; on
/// other systems each thread keeps a number of its own.
///
/// ```
/// use inflight_topology::{Scope, Topology, current_cpu};
///
/// let topo = Topology::discover()?;
/// let pod = topo.pod_of(Scope::Cache, current_cpu());
/// println!("here: {:?}", pod.map(|pod| pod.id()));
/// # Ok::<(), inflight_topology::DiscoverError>(())
/// ```
#[inline]
#[must_use]
pub fn current_cpu() -> usize {
    inflight_sync::cpu::current()
}

/// Makes [`current_cpu`] return `cpu` on the calling thread; `None` asks the system again.
///
/// For tests and simulators of a machine on which they do not run: it moves no thread.
///
/// ```
/// use inflight_topology::steering::{Steering, decide};
/// use inflight_topology::{Topology, current_cpu, set_current_cpu_for_thread};
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// set_current_cpu_for_thread(Some(6)); // this thread plays the reaper on CPU 6
/// let decision = decide(current_cpu(), 0, Steering::SameCache, &topo, true);
/// assert_eq!(decision.redirect(), Some(0));
/// set_current_cpu_for_thread(None);
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
pub fn set_current_cpu_for_thread(cpu: Option<usize>) {
    inflight_sync::cpu::set_current_for_thread(cpu);
}
