//! Rules `ordering-comment`, `seqcst` and `ordering-name`: every ordering names its partner, full
//! ordering comes from fences only, and orderings are written so that tools can find them.

use super::Finding;
use super::file::{Area, File};
use crate::scan::{SiteKind, Source, sites};

/// The rules for orderings in library crates.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let Some((source, structure)) = &file.rust else {
        return Vec::new();
    };
    if !file.is_library() || file.area == Area::Other {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for site in sites(source) {
        let at = site.path.start;
        let line = source.line(at);
        if site.ordering == "SeqCst" && site.kind == SiteKind::Access {
            let message =
                "SeqCst on an access; write fence(Ordering::SeqCst) on both sides instead";
            findings.push(file.finding(line, "seqcst", message));
        }
        let imported = structure
            .segment(at)
            .is_some_and(|s| source.text(s.head) == "use");
        let silent = site.kind == SiteKind::Pattern || site.ordering == "Relaxed" || imported;
        if silent || file.area != Area::Src || file.is_test(at) {
            continue;
        }
        if !file.is_tagged(at, "Ordering:") {
            let name = &site.ordering;
            let message = format!("{name} without an `Ordering:` comment that names its partner");
            findings.push(file.finding(line, "ordering-comment", message));
        }
    }
    for segment in structure
        .segments
        .iter()
        .filter(|s| source.text(s.head) == "use")
    {
        for i in segment.tokens.clone().filter(|&i| hides(source, i)) {
            let message = "write orderings as Ordering::X, so that readers and tools find them";
            findings.push(file.finding(source.line(i), "ordering-name", message));
        }
    }
    findings
}

/// Whether token `i` of an import names the orderings or renames their type.
fn hides(source: &Source, i: usize) -> bool {
    let compares = i >= 3 && source.text(i - 3) == "cmp";
    let imported = source.matches(i + 1, &[":", ":"]) || source.text(i + 1) == "as";
    source.text(i) == "Ordering" && !compares && imported
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::check;

    const LIB: &str = "crates/tags/src/lib.rs";

    fn rules(text: &str) -> Vec<String> {
        said(check, LIB, text)
            .iter()
            .map(|m| m.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn comment_missing() {
        for text in [
            "fn f() {\n    a.load(Ordering::Acquire);\n}",
            "fn f() {\n    // Acquire is needed here.\n    a.load(Ordering::Acquire);\n}",
            "fn f() {\n    fence(Ordering::Acquire);\n}",
            "fn f() {\n    self.asym.heavy(); let a = Ordering::Acquire;\n}",
            "fn f() {\n    a.f(\"// Ordering: x\", Ordering::Acquire);\n}",
            "fn f() {\n    // Ordering: of another\n    b();\n    a.load(Ordering::Acquire);\n}",
            "fn f() {\n // Ordering: of another\n if x {\n a.load(Ordering::Acquire);\n }\n}",
            "// Ordering: of another\nfn f() {\n    a.load(Ordering::Acquire);\n}",
            "macro_rules! m { ($a:expr) => {\n    $a.load(Ordering::Acquire)\n} }",
        ] {
            assert!(
                rules(text)
                    .iter()
                    .any(|r| r.ends_with("Acquire") || r.ends_with("heavy")),
                "{text}"
            );
        }
    }

    #[test]
    fn comment_present() {
        let good = "
            fn f() {
                // Ordering: pairs with g.
                a.load(Ordering::Acquire);
                a.load(Ordering::Acquire); // Ordering: pairs with g.
                // Ordering: pairs with g,
                // for two reasons.
                let x = b
                    .then()
                    .compare_exchange(
                        1,
                        2,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    );
                let x = b
                    // Ordering: pairs with g.
                    .swap(
                        1,
                        Ordering::AcqRel,
                    );
                let x = b.compare_exchange(
                    1,
                    // Ordering: pairs with g.
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                match x {
                    // Ordering: pairs with g.
                    A => a.load(Ordering::Acquire),
                    Ordering::SeqCst => Ordering::Relaxed,
                }
                // Ordering: pairs with g.
                S { x: a.load(Ordering::Acquire), y: 1 };
                // Ordering: pairs with g.
                self.asym.light();
                // Ordering: pairs with g.
                fence(Ordering::SeqCst);
                a.load(Ordering::Relaxed);
            }
            #[cfg(test)]
            mod tests { fn t() { a.load(Ordering::Acquire); } }
        ";
        assert!(rules(good).is_empty(), "{:?}", said(check, LIB, good));
        let bare = "fn f() { a.load(Ordering::Acquire); }";
        for path in [
            "crates/tags/tests/loom_a.rs",
            "crates/xtask/src/a.rs",
            "benches/benches/b.rs",
        ] {
            assert!(said(check, path, bare).is_empty(), "{path}");
        }
        assert_eq!(said(check, "crates/sync/src/wait/event.rs", bare).len(), 1);
    }

    #[test]
    fn seqcst_belongs_to_fences() {
        let bad = "fn f() {\n // Ordering: x\n a.load(Ordering::SeqCst);\n}";
        assert_eq!(rules(bad), ["3: SeqCst"]);
        assert_eq!(
            said(
                check,
                "crates/tags/tests/a.rs",
                "fn f() { a.swap(1, Ordering::SeqCst); }"
            )
            .len(),
            1
        );
        let good =
            "fn f() {\n // Ordering: x\n atomic::fence(Ordering::SeqCst);\n}\n// Ordering::SeqCst";
        assert!(rules(good).is_empty());
    }

    #[test]
    fn orderings_keep_their_name() {
        for bad in [
            "use a::Ordering::Acquire;",
            "use a::Ordering::*;",
            "use a::{B, Ordering as O};",
            "use a::{Ordering::{Acquire, Release}};",
        ] {
            assert_eq!(rules(bad), ["1: write"], "{bad}");
        }
        assert!(rules("use a::{Ordering, fence}; use std::cmp::Ordering::Less;").is_empty());
    }
}
