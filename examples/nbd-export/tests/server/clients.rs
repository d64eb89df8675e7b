//! Clients that come, stall and go.

use crate::{Server, engines};
use nbd_export::proto;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;

#[test]
fn requests_that_were_read_are_answered_before_the_server_ends() {
    let server = Server::start("auto", "disk=disk", &[]);
    let mut client = server.connect().go("disk");
    for n in 0..100 {
        client.send(1, proto::flag::FUA, n * 4096, 4096, &[n as u8; 4096]);
    }
    assert_eq!(client.error(), 0);
    let path = server.path("disk");
    let mut client_stream = client.stream.try_clone().unwrap();
    let disk = File::open(path).unwrap();
    server.stop();
    let mut replies = Vec::new();
    client_stream.read_to_end(&mut replies).unwrap();
    assert_eq!(replies.len() % 16, 0, "whole replies");
    for reply in replies.chunks(16) {
        let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
        let mut found = [0; 4096];
        disk.read_exact_at(&mut found, (cookie - 1) * 4096).unwrap();
        assert_eq!(found, [(cookie - 1) as u8; 4096]);
    }
}

/// A hundred clients announce 32 MiB each, and send one byte of it.
#[test]
fn what_is_announced_and_not_sent_takes_no_memory() {
    let server = Server::start("auto", "disk=big", &["--threads", "1"]);
    let mut reader = server.connect().go("disk");
    let before = server.resident_kib();
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let mut client = server.connect().go("disk");
            client.send(1, 0, 0, 32 << 20, &[1]);
            reader.read_at(0, 1);
            client
        })
        .collect();
    let grown = server.resident_kib().saturating_sub(before);
    assert!(
        grown < 20 << 10,
        "{grown} KiB for {} clients",
        clients.len()
    );
    server.stop();
}

/// It is waited for, some seconds, and then left behind.
#[test]
fn a_client_that_does_not_read_does_not_keep_the_server_from_ending() {
    for engine in engines() {
        let server = Server::start(engine, "disk=disk", &[]);
        let mut client = server.connect().go("disk");
        for _ in 0..100 {
            client.send(0, 0, 0, 1 << 20, &[]);
        }
        // Another client is served meanwhile.
        let mut other = server.connect().go("disk");
        assert_eq!(other.write(0, b"fine", 0), 0);
        server.stop();
        drop(client);
    }
}

/// A tenant's name is its own: those of clients pass over what an export is called.
#[test]
fn each_client_has_tags_of_its_own_beside_an_export_of_such_a_name() {
    let more = ["--export", "disk-0=big", "--tenants", "client"];
    let server = Server::start("auto", "disk=disk", &more);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect().go("disk")).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.write(n as u64 * 4096, &[n as u8; 4096], 0), 0);
    }
    for n in 0..3 {
        assert_eq!(clients[0].read_at(n * 4096, 4096), [n as u8; 4096]);
    }
    server.stop();
}

/// Clients that ask for much and read nothing have all the memory there is for requests. Short
/// requests of others do not need it; long ones wait, and have those sent away that hold it.
#[test]
fn clients_that_do_not_read_share_a_bound_of_memory() {
    let more = ["--threads", "1", "--memory", "64"];
    let server = Server::start("auto", "disk=big", &more);
    let mut client = server.connect().go("disk");
    let mut served = |offset| {
        assert_eq!(client.write(offset, &[3; 4096], 0), 0);
        assert_eq!(client.read_at(offset, 4096), [3; 4096]);
    };
    let before = server.resident_kib();
    let stalled = || {
        let mut stalled = server.connect().go("disk");
        stalled.send(0, 0, 0, 32 << 20, &[]);
        stalled.send(0, 0, 0, 32 << 20, &[]);
        stalled
    };
    let hold = [stalled(), stalled()];
    served(0);
    let mut long = server.connect().go("disk");
    long.send(0, 0, 1 << 20, 1 << 20, &[]);
    served(4096);
    let wait: Vec<_> = (0..6).map(|_| stalled()).collect();
    served(8192);
    assert_eq!(long.error(), 0);
    assert_eq!(long.read(1 << 20), vec![0; 1 << 20]);
    let most = server.memory_kib("VmHWM") - before;
    assert!(most < 80 << 10, "{most} KiB for stalled clients");
    served(12288);
    drop((hold, wait));
    let said = server.stop();
    assert!(said.contains("holds memory that others wait for"), "{said}");
}
