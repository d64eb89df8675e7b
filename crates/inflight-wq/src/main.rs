//! Shows the workqueues of a running process, and changes their limits: asks the socket that
//! `WorkqueueSystem::serve` has opened there.

#[cfg(target_os = "linux")]
mod monitor;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod run;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(target_os = "linux"))]
use std::io::Write as _;

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    // Standard error may take nothing.
    let _ = writeln!(
        std::io::stderr(),
        "inflight-wq: processes serve their workqueues on Linux only"
    );
    std::process::ExitCode::FAILURE
}
