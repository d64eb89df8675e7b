//! Rules `unfinished`, `ignored-test`, `debug-print`, `sleep` and `comment-tag`: what is left
//! behind when work stops half-way, and tests that lean on the clock.

use super::Finding;
use super::file::File;
use crate::scan::{Kind, Source};

/// Tags that promise later work. Spelled in halves, so that this file may be checked as well.
const TAGS: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// What must not be left in the tree.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let mut findings = tags(file);
    let Some((source, _)) = &file.rust else {
        return findings;
    };
    for i in 0..source.tokens.len() {
        if let Some((rule, message)) = banned(source, i) {
            findings.push(file.finding(source.line(i), rule, message));
        }
        if sleeps(source, i) && file.is_test(i) && !file.is_tagged(i, "Why:") {
            let message = "thread::sleep in a test: wait for the condition itself \
                           (or say with `Why:` that sleeping is the subject)";
            findings.push(file.finding(source.line(i), "sleep", message));
        }
    }
    findings
}

fn banned(source: &Source, i: usize) -> Option<(&'static str, String)> {
    let name = source.text(i);
    if source.tokens[i].kind != Kind::Ident {
        return None;
    }
    let called = source.text(i + 1) == "!" && source.text(i + 2) != "=";
    match name {
        "todo" | "unimplemented" if called => Some(("unfinished", format!("{name}! is not code"))),
        "dbg" if called => Some(("debug-print", "dbg! is for the moment only".to_owned())),
        "ignore" if attribute(source, i) => Some((
            "ignored-test",
            "a test that does not run proves nothing".to_owned(),
        )),
        _ => None,
    }
}

/// Whether token `i` begins an attribute, or one inside `cfg_attr`.
fn attribute(source: &Source, i: usize) -> bool {
    if i >= 2 && source.matches(i - 2, &["#", "["]) {
        return true;
    }
    let conditional = |open: usize| source.opens(open, '(') && source.tokens[open].mate > i;
    let at = (0..i).rev().find(|&open| conditional(open));
    at.is_some_and(|open| {
        open > 0 && source.text(open - 1) == "cfg_attr" && source.text(i - 1) == ","
    })
}

fn sleeps(source: &Source, i: usize) -> bool {
    if !source.matches(i, &["thread", ":", ":"]) {
        return false;
    }
    let end = source.tokens.get(i + 3).map_or(i + 3, |t| t.mate);
    source.text(i + 3) == "sleep"
        || (source.opens(i + 3, '{') && (i + 4..end).any(|j| source.text(j) == "sleep"))
}

/// Tags stand in comments of Rust files and anywhere in the text of others.
fn tags(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut look = |first: usize, text: &str| {
        for (offset, line) in text.lines().enumerate() {
            let words = || line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(tag) = TAGS.iter().find(|tag| words().any(|w| w == **tag)) {
                let message = format!("{tag}: do it, or write it where plans are kept");
                findings.push(file.finding(first + offset, "comment-tag", message));
            }
        }
    };
    match &file.rust {
        Some((source, _)) => {
            for comment in &source.comments {
                look(source.line_at(comment.span.start), source.comment(comment));
            }
        }
        None if file.path.ends_with("Cargo.lock") => {}
        None => look(1, &file.text),
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lines, said};
    use super::{TAGS, check};

    const LIB: &str = "crates/tags/src/lib.rs";

    #[test]
    fn unfinished_work() {
        for bad in [
            "fn f() { todo!() }",
            "fn f() { unimplemented!(\"x\") }",
            "fn f() { dbg!(1); }",
            "#[ignore] fn t() {}",
            "#[ignore = \"slow\"] fn t() {}",
            "#[cfg_attr(miri, ignore)] fn t() {}",
        ] {
            assert_eq!(lines(check, LIB, bad), [1], "{bad}");
        }
        let good = "/// todo!() dbg!() #[ignore]\n\
                    fn todo() { if dbg != 1 { \"todo!()\" } ignore(a, ignore) }";
        assert!(said(check, LIB, good).is_empty());
    }

    #[test]
    fn sleeping_tests() {
        let bare = "fn t() { thread::sleep(d); }";
        assert_eq!(lines(check, "crates/tags/tests/a.rs", bare), [1]);
        assert_eq!(
            lines(
                check,
                "crates/tags/tests/a.rs",
                "use a::thread::{self, sleep};"
            ),
            [1]
        );
        assert_eq!(
            lines(check, LIB, &format!("#[cfg(test)]\nmod tests {{ {bare} }}")),
            [2]
        );
        assert!(lines(check, LIB, bare).is_empty());
        let reasoned =
            "fn t() {\n // Why: the pool must notice a silent sleeper.\n thread::sleep(d);\n}";
        assert!(lines(check, "crates/tags/tests/a.rs", reasoned).is_empty());
    }

    #[test]
    fn comment_tags() {
        for tag in TAGS {
            assert_eq!(
                lines(check, LIB, &format!("fn f() {{}}\n// {tag}: later")),
                [2]
            );
            assert_eq!(lines(check, LIB, &format!("/* a\n {tag}(me) */")), [2]);
            assert_eq!(lines(check, "docs/a.md", &format!("a\n\n{tag} b")), [3]);
            assert!(
                lines(
                    check,
                    LIB,
                    &format!("const {tag}: &str = \"{tag}\"; // {tag}S")
                )
                .is_empty()
            );
        }
    }
}
