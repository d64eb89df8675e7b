//! Building the test binaries that hold the models, and asking them what they hold.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::{Package, Workspace, cargo};

/// One model: a `#[test]` function in a `loom_*` test binary.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The package it belongs to.
    pub(crate) package: String,
    /// The test target, such as `loom_event`.
    pub(crate) test: String,
    /// The function.
    pub(crate) name: String,
    pub(crate) binary: PathBuf,
    /// The package's folder, where Cargo would run it.
    pub(crate) folder: PathBuf,
    /// It must say how much it explored: models of downstream crates use loom bare.
    pub(crate) counts: bool,
}

/// Builds the models of `packages` into `target` with `flags` added to RUSTFLAGS; names them all.
///
/// Tests called `planted_…` hold planted bugs: the test that drives them expects them to fail.
pub(crate) fn list(
    workspace: &Workspace,
    packages: &[&Package],
    target: &Path,
    flags: &str,
) -> Result<Vec<Model>> {
    let mut command = cargo();
    command
        .current_dir(&workspace.root)
        .args(["test", "--no-run", "--profile", "loom"]);
    for package in packages {
        command.args(["--package", &package.name]);
    }
    command.args([
        "--test",
        "loom_*",
        "--message-format",
        "json-render-diagnostics",
    ]);
    command.env("CARGO_TARGET_DIR", target);
    add_rustflags(&mut command, flags);
    let out = command
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !out.status.success() {
        bail!("the models do not build");
    }
    let mut models = Vec::new();
    for line in String::from_utf8(out.stdout)?.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let Some((package, test, binary)) = artifact(workspace, packages, &message) else {
            continue;
        };
        let found = tests(&binary)?;
        if found.is_empty() {
            bail!("{} of {} holds no model", test, package.name);
        }
        models.extend(
            found
                .into_iter()
                .filter(|n| !is_planted(n))
                .map(|name| Model {
                    package: package.name.clone(),
                    test: test.clone(),
                    name,
                    binary: binary.clone(),
                    folder: workspace.root.join(&package.folder),
                    counts: package.folder.starts_with("crates"),
                }),
        );
    }
    models.sort_by(|a, b| (&a.package, &a.test, &a.name).cmp(&(&b.package, &b.test, &b.name)));
    Ok(models)
}

fn is_planted(name: &str) -> bool {
    name.rsplit("::")
        .next()
        .is_some_and(|f| f.starts_with("planted_"))
}

/// Cargo prefers the encoded form where both are set.
fn add_rustflags(command: &mut Command, flags: &str) {
    if let Ok(encoded) = std::env::var("CARGO_ENCODED_RUSTFLAGS") {
        let flags = flags.replace(' ', "\u{1f}");
        let separator = if encoded.is_empty() { "" } else { "\u{1f}" };
        command.env(
            "CARGO_ENCODED_RUSTFLAGS",
            format!("{encoded}{separator}{flags}"),
        );
    } else {
        let given = std::env::var("RUSTFLAGS").unwrap_or_default();
        command.env("RUSTFLAGS", format!("{given} {flags}").trim());
    }
}

/// The package, target and path of a test binary, if that is what Cargo's message is about.
fn artifact<'w>(
    workspace: &Workspace,
    packages: &[&'w Package],
    message: &Value,
) -> Option<(&'w Package, String, PathBuf)> {
    let binary = PathBuf::from(message["executable"].as_str()?);
    let test = message["target"]["name"].as_str()?.to_owned();
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let package = packages
        .iter()
        .find(|p| manifest.parent() == Some(&workspace.root.join(&p.folder)))?;
    (message["target"]["kind"][0] == "test").then_some((package, test, binary))
}

/// The tests in a binary.
fn tests(binary: &Path) -> Result<Vec<String>> {
    let out = Command::new(binary)
        .args(["--list", "--format", "terse"])
        .output()
        .with_context(|| format!("cannot run {}", binary.display()))?;
    let text = String::from_utf8(out.stdout)?;
    Ok(text
        .lines()
        .filter_map(|l| l.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests_of_build {
    use super::*;

    #[test]
    fn planted_bugs_are_left_out() {
        assert!(is_planted("planted_missing_fence"));
        assert!(is_planted("bugs::planted_a"));
        assert!(!is_planted("h1_planted"));
    }

    #[test]
    fn artifacts_are_matched_to_packages() {
        let package = Package {
            name: "inflight-a".into(),
            folder: "crates/a".into(),
            tests: vec![],
            needs: vec![],
        };
        let workspace = Workspace {
            root: "/r".into(),
            target: "/r/target".into(),
            packages: vec![package.clone()],
        };
        let message = serde_json::json!({
            "executable": "/r/target/loom/x", "manifest_path": "/r/crates/a/Cargo.toml",
            "target": { "name": "loom_x", "kind": ["test"] }
        });
        let (found, test, _) = artifact(&workspace, &[&package], &message).unwrap();
        assert_eq!(
            (found.name.as_str(), test.as_str()),
            ("inflight-a", "loom_x")
        );
        let library = serde_json::json!({
            "executable": null, "manifest_path": "/r/crates/a/Cargo.toml",
            "target": { "name": "inflight_a", "kind": ["lib"] }
        });
        assert!(artifact(&workspace, &[&package], &library).is_none());
    }
}
