//! `tidy`: the house rules, checked.
//!
//! Each rule is a function from a file to findings and has its own module; this one reads the files
//! and knows what each of them is.

mod banned;
mod circles;
mod crates;
mod file;
mod glossary;
mod links;
mod numbers;
mod orderings;
mod own_words;
mod safety;
mod size;
mod sync_only;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::bench_docs;
use crate::output::say;
use crate::record;
use crate::scan::module_cfgs;
use crate::workspace;
use file::File;

/// A rule that was broken, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.file.display(),
            self.line,
            self.rule,
            self.message
        )
    }
}

/// The rules that look at one file.
const RULES: [fn(&File) -> Vec<Finding>; 8] = [
    sync_only::check,
    orderings::check,
    safety::check,
    size::check,
    banned::check,
    words::check,
    own_words::check,
    links::check,
];

/// Checks the workspace at `root`; prints what it finds. Returns whether it is clean.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let (findings, files) = findings(root)?;
    for finding in &findings {
        say!("{finding}");
    }
    say!("tidy: {} findings in {files} files", findings.len());
    Ok(findings.is_empty())
}

/// Tables of benchmarks that are not what the records give.
fn measured(root: &Path) -> Vec<Finding> {
    let finding = |file: PathBuf, message: String| Finding {
        file,
        line: 1,
        rule: "measured",
        message,
    };
    match bench_docs::stale(root) {
        Ok(stale) => {
            let message = bench_docs::STALE.to_owned();
            let stale = stale.into_iter();
            stale
                .map(|(page, _)| finding(page, message.clone()))
                .collect()
        }
        Err(e) => vec![finding(record::FOLDER.into(), format!("{e:#}"))],
    }
}

/// What is wrong in the workspace at `root`, and how many files were looked at.
fn findings(root: &Path) -> Result<(Vec<Finding>, usize)> {
    let paths = workspace::files(root)?;
    let roots: Vec<_> = paths
        .iter()
        .filter(|p| p.ends_with("src/lib.rs") || p.ends_with("src/main.rs"))
        .collect();
    let roots: Vec<_> = roots.into_iter().map(|p| root.join(p)).collect();
    let guards = module_cfgs(&roots);
    let mut findings = crates::check(root, &paths);
    findings.extend(numbers::check(root));
    findings.extend(glossary::check(root, &paths));
    findings.extend(size::pages(root, &paths));
    findings.extend(measured(root));
    let mut modules = Vec::new();
    let mut looked_at = 0;
    for path in paths {
        let full = root.join(&path);
        // Files that are not text have no rules.
        let Ok(text) = std::fs::read_to_string(&full) else {
            continue;
        };
        let cfgs = guards.get(&full).cloned().unwrap_or_default();
        looked_at += 1;
        match File::new(root, path.clone(), text, cfgs) {
            Ok(file) => {
                findings.extend(RULES.iter().flat_map(|rule| rule(&file)));
                modules.extend(circles::module(&file));
            }
            Err(e) => {
                findings.push(Finding {
                    file: path,
                    line: 1,
                    rule: "source",
                    message: e.to_string(),
                });
            }
        }
    }
    findings.extend(circles::check(&modules));
    findings.sort();
    findings.dedup();
    Ok((findings, looked_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `rule` says of a file with this path and text, as `line: message`.
    pub(crate) fn said(rule: fn(&File) -> Vec<Finding>, path: &str, text: &str) -> Vec<String> {
        let file = File::new(Path::new(""), path.into(), text.into(), Vec::new()).unwrap();
        rule(&file)
            .iter()
            .map(|f| format!("{}: {}", f.line, f.message))
            .collect()
    }

    /// The lines on which `rule` finds something.
    pub(crate) fn lines(rule: fn(&File) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let file = File::new(Path::new(""), path.into(), text.into(), Vec::new()).unwrap();
        rule(&file).iter().map(|f| f.line).collect()
    }

    #[test]
    fn a_small_workspace_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[workspace]\n");
        write(
            "crates/a/Cargo.toml",
            "[package]\nname = \"a\"\npublish = false\n[lints]\nworkspace = true\n",
        );
        write("crates/a/README.md", "[x](CHANGELOG.md)\n");
        write("crates/a/CHANGELOG.md", "");
        // The file is test code by its declaration only, so its ordering needs no comment.
        write(
            "crates/a/src/lib.rs",
            "#[cfg(test)] mod tests;\nfn f(a: &A) {\n    a.load(Ordering::Acquire);\n}\n",
        );
        write(
            "crates/a/src/tests.rs",
            "fn f(a: &A) {\n    a.load(Ordering::Acquire);\n}\n",
        );
        write("crates/a/src/broken.rs", "fn f( {");
        write("image.png", "");
        std::fs::write(dir.path().join("image.png"), [0xff, 0xfe]).unwrap();
        let (found, files) = findings(dir.path()).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|f| (f.file.to_str().unwrap(), f.line, f.rule))
            .collect();
        let expected = [
            ("crates/a/src/broken.rs", 1, "source"),
            ("crates/a/src/lib.rs", 3, "ordering-comment"),
        ];
        assert_eq!(shown, expected);
        assert_eq!(files, 7);
    }
}
