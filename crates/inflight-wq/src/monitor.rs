//! One look at the counters: a table in the layout of `wq_monitor`, or a line of JSON each.

use inflight_workqueue_serve::QueueCounters;
use serde::Serialize;
use std::fmt::Write as _;

/// The column for a name.
const NAME: usize = 24;

/// The title line, and one line for each queue.
pub(crate) fn table(queues: &[QueueCounters]) -> String {
    let mut out = format!(
        "{:NAME$} {:>8} {:>5} {:>8} {:>7} {:>7} {:>7} {:>7}\n",
        "", "total", "infl", "CPUtime", "CPUitsv", "CMW/RPR", "mayday", "rescued"
    );
    for queue in queues {
        let shown = |is_shown: bool, number: u64| {
            if is_shown {
                number.to_string()
            } else {
                "-".to_owned()
            }
        };
        let cpu_time = match queue.cpu_time {
            Some(micros) => {
                let tenths = micros / 100_000;
                format!("{}.{}", tenths / 10, tenths % 10)
            }
            None => "-".to_owned(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{:NAME$} {:8} {:5} {cpu_time:>8} {:>7} {:7} {:>7} {:>7}",
            last_characters(&queue.name),
            queue.started,
            queue.started.saturating_sub(queue.completed),
            shown(!queue.unbound, queue.cpu_intensive),
            queue.cm_wakeup.saturating_add(queue.repatriated),
            shown(queue.mem_reclaim, queue.mayday),
            shown(queue.mem_reclaim, queue.rescued),
        );
    }
    out
}

/// The end of a name that is too long tells more than its beginning.
fn last_characters(name: &str) -> &str {
    let cut = name.char_indices().rev().nth(NAME - 1);
    cut.map_or(name, |(at, _)| &name[at..])
}

#[derive(Serialize)]
struct Timed<'a> {
    /// Seconds since 1970.
    timestamp: f64,
    #[serde(flatten)]
    queue: &'a QueueCounters,
}

/// A JSON object for each queue.
pub(crate) fn json(queues: &[QueueCounters], timestamp: f64) -> String {
    let lines = queues.iter().map(|queue| {
        let line = serde_json::to_string(&Timed { timestamp, queue });
        line.expect("names and numbers can be written") + "\n"
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, more: &str) -> QueueCounters {
        let zeros = serde_json::to_value(QueueCounters::default()).unwrap();
        let mut value = zeros.as_object().unwrap().clone();
        value.insert("name".to_owned(), name.into());
        let more: serde_json::Map<_, _> = serde_json::from_str(more).unwrap();
        value.extend(more);
        serde_json::from_value(value.into()).unwrap()
    }

    /// D6: widths, and where a dash stands for what such a queue does not have.
    #[test]
    fn d6_the_columns_of_wq_monitor() {
        let bound = queue(
            "events",
            r#"{"started":18545,"completed":18544,"cpu_time":6149999,"cpu_intensive":3,
                "cm_wakeup":5}"#,
        );
        let unbound = queue(
            "a_name_of_more_than_twenty_four",
            r#"{"unbound":true,"mem_reclaim":true,"started":2,"completed":5,"cpu_intensive":9,
                "mayday":1,"rescued":4}"#,
        );
        let text = table(&[bound, unbound]);
        let expected = "\
                            total  infl  CPUtime CPUitsv CMW/RPR  mayday rescued\n\
events                      18545     1      6.1       3       5       -       -\n\
of_more_than_twenty_four        2     0        -       -       0       1       4\n";
        assert_eq!(text.trim_start(), expected.trim_start(), "{text}");
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(widths, [80; 3]);
    }

    #[test]
    fn a_server_may_say_any_number() {
        let most = queue(
            "most",
            r#"{"started":0,"completed":18446744073709551615,"cm_wakeup":18446744073709551615,
                "repatriated":18446744073709551615}"#,
        );
        assert!(table(&[most]).contains("18446744073709551615"));
    }

    #[test]
    fn names_are_cut_between_characters() {
        let name = "ä".repeat(30);
        assert_eq!(last_characters(&name).chars().count(), 24);
        assert_eq!(last_characters("short"), "short");
    }

    #[test]
    fn d6_json_is_json() {
        let text = json(&[queue("it's \"quoted\"", r#"{"unbound":true}"#)], 1.5);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["name"], "it's \"quoted\"");
        assert_eq!(
            (&value["timestamp"], &value["unbound"]),
            (&1.5.into(), &true.into())
        );
        for key in [
            "mem_reclaim",
            "started",
            "completed",
            "cpu_time",
            "cpu_intensive",
            "cm_wakeup",
            "repatriated",
            "mayday",
            "rescued",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
    }
}
