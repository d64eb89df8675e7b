use super::figures::short;
use super::*;
use crate::record::tests::{row, run};
use crate::record::{FOLDER, Row, Side};

/// Runs of one commit, one figure each.
fn runs(commit: &str, day: u32, load: &str, state: &str, figures: &[f64]) -> Vec<Row> {
    let each = figures.iter().zip(1..);
    each.map(|(ours, n)| row(run(commit, day, n), load, state, *ours))
        .collect()
}

fn table(rows: Vec<Row>, what: &str) -> String {
    tables::table(&picks::by_machine(rows).unwrap(), what).unwrap()
}

/// The rows of a table, without its heading.
fn lines(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    rows.skip(2).collect()
}

#[test]
fn a_line_is_the_run_in_the_middle() {
    let rows = runs("abc", 1, "ping", "near", &[60.0, 48.0, 52.0, 90.0, 51.0]);
    let text = table(rows.clone(), "spawn");
    assert_eq!(
        text,
        "`cargo run --release -p xtask -- ratios --record --only spawn`, 2026-01-01, 5 runs, \
         a cache line\ntakes 52 ns, a wake 12 us, A CPU with 2 CPUs and restartable sequences. \
         0 of 1 goals are met.\n\n\
         | load | ours | beside | ratio | goal | met |\n\
         | --- | --- | --- | --- | --- | --- |\n\
         | ping | unbound 52.0 ns | kanal 100 ns | 0.52 (0.48 to 0.90) | <= 0.5 | NO |\n"
    );
    // A group has the rows of its sections.
    assert_eq!(lines(&table(rows, "workqueue")), lines(&text));
}

/// One row is beside the best rival, the other beside a rival that is named.
#[test]
fn two_rows_that_say_the_same_are_one() {
    let rows = runs("abc", 1, "ping", "near", &[50.0; 5]);
    let mut named = rows.clone();
    for row in &mut named {
        row.beside = "kanal".into();
    }
    let text = table([rows.clone(), named.clone()].concat(), "spawn");
    assert_eq!(text, table(rows.clone(), "spawn"));
    for row in &mut named {
        row.goal = "<= 0.4".into();
    }
    assert_eq!(lines(&table([rows, named].concat(), "spawn")).len(), 2);
}

#[test]
fn what_was_measured_with_other_groups_says_so() {
    let rows = runs("abc", 1, "ping", "near", &[50.0; 5]);
    let mut others = runs("abc", 1, "pair", "near", &[50.0; 5]);
    for row in &mut others {
        (row.group, row.section) = ("ids".into(), "pair".into());
    }
    let text = table([rows, others].concat(), "spawn");
    let begin = "`cargo run --release -p xtask -- ratios --record --only ids --only workqueue`";
    assert!(text.starts_with(begin), "{text}");
}

#[test]
fn of_two_in_the_middle_the_worse_counts() {
    let figures = [40.0, 42.0, 49.0, 51.0, 60.0, 61.0];
    let mut rows = runs("abc", 1, "ping", "near", &figures);
    assert!(lines(&table(rows.clone(), "spawn"))[0].contains("| 0.51 ("));
    for row in &mut rows {
        row.goal = ">= 0.5".into();
    }
    let text = table(rows, "spawn");
    assert!(lines(&text)[0].contains("| 0.49 ("));
    assert!(lines(&text)[0].ends_with("| >= 0.5 | NO |"));
}

#[test]
fn the_order_of_lines_does_not_count() {
    let rows = [
        runs("abc", 1, "ping", "near", &[60.0, 48.0, 52.0, 90.0, 51.0]),
        runs("abc", 1, "flush", "near", &[50.0, 50.0, 50.0, 49.0, 51.0]),
        runs("def", 2, "ping", "near", &[1.0; 5]),
        runs("def", 2, "flush", "near", &[1.0; 4]),
    ];
    let rows = rows.concat();
    let expected = table(rows.clone(), "spawn");
    for shift in 1..rows.len() {
        let mut other = rows.clone();
        other.rotate_left(shift);
        assert_eq!(table(other.clone(), "spawn"), expected);
        other.reverse();
        assert_eq!(table(other, "spawn"), expected);
    }
}

#[test]
fn the_newest_commit_with_enough_runs_counts_for_each_row() {
    let rows = [
        runs("old", 1, "ping", "near", &[80.0; 6]),
        runs("new", 2, "ping", "near", &[70.0; 5]),
        runs("few", 3, "ping", "near", &[60.0; 4]),
        runs("old", 1, "flush", "near", &[81.0; 5]),
        runs("few", 3, "flush", "near", &[61.0; 4]),
        runs("few", 3, "wait", "near", &[62.0; 4]),
    ];
    let text = table(rows.concat(), "spawn");
    assert_eq!(
        lines(&text),
        [
            "| flush | unbound 81.0 ns | kanal 100 ns | 0.81 (0.81 to 0.81) | <= 0.5 | NO |",
            "| ping | unbound 70.0 ns | kanal 100 ns | 0.70 (0.70 to 0.70) | <= 0.5 | NO |"
        ]
    );
    let days = "2026-01-01 to 2026-01-02, 5 runs,";
    let text = text.replace('\n', " ");
    assert!(text.contains(days), "{text}");
    let hidden = "One row with fewer than 5 runs is not shown.";
    assert!(text.contains(hidden), "{text}");
}

#[test]
fn runs_of_two_machines_are_not_mixed() {
    let mut rows = runs("abc", 1, "ping", "near", &[50.0, 50.0, 50.0, 60.0, 60.0]);
    rows[4].run.cpu = "Another".into();
    let text = table(rows, "spawn");
    assert!(
        text.starts_with("No row has been measured 5 times yet, by `cargo run"),
        "{text}"
    );
    assert!(lines(&text).is_empty());
}

#[test]
fn each_machine_has_its_rows_beside_the_others() {
    let of = |cpus, day, loads: &[&str], figure| {
        let mut rows = Vec::new();
        for load in loads {
            rows.extend(runs("abc", day, load, "near", &[figure; 5]));
        }
        rows.iter_mut().for_each(|row| row.run.cpus = cpus);
        rows
    };
    // The newer machine has not measured every load, and knows one less.
    let mut rows = of(2, 1, &["flush", "ping", "wait"], 50.0);
    rows.extend(of(64, 2, &["flush", "ping"], 150.0));
    let text = table(rows.clone(), "spawn");
    let (new, old) = text.split_once("with 64 CPUs").expect("the newest first");
    assert!(
        new.contains("2026-01-02, 5 runs") && old.contains("with 2 CPUs"),
        "{text}"
    );
    let figures: Vec<_> = text
        .lines()
        .filter(|line| line.contains("| unbound"))
        .collect();
    assert_eq!(figures.len(), 5, "{text}");
    assert!(
        figures[..2]
            .iter()
            .all(|line| line.contains("unbound 150 ns")),
        "{text}"
    );
    assert!(
        figures[2..]
            .iter()
            .all(|line| line.contains("unbound 50.0 ns")),
        "{text}"
    );
    let what = "rows\n| a flush | flush | unbound | best |\n| a ping | ping | unbound | best |";
    let text = table(rows.clone(), what);
    let header = "| load | ours | best rival | ratio | on each of 2 machines |";
    assert!(text.contains(header), "{text}");
    let said = text.replace('\n', " ");
    let both = "2026-01-01 to 2026-01-02, 5 runs, a cache line takes 52 ns, a wake 12 us, A CPU \
                with 64 CPUs and restartable sequences; A CPU with 2 CPUs and restartable \
                sequences.";
    assert!(said.contains(both), "{text}");
    // Of two machines the worse one, whichever is newer.
    let worse = "| a flush: **ours loses** | 150 ns | kanal 100 ns | 1.50 (1.50 to 1.50) | 0.50, \
                 1.50 |";
    assert_eq!(lines(&text)[0], worse);
    rows.iter_mut()
        .for_each(|row| row.run.start = row.run.start.replace("-02T", "-00T"));
    let text = table(rows.clone(), what);
    assert_eq!(lines(&text)[0], worse);
    // Of three the one in the middle. A row that it has not measured is another's.
    rows.extend(of(4, 3, &["flush"], 40.0));
    let text = table(rows, what);
    let expected = [
        "| a flush | 50.0 ns | kanal 100 ns | 0.50 (0.50 to 0.50) | 0.40, 0.50, 1.50 |",
        "| a ping: **ours loses** | 150 ns | kanal 100 ns | 1.50 (1.50 to 1.50) | 0.50, 1.50 |",
    ];
    assert_eq!(lines(&text), expected);
}

#[test]
fn where_more_is_better_the_best_machine_has_the_greatest_ratio() {
    let mut rows = Vec::new();
    for (cpu, figure) in [("A", 50.0), ("B", 300.0), ("C", 150.0)] {
        let mut more = runs("abc", 1, "ping", "near", &[figure; 5]);
        for row in &mut more {
            (row.run.cpu, row.unit) = (cpu.into(), "ids/s".into());
        }
        rows.extend(more);
    }
    let text = table(rows, "rows\n| a ping | ping | unbound | best |");
    assert!(
        lines(&text)[0].starts_with("| a ping | 150 ids/s"),
        "{text}"
    );
    assert!(lines(&text)[0].ends_with("| 3.00, 1.50, 0.50 |"), "{text}");
    let machines = " A; B; C, each with 2 CPUs and restartable sequences.";
    assert!(text.replace('\n', " ").contains(machines), "{text}");
}

#[test]
fn a_load_that_the_newest_run_does_not_know_is_not_shown() {
    let mut rows = runs("abc", 1, "renamed", "near", &[50.0; 5]);
    rows.extend(runs("abc", 1, "moved", "near", &[50.0; 5]));
    // It is known, though it could not be measured.
    let mut missing = row(run("def", 2, 1), "moved", "", 0.0);
    (missing.ours.value, missing.rivals) = (None, vec![]);
    rows.push(missing);
    let text = table(rows, "spawn");
    assert_eq!(lines(&text).len(), 1);
    assert!(lines(&text)[0].starts_with("| moved |"));
}

#[test]
fn each_state_has_a_table() {
    let mut rows = runs("abc", 1, "ping", "near", &[50.0; 5]);
    rows.extend(runs("abc", 1, "ping", "far", &[150.0; 5]));
    rows.extend(runs("abc", 1, "ping", "one core", &[10.0; 5]));
    let both = table(rows.clone(), "spawn");
    let (near, far) = both.split_once("far state: a").expect("two tables");
    assert_eq!(lines(near).len(), 1);
    assert!(lines(near)[0].contains("50.0 ns"));
    assert_eq!(lines(far).len(), 1);
    assert!(lines(far)[0].contains("150 ns"));
    // Of the far state nothing is said before it has been measured often enough.
    rows.retain(|row| row.state != "far" || row.run.start.contains("00:01"));
    assert_eq!(table(rows, "spawn").trim_end(), near_alone(near));
}

/// The first of two tables, without the beginning of the other's caption.
fn near_alone(text: &str) -> &str {
    text.rsplit_once("\n\n").map_or(text, |(table, _)| table)
}

#[test]
fn values_without_a_rival_show_their_spread() {
    let mut rows = runs("abc", 1, "misses", "", &[9.0, 8.0, 10.0, 8.5, 9.5]);
    for row in &mut rows {
        // A rival may stand beside it.
        row.beside.clear();
        row.goal = "<= 10 ns".into();
        (row.rivals[0].name, row.line_ns) = ("Vec<slot> | x".into(), None);
        row.wake_us = None;
    }
    let text = table(rows, "spawn");
    assert_eq!(
        lines(&text),
        [
            "| misses | unbound 9.00 ns (8.00 to 10.0) | Vec&lt;slot> \\| x 100 ns | <= 10 ns \
          | yes |"
        ]
    );
    assert!(
        !text.contains("a cache line") && !text.contains("a wake"),
        "{text}"
    );
}

#[test]
fn rows_are_chosen_and_labelled() {
    let mut rows = runs("abc", 1, "ping", "near", &[50.0; 5]);
    rows.extend(runs("abc", 1, "ping", "far", &[150.0; 5]));
    rows.extend(runs("abc", 1, "wait", "near", &[150.0; 5]));
    let mut rate = runs("abc", 1, "rate", "", &[50.0; 5]);
    rate.iter_mut().for_each(|row| row.unit = "ids/s".into());
    rate.iter_mut().for_each(|row| row.goal = "-".into());
    rows.extend(rate);
    let mut exact = runs("abc", 1, "exact", "", &[50.0; 5]);
    exact.iter_mut().for_each(|row| row.beside.clear());
    rows.extend(exact);
    let what = "rows\n| a ping | ping | unbound | best |\n| a wait | wait | unbound | best |\n\
        | a rate | rate | unbound | best |\n| beside | exact | unbound | |\n| no load | none | unbound | best |";
    let text = table(rows.clone(), what);
    assert_eq!(
        lines(&text),
        [
            "| a ping | 50.0 ns | kanal 100 ns | 0.50 (0.50 to 0.50) |",
            "| a wait: **ours loses** | 150 ns | kanal 100 ns | 1.50 (1.50 to 1.50) |",
            "| a rate: **ours loses** | 50.0 ids/s | kanal 100 ids/s | 0.50 (0.50 to 0.50) |",
            "| beside | 50.0 ns | kanal 100 ns | 0.50 |",
        ]
    );
    assert!(text.contains("One row with fewer than 5"), "{text}");
    let records = picks::by_machine(rows).unwrap();
    assert!(tables::table(&records, "rows\n| a ping | ping |").is_err());
    assert!(tables::table(&records, "spawn state=far").is_err());
}

#[test]
fn one_run_gives_a_row_once() {
    let rows = runs("abc", 1, "ping", "near", &[50.0; 5]);
    let twice = [rows.clone(), rows].concat();
    let error = picks::by_machine(twice).unwrap_err().to_string();
    assert!(error.contains("has two rows of \"ping\""), "{error}");
}

#[test]
fn numbers_have_three_digits() {
    let numbers = [
        (0.0151, "0.015"),
        (0.0949, "0.095"),
        (0.0951, "0.10"),
        (2.714, "2.71"),
        (9.996, "10.0"),
        (99.96, "100"),
        (4218.4, "4218"),
        (15_966.0, "16,000"),
        (1_542_304.0, "1,540,000"),
    ];
    for (number, text) in numbers {
        assert_eq!(short(number), text);
    }
}

#[test]
fn pages_are_checked_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let task = |check| super::run(dir.path(), &Options { check });
    assert!(task(true).unwrap(), "nothing is asked for");
    write(
        "README.md",
        "a\n\n<!-- measured: spawn -->\n<!-- end -->\n\nb\n",
    );
    write("docs/a.md", "no table\n");
    assert!(!task(true).unwrap(), "the table is not there yet");
    assert!(task(false).unwrap());
    assert!(task(true).unwrap());
    let rows = runs("abc", 1, "ping", "near", &[50.0; 5]);
    record::append(dir.path(), &rows).unwrap();
    assert!(!task(true).unwrap(), "the records are newer");
    assert!(task(false).unwrap());
    let page = || std::fs::read_to_string(dir.path().join("README.md")).unwrap();
    let good = page();
    assert!(good.starts_with("a\n\n<!-- measured: spawn -->\n\n`cargo run"));
    assert!(good.ends_with("|\n\n<!-- end -->\n\nb\n"));
    assert!(task(true).unwrap());
    assert_eq!(page(), good);
    // By hand.
    write("README.md", &good.replace("50.0 ns", "5.0 ns"));
    assert!(!task(true).unwrap());
    assert!(task(false).unwrap());
    assert_eq!(page(), good);
    // Where records lie and how their files are called says nothing.
    let records = dir.path().join(FOLDER);
    std::fs::rename(records.join("a-cpu/2026-01-01.csv"), records.join("z.csv")).unwrap();
    assert!(task(true).unwrap());
    write("benches/record/z.csv", "no record\n");
    let error = format!("{:#}", task(true).unwrap_err());
    assert!(
        error.contains("z.csv: line 1: not the heading of a record"),
        "{error}"
    );
}

#[test]
fn a_second_rival_stands_beside() {
    let mut rows = runs("abc", 1, "mixed", "near", &[8.51; 5]);
    for row in &mut rows {
        row.beside = "floor".into();
        row.unit = "ms".into();
        row.rivals = [("floor", 5.48), ("tokio", 7.69)]
            .map(|(name, value)| Side {
                name: name.into(),
                value: Some(value),
            })
            .into();
    }
    let text = table(rows, "spawn");
    let expected = "| mixed | unbound 8.51 ms | floor 5.48 ms; tokio 7.69 ms | 1.55 (1.55 to 1.55) \
                    | <= 0.5 | NO |";
    assert_eq!(lines(&text), [expected]);
}

#[test]
fn a_picture_shows_who_is_better() {
    let mut rows = runs("abc", 1, "fast", "near", &[50.0, 40.0, 60.0, 50.0, 50.0]);
    rows.extend(runs("abc", 1, "slow", "near", &[150.0; 5]));
    let mut rate = runs("abc", 1, "rate", "", &[50.0; 5]);
    rate.iter_mut().for_each(|row| row.unit = "ids/s".into());
    rows.extend(rate);
    rows.extend(runs("abc", 1, "elsewhere", "far", &[50.0; 5]));
    let records = picks::by_machine(rows).unwrap();
    let drawing = plot::plot(&records[0], "workqueue").unwrap().unwrap();
    assert!(!drawing.contains("elsewhere"));
    // Dots: what takes half as long is better; half the rate is worse.
    let colours = |load: &str| {
        let row = drawing
            .split("<text")
            .find(|part| part.contains(load))
            .unwrap();
        row.split("stroke=\"").nth(1).unwrap()[..7].to_owned()
    };
    let [better, worse] = ["#1F6F57", "#C0392B"];
    let found = ["fast: unbound / kanal", "slow", "rate"].map(colours);
    assert_eq!(found, [better, worse, worse]);
    assert!(plot::plot(&records[0], "tags").unwrap().is_none());
}
