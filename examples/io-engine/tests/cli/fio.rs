//! What users of fio type.

use std::fs;

use crate::program::{PROGRAM, Place, Ran};

const JOB: &str = "\
; four at once
[global]
ioengine=psync
size=4m
bs=8k
group_reporting
time_based

[writers]
rw=randwrite
numjobs=2
iodepth=2
runtime=200ms
";

#[test]
fn a_job_file_runs_and_the_command_line_overrides_it() {
    let place = Place::new();
    fs::write(place.path("writers.fio"), JOB).unwrap();
    let json = place.run("writers.fio --json --bs 4k").expect(0).json();
    assert_eq!(json.get("name"), "writers");
    assert_eq!(json.get("rw"), "randwrite");
    assert_eq!(json.get("engine"), "psync");
    assert_eq!(json.count("bs"), 4096);
    assert_eq!(json.count("numjobs"), 2);
    assert!(json.count("write_ios") > 0, "{json:?}");
    let ran = place.run("writers.fio").expect(0);
    let note = "writers.fio: note: each of numjobs=2 works on a part of size";
    assert!(ran.stderr.contains(note), "{ran:?}");
    assert_eq!(place.run("writers.fio --numjobs 1").expect(0).stderr, "");
}

#[test]
fn what_a_job_file_has_wrong_is_told_with_its_name() {
    let place = Place::new();
    fs::write(place.path("two.fio"), "[a]\nrw=read\n[b]\nrw=write\n").unwrap();
    fs::write(place.path("odd.fio"), "[a]\ncolour=3\n").unwrap();
    fs::write(place.path("loops.fio"), "[a]\nloops=3\n").unwrap();
    fs::write(place.path("aio.fio"), "[a]\nioengine=libaio\n").unwrap();
    let both = "[a]\nfilename=x:y\nrw=write\nsize=1m\n";
    fs::write(place.path("both.fio"), both).unwrap();
    for (file, why) in [
        ("two.fio", "two.fio: line 3: [b] is a second job after [a]"),
        ("odd.fio", "odd.fio: unexpected argument '--colour'"),
        (
            "loops.fio",
            "loops.fio: --loops is not supported: a run ends after --runtime",
        ),
        (
            "aio.fio",
            "not supported: use io_uring, which has the same depth of requests",
        ),
        ("both.fio", "x:y: does not exist; with fio a colon stands"),
        (
            "--filename x:y --rw write --size 1m",
            "several files: a run has one file; start one run for each",
        ),
        ("none.fio", "none.fio: No such file"),
    ] {
        let ran = place.run(file).expect(2);
        assert!(ran.stderr.contains(why), "{file}: {ran:?}");
    }
    assert!(!place.path("x:y").exists());
    // A file with such a name may be there already.
    fs::write(place.path("x:y"), [0; 4096]).unwrap();
    place.run("--filename x:y --number_ios 1").expect(0);
}

/// A name may come from somebody else's file.
#[test]
fn control_characters_of_a_name_are_escaped() {
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    command.args([
        "--size",
        "64k",
        "--number_ios",
        "5",
        "--name",
        "a\x1b[31mb\nc",
    ]);
    let ran = Ran::new(command.output().unwrap()).expect(0);
    assert!(ran.stdout.starts_with("a\\u{1b}[31mb\\nc\n"), "{ran:?}");
}

#[test]
fn what_is_done_before_the_ramp_is_over_does_not_count() {
    let place = Place::new();
    let json = place
        .run("--json --size 4m --ramp_time 300ms --runtime 100ms --name warm")
        .expect(0)
        .json();
    assert_eq!(json.get("name"), "warm");
    assert_eq!(json.count("verify_errors"), 0);
    let (blocks, seconds) = (
        json.count("read_ios") + json.count("write_ios"),
        json.float("elapsed_s"),
    );
    let per_second = json.float("read_iops") + json.float("write_iops");
    assert!(
        (per_second * seconds - blocks as f64).abs() <= 1.0,
        "{json:?}"
    );
    // All blocks asked tags for, those of the ramp too.
    let tags = json.get("tenants").as_array().unwrap()[0]["tags"].as_u64();
    assert!(tags.unwrap() > blocks, "{json:?}");
}

#[test]
fn what_is_not_here_is_answered_with_what_to_use() {
    let place = Place::new();
    for (options, advice) in [
        ("--ioengine=libaio", "use io_uring"),
        ("--ioengine sync", "use psync"),
        ("--engine aio", "none of io_uring, psync, auto"),
        ("--offset_increment=1g", "a part of its own already"),
        ("--name a --name b", "--name b begins a second job"),
        ("--time_based=0", "use --number_ios"),
        ("--group_reporting=0", "lists each under \"jobs\""),
        (
            "--ramp_time 1 --number_ios 5",
            "cannot be used with --number_ios",
        ),
        ("--output-format=terse", "none of normal, json"),
        (
            "--loops=3",
            "--loops is not supported: a run ends after --runtime; use --number_ios",
        ),
        ("--exitall", "--exitall is not supported: there is one job"),
        ("--verify-fatal 1", "ends with status 1"),
        ("--direct --buffered=1", "opposites"),
        ("--direct=0 --buffered=0", "opposites"),
        ("--directory /tmp", "--directory /tmp needs --filename"),
        ("--rwmixread 70 --rwmixwrite 20", "are not 100 together"),
        (
            "--filename f --rw write --size 1m --rwmixwrite 20",
            "not for write",
        ),
    ] {
        let ran = place.run(options).expect(2);
        assert!(ran.stderr.contains(advice), "{options}: {ran:?}");
    }
}

#[test]
fn what_is_always_so_may_be_said() {
    let place = Place::new();
    let options = "--thread --norandommap --randrepeat=1 --time_based --group_reporting=1 \
                   --output-format=json --number_ios 20 --size 1m";
    let json = place.run(options).expect(0).json();
    assert_eq!(json.count("read_ios") + json.count("write_ios"), 20);
}

#[test]
fn what_fio_calls_otherwise_means_the_same() {
    let place = Place::new();
    fs::create_dir(place.path("folder")).unwrap();
    let write = "--directory folder --filename f --rw write --size 1m --number_ios 256 --json";
    let json = place
        .run(&format!("{write} --end_fsync=1 --buffered=1"))
        .expect(0)
        .json();
    assert!(
        json.get("file").as_str().unwrap().ends_with("folder/f"),
        "{json:?}"
    );
    assert_eq!(json.get("direct"), false);
    assert_eq!(fs::metadata(place.path("folder/f")).unwrap().len(), 1 << 20);
    let mix = "--filename folder/f --rw randrw --number_ios 400 --json --rwmixwrite 0 --invalidate";
    let json = place.run(mix).expect(0).json();
    assert_eq!((json.count("read_ios"), json.count("write_ios")), (400, 0));
    let all = mix.replace("rwmixwrite 0", "rwmixread 0 --rwmixwrite 100");
    assert_eq!(place.run(&all).expect(0).json().count("read_ios"), 0);
}
