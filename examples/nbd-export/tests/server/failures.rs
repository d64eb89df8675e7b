//! What goes wrong, and what clients are told of it.

use crate::client::Client;
use crate::{SIZE, Server, engines, figure, free_address, noise};
use nbd_export::proto;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

#[test]
fn a_refused_request_leaves_the_connection_as_it_was() {
    let server = Server::start("auto", "disk=disk", &[]);
    let mut client = server.connect().go("disk");
    assert_eq!(
        client.write(SIZE, &[1; 4096], 0),
        proto::Errno::NoSpc as u32
    );
    client.send(0, 0, SIZE, 1, &[]);
    assert_eq!(client.error(), proto::Errno::Inval as u32);
    client.send(0, 1 << 9, 0, 512, &[]);
    assert_eq!(client.error(), proto::Errno::Inval as u32);
    client.send(77, 0, 0, 512, &[]);
    assert_eq!(client.error(), proto::Errno::Inval as u32);
    // A payload that is too long is passed over.
    let long = vec![1; (32 << 20) + 1];
    assert_eq!(client.write(0, &long, 0), proto::Errno::NoSpc as u32);
    assert_eq!(client.write(0, b"fine", 0), 0);
    assert_eq!(client.read_at(0, 4), b"fine");
    server.stop();
}

/// The file says "not now" to every third piece: each is sent again, and its client sees nothing.
#[test]
fn what_is_refused_for_now_is_sent_again() {
    for engine in engines() {
        for export in ["disk=disk", "disk=disk,key=key"] {
            let more = ["--faults", "again=3", "--max-split", "64"];
            let server = Server::start(engine, export, &more);
            let mut client = server.connect().go("disk");
            let large = noise(1 << 20);
            assert_eq!(client.write(0, &large, proto::flag::FUA), 0);
            assert!(client.read_at(0, 1 << 20) == large);
            for n in 0..10 {
                assert_eq!(client.write((2 << 20) + n * 512, &[n as u8; 512], 0), 0);
            }
            for n in 0..10 {
                assert_eq!(client.read_at((2 << 20) + n * 512, 512), [n as u8; 512]);
            }
            server.stop();
        }
    }
}

/// A flush fails. The system says so once, and a later flush would succeed without what was lost.
/// So nothing of this export is called durable any more, whoever asks, and the server says so when
/// it ends. Reads, plain writes and other exports go on.
#[test]
fn nothing_is_called_durable_after_a_flush_that_failed() {
    let io = proto::Errno::Io as u32;
    for fua in [false, true] {
        let more = ["--faults", "flush=2,export=disk", "--threads", "1"];
        let more = [&more[..], &["--export", "other=big"]].concat();
        let server = Server::start("auto", "disk=disk", &more);
        let mut one = server.connect().go("disk");
        let mut other = server.connect().go("disk");
        let durable = |client: &mut Client, fua| {
            if fua {
                return client.write(8192, b"durable", proto::flag::FUA);
            }
            client.send(3, 0, 0, 0, &[]);
            client.error()
        };
        assert_eq!(durable(&mut one, fua), 0);
        assert_eq!(other.write(4096, b"may be lost", 0), 0);
        assert_eq!(durable(&mut one, fua), io, "its own flush has failed");
        for _ in 0..2 {
            for client in [&mut one, &mut other, &mut server.connect().go("disk")] {
                assert_eq!(durable(client, false), io);
                assert_eq!(durable(client, true), io);
            }
        }
        assert_eq!(one.write(0, b"plain", 0), 0);
        assert_eq!(other.read_at(0, 5), b"plain");
        let mut elsewhere = server.connect().go("other");
        assert_eq!(durable(&mut elsewhere, fua), 0);
        let said = server.stop_with(2);
        assert_eq!(
            said.matches("disk: a flush has failed").count(),
            1,
            "{said}"
        );
        assert!(said.contains("until the server is started again"), "{said}");
        assert!(
            said.contains("what was written to disk may be lost"),
            "{said}"
        );
    }
}

/// Who leaves while its flush is under way, or before it has begun, spoils it for nobody.
#[test]
fn a_client_that_leaves_during_its_flush_is_no_failure() {
    for engine in engines() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let server = Server::start_in(folder, engine, "disk=disk", &["--threads", "1"]);
        let mut client = server.connect().go("disk");
        for n in 0..20 {
            let mut leaves = server.connect().go("disk");
            leaves.send(1, proto::flag::FUA, 0, 4096, &[n; 4096]);
            leaves.send(3, 0, 0, 0, &[]);
            drop(leaves);
            assert_eq!(client.write(4096, &[n; 512], proto::flag::FUA), 0);
        }
        server.stop();
    }
}

/// A thread ends that should not. The server notices, answers what the other threads have read, and
/// ends with an error.
#[test]
fn a_thread_that_ends_ends_the_server() {
    for engine in engines() {
        let more = ["--threads", "2", "--faults", "thread=5"];
        let mut server = Server::start(engine, "disk=disk", &more);
        let mut dies = server.connect().go("disk");
        let mut lives = server.connect().go("disk");
        assert_eq!(lives.write(0, b"fine", proto::flag::FUA), 0);
        for n in 0..5 {
            dies.send(1, 0, n * 512, 512, &[1; 512]);
        }
        let mut rest = Vec::new();
        // It may be reset.
        let _ = dies.stream.read_to_end(&mut rest);
        let said = server.said();
        assert_eq!(server.child.wait().unwrap().code(), Some(2), "{said}");
        assert!(said.contains("a thread has ended"), "{said}");
        assert!(said.contains("an injected fault"), "{said}");
        let mut rest = Vec::new();
        lives.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, [], "it was answered before");
    }
}

/// A durable write does not get on: the file refuses it all the time. A flush is put off for it, a
/// moment, so that one serves both; then it goes without.
#[test]
fn a_flush_does_not_wait_for_data_that_does_not_end() {
    for engine in engines() {
        let server = Server::start(engine, "disk=disk", &["--faults", "again=1"]);
        let mut stuck = server.connect().go("disk");
        stuck.send(1, proto::flag::FUA, 0, 4096, &[1; 4096]);
        let mut client = server.connect().go("disk");
        for _ in 0..5 {
            client.send(3, 0, 0, 0, &[]);
            assert_eq!(client.error(), 0);
        }
        assert!(stuck.is_silent(), "after half a minute it has failed");
    }
}

/// Two disks, one of which has stopped: its requests have all the tags there are for it. The other
/// one's clients do not notice.
#[test]
fn a_disk_that_has_stopped_does_not_stop_another() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let disk_of = |path: &Path| fs::metadata(path).unwrap().dev();
    for engine in engines() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        if disk_of(folder.path()) == disk_of(memory.path()) {
            return;
        }
        let stopped = memory.path().join("stopped");
        fs::File::create(&stopped).unwrap().set_len(SIZE).unwrap();
        let stopped = format!("stopped={}", stopped.display());
        let faults = ["--faults", "again=1,export=stopped"];
        let more = ["--depth", "4", "--threads", "1", "--export", &stopped];
        let server = Server::start_in(folder, engine, "disk=disk", &[&more[..], &faults].concat());
        let mut stuck = server.connect().go("stopped");
        for n in 0..16 {
            stuck.send(1, 0, n * 4096, 4096, &[1; 4096]);
        }
        let mut client = server.connect().go("disk");
        for n in 0..16 {
            // A flush of this disk may take long. One is enough.
            let flags = if n == 0 { proto::flag::FUA } else { 0 };
            assert_eq!(client.write(n * 4096, &[2; 4096], flags), 0);
            assert_eq!(client.read_at(n * 4096, 4096), [2; 4096]);
        }
        assert!(stuck.is_silent(), "after half a minute it has failed");
    }
}

/// The disk fails for every so many-th piece. A request has failed if one of its pieces has, its
/// client is told, and all the other requests are as they should be.
#[test]
fn a_piece_that_fails_fails_its_request_and_no_other() {
    let io = proto::Errno::Io as u32;
    const PIECES: u32 = 16;
    const EVERY: u32 = 20;
    for engine in engines() {
        for export in ["disk=disk", "disk=disk,key=key"] {
            let address = free_address();
            let faults = format!("read={EVERY},write={EVERY}");
            let more = ["--threads", "1", "--max-split", "64", "--metrics", &address];
            let more = [&more[..], &["--faults", &faults]].concat();
            let server = Server::start(engine, export, &more);
            let mut client = server.connect().go("disk");
            let is_hit = |n: u32| (n * PIECES + 1..=(n + 1) * PIECES).any(|t| t % EVERY == 0);
            let large = noise(1 << 20);
            let expected: Vec<u32> = (0..6).map(|n| if is_hit(n) { io } else { 0 }).collect();
            assert_eq!(expected, [0, io, io, io, io, 0]);
            for error in &expected {
                assert_eq!(client.write(0, &large, proto::flag::FUA), *error);
            }
            // None for a write that has failed.
            assert_eq!(figure(&address, "nbd_flush_issued_total"), 2);
            for error in &expected {
                client.send(0, 0, 0, 1 << 20, &[]);
                assert_eq!(client.error(), *error);
                if *error == 0 {
                    assert!(client.read(1 << 20) == large);
                }
            }
            assert_eq!(figure(&address, "nbd_errors_total"), 8);
            assert_eq!(figure(&address, "inflight_tags_in_use"), 0);
            server.stop();
        }
    }
}

/// Files may take or give less than they are asked for: the rest follows.
#[test]
fn short_transfers_go_on() {
    for engine in engines() {
        for export in ["disk=disk", "disk=disk,key=key"] {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let more = ["--faults", "short=2", "--max-split", "64", "--threads", "1"];
            let server = Server::start_in(folder, engine, export, &more);
            let mut client = server.connect().go("disk");
            let large = noise(1 << 20);
            assert_eq!(client.write(0, &large, proto::flag::FUA), 0);
            assert!(client.read_at(0, 1 << 20) == large);
            for n in 0..10 {
                assert_eq!(client.write(n * 1024, &[n as u8; 1024], 0), 0);
            }
            for n in 0..10 {
                assert_eq!(client.read_at(n * 1024, 1024), [n as u8; 1024]);
            }
            server.stop();
        }
    }
}

/// Somebody makes the file shorter while it is served. What is not there any more cannot be read,
/// and everything else goes on. The log says so once.
#[test]
fn a_file_that_gets_shorter_fails_reads_behind_its_end_and_nothing_else() {
    for engine in engines() {
        for (folder, key) in [
            (env!("CARGO_TARGET_TMPDIR"), ""),
            (env!("CARGO_TARGET_TMPDIR"), ",key=key"),
            ("/dev/shm", ""),
        ] {
            let Ok(folder) = tempfile::tempdir_in(folder) else {
                continue;
            };
            let server = Server::start_in(folder, engine, &format!("disk=disk{key}"), &[]);
            let mut one = server.connect().go("disk");
            let mut other = server.connect().go("disk");
            assert_eq!(one.write(0, &[3; 1 << 20], 0), 0);
            let disk = fs::File::options().write(true).open(server.path("disk"));
            let disk = disk.unwrap();
            disk.set_len(SIZE / 2).unwrap();
            let io = proto::Errno::Io as u32;
            for _ in 0..3 {
                // Behind the end, and across it.
                for (offset, len) in [(SIZE / 2, 512), (SIZE / 2 - 65536, 1 << 20)] {
                    one.send(0, 0, offset, len, &[]);
                    assert_eq!(one.error(), io);
                    assert!(other.read_at(0, 1 << 20) == [3; 1 << 20]);
                }
            }
            assert_eq!(one.write(4096, &[5; 4096], proto::flag::FUA), 0);
            // A write makes it longer again.
            assert_eq!(
                other.write(SIZE / 2 + 8192, &[4; 4096], proto::flag::FUA),
                0
            );
            assert_eq!(one.read_at(SIZE / 2 + 8192, 4096), [4; 4096]);
            let said = server.stop();
            let line = "disk: the file has become shorter than it was at the start";
            assert_eq!(said.matches(line).count(), 1, "{said}");
        }
    }
}
