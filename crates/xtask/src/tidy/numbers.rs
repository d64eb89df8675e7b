//! Rule `number`: a number that a page gives is the constant's it speaks of.

use super::Finding;
use std::path::Path;

/// A constant, and the sentences that give its value at `{}`.
struct Tied {
    source: &'static str,
    name: &'static str,
    said: &'static [(&'static str, &'static str)],
}

const FAIRNESS: &str = "crates/sbitmap/src/fairness.rs";
const SBITMAP: &str = "crates/sbitmap/README.md";
const BOOK: &str = "docs/sbitmap.md";
const TURNS: &str = "crates/sbitmap/PROTOCOL-turns.md";
const GLOSSARY: &str = "docs/glossary.md";

const TIED: [Tied; 4] = [
    Tied {
        source: "crates/sbitmap/src/turns/turn.rs",
        name: "QUANTUM",
        said: &[
            (FAIRNESS, "may take up to {} bits past those who wait"),
            (FAIRNESS, "+ 11) * {}` bits go"),
            (SBITMAP, "takes up to {} bits in its turn"),
            (SBITMAP, "turn has 2 bits instead of {},"),
            (BOOK, "+ 11) * {}`,"),
            (TURNS, "| `k`, ids of a turn | {} |"),
            (
                GLOSSARY,
                "up to {} bits that it may take past those who wait",
            ),
            (
                "crates/sbitmap/src/lib.rs",
                "may take up to {} bits before the next is woken",
            ),
        ],
    },
    Tied {
        source: "crates/sbitmap/src/turns/turn.rs",
        name: "TURN_LIFE",
        said: &[
            (FAIRNESS, "is over after 13 bits or {} later grants"),
            (FAIRNESS, "`(p + {}) * 13`"),
            (SBITMAP, "`(p + {}) * 13`"),
            (TURNS, "| `w`, grants after which a turn is over | {} |"),
            (GLOSSARY, "over after {} later grants"),
        ],
    },
    Tied {
        source: "crates/sbitmap/src/turns/stall_watchdog.rs",
        name: "STALL_LIMIT",
        said: &[
            (FAIRNESS, "go on after {} more bits have come back"),
            (TURNS, "before it is given up | {} |"),
        ],
    },
    Tied {
        source: "crates/tags/src/shared.rs",
        name: "DEFAULT_TIMEOUT",
        said: &[("crates/tags/src/builder.rs", "by default {} /// seconds")],
    },
];

/// Sentences that give another number, or are no longer there.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    TIED.iter().flat_map(|tied| tied.check(root)).collect()
}

impl Tied {
    fn check(&self, root: &Path) -> Vec<Finding> {
        // A workspace of a test has none of these files.
        let Ok(source) = std::fs::read_to_string(root.join(self.source)) else {
            return Vec::new();
        };
        let Some(value) = value_of(self.name, &source) else {
            let message = format!(
                "has no constant {}, which pages give the value of",
                self.name
            );
            return vec![finding(self.source, message)];
        };
        let wrong = |(page, said): &&(&str, &str)| {
            let text = std::fs::read_to_string(root.join(page)).unwrap_or_default();
            // Lines may break anywhere.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            !text.contains(&said.replace("{}", &value.to_string()))
        };
        let say = |(page, said): &(&'static str, &str)| {
            let name = self.name;
            finding(
                page,
                format!("does not say \"{said}\" with {name} = {value}"),
            )
        };
        self.said.iter().filter(wrong).map(say).collect()
    }
}

fn finding(file: &str, message: String) -> Finding {
    Finding {
        file: file.into(),
        line: 1,
        rule: "number",
        message,
    }
}

/// The last number of a constant's definition: what stands before it is for models, or a unit.
fn value_of(name: &str, source: &str) -> Option<u64> {
    let at = source.find(&format!("const {name}:"))?;
    let definition = source[at..].split(';').next()?.split('=').nth(1)?;
    let digits = |c: char| !(c.is_ascii_digit() || c == '_');
    let mut numbers = definition
        .split(digits)
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    numbers.next_back()?.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_the_last_number() {
        let source = "const A: u32 = if cfg!(loom) { 2 } else { 1_300 };\n\
                      const B: Duration = Duration::from_secs(30);";
        assert_eq!(value_of("A", source), Some(1_300));
        assert_eq!(value_of("B", source), Some(30));
        assert_eq!(value_of("C", source), None);
    }

    #[test]
    fn a_page_that_gives_another_number_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let tied = Tied {
            source: "a.rs",
            name: "A",
            said: &[("a.md", "at most {} of them")],
        };
        assert!(tied.check(dir.path()).is_empty(), "another workspace");
        write("a.rs", "const A: usize = 13;");
        write("a.md", "at most 13 of them");
        assert!(tied.check(dir.path()).is_empty());
        write("a.md", "There are at most\n13 of them.");
        assert!(tied.check(dir.path()).is_empty());
        write("a.md", "at most 16 of them");
        assert_eq!(tied.check(dir.path()).len(), 1);
        write("a.rs", "const B: usize = 13;");
        assert_eq!(tied.check(dir.path()).len(), 1);
    }
}
