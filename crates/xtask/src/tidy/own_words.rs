//! Rule `own-word`: crates speak in the words of the kernel, tokio and crossbeam, and take up no
//! words of their own again. `docs/glossary.md` has the words that there are.

use super::Finding;
use super::file::File;
use crate::scan::Kind;

/// A word, and what to say instead.
type Entry = (&'static str, &'static str);

/// What is no word of its own in a crate, a folder below `crates/`: there it is plain English, or
/// the field says so.
const FREE: [(&str, &[&str]); 8] = [
    ("flush", &["gate", "gated", "hand", "visit"]),
    ("inflight", &["gate", "hand"]),
    ("sbitmap", &["crowd", "gate", "hand", "visit"]),
    ("sim", &["hand"]),
    ("steering", &["hand"]),
    ("sync", &["hand"]),
    ("tags", &["bell", "gate", "hand", "lent", "visit"]),
    ("topology", &["gate", "hand", "letter"]),
];

/// It has the words of this rule.
const NOT_LOOKED_AT: &str = "xtask";

/// What is written nowhere else in crates, in the singular. Beside each the word to use.
const WORDS: [(&str, &str); 23] = [
    ("alarm", "timer"),
    ("bell", "notify"),
    ("crowd", "submitters"),
    ("crowded", "short of CPUs"),
    ("culler", "idle timeout"),
    ("deed", "wake action"),
    ("distress", "mayday"),
    ("door", "workqueue or pwq"),
    ("gate", "pwq"),
    ("gated", "held"),
    ("hand", "batch"),
    ("keeper", "manager"),
    ("lent", "stolen"),
    ("letter", "entry"),
    ("mailbox", "queue"),
    ("muster", "create pools"),
    ("needy", "overloaded"),
    ("seat", "registration"),
    ("tally", "counts"),
    ("timekeeper", "timer"),
    ("turnstile", "lock"),
    ("uproot", "grab pending"),
    ("visit", "batch"),
];

/// What no name begins with in crates that have no words of their own; plain English elsewhere.
const IN_NAMES: [&str; 2] = ["keep", "kept"];

/// What no shipped name has in it in the crates of [`BITMAP_CRATES`], and what it has instead. In
/// prose they are plain English.
const IN_BITMAP_NAMES: [(&str, &str); 11] = [
    ("bundle", "mask"),
    ("calm", "unlock"),
    ("deliver", "set held"),
    ("guarded", "locked"),
    ("ledger", "accounts"),
    ("mover", "refill"),
    ("patience", "stall limit"),
    ("retire", "free"),
    ("teller", "wakers"),
    ("ticket", "key"),
    ("watcher", "watchdog"),
];

/// The crates whose names are checked for [`IN_BITMAP_NAMES`].
const BITMAP_CRATES: [&str; 4] = ["sbitmap", "steering", "sync", "tags"];

/// What is written nowhere in the crates of [`WAITING_CRATES`] either, in the singular.
const WAITING_WORDS: [(&str, &str); 6] = [
    ("glance", "load"),
    ("lane", "list"),
    ("marked", "set"),
    ("observer", "block hook"),
    ("settle", "drain"),
    ("settled", "drained"),
];

/// What no shipped name of theirs has in it. In prose they are plain English.
const IN_WAITING_NAMES: [(&str, &str); 3] = [
    ("mark", "summary bit, or data"),
    ("marks", "summary, or data"),
    ("sight", "scan"),
];

/// Those that keep ids and those who wait for them.
const WAITING_CRATES: [&str; 2] = ["sbitmap", "sync"];

/// What no shipped name of the tags crate has in it, and what it has instead. In prose they are
/// plain English.
const IN_TAG_NAMES: [(&str, &str); 12] = [
    ("class", "tenant"),
    ("follower", "subscriber"),
    ("forgiven", "idle after timeout"),
    ("geometry", "layout"),
    ("hand", "pending tag"),
    ("home", "mapped queue"),
    ("line", "wait queue"),
    ("marked", "active, or timed out"),
    ("settle", "is last"),
    ("shut", "closed"),
    ("stay", "wait"),
    ("targets", "tag maps"),
];

const TAG_CRATE: &str = "tags";

/// Names of other crates.
const FOREIGN: [&str; 1] = ["Visit"];

/// Words of their own in the text, and in the name, of a file.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let package = file.package.as_deref();
    let Some(package) = package.filter(|_| !file.path.ends_with("CHANGELOG.md")) else {
        return Vec::new();
    };
    if package == NOT_LOOKED_AT {
        return Vec::new();
    }
    let free = FREE.iter().find(|(name, _)| *name == package);
    let free = free.map_or(&[][..], |(_, free)| free);
    let mut findings = Vec::new();
    let more: &[_] = if WAITING_CRATES.contains(&package) {
        &WAITING_WORDS
    } else {
        &[]
    };
    let mut look = |line, text: &str| {
        let words = words(text);
        let own = |word: &String| own(&WORDS, word).or_else(|| own(more, word));
        let mut own = words.iter().filter_map(own);
        let own = own.find(|(word, _)| !free.contains(word));
        if let Some((word, instead)) = own {
            let message = format!("\"{word}\": say {instead}, or what the glossary says");
            findings.push(file.finding(line, "own-word", message));
        }
    };
    look(1, &file.path.to_string_lossy());
    for (number, line) in file.text.lines().enumerate() {
        look(number + 1, line);
    }
    let Some((source, _)) = file.rust.as_ref() else {
        return findings;
    };
    let shipped = file.path.components().any(|part| part.as_os_str() == "src");
    for i in 0..source.tokens.len() {
        let name = source.text(i);
        if source.tokens[i].kind != Kind::Ident {
            continue;
        }
        let words = words(name);
        if shipped && BITMAP_CRATES.contains(&package) {
            let waiting = WAITING_CRATES.contains(&package);
            let more = IN_WAITING_NAMES.iter().filter(|_| waiting);
            let tags = IN_TAG_NAMES.iter().filter(|_| package == TAG_CRATE);
            let mut own = IN_BITMAP_NAMES.iter().chain(more).chain(tags);
            if let Some((word, instead)) = own.find(|(own, _)| words.iter().any(|w| w == own)) {
                let message = format!("{name}: for \"{word}\" say {instead}");
                findings.push(file.finding(source.line(i), "own-word", message));
            }
        }
        if !free.is_empty() {
            continue;
        }
        if words.first().is_some_and(|w| IN_NAMES.contains(&&**w)) {
            let message = format!("{name} is named after nothing that the glossary has");
            findings.push(file.finding(source.line(i), "own-word", message));
        }
    }
    findings
}

/// The words of a text, also those of which names are made, in small letters.
fn words(text: &str) -> Vec<String> {
    let names = text.split(|c: char| !c.is_ascii_alphanumeric());
    let names = names.filter(|name| !FOREIGN.contains(name));
    let mut words = Vec::new();
    for name in names {
        let mut word = String::new();
        for c in name.chars() {
            let begins = c.is_ascii_uppercase() && word.ends_with(|c: char| c.is_ascii_lowercase());
            if begins {
                words.push(std::mem::take(&mut word).to_ascii_lowercase());
            }
            word.push(c);
        }
        words.push(word.to_ascii_lowercase());
    }
    words
}

/// The entry of a list of words that this is, in the singular or the plural.
fn own(list: &[Entry], word: &str) -> Option<Entry> {
    let is = |own: &str| {
        let rest = word.strip_prefix(own);
        let plural = own.strip_suffix('y').map(|stem| format!("{stem}ies"));
        matches!(rest, Some("" | "s" | "es")) || plural.is_some_and(|p| p == word)
    };
    list.iter().copied().find(|(own, _)| is(own))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lines, said};
    use super::{
        BITMAP_CRATES, IN_BITMAP_NAMES, IN_TAG_NAMES, IN_WAITING_NAMES, WAITING_CRATES,
        WAITING_WORDS, WORDS, check,
    };

    const LIB: &str = "crates/workqueue/src/lib.rs";

    #[test]
    fn each_word_is_found_wherever_it_stands() {
        for (word, _) in WORDS {
            let mut name = word.to_owned();
            name[..1].make_ascii_uppercase();
            for text in [
                format!("\n// the {word} of a worker"),
                format!("\nfn a_{word}_is_open() {{}}"),
                format!("\nstruct Pool{name};"),
                format!("\nstruct {name}Ref;"),
                format!("\nconst A: &str = \"{word}s\";"),
                format!("\nconst {}_MAX: u8 = 1;", word.to_ascii_uppercase()),
            ] {
                assert_eq!(lines(check, LIB, &text), [2], "{text}");
            }
            let path = format!("crates/workqueue/tests/{word}_cases.rs");
            assert_eq!(lines(check, &path, "\n"), [1], "{path}");
            let page = "crates/workqueue/PROTOCOL.md";
            assert_eq!(
                lines(check, page, &format!("a\nThe {word}.")),
                [2],
                "{word}"
            );
        }
    }

    #[test]
    fn it_says_what_to_say_instead() {
        assert_eq!(
            said(check, LIB, "fn ring_the_bell() {}"),
            ["1: \"bell\": say notify, or what the glossary says"]
        );
        assert_eq!(said(check, LIB, "fn tallies() {}").len(), 1);
    }

    #[test]
    fn names_that_begin_so() {
        for name in ["keep", "kept", "keep_going", "KeptWork"] {
            let text = format!("\nconst A: u8 = {name};");
            assert_eq!(lines(check, LIB, &text), [2], "{name}");
        }
        let good = "/// What is kept: keep it.\nfn it_keeps() { i_keep_it() }";
        assert!(lines(check, LIB, good).is_empty());
    }

    #[test]
    fn names_of_the_bitmap_crates() {
        for package in BITMAP_CRATES {
            let path = format!("crates/{package}/src/a.rs");
            for (word, instead) in IN_BITMAP_NAMES {
                let text = format!("// The {word} of a bitmap.\nfn is_{word}_here() {{}}");
                let message = format!("2: is_{word}_here: for \"{word}\" say {instead}");
                assert_eq!(said(check, &path, &text), [message]);
            }
        }
        assert!(said(check, "crates/flush/src/a.rs", "fn guarded() {}").is_empty());
    }

    #[test]
    fn names_of_the_tags_crate() {
        for (word, instead) in IN_TAG_NAMES {
            let text = format!("// The {word} of a tag.\nfn is_{word}_here() {{}}");
            let message = format!("2: is_{word}_here: for \"{word}\" say {instead}");
            assert_eq!(said(check, "crates/tags/src/a.rs", &text), [message]);
            assert!(said(check, "crates/tags/tests/a.rs", &text).is_empty());
            assert!(said(check, "crates/steering/src/a.rs", &text).is_empty());
        }
    }

    #[test]
    fn words_of_the_crates_that_wait() {
        for package in WAITING_CRATES {
            let source = format!("crates/{package}/src/a.rs");
            let page = format!("crates/{package}/PROTOCOL.md");
            for (word, instead) in WAITING_WORDS {
                let message = format!("2: \"{word}\": say {instead}, or what the glossary says");
                for (path, text) in [(&source, "\n// a "), (&page, "\nA ")] {
                    let text = format!("{text}{word} of it");
                    assert_eq!(said(check, path, &text).concat(), message, "{path}");
                    assert!(said(check, "crates/steering/src/a.rs", &text).is_empty());
                }
            }
            for (word, instead) in IN_WAITING_NAMES {
                let text = format!("// A {word}.\nfn the_{word}() {{}}");
                let message = format!("2: the_{word}: for \"{word}\" say {instead}");
                assert_eq!(said(check, &source, &text), [message]);
                assert!(said(check, "crates/steering/src/a.rs", &text).is_empty());
            }
        }
    }

    #[test]
    fn what_is_no_such_word() {
        let good = "// A handle of an investigator, delegates; doorway.\n\
                    struct JoinHandle; impl Visit for A {}";
        assert!(said(check, LIB, good).is_empty());
        assert!(said(check, "crates/tags/src/a.rs", "fn gate() {}").is_empty());
        assert!(said(check, "crates/steering/src/a.rs", "fn keep_hand() {}").is_empty());
        for package in ["steering", "tags", "inflight-wq"] {
            let path = format!("crates/{package}/src/a.rs");
            assert_eq!(lines(check, &path, "struct MailboxHandle;"), [1], "{path}");
        }
        assert!(said(check, "crates/xtask/src/a.rs", "struct Mailbox;").is_empty());
        assert!(said(check, "crates/workqueue/CHANGELOG.md", "gate").is_empty());
    }
}
