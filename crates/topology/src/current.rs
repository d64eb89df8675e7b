//! Where the calling thread runs.

/// The number of the CPU the calling thread runs on.
///
/// A hint: the thread may be elsewhere before the number is looked at, and it may name a CPU no
/// [`Topology`](crate::Topology) knows. Never fails. About a nanosecond on Linux; on other systems
/// each thread keeps a number of its own.
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
