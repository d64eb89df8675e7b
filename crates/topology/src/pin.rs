//! Pinning the calling thread to CPUs.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::rc::Rc;

use crate::{CpuSet, os};

inflight_sync::thread_local! {
    /// The guards of this thread that are alive, the latest last. The latest is in force.
    static LAYERS: Layers = Layers::default();
}

type Layers = Rc<RefCell<Vec<Rc<Layer>>>>;

/// The entry of a guard among those of its thread.
#[derive(Debug)]
struct Layer {
    /// Where the thread might run before.
    previous: RefCell<CpuSet>,
}

/// Keeps the calling thread pinned until it is dropped; then the old mask is restored.
///
/// Made by [`Topology::pin_current_thread`](crate::Topology::pin_current_thread). The guard belongs
/// to its thread and cannot be sent to another one.
///
/// Of several guards of a thread the latest is in force. They may be dropped in any order: an
/// earlier one then changes nothing, but passes its old mask to the guard made after it, so that
/// the first mask is restored once all are gone.
///
/// ```
/// use inflight_topology::{CpuSet, Topology};
///
/// let topo = Topology::discover()?;
/// let first: CpuSet = topo.cpus().iter().take(1).collect();
/// # #[cfg(target_os = "linux")]
/// {
///     let _pinned = topo.pin_current_thread(&first)?;
///     assert_eq!(Topology::discover()?.cpus(), &first);
/// }
/// assert_eq!(Topology::discover()?.cpus(), topo.cpus());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0277
/// fn to_another_thread(guard: impl Send) {}
/// fn wrong(guard: inflight_topology::PinGuard) {
///     to_another_thread(guard);
/// }
/// ```
#[must_use = "the thread is unpinned again when the guard is dropped"]
#[derive(Debug)]
pub struct PinGuard {
    /// The set of the pinning.
    cpus: CpuSet,
    /// This guard's layer of the thread; `None` once there is nothing left to restore. It is not
    /// `Send`, so the guard stays in its thread, whose mask is to be restored.
    layer: Option<Rc<Layer>>,
    /// Kept here, because a guard may be dropped after the thread's locals.
    layers: Layers,
}

impl PinGuard {
    pub(crate) fn new(cpus: &CpuSet) -> Result<Self, PinError> {
        let previous = os::pin(cpus)?;
        Ok(Self::over(cpus, previous))
    }

    /// A guard for a thread that is on `cpus` already.
    fn over(cpus: &CpuSet, previous: CpuSet) -> Self {
        let previous = RefCell::new(previous);
        let (layer, layers) = (Rc::new(Layer { previous }), LAYERS.with(Rc::clone));
        layers.borrow_mut().push(Rc::clone(&layer));
        Self {
            cpus: cpus.clone(),
            layer: Some(layer),
            layers,
        }
    }

    /// Takes this guard out of those of its thread. The old mask is to be set if this was the guard
    /// in force; otherwise it is left to the next one.
    fn leave(&mut self) -> Option<CpuSet> {
        let layer = self.layer.take()?;
        let mut layers = self.layers.borrow_mut();
        let at = layers.iter().position(|other| Rc::ptr_eq(other, &layer))?;
        layers.remove(at);
        let previous = layer.previous.take();
        match layers.get(at) {
            Some(next) => {
                next.previous.replace(previous);
                None
            }
            None => Some(previous),
        }
    }

    /// Whether a later guard of this thread is alive.
    fn is_covered(&self) -> bool {
        let layers = self.layers.borrow();
        let (latest, own) = (layers.last(), self.layer.as_ref());
        latest
            .zip(own)
            .is_some_and(|(latest, own)| !Rc::ptr_eq(latest, own))
    }

    /// Returns the set of the pinning.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// assert_eq!(topo.pin_current_thread(topo.cpus())?.cpus(), topo.cpus());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Checks that the thread is still pinned to its set, and pins it again if not.
    ///
    /// A change of the process's CPU set, or a CPU that went offline, rewrites the masks of threads
    /// without a notice to them; when the CPUs come back, the mask may stay as it is. So call this
    /// from time to time, for example after a [refresh](crate::Topology::refresh) that finds a
    /// change. It takes a microsecond or two.
    ///
    /// It never moves a thread that a later guard pins elsewhere.
    ///
    /// # Errors
    ///
    /// [`PinError::Os`] if the system does not return the mask, or refuses for another reason than
    /// that none of the CPUs is left; that case is [`PinCheck::Lost`].
    ///
    /// ```
    /// use inflight_topology::{PinCheck, Topology};
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// # {
    /// let guard = topo.pin_current_thread(topo.cpus())?;
    /// match guard.revalidate()? {
    ///     PinCheck::Held | PinCheck::Covered => {}
    ///     PinCheck::Reapplied { found } => println!("somebody had moved it to {found}"),
    ///     PinCheck::Narrowed { vanished } => println!("CPUs {vanished} are gone"),
    ///     PinCheck::Lost { now } => println!("all are gone; running on {now}"),
    /// }
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revalidate(&self) -> Result<PinCheck, PinError> {
        if self.is_covered() {
            return Ok(PinCheck::Covered);
        }
        let found = os::current(&self.cpus)?;
        if found == self.cpus {
            return Ok(PinCheck::Held);
        }
        let set = os::set(&self.cpus);
        let now = os::current(&self.cpus)?;
        match set {
            Ok(()) => {
                let vanished = self.cpus.difference(&now);
                Ok(if vanished.is_empty() {
                    PinCheck::Reapplied { found }
                } else {
                    PinCheck::Narrowed { vanished }
                })
            }
            Err(PinError::NoUsableCpu { .. }) => Ok(PinCheck::Lost { now }),
            Err(error) => Err(error),
        }
    }

    /// Restores the old mask now, and returns whether that succeeded. Dropping the guard does the
    /// same and ignores a failure.
    ///
    /// # Errors
    ///
    /// [`PinError::NoUsableCpu`] if none of the old CPUs is left (they went offline, or the process
    /// was moved to other CPUs meanwhile), [`PinError::Os`] for any other refusal. The thread's
    /// mask is then unchanged. While a later guard is alive, its set stays in force and nothing can
    /// fail.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// topo.pin_current_thread(topo.cpus())?.restore()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore(mut self) -> Result<(), PinError> {
        self.leave().map_or(Ok(()), |previous| os::set(&previous))
    }

    /// Leaves the thread pinned for good, as far as this guard is concerned: an earlier guard still
    /// restores its old mask.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// topo.pin_current_thread(topo.cpus())?.keep();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep(mut self) {
        if let Some(layer) = self.layer.take() {
            let mut layers = self.layers.borrow_mut();
            layers.retain(|other| !Rc::ptr_eq(other, &layer));
        }
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        if let Some(previous) = self.leave() {
            // Nobody is left to tell; `restore` is for those who want to know.
            let _ = os::set(&previous);
        }
    }
}

/// The result of [`PinGuard::revalidate`].
///
/// ```
/// use inflight_topology::{PinCheck, Topology};
///
/// let topo = Topology::discover()?;
/// # #[cfg(target_os = "linux")]
/// assert_eq!(topo.pin_current_thread(topo.cpus())?.revalidate()?, PinCheck::Held);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a pinning that was lost stays lost until the CPUs come back"]
pub enum PinCheck {
    /// The thread runs on the set asked for, and all of it.
    Held,
    /// The mask had been rewritten; now the thread runs on the set asked for again, and all of it.
    Reapplied {
        /// The mask that was found.
        found: CpuSet,
    },
    /// A later guard of this thread is alive and in force. Nothing was checked or changed.
    Covered,
    /// The thread runs on a part of the set.
    Narrowed {
        /// CPUs of the set that are offline or not allowed to this process.
        vanished: CpuSet,
    },
    /// No CPU of the set is online and allowed to this process any more.
    Lost {
        /// The CPUs on which the thread runs instead.
        now: CpuSet,
    },
}

/// The error of pinning a thread. Its mask is unchanged.
///
/// ```
/// use inflight_topology::{CpuSet, PinError, Topology};
///
/// let topo = Topology::discover()?;
/// let error = topo.pin_current_thread(&CpuSet::new()).unwrap_err();
/// assert_eq!(error, PinError::EmptySet);
/// assert_eq!(error.to_string(), "cannot pin a thread to an empty set of CPUs");
/// # Ok::<(), inflight_topology::DiscoverError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinError {
    /// The set is empty.
    EmptySet,
    /// The topology is a synthetic or recorded one: its CPUs are not those of this machine.
    NotThisMachine {
        /// The set asked for.
        cpus: CpuSet,
    },
    /// No CPU of the set is online and allowed to this process.
    NoUsableCpu {
        /// The set asked for.
        cpus: CpuSet,
        /// The system's error number.
        errno: i32,
    },
    /// This operating system has no call for it, or none that this crate uses.
    Unsupported {
        /// The set asked for.
        cpus: CpuSet,
    },
    /// The system refused for another reason.
    Os {
        /// The set asked for.
        cpus: CpuSet,
        /// The system's error number.
        errno: i32,
    },
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptySet => f.write_str("cannot pin a thread to an empty set of CPUs"),
            Self::NotThisMachine { cpus } => {
                write!(
                    f,
                    "cannot pin to CPUs {cpus}: the topology is not that of this machine"
                )
            }
            Self::NoUsableCpu { cpus, errno } => write!(
                f,
                "cannot pin to CPUs {cpus}: none is online and allowed to this process (errno \
                 {errno})"
            ),
            Self::Unsupported { cpus } => {
                write!(
                    f,
                    "cannot pin to CPUs {cpus}: not supported on this operating system"
                )
            }
            Self::Os { cpus, errno } => {
                write!(
                    f,
                    "cannot pin to CPUs {cpus}: the system refused (errno {errno})"
                )
            }
        }
    }
}

impl Error for PinError {}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle))))]
mod tests {
    use super::{CpuSet, PinCheck, PinGuard, os};

    /// Such CPUs cannot be pinned to; to a guard it looks as if they had left.
    #[test]
    fn a_set_that_is_gone_is_lost_and_the_thread_runs_on() {
        let gone = CpuSet::from([65_534, 65_535]);
        let now = os::current(&gone).expect("the own mask");
        let guard = PinGuard::over(&gone, now.clone());
        assert_eq!(guard.revalidate(), Ok(PinCheck::Lost { now: now.clone() }));
        drop(guard);
        assert_eq!(os::current(&gone), Ok(now));
    }
}
