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
fn main() -> std::process::ExitCode {
    eprintln!("inflight-wq: processes serve their workqueues on Linux only");
    std::process::ExitCode::FAILURE
}
