//! The copy of the workspace in which orderings can be weakened.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::rewrite::rewrite;
use super::sites::{Class, Site};
use crate::scan::SiteKind;
use crate::workspace::{Workspace, files};

/// The crate that gets the switches, as other crates name it.
const SYNC: &str = "inflight-sync";
/// The module with the switches.
const MODULE: &str = include_str!("switches.rs");
/// Added to it where `light` and `heavy` are used.
const ASYM: &str = "
impl crate::asym::AsymFence {
    /// `light`, or what this site is weakened to.
    pub fn mutant_light(&self, site: u32) {
        match weaker(site) {
            Some(weak) => weak.into_iter().for_each(crate::atomic::fence),
            None => self.light(),
        }
    }

    /// `heavy`, or what this site is weakened to.
    pub fn mutant_heavy(&self, site: u32) {
        match weaker(site) {
            Some(weak) => weak.into_iter().for_each(crate::atomic::fence),
            None => self.heavy(),
        }
    }
}
";

/// A workspace in which every site has a switch.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) workspace: Workspace,
    /// Where it is built.
    pub(crate) target: PathBuf,
    /// Where results are kept.
    pub(crate) scratch: PathBuf,
}

/// Copies the workspace below its target folder and puts the switches in. Files that have not
/// changed since the last time stay untouched, so that Cargo builds only what it must.
pub(crate) fn prepare(workspace: &Workspace, sites: &[Site]) -> Result<Copied> {
    let base = workspace.target.join("mutants");
    let root = base.join("ws");
    let sync = workspace.package_named(SYNC)?;
    let library = sync.folder.join("src/lib.rs");
    let mut kept = BTreeSet::new();
    for path in files(&workspace.root)? {
        let own: Vec<_> = sites.iter().filter(|s| s.id.path == path).collect();
        let mut bytes = fs::read(workspace.root.join(&path))?;
        if own.iter().any(|s| s.class == Class::Weakenable) {
            let inside = path.starts_with(&sync.folder);
            let prefix = if inside {
                "crate::mutant"
            } else {
                "::inflight_sync::mutant"
            };
            bytes = rewrite(&String::from_utf8(bytes)?, &own, prefix).into_bytes();
        }
        if path == library {
            bytes.extend_from_slice(b"\n#[doc(hidden)]\npub mod mutant;\n");
        }
        write(&root.join(&path), &bytes)?;
        kept.insert(path);
    }
    let asym = sites
        .iter()
        .any(|s| s.kind == SiteKind::Asym && s.class == Class::Weakenable);
    let module = sync.folder.join("src/mutant.rs");
    write(
        &root.join(&module),
        format!("{MODULE}{}", if asym { ASYM } else { "" }).as_bytes(),
    )?;
    kept.insert(module);
    remove_others(&root, &kept)?;
    let mut copy = workspace.clone();
    copy.root = root;
    Ok(Copied {
        workspace: copy,
        target: base.join("loom"),
        scratch: base.join("runs"),
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes files of an earlier copy that the workspace no longer has.
fn remove_others(root: &Path, kept: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in walkdir::WalkDir::new(root) {
        let entry = entry?;
        let path = entry.path().strip_prefix(root)?;
        // Cargo may have completed the lock file.
        if entry.file_type().is_file() && !kept.contains(path) && !path.ends_with("Cargo.lock") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_files_stay_and_old_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.rs");
        write(&path, b"one").unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        write(&path, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        write(&dir.path().join("a/c.rs"), b"old").unwrap();
        remove_others(dir.path(), &[PathBuf::from("a/b.rs")].into()).unwrap();
        assert!(path.exists());
        assert!(!dir.path().join("a/c.rs").exists());
    }
}
