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
        mount_at(place, kind, None)?;
    }
    Ok(())
}

/// The hierarchy of the first version of control groups that limits CPUs.
pub(crate) fn mount_cpuset_v1(place: &str) -> Result<(), Box<dyn Error>> {
    mount_at(place, "cgroup", Some("cpuset"))
}

fn mount_at(place: &str, kind: &str, options: Option<&str>) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(place)?;
    mount(Some(kind), place, Some(kind), MsFlags::empty(), options)
        .map_err(|errno| format!("{place} cannot be mounted: {errno}").into())
}

pub(crate) fn switch_off() {
    // Returns only if it fails, and then with the reason; the script's patience ends the machine.
    let Err(errno) = reboot(RebootMode::RB_POWER_OFF);
    println!("failed to switch off: {errno}");
}
