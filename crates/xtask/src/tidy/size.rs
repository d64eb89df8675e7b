//! Rules `file-length`, `fn-length`, `line-length` and `page-size`.

use std::path::{Path, PathBuf};

use super::Finding;
use super::file::File;
use super::glossary::is_protocol;
use crate::scan::{Source, Structure};

/// Lines of code in a file, without its `#[cfg(test)]` items.
const FILE: usize = 700;
/// Lines of code in a function, from `fn` to its brace.
const FUNCTION: usize = 90;
/// Characters in a line.
const LINE: usize = 100;
/// Bytes of all protocol pages of a crate.
const PAGES: [(&str, u64); 1] = [("workqueue", 16 * 1_024)];

/// What has grown too long.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let Some((source, structure)) = &file.rust else {
        return prose(file);
    };
    let mut findings = Vec::new();
    let code = code_lines(source, structure);
    if code > FILE {
        let message = format!("{code} lines of code, at most {FILE}: split it by concept");
        findings.push(file.finding(1, "file-length", message));
    }
    for function in structure
        .functions
        .iter()
        .filter(|f| !f.name.ends_with('!'))
    {
        let code = source.code_lines(function.tokens.clone()).len();
        if code > FUNCTION {
            let message = format!(
                "{} has {code} lines of code, at most {FUNCTION}",
                function.name
            );
            findings.push(file.finding(source.line(function.tokens.start), "fn-length", message));
        }
    }
    for (number, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        // A row of a table in the docs cannot be broken.
        let row = line
            .trim_start()
            .trim_start_matches(['/', '!'])
            .trim_start()
            .starts_with('|');
        if columns > LINE && !row {
            let message = format!("{columns} columns, at most {LINE}");
            findings.push(file.finding(number + 1, "line-length", message));
        }
    }
    findings
}

/// Protocol pages that have become too long to be read.
pub(crate) fn pages(root: &Path, paths: &[PathBuf]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (package, most) in PAGES {
        let folder = Path::new("crates").join(package);
        let pages = paths
            .iter()
            .filter(|p| p.starts_with(&folder) && is_protocol(p));
        let size = |page: &PathBuf| root.join(page).metadata().map_or(0, |m| m.len());
        let bytes: u64 = pages.clone().map(size).sum();
        if bytes > most {
            findings.extend(pages.take(1).map(|page| Finding {
                file: page.clone(),
                line: 1,
                rule: "page-size",
                message: format!("{bytes} bytes on protocol pages, at most {most}"),
            }));
        }
    }
    findings
}

/// Lines of the book, the README and protocol pages that could be broken: no rows of tables, code
/// or links.
fn prose(file: &File) -> Vec<Finding> {
    let book = file.path.starts_with("docs") && !file.path.ends_with("orderings.md");
    let markdown = file.path.extension().is_some_and(|e| e == "md");
    let looked_at = book || is_protocol(&file.path) || file.path.as_os_str() == "README.md";
    if !markdown || !looked_at {
        return Vec::new();
    }
    let (mut findings, mut code) = (Vec::new(), false);
    for (number, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        code ^= line.trim_start().starts_with("```");
        let fixed = code || line.trim_start().starts_with('|') || line.contains("](");
        if columns > LINE && !fixed {
            let message = format!("{columns} columns, at most {LINE}");
            findings.push(file.finding(number + 1, "line-length", message));
        }
    }
    findings
}

fn code_lines(source: &Source, structure: &Structure) -> usize {
    let all = 0..source.tokens.len();
    let lines = source.code_lines(all.clone());
    let mut tests: Vec<usize> = structure
        .guarded
        .iter()
        .filter(|g| g.tokens != all && g.predicate.holds(&[("test", false)]) == Some(false))
        .flat_map(|g| source.code_lines(g.tokens.clone()))
        .collect();
    tests.sort_unstable();
    tests.dedup();
    lines.len() - tests.len()
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::{check, pages};

    const PATH: &str = "crates/tags/src/a.rs";

    #[test]
    fn long_files() {
        let long = "const A: u8 = 1;\n".repeat(701);
        assert_eq!(
            said(check, PATH, &long),
            ["1: 701 lines of code, at most 700: split it by concept"]
        );
        let fits = "const A: u8 = 1;\n\n// why\n".repeat(700);
        assert!(said(check, PATH, &fits).is_empty());
        let tests = "#[test] fn t() {}\n".repeat(90);
        assert!(
            said(
                check,
                PATH,
                &format!("{fits}#[cfg(test)]\nmod tests {{\n{tests}}}\n")
            )
            .is_empty()
        );
    }

    #[test]
    fn long_functions() {
        let f = |n: usize| {
            format!(
                "/// Docs.\nimpl A {{ fn f() {{\n{}}} }}\n",
                "    g();\n\n    // x\n".repeat(n)
            )
        };
        assert_eq!(
            said(check, PATH, &f(89)),
            ["2: A::f has 91 lines of code, at most 90"]
        );
        assert!(said(check, PATH, &f(88)).is_empty());
    }

    #[test]
    fn long_lines() {
        let line = |n: usize| format!("// {}\n", "é".repeat(n - 3));
        assert_eq!(
            said(check, PATH, &line(101)),
            ["1: 101 columns, at most 100"]
        );
        assert!(said(check, PATH, &line(100)).is_empty());
        assert!(said(check, PATH, &format!("//! | {} |", "x".repeat(120))).is_empty());
    }

    #[test]
    fn prose_of_the_book() {
        let long = "a ".repeat(51);
        let found = |path: &str, text: &str| said(check, path, text).len();
        assert_eq!(found("docs/a.md", &long), 1);
        assert_eq!(found("README.md", &long), 1);
        assert_eq!(found("crates/tags/README.md", &long), 0);
        assert_eq!(found("crates/tags/PROTOCOL-shares.md", &long), 1);
        assert_eq!(found("docs/a.md", &"a ".repeat(50)), 0);
        let fixed = format!("| {long}|\n```text\n{long}\n```\n{long}[a](b)\n");
        assert_eq!(found("docs/a.md", &fixed), 0);
        assert_eq!(found("docs/a.md", &format!("{fixed}{long}\n")), 1);
    }

    #[test]
    fn long_protocol_pages() {
        let dir = tempfile::tempdir().unwrap();
        let said = |sizes: [usize; 2]| {
            let paths = ["PROTOCOL.md", "PROTOCOL-more.md"].map(|name| {
                let folder = std::path::Path::new("crates/workqueue");
                folder.join(name)
            });
            for (path, size) in paths.iter().zip(sizes) {
                let path = dir.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "x".repeat(size)).unwrap();
            }
            let findings = pages(dir.path(), &paths);
            findings.into_iter().map(|f| f.message).collect::<Vec<_>>()
        };
        assert!(said([16_000, 384]).is_empty());
        assert_eq!(
            said([16_000, 385]),
            ["16385 bytes on protocol pages, at most 16384"]
        );
    }
}
