//! The program as users run it.

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inflight-sim"));
    command.args(arguments.split_whitespace());
    command.output().expect("the program can be started")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("it prints UTF-8")
}

#[test]
fn json_has_a_row_for_each_job_count_and_an_outcome_for_each_policy() {
    let printed = text(&run("hdd --json --seconds 2 --warm-up 1"));
    let json: Value = serde_json::from_str(&printed).expect("it is JSON");
    let rows = json["rows"].as_array().expect("rows");
    let jobs: Vec<_> = rows.iter().map(|row| row["jobs"].as_u64()).collect();
    assert_eq!(jobs, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].map(Some));
    for row in rows {
        for policy in [
            "preempt",
            "per_waiter",
            "per_tag",
            "as_posted",
            "elastic",
            "ours",
        ] {
            let rate = row["policies"][policy]["mib_s"].as_f64();
            assert!(rate.is_some_and(|rate| rate > 10.0), "{policy}: {row}");
        }
    }
    assert_eq!(rows[9]["published"]["v5_18"], 31.8);
}

#[test]
fn limit_json_has_what_was_published_and_limits_are_those_asked_for() {
    let printed = text(&run("limit --json --max-active 8,16"));
    let json: Value = serde_json::from_str(&printed).expect("it is JSON");
    let rows = json["rows"].as_array().expect("rows").iter();
    let rows = rows.map(|row| {
        let counted = row["counted"].as_str();
        (
            counted,
            row["max_active"].as_u64(),
            row["published_mib_s"].as_f64(),
        )
    });
    let expected = [
        (Some("system"), Some(8), Some(2495.0)),
        (Some("system"), Some(16), Some(1736.0)),
        (Some("cpu"), Some(8), Some(1276.0)),
        (Some("cpu"), Some(16), None),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    assert!(!text(&run("limit --counted system --max-active 3")).contains("\ncpu"));
}

#[test]
fn the_same_seed_prints_the_same() {
    let arguments = "hdd --jobs 20,100 --policy preempt,ours --seconds 3 --seed 5";
    let first = text(&run(arguments));
    assert_eq!(first, text(&run(arguments)));
    assert_ne!(first, text(&run(&arguments.replace("seed 5", "seed 6"))));
    let json = text(&run(&format!("{arguments} --json")));
    assert_eq!(json, text(&run(&format!("{arguments} --json"))));
}

#[test]
fn job_counts_and_policies_are_those_asked_for() {
    let printed = text(&run(
        "hdd --jobs 3,7 --policy per-tag,preempt --seconds 1 --warm-up 1",
    ));
    assert!(
        printed.contains("preempt     per_tag   errors: preempt, as_posted"),
        "{printed}"
    );
    assert!(!printed.contains("elastic"), "{printed}");
    let three = printed.lines().find(|line| line.starts_with("    3"));
    assert!(
        three.is_some_and(|line| line.contains('-')),
        "not published: {printed}"
    );
}

#[test]
fn the_drawing_has_a_curve_for_each_column() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("curves.svg");
    let arguments = format!(
        "hdd --jobs 1,4 --seconds 1 --warm-up 1 --plot {}",
        file.display()
    );
    text(&run(&arguments));
    let drawing = std::fs::read_to_string(&file).expect("it was written");
    assert!(drawing.starts_with("<svg"));
    for name in [
        "v5.18",
        "patched",
        "preempt",
        "per_waiter",
        "per_tag",
        "as_posted",
        "elastic",
        "ours",
    ] {
        assert!(drawing.contains(name), "{name}");
    }
}

#[test]
fn check_says_what_holds_and_fails_if_something_does_not() {
    let held = run("hdd --jobs 1,8 --policy preempt --seconds 5 --check");
    assert!(
        text(&held).contains("holds: preempt is within 6 %"),
        "{held:?}"
    );
    let failed = run("hdd --jobs 64 --policy preempt --seconds 5 --cache 0 --check");
    assert_eq!(failed.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&failed.stdout);
    assert!(
        printed.contains("FAILS: preempt is within 6 %"),
        "{printed}"
    );
}

#[test]
fn bad_input_is_refused_in_one_line_and_nothing_is_printed() {
    for (arguments, says) in [
        ("", "one of hdd"),
        ("hd", "unrecognized subcommand 'hd'"),
        ("hdd --jobs 0", "within 1 to 65536"),
        ("hdd --jobs 1,x", "'x' for '--jobs"),
        ("hdd --jobs 1,,2", "'' for '--jobs"),
        (
            "hdd --policy best",
            "one of preempt, per_waiter, per_tag, as_posted, elastic, ours, in_turn",
        ),
        ("hdd --seconds 0", "number of seconds above 0"),
        ("hdd --seconds -1", "number of seconds above 0"),
        ("hdd --seconds nan", "number of seconds above 0"),
        ("hdd --seconds inf", "number of seconds above 0"),
        ("hdd --seed -1", "not a whole number within 0 to"),
        ("hdd --small-every 0", "within 1 to"),
        ("hdd --nr-requests 10241", "within 1 to 10240"),
        ("hdd --cache -1", "'-1'"),
        ("hdd --piece-kib 3", "within 4 to"),
        ("hdd --rules --policy ours", "cannot be used with"),
        ("hdd --dispatch lifo", "one of fifo, sorted"),
        ("hdd --sed 1", "did you mean '--seed'"),
        (
            "hdd --jobs 1 --seconds 1 --plot /nowhere/at/all.svg",
            "/nowhere/at/all.svg",
        ),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{arguments}: {said}");
        assert!(said.contains(says), "{arguments}: {said}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

/// Published figures beside those of another disk or load would mislead without a word.
#[test]
fn a_run_unlike_the_published_says_so() {
    let run = |options: &str| text(&run(&format!("hdd --jobs 1 --seconds 1 {options}")));
    assert!(!run("").contains("not the published"));
    let printed = run("--nr-requests 5 --small-every 3");
    assert!(
        printed.contains("--nr-requests 5, --small-every 3"),
        "{printed}"
    );
    let json: Value = serde_json::from_str(&run("--cache 0 --json")).expect("it is JSON");
    assert_eq!(json["settings"]["as_published"], false);
    assert_eq!(json["settings"]["cache"], 0);
}

#[test]
fn other_tables_are_drawn_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (number, (arguments, curves)) in [
        ("hdd --single", &["published", "simulated"][..]),
        (
            "dmcrypt --issuers 4,8 --seeds 1 --seconds 0.1",
            &["ours", "cache_strict, published"],
        ),
        (
            "enqueue --cpus 8,72 --scope cache,cpu",
            &["cache, published", "cpu"],
        ),
        (
            "limit --max-active 4,8",
            &["counted for each CPU, published"],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.path().join(number.to_string());
        text(&run(&format!("{arguments} --plot {}", file.display())));
        let drawing = std::fs::read_to_string(&file).expect("it was written");
        for curve in curves {
            assert!(drawing.contains(curve), "{arguments}: {curve}");
        }
    }
}

#[test]
fn single_writes_stand_beside_the_published() {
    let printed = text(&run("hdd --single --check"));
    let first = printed.lines().find(|line| line.starts_with("  128"));
    assert!(
        first.is_some_and(|line| line.contains(" 20.1 ")),
        "{printed}"
    );
    assert!(printed.contains("holds: single writes"), "{printed}");
}

/// Nothing that such a write does not look at is taken without a word.
#[test]
fn single_writes_refuse_what_does_not_concern_them() {
    for option in [
        "--jobs 3",
        "--policy ours",
        "--rules",
        "--seconds 1",
        "--warm-up 1",
        "--seed 2",
        "--small-every 2",
        "--nr-requests 5",
        "--piece-kib 64",
        "--cache 0",
        "--burst 2",
        "--dispatch sorted",
    ] {
        let output = run(&format!("hdd --single {option}"));
        assert_eq!(output.status.code(), Some(2), "{option}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot be used with"), "{option}: {said}");
    }
}

#[test]
fn names_of_rules_stand_apart() {
    let printed = text(&run("hdd --rules --jobs 2 --seconds 1 --warm-up 1"));
    assert!(printed.contains(" hysteresis never_forced "), "{printed}");
}

/// The drawing of a run that takes a moment.
#[cfg(target_os = "linux")]
#[test]
fn a_drawing_goes_to_what_has_no_length_too() {
    let arguments = "limit --max-active 4 --plot";
    text(&run(&format!("{arguments} /dev/null")));
    let printed = text(&run(&format!("{arguments} /dev/stdout")));
    assert!(printed.contains("<svg"), "{printed}");
}

/// As if the output were lost on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    for arguments in ["--help", "hdd --help", "--version", "hdd --single"] {
        let full = std::fs::File::create("/dev/full").expect("it takes nothing");
        let mut command = Command::new(env!("CARGO_BIN_EXE_inflight-sim"));
        command.args(arguments.split_whitespace()).stdout(full);
        let output = command.output().expect("the program can be started");
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("No space left"), "{arguments}: {said}");
    }
}

#[test]
fn seeds_go_on_from_zero_after_the_largest() {
    for command in ["flush", "placement --no-controls --clients 1"] {
        let run = |seeds: &str| text(&run(&format!("{command} --json {seeds}")));
        let rows = |seeds: &str| {
            let json: Value = serde_json::from_str(&run(seeds)).expect("it is JSON");
            json["rows"].clone()
        };
        let printed = run(&format!("--seed {} --seeds 1", u64::MAX));
        assert!(!printed.contains("null"), "{printed}");
        let both = rows(&format!("--seed {} --seeds 2", u64::MAX));
        let ms = |rows: &Value| {
            let side = if command == "flush" { "eager" } else { "after" };
            rows[0][side]["file_ms"].as_f64().expect("a time")
        };
        let each = [u64::MAX, 0].map(|seed| ms(&rows(&format!("--seed {seed} --seeds 1"))));
        let mean = (each[0] + each[1]) / 2.0;
        assert!((ms(&both) - mean).abs() < 1e-9, "{each:?}, {both}");
    }
    let printed = text(&run(&format!("flush --seed {} --seeds 2", u64::MAX)));
    let range = format!("seeds {} to 0", u64::MAX);
    assert!(printed.contains(&range), "{printed}");
}

/// An old drawing stays if the run is refused.
#[test]
fn the_drawing_replaces_an_older_one() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), vec![b'x'; 1 << 20]).expect("it can be written");
    let name = file.path().display();
    text(&run(&format!("hdd --jobs 1,4 --seconds 1 --plot {name}")));
    let drawing = std::fs::read_to_string(file.path()).expect("it was written");
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
}

#[test]
fn the_ends_of_the_ranges_work() {
    text(&run("hdd --jobs 1 --seconds 0.001 --warm-up 0.001"));
    text(&run("hdd --jobs 3 --seconds 1 --nr-requests 1"));
    text(&run(
        "hdd --jobs 3 --seconds 1 --cache 1 --dispatch sorted --small-every 1",
    ));
    text(&run(
        "hdd --jobs 3 --seconds 1 --cache 0 --nr-requests 10240 --small-every 2",
    ));
    text(&run("hdd --jobs 3000 --seconds 1 --policy ours,preempt"));
}

#[test]
fn dmcrypt_json_has_a_row_for_each_pair() {
    let printed = text(&run("dmcrypt --json --seconds 0.1 --warm-up 0.1 --seeds 1"));
    let json: Value = serde_json::from_str(&printed).expect("it is JSON");
    let rows = json["rows"].as_array().expect("rows");
    let pairs: Vec<_> = rows
        .iter()
        .map(|row| (row["issuers"].as_u64(), row["scope"].as_str()))
        .collect();
    let expected = [24, 8, 4, 1].into_iter().flat_map(|issuers| {
        let scopes = ["system", "cache", "cache_strict", "ours"];
        scopes.map(|scope| (Some(issuers), Some(scope)))
    });
    assert_eq!(pairs, expected.collect::<Vec<_>>());
    for row in rows {
        assert!(
            row["mib_s"].as_f64().is_some_and(|rate| rate > 100.0),
            "{row}"
        );
        assert!(
            row["cpu_pct"].as_f64().is_some_and(|part| part > 10.0),
            "{row}"
        );
    }
    assert_eq!(rows[0]["published"]["mib_s"], 1159.4);
}

#[test]
fn dmcrypt_runs_what_was_asked_for_and_prints_it_again() {
    let arguments = "dmcrypt --issuers 3,5 --scope cache-strict,ours --seconds 0.1 --seeds 2";
    let printed = text(&run(arguments));
    assert_eq!(printed, text(&run(arguments)));
    assert!(
        printed.contains("cache_strict") && !printed.contains("system"),
        "{printed}"
    );
    let other = text(&run(&format!("{arguments} --machine core:8 --drift 3")));
    assert!(
        other.contains("not the published run: --drift 3, --machine"),
        "{other}"
    );
}

#[test]
fn dmcrypt_check_fails_without_drift() {
    let arguments = "dmcrypt --check --issuers 4 --seeds 1 --seconds 0.5";
    let output = run(&format!("{arguments} --drift 0"));
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stdout).expect("it prints UTF-8");
    assert!(printed.contains("FAILS: MiB/s are within 4 %"), "{printed}");
}

#[test]
fn dmcrypt_refuses_bad_input_in_one_line() {
    for (arguments, expected) in [
        ("--issuers 0", "1 to 4096"),
        ("--scope caches", "one of system, cache, cache_strict, ours"),
        ("--drift -1", "0 to 10000"),
        ("--seeds 0", "1 to 1000"),
        ("--machine cache:x", "cache"),
        ("--machine smt:3", "cores of one or two threads only"),
    ] {
        let output = run(&format!("dmcrypt {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let said = String::from_utf8(output.stderr).expect("it prints UTF-8");
        assert!(
            said.contains(expected) && said.lines().count() == 1,
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn enqueue_runs_what_was_asked_for() {
    let arguments = "enqueue --cpus 2,16 --scope cache_shard,system";
    let json: Value =
        serde_json::from_str(&text(&run(&format!("{arguments} --json")))).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    let pairs: Vec<_> = rows
        .iter()
        .map(|row| (row["cpus"].as_u64(), row["scope"].as_str()))
        .collect();
    let expected = [
        (2, "cache_shard"),
        (2, "system"),
        (16, "cache_shard"),
        (16, "system"),
    ];
    assert_eq!(
        pairs,
        expected.map(|(cpus, scope)| (Some(cpus), Some(scope)))
    );
    assert!(
        rows.iter()
            .all(|row| row["items_per_s"].as_f64() > Some(10_000.0))
    );
    let table = text(&run(arguments));
    assert_eq!(table, text(&run(arguments)));
    let output = run("enqueue --scope cash");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("one of cpu, smt, cache_shard"));
}

#[test]
fn placement_json_has_every_published_row_and_the_controls() {
    let printed = text(&run("placement --json --seeds 1"));
    let json: Value = serde_json::from_str(&printed).expect("it is JSON");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 21);
    for row in rows {
        assert!(row["table"].is_string() && row["clients"].is_u64(), "{row}");
        for number in ["published_gain_pct", "gain_pct"] {
            assert!(
                row[number].as_f64().is_some_and(|gain| gain < 100.0),
                "{row}"
            );
        }
        assert!(row["before"]["migrations_per_io"].is_f64(), "{row}");
    }
    let first = &rows[5];
    assert_eq!(first["table"], "kworker_stack_numa48_llc24");
    let gain = first["published_gain_pct"].as_f64().expect("a number");
    assert!((gain - 48.53).abs() < 0.01, "{gain}");
    let controls = json["controls"].as_array().expect("controls");
    assert!(
        controls
            .iter()
            .any(|row| row["control"] == "journal_unbound")
    );
}

#[test]
fn placement_check_fails_where_the_order_is_not_the_published() {
    let arguments = "placement --check --seeds 1 --no-controls --table irq_migrate --clients 1,8";
    assert!(text(&run(arguments)).contains("holds: pulled within the cache, 1 to 8"));
    let other = run(&format!("{arguments} --order previous-first"));
    assert_eq!(other.status.code(), Some(1));
    let printed = String::from_utf8(other.stdout).expect("it prints UTF-8");
    assert!(
        printed.contains("FAILS: pulled within the cache, 1 to 8"),
        "{printed}"
    );
    assert!(printed.contains("not the published rules"), "{printed}");
}

#[test]
fn placement_refuses_bad_input_in_one_line() {
    for (arguments, expected) in [
        ("--table irq", "one of kworker_stack_uma8"),
        ("--clients 0", "1 to 4096"),
        ("--clients 3", "--clients 3: kworker_stack_uma8"),
        (
            "--table irq_migrate --clients 1,3",
            "--clients 3: irq_migrate has [1, 2, 4, 8, 16, 32, 64, 128]",
        ),
        ("--order last", "pull-first, previous-first"),
        ("--load far", "nowhere, same-cache, anywhere"),
        ("--plot /nowhere/at/all.svg", "/nowhere/at/all.svg"),
    ] {
        let output = run(&format!("placement {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let said = String::from_utf8(output.stderr).expect("it prints UTF-8");
        let one_line = said.contains(expected) && said.lines().count() == 1;
        assert!(one_line && output.stdout.is_empty(), "{said}");
    }
}
