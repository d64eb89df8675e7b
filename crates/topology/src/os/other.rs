//! Systems other than Linux: a flat machine, and pinning for good to one CPU where the
//! `core_affinity` crate can do it reliably.
//!
//! It cannot read a thread's mask, so nothing could be restored: guards are not supported. On macOS
//! it sets a hint that some machines refuse and others ignore, which is no pinning.

use std::collections::BTreeMap;

use crate::model::{CpuFacts, Description};
use crate::{Assumption, CpuSet, PinError};

pub(crate) fn describe() -> Option<Description> {
    let ids = cpus();
    let cpus: BTreeMap<usize, CpuFacts> =
        ids.iter().map(|cpu| (cpu, CpuFacts::default())).collect();
    let assumptions = vec![Assumption::SystemNotRead];
    (!ids.is_empty()).then_some(Description {
        possible: ids.clone(),
        online: ids.clone(),
        usable: ids,
        cpus,
        assumptions,
        ..Description::default()
    })
}

pub(crate) fn pin(cpus: &CpuSet) -> Result<CpuSet, PinError> {
    Err(PinError::Unsupported { cpus: cpus.clone() })
}

pub(crate) fn current(cpus: &CpuSet) -> Result<CpuSet, PinError> {
    Err(PinError::Unsupported { cpus: cpus.clone() })
}

/// The CPUs `core_affinity` can pin to: of the processor group of this process, at most 64.
#[cfg(any(windows, target_os = "freebsd"))]
fn cpus() -> CpuSet {
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    let ids: CpuSet = ids.iter().map(|core| core.id).collect();
    if ids.is_empty() { counted() } else { ids }
}

#[cfg(not(any(windows, target_os = "freebsd")))]
fn cpus() -> CpuSet {
    counted()
}

fn counted() -> CpuSet {
    (0..inflight_sync::cpu::possible().min(CpuSet::ID_LIMIT)).collect()
}

#[cfg(any(windows, target_os = "freebsd"))]
pub(crate) fn set(cpus: &CpuSet) -> Result<(), PinError> {
    // An id it did not list itself would be out of its bounds.
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    let one = cpus.first().filter(|&cpu| cpus.last() == Some(cpu));
    let Some(core) = ids.into_iter().find(|core| Some(core.id) == one) else {
        return Err(PinError::Unsupported { cpus: cpus.clone() });
    };
    if core_affinity::set_for_current(core) {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Err(PinError::Os {
        cpus: cpus.clone(),
        errno,
    })
}

#[cfg(not(any(windows, target_os = "freebsd")))]
pub(crate) fn set(cpus: &CpuSet) -> Result<(), PinError> {
    Err(PinError::Unsupported { cpus: cpus.clone() })
}
