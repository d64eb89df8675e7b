//! The book's page of timelines: each of its drawings is made here, from what the core did.
//!
//! `cargo test -p inflight-workqueue --features unstable-sim --test timelines page -- --nocapture`
//! prints them all.

use super::*;

const PAGE: &str = include_str!("../../../../docs/timelines.md");

/// The state of an item after each event of a log: `#` begun and not asleep, `.` asleep.
fn rows(log: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for event in log.split(", ") {
        let mut words = event.split(' ');
        let now: usize = words.next().unwrap().parse().unwrap();
        let item: usize = words.next().unwrap()[1..].parse().unwrap();
        rows.resize(rows.len().max(item + 1), String::new());
        let row = &mut rows[item];
        let since = match words.next().unwrap() {
            "starts" => ' ',
            "wakes" => '.',
            "sleeps" => '#',
            // What it did until then is its last state: one that wakes and ends at once slept.
            "ends" if log.contains(&format!("{now} w{item} wakes")) => continue,
            "ends" => '#',
            other => panic!("{other}"),
        };
        row.extend(std::iter::repeat_n(since, now - row.len()));
    }
    rows
}

/// A line of time, then a line for each item.
fn drawing(log: &str) -> String {
    let rows = rows(log);
    let end = rows.iter().map(String::len).max().unwrap();
    let scale: String = (0..=end).step_by(5).map(|ms| format!("{ms:<5}")).collect();
    let mut lines = vec![format!("ms  {}", scale.trim_end())];
    lines.extend((0..).zip(&rows).map(|(n, row)| format!("w{n}  {row}")));
    lines.join("\n")
}

/// The first block behind a name on the page.
fn on_the_page(name: &str) -> String {
    let behind = PAGE.split_once(name).unwrap_or_default().1;
    let block = behind.split("```").nth(1).unwrap_or_default();
    format!("```{block}```")
}

#[test]
fn the_page_shows_what_the_core_does() {
    let same = [w0(), w(0), w(0)];
    let apart = [w0(), w(1), w(1)];
    let queues = [queue(1024), intensive(1024)];
    let drawn = [
        ("## `max_active` 1", run(FIFO, &[queue(1)], &same)),
        ("## `max_active` 3", run(FIFO, &[queue(3)], &same)),
        ("## `max_active` 2", run(FAIR, &[queue(2)], &same)),
        ("## Items that compute", run(FIFO, &queues, &apart)),
        ("On a CPU that is shared", run(FAIR, &queues, &apart)),
    ];
    let drawn = drawn.map(|(name, log)| (name, format!("```text\n{}\n```", drawing(&log))));
    for (name, text) in &drawn {
        println!("{name}\n\n{text}\n");
    }
    let silent = Rules {
        silent: true,
        ..FIFO
    };
    let found = run(silent, &[queue(3)], &same);
    let ends = [0, 1, 2].map(|item| span(&found, item, "starts", "ends").1);
    let sentence = format!("they end at {}, {} and {}.", ends[0], ends[1], ends[2]);
    println!("{sentence}");

    for (name, text) in drawn {
        assert_eq!(on_the_page(name), text, "docs/timelines.md: {name}");
    }
    assert!(PAGE.contains(&sentence), "docs/timelines.md: {sentence}");
}

#[test]
fn a_drawing_has_a_column_for_each_ms() {
    let log = "0 w0 starts, 2 w0 sleeps, 2 w1 starts, 3 w1 ends, 4 w0 wakes, 4 w0 ends";
    assert_eq!(drawing(log), "ms  0\nw0  ##..\nw1    #");
}
