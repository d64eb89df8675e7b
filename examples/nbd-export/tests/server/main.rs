//! The program as its users run it, spoken to in the protocol by hand.

mod client;

use client::Client;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nbd_export::proto;

const SIZE: u64 = 8 << 20;

struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(engine: &str, export: &str, more: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), engine, export, more)
    }

    fn start_in(folder: tempfile::TempDir, engine: &str, export: &str, more: &[&str]) -> Self {
        Self::start_with(folder, engine, export, more, |_| ())
    }

    /// `prepare` may change how the program is started.
    fn start_with(
        folder: tempfile::TempDir,
        engine: &str,
        export: &str,
        more: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let disk = folder.path().join("disk");
        File::create(&disk).unwrap().set_len(SIZE).unwrap();
        let big = folder.path().join("big");
        File::create(big).unwrap().set_len(64 << 20).unwrap();
        std::fs::write(
            folder.path().join("key"),
            [7_u8; 32]
                .iter()
                .chain(&[9; 32])
                .copied()
                .collect::<Vec<_>>(),
        )
        .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nbd-export"));
        command
            .current_dir(folder.path())
            .args(["--unix", "nbd.sock", "--engine", engine, "--export", export])
            .args(more)
            .stderr(Stdio::piped());
        prepare(&mut command);
        let child = command.spawn().unwrap();
        let server = Self { child, folder };
        while !server.path("nbd.sock").exists() {
            std::thread::yield_now();
        }
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn resident_kib(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn connect(&self) -> Client {
        Client::new(&self.path("nbd.sock"))
    }

    /// Ends it as an administrator does. What it said.
    fn stop(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that has failed leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn engines() -> Vec<&'static str> {
    // Where there are no rings `auto` is psync.
    vec!["auto", "psync"]
}

#[test]
fn what_is_written_is_read_and_is_in_the_file() {
    for engine in engines() {
        let server = Server::start(engine, "disk=disk", &["--max-split", "64"]);
        let mut client = server.connect().go("disk");
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

/// A figure of the metrics' page.
fn figure(address: &str, name: &str) -> u64 {
    let page = scrape(address);
    let line = page.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("{name} is not in {page}"))
}

fn scrape(address: &str) -> String {
    let mut scrape = TcpStream::connect(address).unwrap();
    scrape.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    scrape.read_to_string(&mut page).unwrap();
    page
}

fn free_address() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    port.local_addr().unwrap().to_string()
}

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
    let server = Server::start_in(folder, "auto", "disk=disk", &["--threads", "1"]);
    let without = pipes_of(&server);
    let mut client = server.connect().go("disk");
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
        let mut leaves = server.connect().go("disk");
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
    assert!(pipes_of(&server) <= with);

    let disk = File::options().write(true).open(server.path("disk"));
    disk.unwrap().set_len(SIZE / 2).unwrap();
    client.send(0, 0, SIZE / 2 - 50_000, 100_000, &[]);
    assert_eq!(client.error(), 5);
    assert!(client.read_at(0, 1 << 20) == content[..1 << 20]);
    server.stop();
}

/// `force` sends each completion through the worker of the CPU that submitted, `inline` none.
/// Writes of an only client are done at once, so 16 reads are all that is steered then.
#[test]
fn completions_go_on_where_they_are_steered() {
    for engine in engines() {
        let modes = [("inline", "seen"), ("force", "submitter")];
        for ((mode, cpu), steered) in modes.into_iter().flat_map(|m| [(m, 16), (m, 32)]) {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let address = free_address();
            let more = [
                "--steer",
                mode,
                "--metrics",
                &address,
                "--max-split",
                "64",
                "--threads",
                "1",
            ];
            let server = Server::start_in(folder, engine, "disk=disk", &more);
            let mut client = server.connect().go("disk");
            let _other = (steered == 32).then(|| server.connect());
            let large = noise(1 << 20);
            assert_eq!(client.write(0, &large, proto::flag::FUA), 0);
            assert!(client.read_at(0, 1 << 20) == large);
            for where_to in ["seen", "submitter"] {
                let name = format!("nbd_completions_total{{cpu=\"{where_to}\"}}");
                let expected = if where_to == cpu { steered } else { 0 };
                assert_eq!(
                    figure(&address, &name),
                    expected,
                    "{engine}, {mode}: {where_to}"
                );
            }
            server.stop();
        }
    }
}

#[test]
fn an_encrypted_file_holds_nothing_that_can_be_read() {
    for engine in engines() {
        let server = Server::start(engine, "disk=disk,key=key", &["--scope", "system"]);
        let mut client = server.connect().go("disk");
        let plain = vec![b'p'; 64 << 10];
        assert_eq!(client.write(4096, &plain, 0), 0);
        assert_eq!(client.read_at(4096, 64 << 10), plain);
        assert_eq!(client.write(4097, &[0; 512], 0), proto::Errno::Inval as u32);
        let mut found = vec![0; 64 << 10];
        let disk = File::open(server.path("disk")).unwrap();
        disk.read_exact_at(&mut found, 4096).unwrap();
        assert!(found.chunks(16).all(|unit| unit != &plain[..16]));
        // Zeros that were asked for read as zeros, and are none in the file.
        client.send(6, 0, 4096, 4096, &[]);
        assert_eq!(client.error(), 0);
        assert_eq!(client.read_at(4096, 4096), vec![0; 4096]);
        disk.read_exact_at(&mut found[..4096], 4096).unwrap();
        assert!(found[..4096] != vec![0; 4096]);
        server.stop();
    }
}

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

/// A flush fails. The system says so once, to the client whose flush it was; the other one's next
/// flush succeeds, and what it has written may be lost all the same.
#[test]
fn each_client_is_told_of_a_flush_that_failed() {
    let io = proto::Errno::Io as u32;
    for fua in [false, true] {
        let more = ["--faults", "flush=2", "--threads", "1"];
        let server = Server::start("auto", "disk=disk", &more);
        let mut one = server.connect().go("disk");
        let mut other = server.connect().go("disk");
        let flush = |client: &mut Client| {
            if fua {
                return client.write(8192, b"durable", proto::flag::FUA);
            }
            client.send(3, 0, 0, 0, &[]);
            client.error()
        };
        assert_eq!(flush(&mut one), 0);
        assert_eq!(other.write(4096, b"may be lost", 0), 0);
        assert_eq!(flush(&mut one), io, "its own flush has failed");
        assert_eq!(flush(&mut other), io, "another one's has");
        let mut third = server.connect().go("disk");
        assert_eq!(flush(&mut third), io, "this one's own again");
        assert_eq!(flush(&mut one), io, "the third one's");
        let mut fourth = server.connect().go("disk");
        assert_eq!(flush(&mut fourth), io, "its own");
        let mut fifth = server.connect().go("disk");
        assert_eq!(flush(&mut fifth), 0, "what was before it is not its own");
        server.stop();
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

#[test]
fn metrics_are_for_prometheus_and_workqueues_for_their_monitor() {
    let address = free_address();
    let more = ["--metrics", &address, "--serve", "wq.sock"];
    let server = Server::start("auto", "disk=disk", &more);
    let mut client = server.connect().go("disk");
    assert_eq!(client.write(0, &[1; 4096], proto::flag::FUA), 0);
    let page = scrape(&address);
    for line in [
        "nbd_writes_total{export=\"disk\"} 1",
        "nbd_flush_issued_total{export=\"disk\"} 1",
        "nbd_flush_seconds_count{export=\"disk\"} 1",
        "inflight_tags_depth{set=\"nbd\"} 128",
    ] {
        assert!(page.contains(line), "{line} is missing in {page}");
    }
    assert!(server.path("wq.sock").exists());
    server.stop();
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

fn refused(arguments: &str) -> String {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_nbd-export"))
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    assert_eq!(status.code(), Some(2), "{arguments}");
    String::from_utf8(stderr).unwrap()
}

#[test]
fn bad_input_is_told_in_a_line() {
    for (arguments, word) in [
        (
            "--export disk=/nonexistent --unix /tmp/never.sock",
            "/nonexistent",
        ),
        ("--export disk --unix x", "NAME=FILE"),
        (
            "--export disk=/dev/null --unix x",
            "neither a file nor a block device",
        ),
        ("--export a=/etc/hostname,ro", "--unix"),
        ("--unix x", "--export"),
        (
            "--export a=/etc/hostname,ro --export a=/etc/passwd,ro --unix x",
            "two exports are called a",
        ),
    ] {
        let said = refused(arguments);
        assert!(said.contains(word), "{arguments}: {said}");
    }
}
