//! Tags that are shared by groups of jobs, completions that are steered, jobs that poll.

use serde_json::Value;

use crate::program::{Json, Place, engines};

/// The sums that hold for every run.
fn adds_up(json: &Json) {
    let steering = |key: &str| json.count(&format!("steering/{key}"));
    assert_eq!(
        steering("completed"),
        steering("inline") + steering("redirected")
    );
    let reasons = ["same_cpu", "same_cache", "policy", "polled", "fallback"];
    let reasons = reasons.map(|reason| steering(&format!("inline_{reason}")));
    assert_eq!(steering("inline"), reasons.iter().sum::<u64>());
    assert!(steering("wakeups") <= steering("redirected"), "{json:?}");
    assert!(steering("batches") <= steering("redirected"), "{json:?}");
    // A short transfer is a completion of its own.
    assert!(steering("completed") >= json.count("requests"), "{json:?}");
    let tenants = json.get("tenants").as_array().unwrap();
    let sum = |key: &str| -> u64 { tenants.iter().map(|t| t[key].as_u64().unwrap()).sum() };
    assert_eq!(sum("jobs"), json.count("numjobs"));
    assert_eq!(sum("tags"), json.count("requests"), "{json:?}");
    assert_eq!(json.count("verify_errors"), 0);
}

#[test]
fn every_admission_policy_finishes_split_blocks() {
    for engine in engines() {
        for admission in ["whole_io", "preempt", "no_preempt", "elastic"] {
            let json = Place::new()
                .run(&format!(
                    "--json --size 2m --bs 32k --max-split 4 --numjobs 4 --iodepth 4 --hw-queues 1 \
                     --number_ios 30 --admission {admission} --engine {engine}"
                ))
                .expect(0)
                .json();
            assert_eq!(json.get("admission"), admission);
            assert_eq!(json.count("requests"), 4 * 30 * 8);
            adds_up(&json);
        }
    }
}

#[test]
fn tenants_share_the_tags_and_are_shown_with_their_waits() {
    for engine in engines() {
        let options = "--size 4m --bs 16k --max-split 4 --numjobs 4 --iodepth 4 --tenants 2 \
                       --number_ios 200";
        let place = Place::new();
        let json = place
            .run(&format!("{options} --json --engine {engine}"))
            .expect(0)
            .json();
        assert_eq!(json.count("tags/hw_queues"), 1);
        adds_up(&json);
        let tenants = json.get("tenants").as_array().unwrap();
        assert_eq!(tenants.len(), 2);
        for (n, tenant) in tenants.iter().enumerate() {
            assert_eq!(tenant["name"], format!("tenant-{n}"));
            assert_eq!(
                (&tenant["jobs"], &tenant["share_percent"]),
                (&2.into(), &50.0.into())
            );
            assert!(tenant["tag_wait_us"]["p50"].as_f64().unwrap() >= 0.0);
        }
        let waits: u64 = tenants
            .iter()
            .map(|t| t["tag_waits"].as_u64().unwrap())
            .sum();
        assert!(waits > 0, "16 lanes and 4 tags: {json:?}");

        let table = place.run(&format!("{options} --engine {engine}")).expect(0);
        for word in [
            "tenants    2; admission whole_io",
            "tenant-0",
            "tenant-1",
            "share 50.0 %",
        ] {
            assert!(table.stdout.contains(word), "{word} is missing: {table:?}");
        }
    }
}

#[test]
fn jobs_are_tenants_of_their_own_unless_told() {
    let json = Place::new()
        .run("--json --size 1m --numjobs 3 --number_ios 10")
        .expect(0)
        .json();
    assert_eq!(json.get("tenants").as_array().unwrap().len(), 3);
    assert_eq!(json.count("tags/hw_queues"), 3);
    adds_up(&json);
}

#[test]
fn steering_changes_where_completions_run_and_not_what_they_bring() {
    for engine in engines() {
        for steering in ["inline", "same_cache", "same_cpu", "force"] {
            let options = "--size 4m --rw randrw --verify crc32c --numjobs 2 --number_ios 500 \
                           --bs 8k --max-split 4 --fsync 50";
            let place = Place::new();
            let json = place
                .run(&format!(
                    "--json {options} --steering {steering} --engine {engine}"
                ))
                .expect(0)
                .json();
            assert_eq!(json.get("steering/policy"), steering);
            adds_up(&json);
            let redirected = json.count("steering/redirected");
            match steering {
                "inline" => assert_eq!(redirected, 0),
                "force" => {
                    assert_eq!(json.count("steering/inline"), 0, "{json:?}");
                    assert!(json.count("steering/wakeups") > 0, "{json:?}");
                }
                _ => {}
            }
        }
    }
    let table = Place::new()
        .run("--size 1m --number_ios 50 --steering force")
        .expect(0);
    assert!(
        table.stdout.contains("steering   force: inline 0"),
        "{table:?}"
    );
}

#[test]
fn wake_changes_which_cpu_runs_completions_and_not_what_they_bring() {
    for engine in engines() {
        for wake in ["affine", "pull", "stack"] {
            let options = "--size 4m --rw randrw --verify crc32c --numjobs 2 --number_ios 500 \
                           --bs 8k --max-split 4 --fsync 50 --steering force";
            let run = format!("--json {options} --wake {wake} --engine {engine}");
            let json = Place::new().run(&run).expect(0).json();
            assert_eq!(json.get("steering/wake"), wake);
            adds_up(&json);
            let placed = json.count("steering/placed");
            if wake == "affine" {
                assert_eq!(placed, 0, "{json:?}");
            }
            assert!(placed <= json.count("steering/wakeups"), "{json:?}");
        }
    }
    let table = Place::new()
        .run("--size 1m --number_ios 50 --steering force --wake pull")
        .expect(0);
    assert!(table.stdout.contains("; pull: "), "{table:?}");
}

#[test]
fn a_job_that_polls_does_not_sleep() {
    for engine in engines() {
        let options = "--size 4m --rw randread --verify none --numjobs 2 --number_ios 500 --poll 1";
        let place = Place::new();
        let json = place
            .run(&format!("--json {options} --engine {engine}"))
            .expect(0)
            .json();
        assert_eq!(json.count("poll/jobs"), 1);
        assert_eq!(json.count("poll/sleeps"), 0, "{json:?}");
        // It took each of its requests off its own ring, without a wakeup; the other one saw its
        // own, too.
        let poll = |key: &str| json.count(&format!("poll/{key}"));
        let reaped = if engine == "psync" { 0 } else { 500 };
        assert!(poll("reaped") >= reaped, "{json:?}");
        assert_eq!(poll("reaped_awake"), poll("reaped"), "{json:?}");
        assert!(poll("other_reaped") >= reaped, "{json:?}");
        assert!(poll("other_reaped_awake") <= poll("other_reaped"));
        // A poll queue of its own, whose requests complete where they are seen.
        let tags = ["hw_queues", "read_queues", "poll_queues"];
        assert_eq!(
            tags.map(|key| json.count(&format!("tags/{key}"))),
            [2, 0, 1]
        );
        assert_eq!(json.count("read_ios"), 1000);
        // On a machine with one CPU there is nobody to steer to. With psync workers see the
        // completions, and the job looks into its inbox.
        let polled = json.count("steering/inline_polled") + json.count("steering/inline_fallback");
        assert!(polled >= 500 || engine == "psync", "{json:?}");
        adds_up(&json);
        let table = place.run(&format!("{options} --engine {engine}")).expect(0);
        assert!(
            table
                .stdout
                .contains("poll       1 job(s) slept 0 times, reaped "),
            "{table:?}"
        );
    }
}

#[test]
fn polling_jobs_verify_and_sync_like_others() {
    for engine in engines() {
        let json = Place::new()
            .run(&format!(
                "--json --size 2m --rw randrw --verify sha256 --fsync 10 --numjobs 2 --poll 2 \
                 --bs 16k --max-split 4 --iodepth 4 --number_ios 50 --steering same_cpu \
                 --engine {engine}"
            ))
            .expect(0)
            .json();
        assert_eq!(json.count("read_ios") + json.count("write_ios"), 100);
        adds_up(&json);
    }
}

/// One request at a time, which is alone; each comes back through a worker.
#[test]
fn what_is_alone_is_steered_like_the_rest() {
    for engine in engines() {
        let json = Place::new()
            .run(&format!(
                "--json --size 1m --rw randrw --iodepth 1 --number_ios 100 --steering force \
                 --engine {engine}"
            ))
            .expect(0)
            .json();
        assert_eq!(json.count("read_ios") + json.count("write_ios"), 100);
        assert_eq!(json.count("steering/inline"), 0, "{json:?}");
        adds_up(&json);
    }
}

/// Reads have tags of their own, so do polled requests; every block is as it was written.
#[test]
fn queues_by_kind_carry_what_they_are_for() {
    for engine in engines() {
        let json = Place::new()
            .run(&format!(
                "--json --size 4m --rw randrw --verify crc32c --numjobs 3 --poll 1 --iodepth 4 \
                 --bs 16k --max-split 4 --hw-queues 1 --read-queues 2 --number_ios 100 \
                 --engine {engine}"
            ))
            .expect(0)
            .json();
        let tags = ["hw_queues", "read_queues", "poll_queues"];
        assert_eq!(
            tags.map(|key| json.count(&format!("tags/{key}"))),
            [4, 2, 1]
        );
        assert_eq!(json.count("requests"), 3 * 100 * 4);
        adds_up(&json);
    }
}

#[test]
fn nothing_new_is_told_in_the_table_unless_asked_for() {
    let table = Place::new().run("--size 1m --number_ios 50").expect(0);
    for word in ["tenants", "steering", "poll"] {
        assert!(!table.stdout.contains(word), "{word}: {table:?}");
    }
    let json = Place::new()
        .run("--json --size 1m --number_ios 50")
        .expect(0);
    assert_ne!(json.json().get("steering"), &Value::Null);
}

#[test]
fn options_that_make_no_sense_end_in_one_clear_line() {
    for (options, part) in [
        (
            "--admission fifo",
            "one of whole_io, preempt, no_preempt, elastic",
        ),
        (
            "--steering home",
            "'home' is none of inline, same_cache, same_cpu, force",
        ),
        ("--tenants 0", "--tenants must not be zero"),
        ("--tenants 2", "--tenants 2 is more than --numjobs 1"),
        ("--poll -1", "must not be negative"),
        ("--poll 2", "--poll 2 is more than --numjobs 1"),
    ] {
        let ran = Place::new().run(options).expect(2).complains(part);
        assert_eq!(ran.stdout, "", "{options}");
    }
}
