//! The written arguments for what no model notices, and whether they still fit.
//!
//! ```text
//! - survivor: PATH FUNCTION TEXT #K -> WEAKER: why this is right all the same
//! - unmodelled: PATH FUNCTION TEXT #K: what stands in place of a model
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};

use super::hunt::Fate;
use super::numbered;
use super::sites::{Class, Scope, Site};

/// An argument of fewer words is none.
const WORDS: usize = 3;

/// One line of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    line: usize,
    /// The site and, for a survivor, ` -> ` and the weaker form.
    about: String,
    survivor: bool,
}

/// All lines of the document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments(Vec<Argument>);

/// How the results and the arguments fit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    /// Survivors and sites outside the models that the document argues.
    pub(crate) argued: BTreeSet<String>,
    /// Those it does not.
    pub(crate) unargued: BTreeSet<String>,
    /// Lines about nothing that survived.
    pub(crate) stale: Vec<String>,
}

impl Judged {
    /// Whether nothing is left to do.
    pub(crate) fn clean(&self) -> bool {
        self.unargued.is_empty() && self.stale.is_empty()
    }
}

/// How the document names a mutant.
pub(crate) fn name(site: &Site, fate: &Fate) -> String {
    format!("{} -> {}", site.id, site.shown(fate.weaker))
}

impl Arguments {
    /// Reads the document; one that does not exist argues nothing.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        Self::parse(&std::fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut arguments: Vec<Argument> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line_number = number + 1;
            let survivor = line.trim_start().strip_prefix("- survivor:");
            let Some(rest) = survivor.or_else(|| line.trim_start().strip_prefix("- unmodelled:"))
            else {
                continue;
            };
            let Some((about, reason)) = rest.trim().split_once(": ") else {
                bail!("line {line_number} of the arguments has no `: reason`");
            };
            let about = about.replace('`', "");
            if survivor.is_some() != about.contains(" -> ") {
                bail!("line {line_number} of the arguments: a survivor, and only that, has ` -> `");
            }
            if reason.split_whitespace().count() < WORDS {
                bail!("line {line_number} of the arguments gives no reason");
            }
            if arguments.iter().any(|a| a.about == about) {
                bail!("line {line_number} of the arguments repeats {about}");
            }
            let survivor = survivor.is_some();
            arguments.push(Argument {
                line: line_number,
                about,
                survivor,
            });
        }
        Ok(Self(arguments))
    }

    /// Compares the arguments with what became of the mutants. Only when `all` mutants of the
    /// scopes were run can an argument about a site that is not there be stale.
    pub(crate) fn judge(
        &self,
        sites: &[Site],
        fates: &[Fate],
        all: bool,
        scopes: &[Scope],
    ) -> Judged {
        let mut judged = Judged::default();
        let mut settled = BTreeSet::new();
        let mut sort = |name: String, survivor: bool| {
            let listed = self
                .0
                .iter()
                .any(|a| a.about == name && a.survivor == survivor);
            let into = if listed {
                &mut judged.argued
            } else {
                &mut judged.unargued
            };
            into.insert(name);
        };
        for fate in fates {
            let Some(site) = numbered(sites, fate.site) else {
                continue;
            };
            if fate.end.is_kill() {
                settled.insert(name(site, fate));
            } else {
                sort(name(site, fate), true);
            }
        }
        for site in sites.iter().filter(|s| s.class == Class::Unmodelled) {
            sort(site.id.to_string(), false);
        }
        for argument in &self.0 {
            let about = &argument.about;
            if judged.argued.contains(about) {
                continue;
            }
            let path = Path::new(about.split(' ').next().unwrap_or(""));
            let ours = all
                && scopes
                    .iter()
                    .any(|s| s.covers(path) || path.starts_with(&s.folder));
            let why = if settled.contains(about) {
                "is killed"
            } else if ours {
                "is not in the code"
            } else {
                continue;
            };
            judged
                .stale
                .push(format!("{}: {about} {why}", argument.line));
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::super::hunt::End;
    use super::super::sites::{Weaker, in_file};
    use super::*;

    fn sites() -> Vec<Site> {
        let text = "fn f() { a.load(Ordering::Acquire); b.load(Ordering::Acquire); }
            #[cfg(not(loom))] fn g() { a.load(Ordering::Acquire); }";
        let mut sites = in_file(Path::new("crates/a/src/x.rs"), text.to_owned(), &[], "a").unwrap();
        for (number, site) in sites.iter_mut().enumerate() {
            site.number = u32::try_from(number).unwrap();
        }
        sites
    }

    fn fates() -> Vec<Fate> {
        let killed = End::Killed {
            model: "m".into(),
            reason: String::new(),
        };
        let fate = |site, end| Fate {
            site,
            weaker: Weaker::To("Relaxed"),
            end,
            seconds: 0.0,
        };
        vec![fate(0, killed), fate(1, End::Survived { models: 1 })]
    }

    fn judge(text: &str, all: bool) -> Judged {
        let scope = Scope::for_tests("crates/a");
        Arguments::parse(text)
            .unwrap()
            .judge(&sites(), &fates(), all, &[scope])
    }

    const SURVIVOR: &str =
        "- survivor: `crates/a/src/x.rs f Acquire #2 -> Relaxed`: the lock orders it\n";
    const UNMODELLED: &str =
        "  - unmodelled: crates/a/src/x.rs g Acquire #1: only asm, see the proof\n";

    #[test]
    fn survivors_need_an_argument() {
        let judged = judge("# Orderings\n", true);
        assert_eq!(judged.unargued.len(), 2);
        assert!(
            judged
                .unargued
                .contains("crates/a/src/x.rs f Acquire #2 -> Relaxed")
        );
        assert!(judged.unargued.contains("crates/a/src/x.rs g Acquire #1"));
        assert!(!judged.clean());
        let judged = judge(&format!("text\n{SURVIVOR}{UNMODELLED}"), true);
        assert!(judged.clean(), "{judged:?}");
        assert_eq!(judged.argued.len(), 2);
    }

    #[test]
    fn arguments_go_stale() {
        let killed = "- survivor: crates/a/src/x.rs f Acquire #1 -> Relaxed: the lock orders it\n";
        let gone = "- survivor: crates/a/src/y.rs f Acquire #1 -> Relaxed: the lock orders it\n";
        let other = "- survivor: crates/b/src/y.rs f Acquire #1 -> Relaxed: the lock orders it\n";
        let text = format!("{SURVIVOR}{UNMODELLED}{killed}{gone}{other}");
        let expected = [
            "3: crates/a/src/x.rs f Acquire #1 -> Relaxed is killed",
            "4: crates/a/src/y.rs f Acquire #1 -> Relaxed is not in the code",
        ];
        assert_eq!(judge(&text, true).stale, expected);
        assert_eq!(judge(&text, false).stale, expected[..1]);
    }

    #[test]
    fn malformed_lines_are_errors() {
        for bad in [
            "- survivor: crates/a/src/x.rs f Acquire #2 -> Relaxed",
            "- survivor: crates/a/src/x.rs f Acquire #2 -> Relaxed: because",
            "- survivor: crates/a/src/x.rs f Acquire #2: the lock orders it",
            "- unmodelled: crates/a/src/x.rs f Acquire #2 -> Relaxed: the lock orders it",
            &format!("{SURVIVOR}{SURVIVOR}"),
        ] {
            assert!(Arguments::parse(bad).is_err(), "{bad}");
        }
    }
}
