//! Which cfgs guard a whole file: those of the `mod` declarations that lead to it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::cfg::Predicate;
use super::source::Source;
use super::structure::Structure;

/// For each file reached by `mod name;` from the files in `roots` the cfgs on the way.
///
/// Files that cannot be read or tokenized are left out; other tools speak of those.
pub(crate) fn module_cfgs(roots: &[PathBuf]) -> HashMap<PathBuf, Vec<Predicate>> {
    let mut found = HashMap::new();
    let mut open: Vec<(PathBuf, Vec<Predicate>, bool)> = roots
        .iter()
        .map(|r| (r.clone(), Vec::new(), true))
        .collect();
    while let Some((file, cfgs, root)) = open.pop() {
        if found.contains_key(&file) {
            continue;
        }
        let parsed = std::fs::read_to_string(&file)
            .ok()
            .and_then(|t| Source::parse(t).ok());
        let Some(source) = parsed else { continue };
        let structure = Structure::of(&source);
        for outline in &structure.outlines {
            let around = structure
                .guarded
                .iter()
                .filter(|g| g.tokens.contains(&outline.token));
            let inherited = cfgs
                .iter()
                .cloned()
                .chain(around.map(|g| g.predicate.clone()))
                .collect();
            let candidates = candidates(&file, root, &outline.path, outline.file.as_deref());
            if let Some(next) = candidates.into_iter().find(|c| c.is_file()) {
                open.push((next, inherited, false));
            }
        }
        found.insert(file, cfgs);
    }
    found
}

/// The files that may hold the module `path` declared in `file`.
fn candidates(file: &Path, root: bool, path: &[String], named: Option<&str>) -> Vec<PathBuf> {
    let parent = file.parent().unwrap_or(Path::new(""));
    let stem = file.file_stem().unwrap_or_default();
    if let (Some(named), [_]) = (named, path) {
        return vec![parent.join(named)];
    }
    let mut folder = parent.to_owned();
    if !root && stem != "mod" {
        folder.push(stem);
    }
    let (last, outer) = path.split_last().expect("a module has a name");
    folder.extend(outer);
    match named {
        Some(named) => vec![folder.join(named)],
        None => vec![
            folder.join(format!("{last}.rs")),
            folder.join(last).join("mod.rs"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfgs_are_inherited() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let root = write(
            "lib.rs",
            "mod a;\n#[cfg(test)] mod tests;\nmod c { mod d; }",
        );
        let a = write("a/mod.rs", "#[cfg(loom)] mod b;");
        let b = write("a/b.rs", "mod deep;");
        let deep = write("a/b/deep.rs", "");
        let tests = write("tests.rs", "");
        let d = write("c/d.rs", "");
        write("orphan.rs", "");
        let found = module_cfgs(std::slice::from_ref(&root));
        let flag = |name: &str| vec![Predicate::Flag(name.to_owned())];
        assert_eq!(found.len(), 6);
        assert_eq!(found[&a], []);
        assert_eq!(found[&b], flag("loom"));
        assert_eq!(found[&deep], flag("loom"));
        assert_eq!(found[&tests], flag("test"));
        assert_eq!(found[&d], []);
    }
}
