//! Runs that go well.

use serde_json::Value;

use crate::program::{Place, engines};

#[test]
fn the_json_of_a_mixed_verify_run_adds_up() {
    for engine in engines() {
        let place = Place::new();
        let ran = place
            .run(&format!(
                "--json --number_ios 500 --size 16M --rw randrw --verify sha512 --numjobs 4 \
                 --iodepth 16 --engine {engine}"
            ))
            .expect(0);
        assert_eq!(ran.stderr, "");
        let json = ran.json();
        assert_eq!(json.get("engine"), engine);
        assert_eq!(json.count("verify_errors"), 0);
        for direction in ["read", "write"] {
            let iops = json.float(&format!("{direction}_iops"));
            let ios = json.count(&format!("{direction}_ios")) as f64;
            assert!(ios > 0.0, "{json:?}");
            assert!(
                (iops * json.float("elapsed_s") / ios - 1.0).abs() < 0.01,
                "{json:?}"
            );
            let mib_s = json.float(&format!("{direction}_mib_s"));
            assert!((mib_s * 256.0 / iops - 1.0).abs() < 0.01, "{json:?}");
        }
        let checked = json.count("verified_blocks") + json.count("never_written_blocks");
        assert_eq!(checked, json.count("read_ios"));
        let latencies = ["p50", "p99", "p999", "max"].map(|q| json.float(&format!("lat_us/{q}")));
        assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{json:?}");
        assert!(json.float("job_spread") >= 1.0);
        assert_eq!(json.get("jobs").as_array().unwrap().len(), 4);
        // Null if the run was over before the first sample.
        assert!(
            json.get("tags/in_use_peak")
                .as_u64()
                .is_none_or(|peak| peak <= 64)
        );
        assert_eq!(json.get("fsync_lat_us"), &Value::Null, "there were none");
        assert_eq!(place.files(), 0, "a temporary file is left");
    }
}

#[test]
fn without_options_the_default_job_prints_a_table() {
    let place = Place::new();
    let ran = place.run("--number_ios 500").expect(0);
    for word in [
        "IOPS", "MiB/s", "p50", "p99.9", "CPU", "tags", "waits", "wakeups", "max/min",
    ] {
        assert!(ran.stdout.contains(word), "{word} is missing: {ran:?}");
    }
    assert!(ran.stdout.contains("0 corrupted"), "{ran:?}");
    assert_eq!(place.files(), 0, "a temporary file is left");
}

#[test]
fn jobs_that_share_few_tags_wait_and_all_get_on() {
    for engine in engines() {
        let json = Place::new()
            .run(&format!(
                "--json --size 1m --bs 16k --max-split 4 --numjobs 4 --iodepth 2 --hw-queues 1 \
                 --number_ios 200 --engine {engine}"
            ))
            .expect(0)
            .json();
        assert_eq!(json.count("requests"), 4 * 200 * 4);
        assert!(json.count("tag_waits") > 0, "{json:?}");
        assert!(
            json.get("tags/in_use_peak")
                .as_u64()
                .is_none_or(|peak| peak <= 2)
        );
        assert_eq!(json.float("job_spread"), 1.0);
        assert_eq!(json.count("verify_errors"), 0);
    }
}

#[test]
fn more_lanes_than_blocks_still_get_on() {
    for engine in engines() {
        for rw in ["randrw", "rw", "write"] {
            let options = "--json --size 8k --iodepth 32 --number_ios 300";
            let ran = Place::new().run(&format!("{options} --rw {rw} --engine {engine}"));
            let json = ran.expect(0).json();
            assert_eq!(json.count("read_ios") + json.count("write_ios"), 300);
            assert_eq!(json.count("verify_errors"), 0);
        }
    }
}

#[test]
fn more_hardware_queues_than_jobs_are_allowed() {
    let options = "--json --size 1m --numjobs 2 --hw-queues 5 --number_ios 100";
    let json = Place::new().run(options).expect(0).json();
    assert_eq!(json.count("tags/hw_queues"), 5);
    assert_eq!(json.count("read_ios") + json.count("write_ios"), 200);
}

#[test]
fn every_workqueue_scope_is_accepted() {
    for scope in ["cpu", "smt", "cache_shard", "cache", "numa", "system"] {
        let options = "--json --size 64k --rw write --number_ios 20 --workqueue-scope";
        let json = Place::new()
            .run(&format!("{options} {scope}"))
            .expect(0)
            .json();
        assert_eq!(json.count("write_ios"), 20);
    }
}

/// The published experiment's shape: 32 KiB, random reads and writes, SHA-512, workers by scope.
#[test]
fn checksums_are_told_by_pod() {
    let options = "--size 4m --bs 32k --rw randrw --number_ios 60 --numjobs 2 --verify sha512";
    for (more, scope, strict) in [
        (" --strict", "cache_shard", true),
        (" --workqueue-scope cpu --strict", "cpu", true),
        (" --workqueue-scope system", "system", false),
    ] {
        let ran = Place::new().run(&format!("{options}{more}"));
        let table = ran.expect(0).stdout;
        let strict = if strict { " strict" } else { "" };
        let row = format!("  checksums  {scope}{strict}: 120 checksums, ");
        assert!(table.contains(&row), "{table}");
        let json = Place::new().run(&format!("--json {options}{more}"));
        let json = json.expect(0).json();
        assert_eq!(json.count("checksums/made"), 120);
        let pods = json.get("checksums/pod_busy_percent").as_array().unwrap();
        let busy: f64 = pods.iter().filter_map(|pod| pod.as_f64()).sum();
        assert!(busy > 0.0, "{pods:?}");
        if scope == "system" {
            assert_eq!((pods.len(), json.count("checksums/repatriations")), (1, 0));
        }
    }
    let none = Place::new().run("--json --size 64k --rw write --number_ios 2 --verify none");
    assert_eq!(none.expect(0).json().get("checksums"), &Value::Null);
}

#[test]
fn a_scope_that_is_almost_right_is_told_the_right_one() {
    let ran = Place::new().run("--workqueue-scope cache_shart");
    let said = ran.expect(2).stderr;
    assert!(said.contains("did you mean 'cache_shard'?"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn sequential_reads_wrap_around() {
    let ran = Place::new().run("--json --size 32k --rw read --number_ios 20");
    let json = ran.expect(0).json();
    assert_eq!((json.count("read_ios"), json.count("write_ios")), (20, 0));
    assert_eq!(json.get("write_lat_us"), &Value::Null, "there were none");
}

/// A number no run comes to, or a time no test takes: the other one ends it.
#[test]
fn a_run_ends_by_its_time_or_its_number_of_blocks() {
    for engine in engines() {
        for (limits, number) in [
            ("--number_ios 7 --runtime 86400", Some(7)),
            ("--number_ios 1000000000000 --runtime 0.2", None),
            ("--runtime 0.2", None),
        ] {
            let options = format!("--json --size 32k --rw read {limits} --engine {engine}");
            let json = Place::new().run(&options).expect(0).json();
            assert_eq!(json.get("interrupted"), &Value::Bool(false));
            let number = number.unwrap_or(json.count("requests"));
            assert_eq!(json.count("read_ios"), number, "{limits}");
        }
    }
}

#[test]
fn a_run_too_short_for_a_block_says_so_instead_of_printing_zeros() {
    for engine in engines() {
        // One block is slower than this by far, but the clock decides.
        let options = "--bs 1m --size 64m --verify sha512 --rw write --runtime 1e-9 --engine";
        let ran = Place::new().run(&format!("{options} {engine}")).expect(0);
        assert_eq!(ran.stderr, "");
        let nothing = ran.stdout.contains("no block was finished in 0.");
        assert_ne!(nothing, ran.stdout.contains("IOPS"), "{ran:?}");
        assert_eq!(nothing, ran.stdout.contains("write 0 blocks"), "{ran:?}");
    }
}

#[test]
fn fsync_comes_after_every_so_many_writes_of_a_job() {
    for engine in engines() {
        let options = "--json --size 1m --rw randwrite --number_ios 10 --fsync 3 --numjobs 2";
        let json = Place::new()
            .run(&format!("{options} --engine {engine}"))
            .expect(0)
            .json();
        assert_eq!(json.count("fsyncs"), 2 * 3);
        assert!(json.float("fsync_lat_us/max") > 0.0);
        assert_eq!(json.count("flushes/asked"), 2 * 3);
        assert!(json.count("flushes/issued") <= 2 * 3);
    }
}

#[test]
fn durable_writes_share_their_flushes() {
    for engine in engines() {
        let options = "--json --size 1m --rw randwrite --number_ios 200 --fua --iodepth 8 \
                       --numjobs 2 --verify crc32c";
        let json = Place::new()
            .run(&format!("{options} --engine {engine}"))
            .expect(0)
            .json();
        assert_eq!(json.count("flushes/asked"), 400);
        let issued = json.count("flushes/issued");
        assert!((1..400).contains(&issued), "{issued}");
        assert!(json.count("flushes/merged_max") >= 2);
    }
}

#[test]
fn a_log_shares_flushes_among_its_committers() {
    let options = "--json --rw log --number_ios 400 --committers 8 --record 300..1000 \
                   --checkpoint 64k --filename log";
    let json = Place::new().run(options).expect(0).json();
    assert_eq!(json.count("commits"), 400);
    assert!(json.count("checkpoints") >= 3);
    assert!(json.count("flushes_before") >= json.count("checkpoints"));
    let forced = json.count("flushes") + json.count("flushes_alone") + json.count("durable_writes");
    // Each commit and each checkpoint is flushed once at most.
    assert!(forced <= 400 + json.count("checkpoints"), "{forced}");
}

#[test]
fn a_log_without_commits_tells_no_latency() {
    let ran = Place::new().run("--json --rw log --runtime 0.000000001");
    let json = ran.expect(0).json();
    assert_eq!(json.count("commits"), 0);
    for key in [
        "commit_p50_us",
        "commit_max_us",
        "flushes_per_commit",
        "group_mean",
    ] {
        assert!(json.get(key).is_null(), "{key}");
    }
}

/// A log of several segments: what a full one costs is told, too. A checkpoint that is
/// longer than a segment fills one at least whose buffers nobody has flushed.
#[test]
fn a_log_tells_of_the_flushes_of_full_segments() {
    let options = "--rw log --number_ios 450 --committers 4 --record 60000..65536 \
                   --checkpoint 24m --filename log";
    let json = Place::new()
        .run(&format!("--json {options}"))
        .expect(0)
        .json();
    assert_eq!(json.count("checkpoints"), 1);
    let segments = json.count("bytes") / (16 << 20);
    let full = json.count("flushes_of_full_segments");
    assert!((1..=segments).contains(&full), "{full} of {segments}");
    let table = Place::new().run(options).expect(0).stdout;
    assert!(table.contains("of full segments"), "{table}");
}

#[test]
fn direct_io_reads_what_direct_io_wrote() {
    for engine in engines() {
        let place = Place::new();
        let job = |rw: &str| {
            place.run(&format!(
                "--json --filename direct --size 1m --bs 16k --direct --verify crc32c \
                 --number_ios 64 --rw {rw} --engine {engine}"
            ))
        };
        let wrote = job("write");
        if wrote.stderr.contains("cannot be opened with --direct") {
            assert_eq!((wrote.status, place.files()), (Some(2), 0), "{wrote:?}");
            eprintln!("skipped: {}", wrote.stderr);
            return;
        }
        wrote.expect(0);
        assert_eq!(job("read").expect(0).json().count("verified_blocks"), 64);
    }
}

#[test]
fn help_documents_options_and_exit_statuses() {
    let help = Place::new().run("--help").expect(0).stdout;
    let options = "filename size bs rw iodepth numjobs runtime direct fsync fdatasync fua verify \
                   engine json record checkpoint committers \
                   max-split hw-queues workqueue-scope strict number_ios admission tenants \
                   steering poll";
    for option in options.split_whitespace() {
        assert!(help.contains(&format!("--{option}")), "{option} is missing");
    }
    assert!(
        help.contains("Exit status: 0 ") && help.contains("130 interrupted"),
        "{help}"
    );
}
