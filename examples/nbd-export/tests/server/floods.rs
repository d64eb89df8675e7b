//! Clients that ask and do not read.

use crate::Server;
use nbd_export::proto;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Requests of a flood. The buffers of the socket hold far fewer, and as many replies.
const FLOOD: usize = 140_000;
/// More than the socket's buffers and the server's bound hold together.
const TAKEN_AT_MOST: usize = 120_000;
/// For so many requests of another client nothing more is taken of the flood.
const QUIET: usize = 300;

/// A client sends requests of one kind for ever and reads no answer. The server stops reading it,
/// serves another one on the same thread, and answers all when the first begins to read.
fn is_bounded(command: u16, length: u32, answer: u32) {
    let server = Server::start("auto", "disk=disk", &["--threads", "1"]);
    let mut other = server.connect().go("disk");
    let mut flooder = server.connect().go("disk");
    let before = server.resident_kib();
    let mut stream = flooder.stream.try_clone().unwrap();
    let sent = AtomicUsize::new(0);
    let (taken, grown) = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            const AT_ONCE: usize = 100;
            for first in (0..FLOOD).step_by(AT_ONCE) {
                let requests: Vec<u8> = (first..first + AT_ONCE)
                    .flat_map(|n| request(command, n as u64, length))
                    .collect();
                stream.write_all(&requests).unwrap();
                sent.fetch_add(AT_ONCE, Ordering::Relaxed);
            }
        });
        let (mut last, mut quiet) = (0, 0);
        while quiet < QUIET && !flood.is_finished() {
            assert_eq!(other.write(8192, &[1; 512], 0), 0);
            let now = sent.load(Ordering::Relaxed);
            quiet = if now == last && now > 0 { quiet + 1 } else { 0 };
            last = now;
        }
        let grown = server.resident_kib().saturating_sub(before);
        // It may have gone on since it was looked at.
        assert!(!flood.is_finished(), "all of {FLOOD} are taken");
        let taken = sent.load(Ordering::Relaxed);
        for _ in 0..FLOOD {
            assert_eq!(flooder.error(), answer);
        }
        flood.join().unwrap();
        (taken, grown)
    });
    let found = format!("{taken} of {FLOOD} are taken, for {grown} KiB");
    assert!(taken < TAKEN_AT_MOST && grown < 4 << 10, "{found}");
    eprintln!("{found}");
    assert!(flooder.is_silent());
    assert_eq!(other.read_at(8192, 512), [1; 512]);
    server.stop();
}

fn request(command: u16, cookie: u64, length: u32) -> Vec<u8> {
    let mut bytes = proto::REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(0_u64.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

#[test]
fn a_flood_of_refused_requests_is_bounded() {
    is_bounded(77, 512, proto::Errno::Inval as u32);
}

#[test]
fn a_flood_of_flushes_is_bounded() {
    is_bounded(3, 0, 0);
}

#[test]
fn a_flood_of_trims_is_bounded() {
    is_bounded(4, 4096, 0);
}
