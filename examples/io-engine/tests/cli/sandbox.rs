//! A sandbox that forbids io_uring, as container runtimes do.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::program::{PROGRAM, Place, Ran};

/// Lets `command` run without one system call, which then fails with EPERM.
fn forbid(command: &mut Command, system_call: libc::c_long) -> &mut Command {
    // SAFETY: the closure only makes two system calls and allocates nothing.
    unsafe { command.pre_exec(move || filter(system_call)) }
}

fn filter(system_call: libc::c_long) -> io::Result<()> {
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
            system_call as u32,
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
    // Some sandboxes allow the ring and then forbid its use.
    for system_call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
        let place = Place::new();
        let mut command = place.command(PROGRAM);
        command.args(["--json", "--size", "64k", "--number_ios", "50"]);
        fell_back(&Ran::new(
            forbid(&mut command, system_call).output().unwrap(),
        ));
    }
}

#[test]
fn auto_falls_back_to_psync_where_not_all_rings_can_be_made() {
    // One ring is no problem; the files a process may open are not enough for those of all jobs.
    let options = "--json --numjobs 48 --size 1m --number_ios 5";
    let script = format!("ulimit -n 40 && exec {PROGRAM} {options}");
    let place = Place::new();
    let output = place.command("sh").args(["-c", &script]).output().unwrap();
    fell_back(&Ran::new(output));
}

fn fell_back(ran: &Ran) {
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    for part in ["io_uring cannot be used here", "using psync"] {
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
    assert_eq!(ran.json().get("engine"), "psync");
    assert_eq!(ran.json().count("verify_errors"), 0);
}

#[test]
fn io_uring_where_there_is_none_is_one_clear_line() {
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    command.args(["--engine", "io_uring", "--filename", "new", "--size", "64k"]);
    command.args(["--rw", "write"]);
    let command = forbid(&mut command, libc::SYS_io_uring_setup);
    let ran = Ran::new(command.output().unwrap()).expect(2);
    ran.complains("io_uring cannot be used here")
        .complains("Operation not permitted");
    assert_eq!(place.files(), 0, "a file was made for nothing");
}
