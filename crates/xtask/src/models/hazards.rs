//! The hazards a model is about, written in front of its name: `h1_h18_put_wakes` is about H1 and
//! H18, `i26_idle_worker` about I.26, `fl7_the_leader_leaves` about FL.7.

/// The hazards in the name of a test function, which may carry its modules.
pub(crate) fn of(name: &str) -> Vec<String> {
    let function = name.rsplit("::").next().unwrap_or(name);
    function.split('_').map_while(named).collect()
}

/// The hazard that `name` stands for: `h4` and `H4` are H4; `i26`, `I26` and `I.26` are I.26;
/// `fl7` and `FL.7` are FL.7.
pub(crate) fn named(name: &str) -> Option<String> {
    let name = name.trim();
    let digits = name.find(|c: char| !c.is_ascii_alphabetic())?;
    let (kind, number) = name.split_at(digits);
    let dotted = number.strip_prefix('.').unwrap_or(number);
    let (shown, number) = match kind {
        "h" | "H" => ("H", number),
        "i" | "I" => ("I.", dotted),
        "fl" | "FL" => ("FL.", dotted),
        _ => return None,
    };
    let valid = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    valid.then(|| format!("{shown}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hazards_come_from_the_name() {
        assert_eq!(of("h4_event_thread"), ["H4"]);
        assert_eq!(of("wait::h1_h18_i26_put_h9"), ["H1", "H18", "I.26"]);
        assert!(of("hold_h4").is_empty());
        assert!(of("i_h4").is_empty());
        assert!(of("event").is_empty());
    }

    #[test]
    fn names_are_read_in_every_spelling() {
        for name in ["I.26", "i26", "I26", " i.26 "] {
            assert_eq!(named(name).unwrap(), "I.26");
        }
        assert_eq!(named("h4").unwrap(), "H4");
        assert_eq!(named("fl7"), named("FL.7"));
        for name in ["", "H", "H4a", "x4", "4", "é"] {
            assert_eq!(named(name), None, "{name}");
        }
    }
}
