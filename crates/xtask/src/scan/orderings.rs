//! Every place where a memory ordering is written down.

use std::ops::Range;

use super::source::{Kind as Token, Source};

/// How an ordering is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The argument of a load, store or read-modify-write, or a value on its way there.
    Access,
    /// The argument of `fence`.
    Fence,
    /// The argument of `compiler_fence`.
    CompilerFence,
    /// A call of `light()` or `heavy()`: a fence with another price.
    Asym,
    /// A pattern: it compares orderings and gives none.
    Pattern,
}

/// A place in the source that names an ordering.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) kind: Kind,
    /// `Acquire`, `SeqCst`, …; for [`Kind::Asym`] the method.
    pub(crate) ordering: String,
    /// The path of the ordering; for [`Kind::Asym`] the method and its parentheses.
    pub(crate) path: Range<usize>,
    /// The path of the `fence` function.
    pub(crate) callee: Option<Range<usize>>,
}

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// All sites of a file, in order.
pub(crate) fn sites(source: &Source) -> Vec<Site> {
    (0..source.tokens.len())
        .filter_map(|i| named(source, i).or_else(|| asym(source, i)))
        .collect()
}

fn named(source: &Source, i: usize) -> Option<Site> {
    if !source.matches(i, &["Ordering", ":", ":"]) || !ORDERINGS.contains(&source.text(i + 3)) {
        return None;
    }
    let path = path_start(source, i)..i + 4;
    let before = path.start.checked_sub(1).map_or("", |b| source.text(b));
    let after = source.text(path.end);
    let arrow = source.matches(path.end, &["=", ">"]);
    // `||` is an operator, a lone `|` separates patterns.
    let bar = |b: usize| source.text(b) == "|";
    let barred = (after == "|" && !bar(path.end + 1))
        || (before == "|"
            && path.start >= 2
            && !bar(path.start - 2)
            && !closure(source, path.start - 1));
    let mut callee = None;
    let kind = if arrow || barred || after == "if" {
        Kind::Pattern
    } else if before == "(" && after == ")" && path.start >= 2 {
        callee = Some(path_start(source, path.start - 2)..path.start - 1);
        match source.text(path.start - 2) {
            "fence" => Kind::Fence,
            "compiler_fence" => Kind::CompilerFence,
            _ => Kind::Access,
        }
    } else {
        Kind::Access
    };
    let ordering = source.text(i + 3).to_owned();
    Some(Site {
        kind,
        ordering,
        path,
        callee: callee.filter(|_| kind == Kind::Fence),
    })
}

/// Whether the `|` at `bar` ends the parameters of a closure.
fn closure(source: &Source, bar: usize) -> bool {
    (bar.saturating_sub(8)..bar)
        .rev()
        .take_while(|&i| source.text(i) != ";")
        .any(|i| {
            source.text(i) == "|"
                && matches!(source.text(i.saturating_sub(1)), "(" | "," | "=" | "move")
        })
}

fn asym(source: &Source, i: usize) -> Option<Site> {
    let method = source.text(i);
    let called = matches!(method, "light" | "heavy") && source.matches(i + 1, &["(", ")"]);
    (called && i > 0 && source.text(i - 1) == ".").then(|| Site {
        kind: Kind::Asym,
        ordering: method.to_owned(),
        path: i..i + 3,
        callee: None,
    })
}

/// Where the path that has token `i` as its last or a middle part begins.
fn path_start(source: &Source, mut i: usize) -> usize {
    while i >= 2 && source.matches(i - 2, &[":", ":"]) {
        i -= 2;
        let named = i > 0 && source.tokens[i - 1].kind == Token::Ident;
        // A keyword before `::` starts no path: `return ::a::b`.
        if named && source.text(i - 1) != "return" {
            i -= 1;
        } else {
            break;
        }
    }
    i
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Kind, String, String)> {
        let source = Source::parse(text.to_owned()).unwrap();
        let shown = |site: Site| {
            let from = source.tokens[site.callee.as_ref().map_or(site.path.start, |c| c.start)]
                .span
                .start;
            let to = source.tokens[site.path.end - 1].span.end;
            (site.kind, site.ordering, source.text[from..to].to_owned())
        };
        sites(&source).into_iter().map(shown).collect()
    }

    fn one(text: &str, kind: Kind, ordering: &str, path: &str) {
        assert_eq!(
            found(text),
            [(kind, ordering.to_owned(), path.to_owned())],
            "{text}"
        );
    }

    #[test]
    fn accesses() {
        one(
            "a.load(Ordering::Acquire)",
            Kind::Access,
            "Acquire",
            "Ordering::Acquire",
        );
        one(
            "a.store(1, atomic::Ordering::Release)",
            Kind::Access,
            "Release",
            "atomic::Ordering::Release",
        );
        one(
            "let o = if c { Ordering::AcqRel } else { x };",
            Kind::Access,
            "AcqRel",
            "Ordering::AcqRel",
        );
        one(
            "f(x || Ordering::Acquire == y)",
            Kind::Access,
            "Acquire",
            "Ordering::Acquire",
        );
        one(
            "f(|o| Ordering::Acquire)",
            Kind::Access,
            "Acquire",
            "Ordering::Acquire",
        );
    }

    #[test]
    fn both_orderings_of_an_exchange() {
        let text =
            "w.compare_exchange(\n a,\n // Ordering: x\n Ordering::AcqRel,\n Ordering::Relaxed,\n)";
        let kinds: Vec<_> = found(text).into_iter().map(|f| (f.0, f.1)).collect();
        assert_eq!(
            kinds,
            [
                (Kind::Access, "AcqRel".into()),
                (Kind::Access, "Relaxed".into())
            ]
        );
    }

    #[test]
    fn fences() {
        one(
            "fence(Ordering::SeqCst);",
            Kind::Fence,
            "SeqCst",
            "fence(Ordering::SeqCst",
        );
        one(
            "::a::atomic::fence(Ordering::SeqCst);",
            Kind::Fence,
            "SeqCst",
            "::a::atomic::fence(Ordering::SeqCst",
        );
        one(
            "compiler_fence(Ordering::SeqCst);",
            Kind::CompilerFence,
            "SeqCst",
            "Ordering::SeqCst",
        );
        one("self.asym.light();", Kind::Asym, "light", "light()");
        assert!(found("light(); x.light(1); fn heavy() {}").is_empty());
    }

    #[test]
    fn patterns_comments_strings_and_cmp_are_not_uses() {
        one(
            "match o { Ordering::Acquire => 1 }",
            Kind::Pattern,
            "Acquire",
            "Ordering::Acquire",
        );
        let kinds: Vec<_> = found("matches!(o, Ordering::Acquire | Ordering::AcqRel)")
            .into_iter()
            .map(|f| f.0)
            .collect();
        assert_eq!(kinds, [Kind::Pattern, Kind::Pattern]);
        assert!(
            found("// Ordering::Acquire\n/// Ordering::SeqCst\nfn f() { \"Ordering::Release\" }")
                .is_empty()
        );
        assert!(found("a.cmp(b) == Ordering::Less").is_empty());
    }

    #[test]
    fn macro_bodies_count() {
        one(
            "macro_rules! m { ($a:expr) => { $a.load(Ordering::Acquire) } }",
            Kind::Access,
            "Acquire",
            "Ordering::Acquire",
        );
    }
}
