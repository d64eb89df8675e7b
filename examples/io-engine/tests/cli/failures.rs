//! Runs that end early: one clear line, no panic, no file left, and what was counted is shown.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::program::{PROGRAM, Place, Ran, engines};

#[test]
fn bad_input_ends_in_one_clear_line() {
    let place = Place::new();
    File::create(place.path("empty")).unwrap();
    fs::write(place.path("small"), vec![7; 8192]).unwrap();
    symlink("loop", place.path("loop")).unwrap();
    let made = place.files();
    for (options, part) in [
        (
            "--filename missing --rw write",
            "missing: No such file or directory (os error 2); give --size",
        ),
        (
            "--filename missing --size 1m --rw read",
            "missing: does not exist; a read run needs data: write it first with --rw write",
        ),
        (
            "--filename missing",
            "missing: does not exist; a read run needs data",
        ),
        (
            "--filename small/below --size 1m",
            "small/below: Not a directory",
        ),
        ("--filename .", "is a directory"),
        ("--filename loop", "Too many levels of symbolic links"),
        (
            "--filename /dev/null",
            "neither a regular file nor a block device",
        ),
        ("--filename empty", "empty: is empty; give --size"),
        (
            "--filename small --size 1m",
            "is 8192 bytes long, shorter than --size 1048576",
        ),
        (
            "--filename small --numjobs 3",
            "2 blocks are not enough for 3 jobs",
        ),
        ("--filename small --bs 16k", "less than one block"),
        (
            "--filename nowhere/x --size 1m --rw write",
            "nowhere/x: No such file or directory",
        ),
        (
            "--filename /proc/version --size 4k --direct",
            "cannot be opened with --direct",
        ),
        ("--bs 0", "--bs must not be zero"),
        ("--bs 100", "not a multiple of 512"),
        ("--bs x", "--bs"),
        ("--size 1k", "less than one block"),
        ("--iodepth 0", "--iodepth must not be zero"),
        ("--iodepth 10241", "--iodepth 10241 is more than 10240"),
        (
            "--numjobs 4096 --iodepth 10240 --bs 1g --size 1t",
            "--numjobs 4096 x --iodepth 10240 x --bs 1073741824 needs",
        ),
        (
            "--hw-queues 4096 --iodepth 10240 --bs 512",
            "--hw-queues 4096 x --iodepth 10240: ",
        ),
        ("--size 99999999999999999999", "--size <BYTES>': too large"),
        ("--size -1", "--size <BYTES>': must not be negative"),
        ("--runtime soon", "--runtime <SECONDS>': not a number of"),
        ("--runtime -1", "--runtime <SECONDS>': must not be negative"),
        (
            "--runtime 1e30",
            "not within 0.000000001 to 1000000000 seconds",
        ),
        ("--randseed x", "--randseed <N>': not a whole number"),
        (
            "--rw raed",
            "one of read, write, randread, randwrite, randrw, rw, log; did you mean 'read'?",
        ),
        ("--rw", "one of read, write, "),
        ("--verify md5", "one of none, crc32c, sha256, sha512"),
        ("--rw write --rwmixread 70", "is for --rw randrw and rw"),
        (
            "--iodpeth 4",
            "'--iodpeth' found; did you mean '--iodepth'?",
        ),
        ("--no-such-option", "--no-such-option"),
        ("stray", "stray"),
    ] {
        let ran = place.run(options).expect(2).complains(part);
        assert_eq!(ran.stdout, "", "{options}");
    }
    assert_eq!(place.files(), made, "a file was made for nothing");
}

#[test]
fn a_size_too_small_for_the_jobs_makes_and_extends_no_file() {
    let place = Place::new();
    fs::write(place.path("small"), vec![7; 8192]).unwrap();
    for file in ["small", "missing"] {
        let ran = place.run(&format!(
            "--filename {file} --numjobs 4 --size 12k --rw write"
        ));
        let _ = ran
            .expect(2)
            .complains("3 blocks are not enough for 4 jobs");
    }
    let len = fs::metadata(place.path("small")).unwrap().len();
    assert_eq!((place.files(), len), (1, 8192));
}

#[test]
fn a_file_we_may_not_read_is_one_clear_line() {
    let place = Place::new();
    fs::write(place.path("secret"), vec![0; 8192]).unwrap();
    fs::set_permissions(place.path("secret"), Permissions::from_mode(0o0)).unwrap();
    // In a user namespace of its own even root is nobody special.
    if place.can_unshare(&["--user"]) {
        let mut command = place.command("unshare");
        command.args(["--user", PROGRAM, "--filename", "secret"]);
        Ran::new(command.output().unwrap())
            .expect(2)
            .complains("secret: Permission denied");
    }
}

#[test]
fn writing_beyond_a_limit_is_an_io_error() {
    for engine in engines() {
        let place = Place::new();
        File::create(place.path("limited"))
            .unwrap()
            .set_len(1 << 20)
            .unwrap();
        let options = "--json --filename limited --rw write --iodepth 1 --engine";
        // 64 units of 512 or of 1024 bytes, as the shell has it.
        let script = format!("ulimit -f 64 && exec {PROGRAM} {options} {engine}");
        let output = place.command("sh").args(["-c", &script]).output().unwrap();
        let ran = Ran::new(output)
            .expect(2)
            .complains("limited: write at offset");
        assert!(ran.stderr.contains("File too large"), "{ran:?}");
        let writes = ran.json().count("write_ios");
        assert!(writes == 8 || writes == 16, "{ran:?}");
        assert!(
            ran.json()
                .get("error")
                .as_str()
                .unwrap()
                .contains("File too large")
        );
    }
}

#[test]
fn a_full_disk_is_an_io_error() {
    let namespaces = ["--user", "--map-root-user", "--mount"];
    for engine in engines() {
        let place = Place::new();
        if !place.can_unshare(&namespaces) {
            return;
        }
        fs::create_dir(place.path("disk")).unwrap();
        let options = "--json --filename disk/f --size 4m --rw write --verify crc32c --engine";
        // The mount lives and dies with the namespace of this one process.
        let script =
            format!("mount -t tmpfs -o size=1m none disk && exec {PROGRAM} {options} {engine}");
        let mut command = place.command("unshare");
        command.args(namespaces).args(["sh", "-c", &script]);
        let ran = Ran::new(command.output().unwrap()).expect(2);
        let ran = ran
            .complains("disk/f: write at offset")
            .complains("No space left on device");
        let writes = ran.json().count("write_ios");
        assert!((100..=256).contains(&writes), "{ran:?}");
    }
}

#[test]
fn a_file_that_shrinks_under_the_reader_is_an_io_error() {
    for engine in engines() {
        let place = Place::new();
        File::create(place.path("f"))
            .unwrap()
            .set_len(4 << 20)
            .unwrap();
        let options = "--json --filename f --rw randread --runtime 600 --engine";
        let child = place.start(&format!("{options} {engine}"));
        OpenOptions::new()
            .write(true)
            .open(place.path("f"))
            .unwrap()
            .set_len(4096)
            .unwrap();
        let ran = Ran::new(child.wait_with_output().unwrap()).expect(2);
        let ran = ran.complains("f: read at offset").complains("end of file");
        assert!(ran.json().get("error").is_string());
    }
}

/// A run with these options shows what it has counted, and leaves nothing, also if the signal comes
/// twice at once, as that of `timeout` of GNU does.
fn assert_heeds_signals(options: &str) {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let place = Place::new();
        let child = place.start(options);
        let process = i32::try_from(child.id()).unwrap();
        for _ in 0..2 {
            kill(Pid::from_raw(process), signal).unwrap();
        }
        let ran = Ran::new(child.wait_with_output().unwrap()).expect(130);
        assert_eq!(ran.json().get("interrupted"), true);
        assert_eq!((ran.stderr.as_str(), place.files()), ("", 0));
    }
}

#[test]
fn an_interrupt_shows_what_was_counted_and_leaves_no_file() {
    for engine in engines() {
        let options = "--json --runtime 600 --numjobs 2 --size 1m --engine";
        assert_heeds_signals(&format!("{options} {engine}"));
    }
}

/// A block that is written when the run is stopped is flushed and counted, too.
#[test]
fn each_durable_write_of_an_interrupted_run_is_flushed_and_counted() {
    for engine in engines() {
        let place = Place::new();
        let options = "--json --filename f --size 4m --rw write --fua --iodepth 8 --numjobs 3 \
                       --verify none --runtime 600 --engine";
        let child = place.start(&format!("{options} {engine}"));
        let is_written = || {
            fs::read(place.path("f"))
                .unwrap()
                .iter()
                .any(|&byte| byte != 0)
        };
        while !is_written() {
            thread::yield_now();
        }
        let process = i32::try_from(child.id()).unwrap();
        kill(Pid::from_raw(process), Signal::SIGINT).unwrap();
        let json = Ran::new(child.wait_with_output().unwrap())
            .expect(130)
            .json();
        assert!(json.count("write_ios") > 0);
        assert_eq!(json.count("flushes/asked"), json.count("write_ios"));
    }
}

/// Many rings take a while. The program heeds signals before it makes the first.
#[test]
fn an_interrupt_amid_the_making_of_rings_ends_the_run() {
    if !engines().contains(&"io_uring") {
        return;
    }
    let place = Place::new();
    let options = "--json --runtime 600 --numjobs 400 --size 4m --verify none --engine io_uring";
    let mut child = place.begin(options);
    let process = i32::try_from(child.id()).unwrap();
    let files = format!("/proc/{process}/fd");
    let is_ring = |file: fs::DirEntry| {
        let link = fs::read_link(file.path());
        link.is_ok_and(|link| link.to_string_lossy().contains("io_uring"))
    };
    // One is the probe's, and the handler is older than that.
    while !fs::read_dir(&files).unwrap().flatten().any(is_ring) {
        assert!(child.try_wait().unwrap().is_none(), "ended before it began");
        thread::yield_now();
    }
    kill(Pid::from_raw(process), Signal::SIGTERM).unwrap();
    let ran = Ran::new(child.wait_with_output().unwrap()).expect(130);
    assert_eq!(ran.json().get("interrupted"), true);
    assert_eq!((ran.stderr.as_str(), place.files()), ("", 0));
}

#[test]
fn an_interrupted_log_shows_what_was_counted_and_leaves_no_folder() {
    assert_heeds_signals("--json --rw log --runtime 600 --checkpoint 64k");
}

#[test]
fn a_log_wants_a_folder() {
    let place = Place::new();
    fs::write(place.path("file"), b"kept").unwrap();
    place
        .run("--rw log --filename file --number_ios 1")
        .expect(2)
        .complains("--filename file is no folder, and --rw log makes several files");
    assert_eq!(fs::read(place.path("file")).unwrap(), b"kept");
}

#[test]
fn a_log_on_a_full_disk_shows_what_was_committed() {
    let namespaces = ["--user", "--map-root-user", "--mount"];
    let place = Place::new();
    if !place.can_unshare(&namespaces) {
        return;
    }
    fs::create_dir(place.path("disk")).unwrap();
    // There is room for one segment and a half.
    let options = "--json --rw log --filename disk/log --record 60000..65536 --number_ios 1000";
    let script = format!("mount -t tmpfs -o size=24m none disk && exec {PROGRAM} {options}");
    let mut command = place.command("unshare");
    command.args(namespaces).args(["sh", "-c", &script]);
    let ran = Ran::new(command.output().unwrap())
        .expect(2)
        .complains("committing: ");
    let json = ran.json();
    assert!((200..=280).contains(&json.count("commits")), "{ran:?}");
    let error = json.get("error").as_str().unwrap();
    assert!(ran.stderr.ends_with(&format!("{error}\n")), "{ran:?}");
}

#[test]
fn committers_that_get_no_threads_are_one_clear_line() {
    let options = "--json --rw log --committers 8 --runtime 2";
    // Addresses for the stacks of some, and half a stack for everything else.
    let script = format!("ulimit -v $((4608 << 10)) && exec {PROGRAM} {options}");
    let place = Place::new();
    let mut command = place.command("sh");
    command.env("RUST_MIN_STACK", (1_u32 << 30).to_string());
    let output = command.args(["-c", &script]).output().unwrap();
    let ran = Ran::new(output).expect(2);
    let ran = ran.complains("starting the thread of committer ");
    assert!(ran.json().get("error").is_string());
    assert_eq!(place.files(), 0);
}

#[test]
fn even_a_killed_run_leaves_no_temporary_file() {
    let place = Place::new();
    let mut child = place.start("--runtime 600 --size 1m");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(place.files(), 0);
}

#[test]
fn a_result_that_cannot_be_printed_is_an_error() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    command
        .args(["--json", "--size", "4k", "--number_ios", "1"])
        .stdout(full);
    let ran = Ran::new(command.output().unwrap());
    ran.expect(2)
        .complains("printing the result: No space left on device");
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    for option in ["--help", "--version"] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let place = Place::new();
        let mut command = place.command(PROGRAM);
        command.arg(option).stdout(full);
        let ran = Ran::new(command.output().unwrap());
        ran.expect(2)
            .complains("printing the help: No space left on device");
    }
}

#[test]
fn a_run_ends_though_standard_error_takes_nothing() {
    let place = Place::new();
    fs::write(place.path("f"), vec![7; 8 * 4096]).unwrap();
    let read = "--json --filename f --verify crc32c --number_ios 8";
    for (options, status) in [(read, 1), ("--filename missing", 2)] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = place.command(PROGRAM);
        command.args(options.split_whitespace()).stderr(full);
        let ran = Ran::new(command.output().unwrap()).expect(status);
        if status == 1 {
            assert_eq!(ran.json().count("verify_errors"), 8);
        }
    }
}

/// Each would find the other's blocks where its own should be.
#[test]
fn two_runs_on_one_file_exclude_each_other_unless_they_only_read() {
    let place = Place::new();
    place
        .run("--filename f --size 1m --rw write --number_ios 256 --verify crc32c")
        .expect(0);
    let check = "--rw randread --verify crc32c";
    let beside = |first: &str, others: &[&str]| -> Vec<Ran> {
        let mut first = place.start(&format!("--filename f {first} --runtime 1h"));
        let run = |other| place.run(&format!("--filename f {other} --number_ios 1"));
        let ran = others.iter().map(run).collect();
        first.kill().unwrap();
        first.wait().unwrap();
        ran
    };
    let why = "f: another program has locked it";
    let others = ["--rw randwrite", check, "--rw read"];
    let [writes, checks, reads] = beside("--rw randrw --verify crc32c", &others)
        .try_into()
        .unwrap();
    writes.expect(2).complains(why);
    checks.expect(2).complains(why);
    reads.expect(0);
    let [writes, checks] = beside(check, &["--rw write", check]).try_into().unwrap();
    writes.expect(2).complains(why);
    checks.expect(0);
}
