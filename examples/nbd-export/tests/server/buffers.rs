//! Buffers that the ring is told of.

use crate::{Server, figure, free_address, noise};
use nbd_export::proto;
use std::path::Path;
use std::process::Command;

/// A ring may refuse buffers: here because they are more than it takes. The bytes are the same, and
/// those of more pieces than there are buffers.
#[test]
fn with_registered_buffers_and_without() {
    let disk = |folder: &Path| folder.join("disk");
    let mut contents = Vec::new();
    // The kernel takes 1 GiB at most.
    for (registered, refused) in [("0", false), ("1", false), ("1025", true)] {
        // Files in memory need no ring.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let address = free_address();
        let mut more = vec!["--threads", "1", "--max-split", "64"];
        more.extend(["--metrics", &address, "--registered", registered]);
        let server = Server::start_in(folder, "auto", "disk=disk", &more);
        let mut client = server.connect().go("disk");
        let large = noise(4 << 20);
        assert_eq!(client.write(54_321, &large, 0), 0);
        for n in 0..20 {
            assert_eq!(client.write((5 << 20) + n * 5000, &[n as u8; 4096], 0), 0);
        }
        assert!(client.read_at(54_321, 4 << 20) == large);
        assert_eq!(client.read_at((5 << 20) + 35_000, 4096), [7; 4096]);
        let used = figure(&address, "nbd_registered_transfers_total");
        contents.push(std::fs::read(disk(server.folder.path())).unwrap());
        let said = server.stop();
        assert_eq!(
            said.matches("not registered").count(),
            usize::from(refused),
            "{said}"
        );
        let rings = said.contains("serving by io_uring");
        assert_eq!(
            used > 0,
            rings && registered == "1",
            "{used} of {registered} MiB, {said}"
        );
    }
    assert!(contents.iter().all(|content| *content == contents[0]));
}

/// Has a program start with so much memory that it may lock, and no privilege to lock more.
fn limit_locked_memory(command: &mut Command, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    let lower = move || {
        // Fails for those who have no privileges to give up.
        // SAFETY: a system call that takes two numbers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK) };
        // SAFETY: `limit` is a limit.
        match unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec it makes two system calls, and takes no lock or memory.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, lower) };
}

const CAP_IPC_LOCK: libc::c_ulong = 14;

/// Registered buffers are locked memory. Without leave to lock any the log says so, and the server
/// does all it does otherwise.
#[test]
fn a_server_that_may_lock_no_memory_does_without() {
    for (bytes, refused) in [(0, true), (64 << 10, true), (4 << 20, false)] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let prepare = |command: &mut Command| limit_locked_memory(command, bytes);
        let more = ["--threads", "1", "--registered", "2", "--max-split", "64"];
        let server = Server::start_with(folder, "auto", "disk=disk", &more, prepare);
        let mut client = server.connect().go("disk");
        let large = noise(4 << 20);
        assert_eq!(client.write(54_321, &large, proto::flag::FUA), 0);
        assert!(client.read_at(54_321, 4 << 20) == large);
        let content = std::fs::read(server.path("disk")).unwrap();
        assert!(content[54_321..][..4 << 20] == large);
        let said = server.stop();
        let told = said.contains("buffers are not registered");
        let rings = said.contains("serving by io_uring");
        assert_eq!(told, rings && refused, "{bytes} bytes: {said}");
    }
}
