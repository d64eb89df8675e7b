//! Putting a switch behind every ordering, without moving a line.

use std::ops::Range;

use super::sites::{Class, Site};
use crate::scan::SiteKind;

/// `text` with each weakenable site of `sites` behind a call into the module at `switches`.
pub(crate) fn rewrite(text: &str, sites: &[&Site], switches: &str) -> String {
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for site in sites.iter().filter(|s| s.class == Class::Weakenable) {
        let number = site.number;
        match (site.kind, &site.callee) {
            (SiteKind::Fence, Some(callee)) => {
                edits.push((callee.clone(), format!("{switches}::fence")));
                edits.push((site.path.start..site.path.start, format!("{number}, ")));
            }
            (SiteKind::Asym, _) => {
                let method = site.id.text.trim_end_matches("()");
                edits.push((site.path.clone(), format!("mutant_{method}({number})")));
            }
            _ => {
                let path = &text[site.path.clone()];
                edits.push((
                    site.path.clone(),
                    format!("{switches}::pick({number}, {path})"),
                ));
            }
        }
    }
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let mut rewritten = text.to_owned();
    for (range, new) in edits {
        rewritten.replace_range(range, &new);
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mutants::sites::in_file;

    fn rewritten(text: &str) -> String {
        let mut sites = in_file(Path::new("a.rs"), text.to_owned(), &[], "p").unwrap();
        for (number, site) in sites.iter_mut().enumerate() {
            site.number = u32::try_from(number).unwrap();
        }
        rewrite(text, &sites.iter().collect::<Vec<_>>(), "::s::mutant")
    }

    #[test]
    fn every_form_is_rewritten_in_place() {
        let text = "fn f() {
            // Ordering::Acquire, Ordering: pairs with fence(Ordering::SeqCst)
            let s = \"Ordering::Acquire\"; x.load(Ordering::Relaxed);
            w.compare_exchange(
                a,
                b, // é
                atomic::Ordering::AcqRel,
                Ordering::Acquire,
            );
            atomic::fence(Ordering::SeqCst); fence( Ordering::Release );
            self.a.light();
        }";
        let expected = "fn f() {
            // Ordering::Acquire, Ordering: pairs with fence(Ordering::SeqCst)
            let s = \"Ordering::Acquire\"; x.load(Ordering::Relaxed);
            w.compare_exchange(
                a,
                b, // é
                ::s::mutant::pick(1, atomic::Ordering::AcqRel),
                ::s::mutant::pick(2, Ordering::Acquire),
            );
            ::s::mutant::fence(3, Ordering::SeqCst); ::s::mutant::fence( 4, Ordering::Release );
            self.a.mutant_light(5);
        }";
        assert_eq!(rewritten(text), expected);
    }

    #[test]
    fn macros_are_rewritten_and_tests_are_not() {
        let text = "macro_rules! m { ($a:expr) => { $a.load(Ordering::Acquire) } }
            #[cfg(test)] mod t { fn f() { a.load(Ordering::Acquire); } }
            #[cfg(not(loom))] fn g() { a.load(Ordering::Acquire); }";
        let expected = text.replacen(
            "Ordering::Acquire",
            "::s::mutant::pick(0, Ordering::Acquire)",
            1,
        );
        assert_eq!(rewritten(text), expected);
    }
}
