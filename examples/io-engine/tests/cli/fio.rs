//! What users of fio type.

use std::fs;

use crate::program::Place;

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
fn a_job_file_runs_and_the_command_line_goes_before_it() {
    let place = Place::new();
    fs::write(place.path("writers.fio"), JOB).unwrap();
    let json = place.run("writers.fio --json --bs 4k").expect(0).json();
    assert_eq!(json.get("name"), "writers");
    assert_eq!(json.get("rw"), "randwrite");
    assert_eq!(json.get("engine"), "psync");
    assert_eq!(json.count("bs"), 4096);
    assert_eq!(json.count("numjobs"), 2);
    assert!(json.count("write_ios") > 0, "{json:?}");
}

#[test]
fn what_a_job_file_has_wrong_is_told_with_its_name() {
    let place = Place::new();
    fs::write(place.path("two.fio"), "[a]\nrw=read\n[b]\nrw=write\n").unwrap();
    fs::write(place.path("odd.fio"), "[a]\nloops=3\n").unwrap();
    for (file, why) in [
        ("two.fio", "two.fio: line 3: [b] is a second job after [a]"),
        ("odd.fio", "odd.fio: unexpected argument '--loops'"),
        ("none.fio", "none.fio: No such file"),
    ] {
        let ran = place.run(file).expect(2);
        assert!(ran.stderr.contains(why), "{file}: {ran:?}");
    }
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
        ("--ramp_time 1 --number_ios 5", "neither for --number_ios"),
        ("--output-format=terse", "none of normal, json"),
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
