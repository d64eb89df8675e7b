//! What is written is read again, by each way that bytes take.

use crate::client::Client;
use crate::{SIZE, Server, addresses, engines, free_address, noise};
use nbd_export::proto;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

#[test]
fn what_is_written_is_read_and_is_in_the_file() {
    for (engine, transport) in engines().into_iter().flat_map(|e| [(e, 0), (e, 1)]) {
        let listen = free_address();
        let more = ["--max-split", "64", "--listen", &listen];
        let server = Server::start(engine, "disk=disk", &more);
        let mut client = Client::new(&addresses(&server, &listen)[transport]).go("disk");
        // In sixteen pieces, and one that is odd.
        let large = noise(1 << 20);
        assert_eq!(client.write(12_345, &large, proto::flag::FUA), 0);
        assert_eq!(client.read_at(12_345, 1 << 20), large);
        assert_eq!(client.write(5 << 20, b"odd", 0), 0);
        client.send(3, 0, 0, 0, &[]);
        assert_eq!(client.error(), 0);
        let mut found = vec![0; 1 << 20];
        let disk = File::open(server.path("disk")).unwrap();
        disk.read_exact_at(&mut found, 12_345).unwrap();
        assert!(found == large);
        client.send(6, 0, 12_345, 4096, &[]);
        assert_eq!(client.error(), 0);
        assert_eq!(client.read_at(12_345, 4096), vec![0; 4096]);
        let said = server.stop();
        assert!(said.contains("everything is flushed"), "{said}");
    }
}

/// Descriptors of the server that are pipes.
fn pipes_of(server: &Server) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let is_pipe = |path: PathBuf| {
        let to = std::fs::read_link(path);
        to.is_ok_and(|to| to.to_string_lossy().starts_with("pipe:"))
    };
    open.filter(|entry| is_pipe(entry.as_ref().unwrap().path()))
        .count()
}

/// Pages of a file in memory are passed on: odd offsets, pages that are holes, more pieces than
/// there are pipes, a client that leaves in the middle, a file that has become shorter.
#[test]
fn long_reads_of_a_file_in_memory() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    long_reads(folder, 0);
    long_reads(tempfile::tempdir_in("/dev/shm").unwrap(), 1);
}

/// A client of the Unix socket, or of the address of TCP.
fn long_reads(folder: tempfile::TempDir, transport: usize) {
    let listen = free_address();
    let more = ["--threads", "1", "--listen", &listen];
    let server = Server::start_in(folder, "auto", "disk=disk", &more);
    let address = &addresses(&server, &listen)[transport];
    let without = pipes_of(&server);
    let mut client = Client::new(address).go("disk");
    let large = noise(4 << 20);
    assert_eq!(client.write(54_321, &large, 0), 0);
    let content = std::fs::read(server.path("disk")).unwrap();
    for (offset, len) in [(0, SIZE), (54_321, 4 << 20), (4095, 262_145), (1, 32 << 10)] {
        let read = client.read_at(offset, len as u32);
        assert!(
            read == content[offset as usize..][..len as usize],
            "{offset} {len}"
        );
    }
    let with = pipes_of(&server);
    // 8 MiB are 32 pieces. A user who has many pipes gets fewer.
    assert!(
        (2..=32).contains(&(with - without)),
        "two descriptors for each of 16"
    );

    // They leave behind what nobody reads.
    for _ in 0..3 {
        let mut leaves = Client::new(address).go("disk");
        for _ in 0..4 {
            leaves.send(0, 0, 3, SIZE as u32 - 3, &[]);
        }
        leaves.read(1000);
    }
    let asked: Vec<u64> = (0..8).map(|n| n * 1_001).collect();
    for &offset in &asked {
        client.send(0, 0, offset, 4 << 20, &[]);
    }
    for _ in &asked {
        // In whatever order they end.
        let head = client.read(16);
        assert_eq!(head[4..8], [0; 4]);
        let last = u64::from_be_bytes(head[8..].try_into().unwrap());
        let number = last - (client.cookie + 1 - asked.len() as u64);
        let at = asked[number as usize] as usize;
        assert!(client.read(4 << 20) == content[at..][..4 << 20]);
    }
    assert!(pipes_of(&server) <= without + 32);

    let disk = File::options().write(true).open(server.path("disk"));
    disk.unwrap().set_len(SIZE / 2).unwrap();
    client.send(0, 0, SIZE / 2 - 50_000, 100_000, &[]);
    assert_eq!(client.error(), 5);
    assert!(client.read_at(0, 1 << 20) == content[..1 << 20]);
    server.stop();
}
