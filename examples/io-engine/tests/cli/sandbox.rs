//! A sandbox that forbids io_uring, as container runtimes do.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::program::{PROGRAM, Place, Ran};

/// Lets `command` run without `io_uring_setup`, which then fails with EPERM.
fn forbid_io_uring(command: &mut Command) -> &mut Command {
    // SAFETY: the closure only makes two system calls and allocates nothing.
    unsafe { command.pre_exec(filter_io_uring) }
}

fn filter_io_uring() -> io::Result<()> {
    let statement = |code: u32, k: u32, skip: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skip,
        k,
    };
    let mut filter = [
        // The number of the system call is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_io_uring_setup as u32,
            1,
        ),
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            0,
        ),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: sets a flag of this process.
    let fixed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the kernel copies the program, whose length is that of its array.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    if fixed == 0 && set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[test]
fn auto_falls_back_to_psync_and_says_so() {
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    command.args(["--json", "--size", "64k", "--number_ios", "50"]);
    let ran = Ran::new(forbid_io_uring(&mut command).output().unwrap()).expect(0);
    let ran = ran
        .complains("io_uring cannot be used here")
        .complains("using psync");
    assert_eq!(ran.json().get("engine"), "psync");
    assert_eq!(ran.json().count("verify_errors"), 0);
}

#[test]
fn io_uring_where_there_is_none_is_one_clear_line() {
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    command.args(["--engine", "io_uring", "--filename", "new", "--size", "64k"]);
    let ran = Ran::new(forbid_io_uring(&mut command).output().unwrap()).expect(2);
    ran.complains("io_uring cannot be used here")
        .complains("Operation not permitted");
    assert_eq!(place.files(), 0, "a file was made for nothing");
}
