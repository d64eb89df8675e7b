//! Finding what can be weakened.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::scan::{Known, Predicate, SiteKind, Source, Structure, module_cfgs, sites};
use crate::workspace::{Workspace, files};

/// The crates that are modelled.
const MODELLED: [&str; 6] = ["flush", "sbitmap", "steering", "sync", "tags", "workqueue"];

/// What production code is compiled with, as far as it is the same everywhere.
const SHIPPED: Known<'_> = &[("test", false), ("loom", false), ("shuttle", false)];
/// What the code under a model is compiled with.
const IN_MODEL: Known<'_> = &[("test", false), ("loom", true), ("shuttle", false)];

/// A package whose source is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) package: String,
    /// Relative to the workspace.
    pub(crate) folder: PathBuf,
}

impl Scope {
    /// The scopes of the crates called `names`, or of all that are modelled and exist.
    pub(crate) fn choose(workspace: &Workspace, names: &[String]) -> Result<Vec<Self>> {
        let mut scopes = Vec::new();
        if names.is_empty() {
            let found = MODELLED
                .iter()
                .filter_map(|name| workspace.package_named(name).ok());
            scopes.extend(found.map(Self::of));
        }
        for name in names {
            scopes.push(Self::of(workspace.package_named(name)?));
        }
        Ok(scopes)
    }

    fn of(package: &crate::workspace::Package) -> Self {
        Self {
            package: package.name.clone(),
            folder: package.folder.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(folder: &str) -> Self {
        Self {
            package: String::new(),
            folder: folder.into(),
        }
    }

    /// Whether the file, relative to the workspace, is looked at.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        let inside = path.strip_prefix(&self.folder).ok().and_then(Path::to_str);
        inside.is_some_and(|p| p.starts_with("src/") && p.ends_with(".rs"))
    }
}

/// The lasting name of a site: it does not change when lines move.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) path: PathBuf,
    /// `Type::method`, `function` or `macro!`.
    pub(crate) function: String,
    /// `Acquire`, `fence(SeqCst)`, `light()`, ….
    pub(crate) text: String,
    /// Which of the same text in the same function, from 1.
    pub(crate) nth: usize,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} #{}",
            self.path.display(),
            self.function,
            self.text,
            self.nth
        )
    }
}

/// What can be done with a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It can be weakened in a model.
    Weakenable,
    /// There is nothing weaker.
    Relaxed,
    /// No model runs this code: it is left out under loom, or only orders the compiler.
    Unmodelled,
}

/// An ordering in shipped code.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) id: Id,
    /// Its number in the rewritten code.
    pub(crate) number: u32,
    pub(crate) package: String,
    pub(crate) line: usize,
    pub(crate) class: Class,
    pub(crate) kind: SiteKind,
    /// The bytes of the ordering's path, or of the call of `light` or `heavy`.
    pub(crate) path: Range<usize>,
    /// The bytes of the path of `fence`.
    pub(crate) callee: Option<Range<usize>>,
}

/// A weaker form of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weaker {
    /// No fence at all.
    Removed,
    /// Another ordering.
    To(&'static str),
}

impl Site {
    /// The mutants of this site.
    pub(crate) fn weaker(&self) -> Vec<Weaker> {
        use Weaker::{Removed, To};
        if self.class != Class::Weakenable {
            return Vec::new();
        }
        let fence = self.kind != SiteKind::Access;
        match (fence, self.id.text.as_str()) {
            (true, "fence(SeqCst)" | "light()" | "heavy()") => vec![Removed, To("AcqRel")],
            (true, "fence(AcqRel)") => vec![Removed, To("Acquire"), To("Release")],
            (true, _) => vec![Removed],
            (false, "AcqRel") => vec![To("Acquire"), To("Release")],
            (false, _) => vec![To("Relaxed")],
        }
    }

    /// How the documents name the weaker form.
    pub(crate) fn shown(&self, weaker: Weaker) -> String {
        match weaker {
            Weaker::Removed => "removed".to_owned(),
            Weaker::To(ordering) if self.kind == SiteKind::Access => ordering.to_owned(),
            Weaker::To(ordering) => format!("fence({ordering})"),
        }
    }
}

/// All sites in the shipped code of `scopes`, numbered.
pub(crate) fn find(workspace: &Workspace, scopes: &[Scope]) -> Result<Vec<Site>> {
    let paths = files(&workspace.root)?;
    let mut found = Vec::new();
    for scope in scopes {
        let roots =
            ["lib.rs", "main.rs"].map(|r| workspace.root.join(&scope.folder).join("src").join(r));
        let tree = module_cfgs(&roots);
        for path in paths.iter().filter(|p| scope.covers(p)) {
            let full = workspace.root.join(path);
            let Some(cfgs) = tree.get(&full) else {
                eprintln!(
                    "mutants: {} belongs to no module and is left out",
                    path.display()
                );
                continue;
            };
            let text = std::fs::read_to_string(&full)?;
            let sites = in_file(path, text, cfgs, &scope.package);
            found.extend(sites.with_context(|| format!("in {}", path.display()))?);
        }
    }
    for (number, site) in found.iter_mut().enumerate() {
        site.number = u32::try_from(number)?;
    }
    Ok(found)
}

/// The sites of one file; `cfgs` guard the whole file.
pub(crate) fn in_file(
    path: &Path,
    text: String,
    cfgs: &[Predicate],
    package: &str,
) -> Result<Vec<Site>> {
    let source = Source::parse(text)?;
    let structure = Structure::of(&source);
    let off = |at: usize, known: Known<'_>| {
        structure.is_off(at, known) || cfgs.iter().any(|p| p.holds(known) == Some(false))
    };
    let mut counts: HashMap<(String, String), usize> = HashMap::new();
    let mut found = Vec::new();
    for site in sites(&source) {
        let at = site.path.start;
        let line = source.line(at);
        if site.kind == SiteKind::Pattern || structure.is_test(at) || off(at, SHIPPED) {
            continue;
        }
        let text = match site.kind {
            SiteKind::Fence => format!("fence({})", site.ordering),
            SiteKind::CompilerFence => format!("compiler_fence({})", site.ordering),
            SiteKind::Asym => format!("{}()", site.ordering),
            SiteKind::Access | SiteKind::Pattern => site.ordering.clone(),
        };
        let class = if site.ordering == "Relaxed" {
            Class::Relaxed
        } else if site.kind == SiteKind::CompilerFence || off(at, IN_MODEL) {
            Class::Unmodelled
        } else {
            Class::Weakenable
        };
        let function = structure.function(at).map(|f| f.name.clone());
        if function.is_none() && class == Class::Weakenable {
            bail!("line {line}: {text} stands outside any function and cannot be weakened there");
        }
        let function = function.unwrap_or_else(|| "-".to_owned());
        let nth = counts.entry((function.clone(), text.clone())).or_default();
        *nth += 1;
        let bytes = |tokens: Range<usize>| {
            source.tokens[tokens.start].span.start..source.tokens[tokens.end - 1].span.end
        };
        found.push(Site {
            id: Id {
                path: path.to_owned(),
                function,
                text,
                nth: *nth,
            },
            number: 0,
            package: package.to_owned(),
            line,
            class,
            kind: site.kind,
            path: bytes(site.path),
            callee: site.callee.map(bytes),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Site> {
        in_file(Path::new("a.rs"), text.to_owned(), &[], "p").unwrap()
    }

    fn ids(text: &str) -> Vec<String> {
        found(text)
            .iter()
            .map(|s| format!("{} {:?}", s.id, s.class))
            .collect()
    }

    #[test]
    fn names_do_not_depend_on_lines() {
        let text = "
            impl<T> Drop for Guard<T> { fn drop(&mut self) {
                self.w.store(1, Ordering::Release);
                fn nested(a: &A) { a.load(Ordering::Acquire); }
                if self.w.load(Ordering::Relaxed) == 1 { self.w.store(2, Ordering::Release) }
            } }
            impl Guard<u8> { fn drop2(&self) { fence(Ordering::SeqCst); } }
            fn exchange(w: &W) {
                w.compare_exchange(
                    1, // Ordering::SeqCst
                    2,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
                let _ = \"Ordering::Acquire\";
                w.fence.light();
            }
        ";
        let expected = [
            "a.rs Guard::drop Release #1 Weakenable",
            "a.rs nested Acquire #1 Weakenable",
            "a.rs Guard::drop Relaxed #1 Relaxed",
            "a.rs Guard::drop Release #2 Weakenable",
            "a.rs Guard::drop2 fence(SeqCst) #1 Weakenable",
            "a.rs exchange AcqRel #1 Weakenable",
            "a.rs exchange Acquire #1 Weakenable",
            "a.rs exchange light() #1 Weakenable",
        ];
        assert_eq!(ids(text), expected);
        assert_eq!(ids(&format!("// moved\n\n{text}")), expected);
    }

    #[test]
    fn only_shipped_code_counts_and_only_modelled_code_is_weakened() {
        let text = "
            #[cfg(test)] mod tests { fn f(a: &A) { a.load(Ordering::Acquire); } }
            #[cfg(loom)] fn g(a: &A) { a.load(Ordering::Acquire); }
            #[cfg(not(any(loom, shuttle)))] fn h(a: &A) { a.load(Ordering::Acquire); }
            fn i(a: &A) { compiler_fence(Ordering::SeqCst); match o { Ordering::AcqRel => 1 } }
            #[cfg(feature = \"x\")] fn j(a: &A) { a.load(Ordering::Acquire); }
        ";
        let expected = [
            "a.rs h Acquire #1 Unmodelled",
            "a.rs i compiler_fence(SeqCst) #1 Unmodelled",
            "a.rs j Acquire #1 Weakenable",
        ];
        assert_eq!(ids(text), expected);
        let test_only = Predicate::Flag("test".into());
        let text = "fn f(a: &A) { a.load(Ordering::Acquire); }".to_owned();
        assert!(
            in_file(Path::new("a.rs"), text, &[test_only], "p")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn mutants_of_each_ordering() {
        let weaker = |body: &str| -> Vec<String> {
            let sites = found(&format!("fn f() {{ {body} }}"));
            sites
                .iter()
                .flat_map(|s| s.weaker().into_iter().map(|w| s.shown(w)))
                .collect()
        };
        assert_eq!(weaker("a.load(Ordering::Acquire)"), ["Relaxed"]);
        assert_eq!(weaker("a.store(1, Ordering::Release)"), ["Relaxed"]);
        assert_eq!(
            weaker("a.swap(1, Ordering::AcqRel)"),
            ["Acquire", "Release"]
        );
        assert_eq!(
            weaker("fence(Ordering::SeqCst)"),
            ["removed", "fence(AcqRel)"]
        );
        assert_eq!(weaker("fence(Ordering::Release)"), ["removed"]);
        assert_eq!(weaker("a.heavy()"), ["removed", "fence(AcqRel)"]);
        assert!(weaker("a.load(Ordering::Relaxed)").is_empty());
    }

    #[test]
    fn an_ordering_in_a_constant_is_an_error() {
        let text = "const O: Ordering = Ordering::Acquire;".to_owned();
        assert!(in_file(Path::new("a.rs"), text, &[], "p").is_err());
    }

    #[test]
    fn scopes_choose_files() {
        let package = crate::workspace::Package {
            name: "inflight-sync".into(),
            folder: "crates/sync".into(),
            tests: vec![],
            needs: vec![],
        };
        let scope = Scope::of(&package);
        assert!(scope.covers(Path::new("crates/sync/src/parker.rs")));
        assert!(scope.covers(Path::new("crates/sync/src/wait/event.rs")));
        assert!(!scope.covers(Path::new("crates/sync/tests/event.rs")));
        assert!(!scope.covers(Path::new("crates/sync/build.rs")));
        assert!(!scope.covers(Path::new("crates/sync/src/wait/README.md")));
        assert!(!scope.covers(Path::new("crates/tags/src/wait.rs")));
    }
}
