//! The first and only program of a machine that `ci/qemu-topology` boots. It says what discovery
//! finds there, one `fact` a line; the script knows what the machine was told to be, and compares.
//! Then it says what the files were (`file`, path, tab, text), and switches the machine off.
//!
//! `task=` on the kernel's command line asks for more than that: `offline` takes two CPUs down
//! first, `offline-loop` takes one down and up while discovery runs, `cpuset` and `cpuset-v1` shut
//! the process into two, by either version of control groups.

#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod tasks;

#[cfg(target_os = "linux")]
fn main() {
    if std::process::id() != 1 {
        eprintln!("this program is started by a kernel: see ci/qemu-topology");
        std::process::exit(2);
    }
    match machine::prepare().and_then(|()| tasks::run()) {
        Ok(()) => println!("fact end reached"),
        Err(error) => println!("failed {error}"),
    }
    machine::switch_off();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("this program is started by a Linux kernel: see ci/qemu-topology");
    std::process::exit(2);
}
