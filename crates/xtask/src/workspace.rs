//! The workspace on disk: its root, its files and what Cargo says of its packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The nearest folder, from the working directory upwards, whose `Cargo.toml` has a `[workspace]`.
pub(crate) fn find_root() -> Result<PathBuf> {
    let here = std::env::current_dir()?;
    for folder in here.ancestors() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if manifest.lines().any(|line| line.trim() == "[workspace]") {
            return Ok(folder.to_owned());
        }
    }
    bail!("no workspace at or above {}", here.display())
}

/// All files that are tracked or could be, relative to `root` and sorted.
///
/// Without git every file outside `target` and hidden folders.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .current_dir(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output();
    let mut files: Vec<PathBuf> = match listed {
        Ok(out) if out.status.success() => String::from_utf8(out.stdout)?
            .split_terminator('\0')
            .map(PathBuf::from)
            .collect(),
        _ => walk(root)?,
    };
    // A file can be in the index and no longer on disk.
    files.retain(|f| root.join(f).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

fn walk(root: &Path) -> Result<Vec<PathBuf>> {
    let wanted = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !(name == "target" || name == ".git")
    };
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(root).into_iter().filter_entry(wanted) {
        let entry = entry?;
        if entry.file_type().is_file() {
            files.push(entry.path().strip_prefix(root)?.to_owned());
        }
    }
    Ok(files)
}

/// A member of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder, relative to the root.
    pub(crate) folder: PathBuf,
    /// The names of the test targets.
    pub(crate) tests: Vec<String>,
    /// Members it depends on, directly; dev-dependencies are left out.
    pub(crate) needs: Vec<String>,
}

/// What `cargo metadata` says.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

impl Workspace {
    /// Asks Cargo about the workspace at `root`.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let out = cargo()
            .current_dir(root)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .context("cannot run cargo")?;
        if !out.status.success() {
            bail!(
                "cargo metadata failed:\n{}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
        let json: Value = serde_json::from_slice(&out.stdout)?;
        let root = PathBuf::from(text(&json["workspace_root"])?);
        let target = PathBuf::from(text(&json["target_directory"])?);
        let packages = array(&json["packages"])?;
        let names = packages
            .iter()
            .map(|p| text(&p["name"]))
            .collect::<Result<Vec<_>>>()?;
        let packages = packages
            .iter()
            .map(|package| Self::package(&root, package, &names))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            root,
            target,
            packages,
        })
    }

    fn package(root: &Path, package: &Value, members: &[String]) -> Result<Package> {
        let manifest = PathBuf::from(text(&package["manifest_path"])?);
        let folder = manifest.parent().unwrap_or(root);
        let mut tests = Vec::new();
        for target in array(&package["targets"])? {
            if array(&target["kind"])?.iter().any(|k| k == "test") {
                tests.push(text(&target["name"])?);
            }
        }
        let mut needs = Vec::new();
        for dependency in array(&package["dependencies"])? {
            let name = text(&dependency["name"])?;
            if dependency["kind"].is_null() && members.contains(&name) {
                needs.push(name);
            }
        }
        Ok(Package {
            name: text(&package["name"])?,
            folder: folder.strip_prefix(root).unwrap_or(folder).to_owned(),
            tests,
            needs,
        })
    }

    /// The member called `name`, by package or folder name.
    pub(crate) fn package_named(&self, name: &str) -> Result<&Package> {
        let found = self
            .packages
            .iter()
            .find(|p| p.name == name || p.folder.ends_with(name));
        found.with_context(|| format!("no crate called {name} in this workspace"))
    }

    /// `name` and everything it depends on, in the workspace.
    pub(crate) fn reaches(&self, name: &str) -> Vec<String> {
        let mut found = vec![name.to_owned()];
        let mut next = 0;
        while next < found.len() {
            let package = self.packages.iter().find(|p| p.name == found[next]);
            for need in package.map_or(&[][..], |p| &p.needs) {
                if !found.contains(need) {
                    found.push(need.clone());
                }
            }
            next += 1;
        }
        found
    }
}

/// The Cargo that runs us, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn text(value: &Value) -> Result<String> {
    Ok(value
        .as_str()
        .context("unexpected answer of cargo metadata")?
        .to_owned())
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    value
        .as_array()
        .context("unexpected answer of cargo metadata")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_git_are_walked() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["Cargo.toml", "src/lib.rs", "target/x", ".ci/run"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let mut found = walk(dir.path()).unwrap();
        found.sort();
        let expected: Vec<_> = [".ci/run", "Cargo.toml", "src/lib.rs"]
            .map(PathBuf::from)
            .into();
        assert_eq!(found, expected);
    }

    #[test]
    fn dependencies_are_followed() {
        let package = |name: &str, needs: &[&str]| Package {
            name: name.into(),
            folder: name.into(),
            tests: vec![],
            needs: needs.iter().map(|n| (*n).to_owned()).collect(),
        };
        let packages = vec![
            package("a", &[]),
            package("b", &["a"]),
            package("c", &["b", "a"]),
            package("d", &[]),
        ];
        let ws = Workspace {
            root: "".into(),
            target: "".into(),
            packages,
        };
        assert_eq!(ws.reaches("c"), ["c", "b", "a"]);
        assert_eq!(ws.reaches("a"), ["a"]);
    }
}
