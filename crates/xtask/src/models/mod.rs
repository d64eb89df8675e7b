//! `models`: builds the loom models, runs each in a process of its own and says what was explored.

mod build;
mod hazards;
mod report;
mod run;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::parallel;
use crate::workspace::{Package, Workspace};
pub(crate) use build::{Model, list};
pub(crate) use run::{Outcome, Settings, Verdict, execute};

/// Runs the loom models of the workspace.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Use each model's deep bound; allows an hour per model
    #[arg(long)]
    deep: bool,
    /// Only models whose name contains this
    #[arg(long, value_name = "STR")]
    filter: Option<String>,
    /// Only this crate, by package or folder name; may be given several times
    #[arg(long = "crate", value_name = "NAME")]
    crates: Vec<String>,
    /// Name the models and run none
    #[arg(long)]
    list: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Models run at once; the number of CPUs if not given
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Seconds after which a model is stopped; 900, or 3600 with --deep
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Hazards that must have a model, such as H1,I.26
    #[arg(long, value_name = "HAZARDS", value_delimiter = ',')]
    require: Vec<String>,
}

/// Runs the models; returns whether all passed and all required hazards have one.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let workspace = Workspace::load(root)?;
    let target = workspace.target.join("loom");
    let packages = choose(&workspace, &options.crates)?;
    if packages.is_empty() {
        bail!("no models: no crate has tests/loom_*.rs");
    }
    let mut models = list(&workspace, &packages, &target, "--cfg loom")?;
    let missing = missing(&models, &options.require)?;
    if let Some(filter) = &options.filter {
        models.retain(|m| m.name.contains(filter.as_str()));
    }
    if options.list {
        report::list(&models, options.json)?;
    } else if models.is_empty() {
        bail!("no model matches");
    }
    let outcomes = if options.list {
        Vec::new()
    } else {
        explore(&models, options, &target)
    };
    if !options.list {
        // Shorter where it can be, for the commands that are shown.
        let target = target.strip_prefix(&workspace.root).unwrap_or(&target);
        report::results(&models, &outcomes, target, &missing, options.json)?;
    } else if !missing.is_empty() {
        eprintln!("models: no model for {}", missing.join(", "));
    }
    Ok(missing.is_empty() && outcomes.iter().all(|o| o.verdict == Verdict::Passed))
}

fn explore(models: &[Model], options: &Options, target: &Path) -> Vec<Outcome> {
    let limit = options
        .limit
        .unwrap_or(if options.deep { 3600 } else { 900 });
    let settings = Settings {
        limit: Duration::from_secs(limit),
        deep: options.deep,
        logs: target.join("logs"),
        env: Vec::new(),
    };
    let jobs = options.jobs.unwrap_or_else(parallel::default_jobs);
    parallel::map(models, jobs, |model| {
        let outcome = execute(model, &settings);
        eprintln!(
            "{:>7} {:7.1} s  {}",
            outcome.verdict, outcome.seconds, model.name
        );
        outcome
    })
}

/// The packages with models: those below `crates/` and the example of a downstream crate.
fn choose<'w>(workspace: &'w Workspace, names: &[String]) -> Result<Vec<&'w Package>> {
    let with_models = |p: &Package| p.tests.iter().any(|t| t.starts_with("loom_"));
    if !names.is_empty() {
        let named = names
            .iter()
            .map(|n| workspace.package_named(n))
            .collect::<Result<Vec<_>>>()?;
        if let Some(without) = named.iter().find(|p| !with_models(p)) {
            bail!("{} has no models (tests/loom_*.rs)", without.name);
        }
        return Ok(named);
    }
    let chosen = workspace.packages.iter().filter(|p| {
        let place = p.folder.starts_with("crates") || p.folder.ends_with("loom-downstream");
        place && with_models(p)
    });
    Ok(chosen.collect())
}

/// Which of the `required` hazards no model is about.
fn missing(models: &[Model], required: &[String]) -> Result<Vec<String>> {
    let present: BTreeSet<_> = models.iter().flat_map(|m| hazards::of(&m.name)).collect();
    let mut missing = Vec::new();
    for name in required {
        let Some(hazard) = hazards::named(name) else {
            bail!("{name} is not a hazard like H4 or I.26")
        };
        if !present.contains(&hazard) {
            missing.push(hazard);
        }
    }
    Ok(missing)
}
