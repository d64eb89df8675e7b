//! The program as its users run it, spoken to in the protocol by hand.

mod buffers;
mod client;
mod clients;
mod data;
mod encryption;
mod ends;
mod extents;
mod failures;
mod floods;
mod told;

use client::{Address, Client};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

const SIZE: u64 = 8 << 20;

struct Server {
    child: Child,
    folder: tempfile::TempDir,
    /// What it has said so far, as far as it was read.
    heard: Vec<u8>,
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
        if !disk.exists() {
            File::create(&disk).unwrap().set_len(SIZE).unwrap();
        }
        let big = folder.path().join("big");
        File::create(big).unwrap().set_len(64 << 20).unwrap();
        write_key(&folder.path().join("key"), &[[7; 32], [9; 32]].concat());
        let mut command = Command::new(env!("CARGO_BIN_EXE_nbd-export"));
        command
            .current_dir(folder.path())
            .args(["--unix", "nbd.sock", "--engine", engine, "--export", export])
            .args(more)
            .stderr(Stdio::piped());
        prepare(&mut command);
        let child = command.spawn().unwrap();
        let mut server = Self {
            child,
            folder,
            heard: Vec::new(),
        };
        while !server.path("nbd.sock").exists() {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("{status}: {}", server.said());
            }
            std::thread::yield_now();
        }
        server
    }

    /// What it has said, when it has ended.
    fn said(&mut self) -> String {
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_end(&mut self.heard).unwrap();
        String::from_utf8(std::mem::take(&mut self.heard)).unwrap()
    }

    fn wait_until_it_says(&mut self, what: &str) {
        let stderr = self.child.stderr.as_mut().unwrap();
        while !self.heard.ends_with(what.as_bytes()) {
            let mut byte = [0];
            stderr.read_exact(&mut byte).expect(what);
            self.heard.extend(byte);
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS")
    }

    /// A figure of the system's about the program's memory.
    fn memory_kib(&self, what: &str) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|l| l.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn connect(&self) -> Client {
        Client::new(&Address::Unix(self.path("nbd.sock")))
    }

    /// Ends it as an administrator does. What it said.
    fn stop(self) -> String {
        self.stop_with(0)
    }

    /// The same, with this exit status.
    fn stop_with(mut self, status: i32) -> String {
        self.terminate(status)
    }

    /// The same; its files stay.
    fn stop_and_keep(mut self) -> tempfile::TempDir {
        self.terminate(0);
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    fn terminate(&mut self, status: i32) -> String {
        signal(self.child.id(), libc::SIGTERM);
        let said = self.said();
        let ended = self.child.wait().unwrap();
        assert_eq!(ended.code(), Some(status), "{said}");
        if status == 0 {
            assert!(!said.contains("a thread has ended"), "{said}");
        }
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

fn signal(program: u32, signal: libc::c_int) {
    // SAFETY: the program is a child that has not been waited for.
    let sent = unsafe { libc::kill(program as libc::pid_t, signal) };
    assert_eq!(sent, 0);
}

/// A key's file, as its owner keeps it.
fn write_key(path: &Path, key: &[u8]) {
    std::fs::write(path, key).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// What the program says to arguments with which it does not begin.
fn refused(arguments: &str) -> String {
    refused_with(&arguments.split_whitespace().collect::<Vec<_>>())
}

fn refused_with(arguments: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_nbd-export"))
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // If that comes last nothing else is wrong that is found behind it.
    let socket = match arguments {
        [.., "--unix", socket] => socket,
        _ => "",
    };
    let status = loop {
        if let Some(status) = program.try_wait().unwrap() {
            break status;
        }
        if Path::new(socket).exists() {
            program.kill().unwrap();
            panic!("it begins with {arguments:?}");
        }
        std::thread::yield_now();
    };
    assert_eq!(status.code(), Some(2), "{arguments:?}");
    let mut said = String::new();
    program.stderr.unwrap().read_to_string(&mut said).unwrap();
    said
}

/// Has a program start with leave to open so many files: at first, and at most.
fn limit_open_files(command: &mut Command, at_first: u64, at_most: u64) {
    let limit = libc::rlimit {
        rlim_cur: at_first,
        rlim_max: at_most,
    };
    // SAFETY: `limit` is a limit.
    let lower = move || match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: between fork and exec it makes a system call, and takes no lock or memory.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, lower) };
}

/// Lets a running program open files with numbers below this.
fn let_open_files(program: u32, below: u64) {
    let (id, what) = (program as libc::pid_t, libc::RLIMIT_NOFILE);
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a limit's place, and nothing is set.
    let read = unsafe { libc::prlimit(id, what, std::ptr::null(), &raw mut limit) };
    limit.rlim_cur = below;
    // SAFETY: `limit` is a limit, and nothing is read.
    let set = unsafe { libc::prlimit(id, what, &raw const limit, std::ptr::null_mut()) };
    assert_eq!((read, set), (0, 0));
}

/// Lets this program open as many files as it may; how many that are.
fn open_many_files() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a limit's place.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a limit.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    limit.rlim_max
}

/// A Unix socket, which every server has, and an address of TCP.
fn addresses(server: &Server, listen: &str) -> [Address; 2] {
    let unix = Address::Unix(server.path("nbd.sock"));
    [unix, Address::Tcp(listen.to_owned())]
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

/// An address that nobody else takes before the server has it. The process chooses the address of
/// the loopback, and a counter the port, from below those that the system gives to clients.
fn free_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    // Neither the address of the network nor its broadcast.
    let (c, more) = (c / 2 + 1, u16::from(c % 2) * 10_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed) + more;
        let address = format!("127.{a}.{b}.{c}:{port}");
        if std::net::TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}
