//! What an init program owes its machine: file systems at the start, the switch at the end.

use std::error::Error;
use std::fs;

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};

pub(crate) fn prepare() -> Result<(), Box<dyn Error>> {
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        fs::create_dir_all(place)?;
        mount(
            Some(kind),
            place,
            Some(kind),
            MsFlags::empty(),
            None::<&str>,
        )
        .map_err(|errno| format!("{place} cannot be mounted: {errno}"))?;
    }
    Ok(())
}

pub(crate) fn switch_off() {
    // Returns only if it fails, and then with the reason; the script's patience ends the machine.
    let Err(errno) = reboot(RebootMode::RB_POWER_OFF);
    println!("failed to switch off: {errno}");
}
