//! Flushes of a device that a log shares with others.

use crate::device::Device;
use crate::domain::FlushDomain;
use crate::error::{DeviceError, FlushError};
use std::future::ready;
use std::io;

/// Flushes the device, with the other users of the domain.
///
/// # Errors
///
/// Also if more of the domain's flushes have failed than `failed_before`: the system may have
/// reported a loss of this log to another user's flush.
pub(super) fn flush_shared(
    domain: &FlushDomain,
    failed_before: u64,
    device: &dyn Device,
) -> Result<(), DeviceError> {
    let lead = || ready(device.flush());
    let flushed = domain.wait(None, domain.flush_with(lead));
    device_error(flushed.unwrap_or(Ok(())))?;
    if domain.failed_flushes() == failed_before {
        return Ok(());
    }
    let told = domain.poison();
    Err(told.unwrap_or_else(|| io::ErrorKind::Other.into()))
}

pub(super) fn device_error(flushed: Result<(), FlushError>) -> Result<(), DeviceError> {
    flushed.map_err(|error| match error {
        FlushError::Device(error) => error,
        _ => io::ErrorKind::TimedOut.into(),
    })
}
