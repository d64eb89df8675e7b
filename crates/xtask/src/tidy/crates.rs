//! Rules `crate-files`, `lints` and `publish`: what every crate has.

use std::path::{Path, PathBuf};

use super::Finding;

/// Looks at the folders below `crates/`.
pub(crate) fn check(root: &Path, paths: &[PathBuf]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let manifests = paths.iter().filter(|p| {
        let parts: Vec<_> = p.iter().filter_map(|p| p.to_str()).collect();
        matches!(parts[..], ["crates", _, "Cargo.toml"])
    });
    for manifest in manifests {
        let mut say = |rule, message: String| {
            findings.push(Finding {
                file: manifest.clone(),
                line: 1,
                rule,
                message,
            });
        };
        let folder = manifest.parent().unwrap_or(root);
        let exempt = folder.ends_with("xtask");
        for name in ["README.md", "CHANGELOG.md"] {
            if !exempt && !paths.contains(&folder.join(name)) {
                say("crate-files", format!("the crate has no {name}"));
            }
        }
        let text = std::fs::read_to_string(root.join(manifest)).unwrap_or_default();
        match text.parse::<toml::Table>() {
            Ok(table) => {
                let inherits = table.get("lints").and_then(|l| l.get("workspace"));
                if inherits.and_then(toml::Value::as_bool) != Some(true) {
                    say("lints", "[lints] workspace = true is missing".to_owned());
                }
                if let Some(missing) = unpublishable(&table) {
                    say("publish", format!("nothing below \"{missing}\""));
                }
            }
            Err(e) => say("lints", format!("cannot be read: {}", e.message())),
        }
    }
    findings
}

/// What a crate that is published has in its manifest.
const PUBLISHED: [&str; 9] = [
    "authors",
    "categories",
    "description",
    "keywords",
    "license",
    "metadata.docs.rs",
    "readme",
    "rust-version",
    "version",
];

/// What is missing of that, unless the crate is not to be published.
fn unpublishable(manifest: &toml::Table) -> Option<&'static str> {
    let package = manifest.get("package")?;
    if package.get("publish").and_then(toml::Value::as_bool) == Some(false) {
        return None;
    }
    let has = |path: &&str| {
        let mut parts = path.split('.');
        parts.try_fold(package, |at, part| at.get(part)).is_some()
    };
    PUBLISHED.into_iter().find(|path| !has(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a crate that nobody publishes.
    const PRIVATE: &str = "[package]\npublish = false\n";

    fn said(name: &str, manifest: &str, others: &[&str]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("crates").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        let mut paths = vec![PathBuf::from(format!("crates/{name}/Cargo.toml"))];
        paths.extend(
            others
                .iter()
                .map(|o| PathBuf::from(format!("crates/{name}/{o}"))),
        );
        check(dir.path(), &paths)
            .into_iter()
            .map(|f| f.message)
            .collect()
    }

    #[test]
    fn complete_crates_pass() {
        let lints = format!("{PRIVATE}[lints]\nworkspace = true\n");
        assert!(said("a", &lints, &["README.md", "CHANGELOG.md"]).is_empty());
        assert!(said("xtask", &lints, &[]).is_empty());
        assert!(
            said(
                "a",
                "lints.workspace = true",
                &["README.md", "CHANGELOG.md"]
            )
            .is_empty()
        );
    }

    #[test]
    fn missing_parts_are_named() {
        let found = said(
            "a",
            &format!("{PRIVATE}[lints]\nworkspace = false\n"),
            &["src/README.md"],
        );
        assert_eq!(
            found,
            [
                "the crate has no README.md",
                "the crate has no CHANGELOG.md",
                "[lints] workspace = true is missing"
            ]
        );
        assert!(
            said(
                "a",
                "# lints.workspace = true",
                &["README.md", "CHANGELOG.md"]
            )
            .len()
                == 1
        );
    }

    #[test]
    fn what_is_published_has_all_that_a_registry_shows() {
        let named = |without: &str| {
            let mut manifest = "lints.workspace = true\n[package]\n".to_owned();
            for name in PUBLISHED.iter().filter(|name| **name != without) {
                manifest += &match name.split_once('.') {
                    Some(_) => format!("{name} = {{}}\n"),
                    None => format!("{name}.workspace = true\n"),
                };
            }
            said("a", &manifest, &["README.md", "CHANGELOG.md"])
        };
        assert_eq!(named(""), [""; 0]);
        for name in PUBLISHED {
            assert_eq!(named(name), [format!("nothing below \"{name}\"")]);
        }
    }
}
