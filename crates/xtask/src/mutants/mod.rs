//! `mutants`: weakens one memory ordering at a time and looks whether a loom model notices.
//!
//! An ordering that can be weakened without any model failing is either stronger than it needs to
//! be, or unproved. So every survivor needs a written argument in `docs/orderings.md`.
//!
//! The method: a copy of the workspace is built once, with every ordering behind a function that
//! asks the environment whether this is the one to weaken ("mutant schemata"). Then each mutant is
//! a run of the same binaries with another environment. The run without any mutant records which
//! models come by which ordering, so that a mutant is shown only to those.

mod argued;
mod copy;
mod hunt;
mod report;
mod rewrite;
mod sites;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::parallel;
use crate::workspace::Workspace;
use argued::Arguments;
use sites::{Class, Scope, Site};

/// Where the survivors are argued.
const ARGUMENTS: &str = "docs/orderings.md";

/// Weakens each ordering in turn; a loom model must fail.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Name the sites and run nothing
    #[arg(long)]
    list: bool,
    /// Only sites whose name contains this
    #[arg(long, value_name = "STR")]
    filter: Option<String>,
    /// Only this crate, by package or folder name; may be given several times
    #[arg(long = "crate", value_name = "NAME")]
    crates: Vec<String>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Mutants run at once; the number of CPUs if not given
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Seconds after which a model is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 100)]
    limit: u64,
}

/// Hunts the mutants; returns whether each was killed or is argued, and no argument is stale.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let workspace = Workspace::load(root)?;
    let scopes = Scope::choose(&workspace, &options.crates)?;
    let mut sites = sites::find(&workspace, &scopes)?;
    if let Some(filter) = &options.filter {
        sites.retain(|s| s.id.to_string().contains(filter.as_str()));
    }
    if options.list {
        report::list(&sites, options.json)?;
        return Ok(true);
    }
    if sites.iter().all(|s| s.class != Class::Weakenable) {
        bail!("no ordering to weaken");
    }
    let arguments = Arguments::read(&root.join(ARGUMENTS))?;
    let copied = copy::prepare(&workspace, &sites)?;
    let packages: Vec<_> = scopes.iter().map(|s| s.package.clone()).collect();
    let settings = hunt::Settings {
        jobs: options.jobs.unwrap_or_else(parallel::default_jobs),
        limit: Duration::from_secs(options.limit),
    };
    let fates = hunt::run(&copied, &packages, &sites, &settings)?;
    let judged = arguments.judge(&sites, &fates, options.filter.is_none(), &scopes);
    report::results(&sites, &fates, &judged, options.json)?;
    Ok(judged.clean())
}

/// The site with the given number.
fn numbered(sites: &[Site], number: u32) -> Option<&Site> {
    sites.iter().find(|s| s.number == number)
}
