//! The command line.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Parser, ValueEnum};
use inflight::tags::Steering;
use inflight::topology::Scope;

use crate::console::say;
use crate::export::Spec;
use crate::reactor::Faults;

const AFTER_HELP: &str = "\
A first export:
  truncate -s 1G disk.img
  nbd-export --export disk=disk.img --unix /tmp/nbd.sock
and in another terminal:
  nbdinfo 'nbd+unix:///disk?socket=/tmp/nbd.sock'
  qemu-io -f raw 'nbd+unix:///disk?socket=/tmp/nbd.sock' -c 'write -P 7 0 1M' -c 'read -P 7 0 1M'

NBD has no authentication: whoever reaches --listen reads and writes. SIGTERM or Ctrl-C ends the
server when what was begun for clients is answered and flushed; a second one, 0.1 s later or more,
ends it at once.

Exit status:
  0  told to end: all that was begun is answered, and all files are flushed
  1  told to end twice: it did not wait for that
  2  it could not start, or a file or a thread has failed; standard error says why";

/// Serves files as network block devices.
#[derive(Debug, Parser)]
#[command(name = "nbd-export", version, after_help = AFTER_HELP)]
#[command(group(ArgGroup::new("where").required(true).multiple(true).args(["unix", "listen"])))]
pub(crate) struct Options {
    /// A file to serve: ro forbids writes; weight is its share of the tags beside other exports of
    /// its disk; key encrypts it (AES-XTS-256) with the key of KEYFILE (64 bytes or 128 hexadecimal
    /// digits), or with a passphrase if the file has another form; passphrase always takes KEYFILE
    /// as a passphrase. To be encrypted first, FILE must be empty, unless format is given: its data
    /// is then lost, but can be read from the file without a key until it is overwritten
    #[arg(
        long = "export",
        value_name = "NAME=FILE[,ro][,weight=N][,key=KEYFILE|,passphrase=KEYFILE[,format]]",
        required = true
    )]
    pub(crate) exports: Vec<Spec>,

    /// Listen on this socket
    #[arg(long, value_name = "SOCK")]
    pub(crate) unix: Option<PathBuf>,

    /// Listen on this address
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<String>,

    /// How requests are passed to the kernel
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) engine: Engine,

    /// Threads that serve clients [default: the CPUs, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,

    /// The most requests of all exports of one disk (file system or block device) at the same time
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u16).range(1..=10_240))]
    pub(crate) depth: u16,

    /// Split requests longer than this many KiB
    #[arg(long, value_name = "KIB", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(4..=32_768))]
    pub(crate) max_split: u32,

    /// Size of the buffers registered with the rings, in MiB for all threads together; 0 for none.
    /// If the kernel refuses them the server works without
    #[arg(long, value_name = "MIB", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub(crate) registered: u32,

    /// How the tags are shared: by exports with their weights, or by clients with their exports'
    /// weights
    #[arg(long, value_enum, default_value = "export")]
    pub(crate) tenants: Tenants,

    /// The CPU that passes an ended operation to its client's thread: the one that saw the end, or
    /// the one that submitted it
    #[arg(long, value_name = "MODE", default_value = "same_cache",
          value_parser = PossibleValuesParser::new(Steering::ALL.map(Steering::name)))]
    pub(crate) steer: String,

    /// The most clients; more are turned away
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_connections: u64,

    /// Send a client away that has sent a part of a write's data, and then less than 64 KiB in this
    /// many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) payload_timeout: u32,

    /// CPUs that share a pool of workers for encryption
    #[arg(long, value_name = "SCOPE", default_value = "cache_shard",
          value_parser = PossibleValuesParser::new(Scope::ALL.map(Scope::name)))]
    pub(crate) scope: String,

    /// Pin these workers to the CPUs that share their pool
    #[arg(long)]
    pub(crate) strict: bool,

    /// The most pieces encrypted at the same time
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) max_active: u16,

    /// Memory for the data of requests of one disk's clients, in MiB. Each client has 256 KiB in
    /// addition
    #[arg(long, value_name = "MIB", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    pub(crate) memory: u32,

    /// Show the workqueues on a socket: inflight-wq --socket PATH monitor
    #[arg(long, value_name = "PATH")]
    pub(crate) serve: Option<PathBuf>,

    /// Answer scrapes of Prometheus on this address
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<String>,

    /// Faults for tests, at every Nth operation: reads and writes are refused for now (again) or
    /// are short; reads, writes or flushes fail; of all exports or of one. A thread ends at its Nth
    /// operation
    #[arg(
        long,
        value_name = "again=N,short=N,read=N,write=N,flush=N,thread=N,export=NAME",
        default_value = ""
    )]
    pub(crate) faults: Faults,

    /// Print nothing about clients that connect, leave, or are sent away
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl Options {
    /// What the command line says. If the program is not to go on, its exit status.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| {
            if !error.use_stderr() {
                return print_help(&error);
            }
            say(&in_a_line(&error.to_string()));
            say("all options: nbd-export --help");
            ExitCode::from(2)
        })
    }
}

/// Prints the help, or the version. Lost if standard output is closed.
fn print_help(help: &clap::Error) -> ExitCode {
    let printed = help.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            say(&format!("printing the help: {error}"));
            ExitCode::from(2)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// What is wrong, and a hint if there is one, without the usage behind them.
fn in_a_line(error: &str) -> String {
    let ends = |line: &str| line.starts_with("Usage:") || line.starts_with("For more information");
    let lines = error.lines().map(str::trim).take_while(|line| !ends(line));
    let mut told = String::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let tip = line.starts_with("tip:");
        told += if tip { "; " } else { " " };
        told += line;
    }
    let line = told.trim_start();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// A ring for each thread.
    #[value(name = "io_uring")]
    IoUring,
    /// Calls that block, on a workqueue.
    Psync,
    /// io_uring if the kernel lets us, else psync.
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tenants {
    Export,
    Client,
}
