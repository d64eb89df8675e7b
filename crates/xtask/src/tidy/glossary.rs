//! Rule `glossary`: each private type that a protocol page names has one row in the glossary, and
//! each type that has one is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser};

use super::Finding;
use crate::scan::{Kind, Source};

const GLOSSARY: &str = "docs/glossary.md";

/// Types that a crate defines.
#[derive(Default)]
struct Types {
    all: BTreeSet<String>,
    /// Those that users name, by the crate's root.
    public: BTreeSet<String>,
}

/// Looks at the protocol pages of all crates and at the glossary.
pub(crate) fn check(root: &Path, paths: &[PathBuf]) -> Vec<Finding> {
    let Ok(glossary) = std::fs::read_to_string(root.join(GLOSSARY)) else {
        return Vec::new();
    };
    let terms = terms(&glossary);
    let crates = types(root, paths);
    let finding = |file: &Path, line, message| Finding {
        file: file.to_owned(),
        line,
        rule: "glossary",
        message,
    };
    let mut findings = Vec::new();
    for page in paths.iter().filter(|path| is_protocol(path)) {
        let text = std::fs::read_to_string(root.join(page)).unwrap_or_default();
        let Some(types) = package(page).and_then(|package| crates.get(package)) else {
            continue;
        };
        for (name, line) in named(&text) {
            let private = types.all.contains(&name) && !types.public.contains(&name);
            let rows = terms.iter().filter(|(term, _)| *term == name).count();
            if private && rows != 1 {
                let message = format!("{name} has {rows} rows in {GLOSSARY}, not one");
                findings.push(finding(page, line, message));
            }
        }
    }
    for (term, line) in terms {
        if is_type(&term) && !crates.values().any(|types| types.all.contains(&term)) {
            let message = format!("{term} is no type of any crate");
            findings.push(finding(Path::new(GLOSSARY), line, message));
        }
    }
    findings
}

/// Whether it is one of the pages with the proofs of a crate.
pub(super) fn is_protocol(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let is_page = name.is_some_and(|n| n.starts_with("PROTOCOL") && n.ends_with(".md"));
    is_page && package(path).is_some()
}

/// The folder below `crates/`.
fn package(path: &Path) -> Option<&str> {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    (parts.next()? == "crates").then(|| parts.next())?
}

/// What the rows of the glossary are about, with their lines.
fn terms(glossary: &str) -> Vec<(String, usize)> {
    let mut terms = Vec::new();
    for (number, line) in glossary.lines().enumerate() {
        let Some(row) = line.strip_prefix("| **") else {
            continue;
        };
        let cell = row.split(" |").next().unwrap_or(row);
        let bold = cell.split("**").step_by(2);
        terms.extend(bold.map(|term| (term.replace('`', ""), number + 1)));
    }
    terms
}

/// What a page names in code within its text, each once, with the line.
fn named(text: &str) -> BTreeMap<String, usize> {
    let mut named = BTreeMap::new();
    for (event, span) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let Event::Code(code) = event else { continue };
        let line = text[..span.start].matches('\n').count() + 1;
        let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| is_type(word)) {
            named.entry(word.to_owned()).or_insert(line);
        }
    }
    named
}

fn is_type(word: &str) -> bool {
    let camel = word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.contains(|c: char| c.is_ascii_lowercase());
    camel && word.chars().all(|c| c.is_ascii_alphanumeric())
}

fn types(root: &Path, paths: &[PathBuf]) -> BTreeMap<String, Types> {
    let mut crates: BTreeMap<String, Types> = BTreeMap::new();
    for path in paths {
        let Some(package) = package(path) else {
            continue;
        };
        let inside = path.strip_prefix(Path::new("crates").join(package));
        let is_source = inside.is_ok_and(|p| p.starts_with("src"))
            && path.extension().is_some_and(|e| e == "rs");
        let text = is_source.then(|| std::fs::read_to_string(root.join(path)));
        let Some(source) = text.and_then(|text| Source::parse(text.ok()?).ok()) else {
            continue;
        };
        let types = crates.entry(package.to_owned()).or_default();
        types.all.extend(defined(&source));
        if path.ends_with("src/lib.rs") {
            types.public.extend(exported(&source));
        }
    }
    crates
}

/// The types that a file defines.
fn defined(source: &Source) -> impl Iterator<Item = String> {
    let idents = (1..source.tokens.len()).filter(|i| source.tokens[*i].kind == Kind::Ident);
    idents.filter_map(|i| {
        let before = source.text(i - 1);
        let defines = ["struct", "enum", "union", "trait", "type"].contains(&before);
        defines.then(|| source.text(i).to_owned())
    })
}

/// What the root of a crate hands on to users, but for modules of its own.
fn exported(source: &Source) -> Vec<String> {
    let (mut names, mut i) = (Vec::new(), 0);
    while i + 1 < source.tokens.len() {
        if matches!(source.tokens[i].kind, Kind::Open(_)) {
            i = source.tokens[i].mate;
        } else if (source.text(i), source.text(i + 1)) == ("pub", "use") {
            while source.text(i) != ";" {
                names.push(source.text(i).to_owned());
                i += 1;
            }
        }
        i += 1;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "mod inner; pub use inner::{Public, Queue};\n\
                       pub mod unstable { pub use crate::inner::Core; }\n";
    const INNER: &str = "pub struct Public;\npub struct Queue;\npub struct Core;\n\
                         pub(crate) enum Later { A }\ntrait Inside {}\n";

    fn said(page: &str, glossary: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("crates/a/src/lib.rs", LIB),
            ("crates/a/src/inner.rs", INNER),
            ("crates/b/src/lib.rs", "pub struct Other;"),
            ("crates/a/PROTOCOL.md", page),
            (GLOSSARY, glossary),
        ];
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let paths = files.map(|(path, _)| PathBuf::from(path));
        let findings = check(dir.path(), &paths);
        let shown = findings.iter();
        shown
            .map(|f| format!("{}:{}: {}", f.file.display(), f.line, f.message))
            .collect()
    }

    #[test]
    fn a_private_type_has_one_row() {
        let row = |term: &str| format!("| **`{term}`** | what it is |\n");
        let page = "`Core`, and\n`Later::A` of `Core`. Core, `Public`, `Other`, `CORE`.\n";
        assert_eq!(
            said(page, &row("Core")),
            ["crates/a/PROTOCOL.md:2: Later has 0 rows in docs/glossary.md, not one"]
        );
        let both = row("Core") + &row("Later");
        assert!(said(page, &both).is_empty());
        assert_eq!(
            said(page, &(both + "| **lock**, **`Core`** | twice |\n")),
            ["crates/a/PROTOCOL.md:1: Core has 2 rows in docs/glossary.md, not one"]
        );
        assert!(said("```text\nLater\n```\n", "").is_empty());
        assert_eq!(said("`Inside`", "").len(), 1);
    }

    #[test]
    fn a_row_is_of_a_type_that_there_is() {
        let glossary =
            "| **`Other`**, **pool** | here |\n| **`Gone`** | was here |\n| **BH** | - |";
        assert_eq!(
            said("", glossary),
            ["docs/glossary.md:2: Gone is no type of any crate"]
        );
    }
}
