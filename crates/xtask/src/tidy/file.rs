//! A file as the rules see it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Finding;
use crate::scan::{Predicate, Source, Structure};

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// Shipped code.
    Src,
    /// Integration tests and models.
    Tests,
    /// Benches, examples, build scripts, documents and the rest.
    Other,
}

/// A text file of the workspace.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) root: PathBuf,
    /// Relative to the root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) area: Area,
    /// The folder below `crates/`.
    pub(crate) package: Option<String>,
    /// Tokens and structure, for `.rs` files.
    pub(crate) rust: Option<(Source, Structure)>,
    /// The file exists only in test builds.
    test_only: bool,
}

impl File {
    /// `cfgs` are those of the `mod` declarations that lead to the file.
    pub(crate) fn new(
        root: &Path,
        path: PathBuf,
        text: String,
        cfgs: Vec<Predicate>,
    ) -> Result<Self> {
        let parts: Vec<_> = path.iter().filter_map(|p| p.to_str()).collect();
        let (package, inside) = match parts[..] {
            ["crates", package, ref inside @ ..] => (Some(package.to_owned()), inside),
            ["examples", _, ref inside @ ..] => (None, inside),
            ref all => (None, all),
        };
        let area = match inside.first() {
            Some(&"src") => Area::Src,
            Some(&"tests") => Area::Tests,
            _ => Area::Other,
        };
        let rust = if path.extension().is_some_and(|e| e == "rs") {
            let source = Source::parse(text.clone())?;
            let structure = Structure::of(&source);
            Some((source, structure))
        } else {
            None
        };
        let test_only = cfgs
            .iter()
            .any(|p| p.holds(&[("test", false)]) == Some(false));
        Ok(Self {
            root: root.to_owned(),
            path,
            text,
            area,
            package,
            rust,
            test_only,
        })
    }

    /// A finding in this file.
    pub(crate) fn finding(
        &self,
        line: usize,
        rule: &'static str,
        message: impl Into<String>,
    ) -> Finding {
        Finding {
            file: self.path.clone(),
            line,
            rule,
            message: message.into(),
        }
    }

    /// Whether the file belongs to a crate of the library: below `crates/`, and not these tools.
    pub(crate) fn is_library(&self) -> bool {
        self.package.as_ref().is_some_and(|p| p != "xtask")
    }

    /// Whether the file exists only in test builds.
    pub(crate) fn is_test_only(&self) -> bool {
        self.test_only
    }

    /// Whether token `i` is test code.
    pub(crate) fn is_test(&self, i: usize) -> bool {
        let inside = || {
            self.rust
                .as_ref()
                .is_some_and(|(_, structure)| structure.is_test(i))
        };
        self.area == Area::Tests || self.test_only || inside()
    }

    /// Whether a comment with `tag` stands where a reader of token `i` looks for it: above or
    /// beside its line, above its statement, or above the call whose argument it is.
    pub(crate) fn is_tagged(&self, i: usize, tag: &str) -> bool {
        let Some((source, structure)) = &self.rust else {
            return false;
        };
        let mut lines = vec![source.line(i)];
        let mut segment = structure.segment(i);
        let start = segment.map_or(i, |s| s.tokens.start);
        // Only groups inside the statement: what is above belongs to others.
        let around = (start..i).filter(|&open| source.tokens[open].mate > i);
        lines.extend(around.map(|open| source.line(open.saturating_sub(1).max(start))));
        while let Some(s) = segment {
            lines.extend([source.line(s.tokens.start), source.line(s.head)]);
            let field = s.shape == crate::scan::Shape::Fields;
            segment = s.parent.filter(|_| field).map(|p| &structure.segments[p]);
        }
        lines.iter().any(|&line| source.has_comment(line, tag))
    }
}
