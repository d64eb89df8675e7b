//! Which parts of an export hold data.

use crate::{SIZE, Server, engines};
use nbd_export::proto::{Errno, STATE_HOLE_ZERO, flag};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

const DATA: u32 = 0;

/// Where the file itself says that data and holes are.
fn extents_of(file: &File, size: u64) -> Vec<(u32, u32)> {
    let seek = |from: u64, what| {
        // SAFETY: a system call that takes numbers.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, what) };
        u64::try_from(at).unwrap_or(size)
    };
    let (mut extents, mut at) = (Vec::new(), 0);
    while at < size {
        let data = seek(at, libc::SEEK_DATA);
        let (end, state) = match data > at {
            true => (data, STATE_HOLE_ZERO),
            false => (seek(at, libc::SEEK_HOLE), DATA),
        };
        extents.push(((end - at) as u32, state));
        at = end;
    }
    extents
}

#[test]
fn extents_are_those_of_the_file() {
    for engine in engines() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let server = Server::start_in(folder, engine, "disk=disk", &[]);
        let file = File::options()
            .read(true)
            .write(true)
            .open(server.path("disk"));
        let file = file.unwrap();
        for (at, len) in [(1 << 20, 64 << 10), (3 << 20, 4 << 10), (7 << 20, 1 << 20)] {
            file.write_all_at(&vec![1; len], at).unwrap();
        }
        let expected = extents_of(&file, SIZE);
        assert_eq!(
            expected[0],
            (1 << 20, STATE_HOLE_ZERO),
            "the file system has holes"
        );
        let mut client = server.connect();
        client.ask_for_extents("disk");
        let mut client = client.go("disk");
        assert_eq!(client.extents(0, SIZE as u32, 0), expected);
        // From the midst of one to the midst of the next.
        let part = client.extents((1 << 20) - 512, 1024, 0);
        assert_eq!(part, [(512, STATE_HOLE_ZERO), (512, DATA)]);
        // And one only.
        for (at, state) in [(0, STATE_HOLE_ZERO), (1 << 20, DATA)] {
            let one = client.extents(at, (SIZE - at) as u32, flag::REQ_ONE);
            let whole = expected.iter().find(|extent| extent.1 == state).unwrap();
            assert_eq!(one, [*whole]);
        }
        // What is trimmed becomes a hole.
        file.sync_all().unwrap();
        client.send(4, 0, 1 << 20, 64 << 10, &[]);
        assert_eq!(client.chunk_error(), 0);
        let one = client.extents(0, SIZE as u32, flag::REQ_ONE);
        assert_eq!(one, [(3 << 20, STATE_HOLE_ZERO)]);
        server.stop();
    }
}

/// Who skips holes would take zeros for what cannot be read.
#[test]
fn a_part_that_the_file_has_lost_is_no_hole() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start_in(folder, "auto", "disk=disk", &[]);
    let options = File::options().read(true).write(true).clone();
    let file = options.open(server.path("disk")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(1 << 20).unwrap();
    let mut client = server.connect();
    client.ask_for_extents("disk");
    let mut client = client.go("disk");
    let mut expected = extents_of(&file, 1 << 20);
    assert_eq!(expected.len(), 2, "data and a hole");
    expected.push((SIZE as u32 - (1 << 20), DATA));
    assert_eq!(client.extents(0, SIZE as u32, 0), expected);
    server.stop();
}

/// An answer has a limit. What it leaves out can be asked for.
#[test]
fn a_file_of_many_extents_is_told_bit_by_bit() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start_in(folder, "auto", "disk=big", &[]);
    let file = File::options()
        .read(true)
        .write(true)
        .open(server.path("big"));
    let file = file.unwrap();
    for n in 0..2000 {
        file.write_all_at(&[1; 4096], n * 16384).unwrap();
    }
    let size = file.metadata().unwrap().len();
    let expected = extents_of(&file, size);
    assert!(expected.len() > 3000, "the file system has holes");
    let mut client = server.connect();
    client.ask_for_extents("disk");
    let mut client = client.go("disk");
    let (mut found, mut at, mut answers) = (Vec::new(), 0, 0);
    while at < size {
        let more = client.extents(at, (size - at) as u32, 0);
        at += more.iter().map(|extent| u64::from(extent.0)).sum::<u64>();
        found.extend(more);
        answers += 1;
    }
    assert!(found == expected && answers > 1, "{answers} answers");
    server.stop();
}

/// A hole does not read as zeros if it is decrypted.
#[test]
fn an_encrypted_export_has_no_holes() {
    let server = Server::start("auto", "disk=disk,key=key", &[]);
    let mut client = server.connect();
    client.ask_for_extents("disk");
    let mut client = client.go("disk");
    assert_eq!(client.extents(0, 1 << 20, 0), [(1 << 20, DATA)]);
    server.stop();
}

#[test]
fn extents_are_for_those_who_have_asked_for_them_before() {
    let server = Server::start("auto", "disk=disk", &[]);
    let mut client = server.connect().go("disk");
    client.send(7, 0, 0, 4096, &[]);
    assert_eq!(client.error(), Errno::Inval as u32);
    server.stop();
}
