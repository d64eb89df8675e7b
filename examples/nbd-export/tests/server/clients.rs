//! Clients that come, stall and go.

use crate::client::{Address, Client};
use crate::{
    Server, addresses, engines, figure, free_address, let_open_files, limit_open_files, noise,
    open_many_files,
};
use nbd_export::proto;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

#[test]
fn requests_that_were_begun_are_answered_before_the_server_ends() {
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
    // It may be reset, if the server has ended with requests that it had not read.
    let _ = client_stream.read_to_end(&mut replies);
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

/// Three clients hold memory for long reads, and ask for more than is left. When they take what
/// they have asked for first, what that was read into is there for the others.
#[test]
fn clients_that_hold_memory_and_ask_for_more_do_not_wait_for_each_other() {
    const FIRST: u32 = 20 << 20;
    const LONG: u32 = 32 << 20;
    for engine in engines() {
        let more = ["--threads", "1", "--memory", "64"];
        let server = Server::start(engine, "disk=big", &more);
        let mut clients = [0; 3].map(|_| server.connect().go("disk"));
        for client in &mut clients {
            client.send(0, 0, 0, FIRST, &[]);
            while client.is_silent() {
                std::thread::yield_now();
            }
        }
        for client in &mut clients {
            client.send(0, 0, 0, LONG, &[]);
        }
        let mut short = server.connect().go("disk");
        assert_eq!(short.read_at(0, 512), [0; 512]);
        std::thread::scope(|scope| {
            for client in &mut clients {
                scope.spawn(|| {
                    for len in [FIRST, LONG] {
                        assert_eq!(client.error(), 0);
                        assert!(client.read(len as usize).iter().all(|&byte| byte == 0));
                    }
                });
            }
        });
        server.stop();
    }
}

/// A client that waits for memory leaves. The one that has the memory is not sent away for it.
#[test]
fn a_client_that_leaves_while_it_waits_for_memory_frees_its_place() {
    const LONG: u32 = 32 << 20;
    for engine in engines() {
        let (listen, metrics) = (free_address(), free_address());
        let more = ["--threads", "1", "--memory", "64", "--listen", &listen];
        let more = [&more[..], &["--metrics", &metrics]].concat();
        let server = Server::start(engine, "disk=big", &more);
        for address in addresses(&server, &listen) {
            let mut holds = Client::new(&address).go("disk");
            for _ in 0..2 {
                holds.send(0, 0, 0, LONG, &[]);
            }
            while holds.is_silent() {
                std::thread::yield_now();
            }
            let mut waits = Client::new(&address).go("disk");
            // There is more behind what it waits with.
            for _ in 0..100 {
                waits.send(0, 0, 0, LONG, &[]);
            }
            drop(waits);
            // Over TCP it may have closed its side only: it is found to be gone by an answer.
            while matches!(address, Address::Unix(_)) && figure(&metrics, "nbd_clients") > 1 {
                std::thread::yield_now();
            }
            for _ in 0..2 {
                assert_eq!(holds.error(), 0);
                assert!(holds.read(LONG as usize).iter().all(|&byte| byte == 0));
            }
            drop(holds);
            while figure(&metrics, "nbd_clients") > 0 {
                std::thread::yield_now();
            }
        }
        let said = server.stop();
        assert!(!said.contains("sent away"), "{said}");
    }
}

/// A client that waits for memory has said goodbye and closed its side: it sends nothing more, and
/// takes the answers to what it has sent.
#[test]
fn a_client_that_closes_its_side_while_it_waits_for_memory_is_answered() {
    const LONG: u32 = 32 << 20;
    const ASKED: usize = 3;
    for engine in engines() {
        let listen = free_address();
        let more = ["--threads", "1", "--memory", "64", "--listen", &listen];
        let server = Server::start(engine, "disk=big", &more);
        let mut other = server.connect().go("disk");
        for address in addresses(&server, &listen) {
            let mut holds = Client::new(&address).go("disk");
            for _ in 0..2 {
                holds.send(0, 0, 0, LONG, &[]);
            }
            while holds.is_silent() {
                std::thread::yield_now();
            }
            let mut waits = Client::new(&address).go("disk");
            for _ in 0..ASKED {
                waits.send(0, 0, 0, LONG, &[]);
            }
            waits.send(2, 0, 0, 0, &[]);
            waits.stream.close_sending();
            // The server's only thread has looked at all of its clients meanwhile.
            for _ in 0..100 {
                assert_eq!(other.read_at(0, 512), [0; 512]);
            }
            for client in [&mut holds, &mut waits] {
                for _ in 0..if client.cookie == 2 { 2 } else { ASKED } {
                    assert_eq!(client.error(), 0);
                    assert!(client.read(LONG as usize).iter().all(|&byte| byte == 0));
                }
            }
            let mut rest = Vec::new();
            waits.stream.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, []);
        }
        let said = server.stop();
        assert!(!said.contains("sent away"), "{said}");
    }
}

/// A shell's limit of open files is often 1024. The server asks for as many as it may have.
#[test]
fn a_thousand_clients_at_once() {
    const CLIENTS: u64 = 1000;
    if open_many_files() < CLIENTS + 200 {
        eprintln!("this test may not open so many files");
        return;
    }
    for engine in engines() {
        let listen = free_address();
        let more = ["--listen", &listen];
        let folder = tempfile::tempdir().unwrap();
        let limit = |command: &mut _| limit_open_files(command, 256, CLIENTS + 200);
        let server = Server::start_with(folder, engine, "disk=disk", &more, limit);
        for address in addresses(&server, &listen) {
            let mut clients: Vec<_> = (0..CLIENTS)
                .map(|_| Client::new(&address).go("disk"))
                .collect();
            let data = noise(4096 + CLIENTS as usize);
            for (n, client) in clients.iter_mut().enumerate() {
                client.send(1, 0, n as u64 * 4096, 4096, &data[n..][..4096]);
            }
            for client in &mut clients {
                assert_eq!(client.error(), 0);
            }
            for (n, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.read_at(n as u64 * 4096, 4096), data[n..][..4096]);
            }
        }
        server.stop();
    }
}

/// All the files that the server may open are open. Clients wait to be let in, those who are in do
/// not notice, and the log is told once.
#[test]
fn a_server_that_may_open_no_more_files_goes_on() {
    const FILES: u64 = 64;
    let folder = tempfile::tempdir().unwrap();
    let limit = |command: &mut _| limit_open_files(command, FILES, FILES);
    let mut server = Server::start_with(folder, "auto", "disk=disk", &[], limit);
    let mut client = server.connect().go("disk");
    let many: Vec<_> = (0..2 * FILES)
        .map(|_| UnixStream::connect(server.path("nbd.sock")).unwrap())
        .collect();
    server.wait_until_it_says("not accepted");
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        assert_eq!(client.write(0, &[1; 4096], 0), 0);
    }
    drop(many);
    let mut late = server.connect().go("disk");
    assert_eq!(late.read_at(0, 4096), [1; 4096]);
    let said = server.stop();
    assert_eq!(said.matches("not accepted").count(), 1, "{said}");
}

/// The log goes to a pipe that is full and that nobody reads.
#[test]
fn a_log_that_nobody_reads_holds_up_no_client() {
    let server = Server::start("auto", "disk=disk", &[]);
    // Of each the log says that it has come, and that it has left.
    for _ in 0..2000 {
        server.connect().go("disk");
    }
    let mut client = server.connect().go("disk");
    assert_eq!(client.write(0, b"fine", proto::flag::FUA), 0);
    assert_eq!(client.read_at(0, 4), b"fine");
    let said = server.stop();
    assert!(said.contains("lines are not shown"), "{said}");
    assert!(said.contains("everything is flushed"), "{said}");
}

/// Many come at once. No more are let in than is said.
#[test]
fn no_more_clients_are_let_in_than_is_said() {
    const MOST: usize = 3;
    let server = Server::start("auto", "disk=disk", &["--max-connections", "3"]);
    let mut in_use = server.connect().go("disk");
    let many: Vec<_> = (0..60)
        .map(|_| UnixStream::connect(server.path("nbd.sock")).unwrap())
        .collect();
    let is_let_in = |mut stream: &UnixStream| stream.read_exact(&mut [0; 18]).is_ok();
    let let_in = many.iter().filter(|stream| is_let_in(stream)).count();
    assert_eq!(let_in, MOST - 1);
    assert_eq!(in_use.write(0, b"fine", 0), 0);
    drop(many);
    // There is room again, a moment later.
    loop {
        let stream = UnixStream::connect(server.path("nbd.sock")).unwrap();
        if is_let_in(&stream) {
            break;
        }
    }
    server.stop();
}

/// A client that has sent half of a write's data and nothing more has memory of the server. It is
/// sent away after a while; one that has asked for nothing stays.
#[test]
fn a_client_that_stops_in_the_midst_of_its_data_is_sent_away() {
    for engine in engines() {
        let more = ["--payload-timeout", "1", "--threads", "1"];
        let server = Server::start(engine, "disk=disk", &more);
        let mut idle = server.connect().go("disk");
        let mut half = server.connect().go("disk");
        half.send(1, 0, 0, 64 << 10, &[1; 32 << 10]);
        let mut rest = Vec::new();
        // It may be reset.
        let _ = half.stream.read_to_end(&mut rest);
        assert_eq!(rest, []);
        assert_eq!(idle.write(0, b"fine", 0), 0);
        let said = server.stop();
        assert!(said.contains("does not send the data"), "{said}");
    }
}

/// Two clients hold all the memory for data that they do not send, and a request of each is under
/// way for long. When they are sent away others need not wait for these requests.
#[test]
fn a_client_that_is_sent_away_gives_its_memory_back_at_once() {
    const LONG: u32 = 32 << 20;
    for engine in engines() {
        let metrics = free_address();
        let more = ["--payload-timeout", "1", "--memory", "64", "--metrics"];
        let slow = ["--export", "slow=slow", "--faults", "again=1,export=slow"];
        let more = [&more[..], &[&metrics], &slow].concat();
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("slow")).unwrap();
        file.set_len(64 << 20).unwrap();
        let server = Server::start_in(folder, engine, "fast=big", &more);
        let stalled = [0; 2].map(|_| {
            let mut client = server.connect().go("slow");
            // It is refused for 30 s.
            client.send(0, 0, 0, 512, &[]);
            client.send(1, 0, 0, LONG, &[1]);
            client
        });
        let mut waits = server.connect().go("fast");
        waits.send(0, 0, 0, LONG, &[]);
        assert_eq!(waits.error(), 0);
        assert_eq!(figure(&metrics, "nbd_clients"), 3);
        assert!(waits.read(LONG as usize).iter().all(|&byte| byte == 0));
        drop((stalled, server));
    }
}

/// The clock ticks that the thread of a name has used.
fn ticks_of(server: &Server, thread: &str) -> u64 {
    let tasks = format!("/proc/{}/task", server.child.id());
    let stats = std::fs::read_dir(tasks).unwrap().map(|task| {
        let stat = task.unwrap().path().join("stat");
        std::fs::read_to_string(stat).unwrap()
    });
    let stat = stats.into_iter().find(|stat| stat.contains(thread));
    let stat = stat.expect("the thread is there");
    let (_, figures) = stat.rsplit_once(')').unwrap();
    let figures: Vec<&str> = figures.split_whitespace().collect();
    let [user, system] = [11, 12].map(|at| figures[at].parse::<u64>().unwrap());
    user + system
}

/// A scrape of the metrics comes when no more files may be opened. It waits, and its thread does
/// not spin.
#[test]
fn the_metrics_port_waits_when_no_more_files_may_be_opened() {
    let address = free_address();
    let server = Server::start("auto", "disk=disk", &["--metrics", &address]);
    let mut client = server.connect().go("disk");
    let_open_files(server.child.id(), 4);
    // The first one may be answered: if the thread waits in `accept` it has a place already.
    let asked = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream
    });
    let before = ticks_of(&server, "nbd-metrics");
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        assert_eq!(client.write(0, &[1; 4096], 0), 0);
    }
    let used = ticks_of(&server, "nbd-metrics") - before;
    let_open_files(server.child.id(), 1024);
    for mut stream in asked {
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        assert!(page.contains("nbd_clients"), "{page}");
    }
    assert!(used <= 5, "{used} clock ticks for nothing");
    server.stop();
}
