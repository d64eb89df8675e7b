//! `xtask bench-docs`: tables and pictures of benchmarks in README and the book, made from the
//! records alone.
//!
//! What stands between `<!-- measured: WHAT -->` and `<!-- end -->` is replaced. WHAT is a list of
//! sections and groups; or `rows` and a line for each row with its label, its load, ours, and the
//! rival asked for.

mod figures;
mod picks;
mod plot;
mod tables;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::marked::filled;
use crate::output::say;
use crate::record;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write nothing: fail if a page is not what the records give
    #[arg(long)]
    check: bool,
}

/// Writes the pages, or tells which of them are not what the records give.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let stale = stale(root)?;
    for (page, text) in &stale {
        if options.check {
            say!("{}: {STALE}", page.display());
        } else {
            std::fs::write(root.join(page), text)?;
            say!("{}: written anew", page.display());
        }
    }
    Ok(!options.check || stale.is_empty())
}

/// What is wrong with a page, or a picture.
pub(crate) const STALE: &str =
    "it is not what the records give: cargo run --release -p xtask -- bench-docs";

/// The pages and pictures that are not what the records give, and what they should be.
pub(crate) fn stale(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut pages = vec![PathBuf::from("README.md")];
    if let Ok(folder) = std::fs::read_dir(root.join("docs")) {
        for entry in folder {
            pages.push(Path::new("docs").join(entry?.file_name()));
        }
    }
    pages.retain(|page| page.extension().is_some_and(|e| e == "md") && root.join(page).is_file());
    pages.sort();
    let records = picks::by_machine(record::read(root)?)?;
    let mut made = drawings(&records)?;
    for page in pages {
        let path = root.join(&page);
        let text = std::fs::read_to_string(&path).with_context(|| page.display().to_string())?;
        let new = filled(&text, "measured", &mut |what| tables::table(&records, what));
        made.push((
            page.clone(),
            new.with_context(|| page.display().to_string())?,
        ));
    }
    made.retain(|(path, new)| std::fs::read_to_string(root.join(path)).ok().as_ref() != Some(new));
    Ok(made)
}

/// A picture of each group of rows of the machine with the newest run.
fn drawings(records: &[picks::Records]) -> Result<Vec<(PathBuf, String)>> {
    let mut drawings = Vec::new();
    for group in ["ids", "tags", "workqueue"] {
        let Some(newest) = records.first() else {
            break;
        };
        let drawn = plot::plot(newest, group);
        let drawn = drawn.map_err(|error| anyhow::anyhow!("drawing {group}: {error}"))?;
        let file = PathBuf::from(format!("docs/measured-{group}.svg"));
        drawings.extend(drawn.map(|text| (file, text)));
    }
    Ok(drawings)
}

#[cfg(test)]
mod tests;
