//! Running the models against each mutant.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, bail};

use super::copy::Copied;
use super::numbered;
use super::sites::{Class, Site, Weaker};
use crate::models::{self, Model, Outcome, Verdict, execute};
use crate::parallel;
use crate::workspace::Package;

/// A timeout proves something only if the same model is this many times faster unmutated.
const FAR_QUICKER: f64 = 20.0;

/// How mutants are run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) jobs: usize,
    /// A model is stopped after this time.
    pub(crate) limit: Duration,
}

/// What became of one mutant.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    /// The site's number.
    pub(crate) site: u32,
    pub(crate) weaker: Weaker,
    pub(crate) end: End,
    /// What its models took together.
    pub(crate) seconds: f64,
}

/// How a mutant ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A model failed, for the reason given.
    Killed { model: String, reason: String },
    /// No model failed, but one ran far longer than without the mutant.
    Hung { model: String },
    /// No model failed, and one was stopped that is slow anyway: nothing is known.
    Unknown { model: String },
    /// All models that come by passed.
    Survived { models: usize },
}

impl End {
    /// Whether a model noticed the mutant.
    pub(crate) fn is_kill(&self) -> bool {
        matches!(self, Self::Killed { .. } | Self::Hung { .. })
    }
}

/// A model with what the run without mutants told about it.
struct Known {
    model: Model,
    seconds: f64,
    /// The sites it comes by.
    reaches: BTreeSet<u32>,
    /// How many crates of the workspace it stands on: lower crates first.
    height: usize,
}

/// Runs all mutants of `sites`; first everything unmutated, which must pass.
pub(crate) fn run(
    copied: &Copied,
    packages: &[String],
    sites: &[Site],
    settings: &Settings,
) -> Result<Vec<Fate>> {
    let above = above(copied, packages);
    if above.is_empty() {
        bail!(
            "no models: no crate that uses {} has tests/loom_*.rs",
            packages.join(", ")
        );
    }
    let flags = "--cfg loom --cap-lints allow";
    let models = models::list(&copied.workspace, &above, &copied.target, flags)?;
    let known = baseline(copied, models, settings)?;
    let mutants: Vec<(&Site, Weaker)> = sites
        .iter()
        .flat_map(|s| s.weaker().into_iter().map(move |w| (s, w)))
        .collect();
    eprintln!(
        "mutants: {} mutants of {} sites",
        mutants.len(),
        weakenable(sites)
    );
    let killers = Mutex::new(HashMap::new());
    let fates = parallel::map(&mutants, settings.jobs, |&(site, weaker)| {
        let fate = hunt(copied, &known, site, weaker, &killers, settings);
        eprintln!(
            "{} -> {}: {}",
            site.id,
            site.shown(weaker),
            super::report::ending(&fate.end)
        );
        fate
    });
    debug_assert!(fates.iter().all(|f| numbered(sites, f.site).is_some()));
    Ok(fates)
}

fn weakenable(sites: &[Site]) -> usize {
    sites
        .iter()
        .filter(|s| s.class == Class::Weakenable)
        .count()
}

/// The crates with models that stand on one of `packages`.
fn above<'c>(copied: &'c Copied, packages: &[String]) -> Vec<&'c Package> {
    let workspace = &copied.workspace;
    let found = workspace.packages.iter().filter(|p| {
        p.folder.starts_with("crates")
            && p.tests.iter().any(|t| t.starts_with("loom_"))
            && workspace
                .reaches(&p.name)
                .iter()
                .any(|r| packages.contains(r))
    });
    found.collect()
}

/// Runs the models unmutated.
fn baseline(copied: &Copied, models: Vec<Model>, settings: &Settings) -> Result<Vec<Known>> {
    eprintln!("mutants: {} models without mutants", models.len());
    let records = copied.scratch.join("records");
    fs::create_dir_all(&records)?;
    let numbers: Vec<usize> = (0..models.len()).collect();
    let record = |number: usize| records.join(number.to_string());
    let outcomes = parallel::map(&numbers, settings.jobs, |&number| {
        let path = record(number);
        let _ = fs::remove_file(&path);
        let value = path.to_string_lossy().into_owned();
        one(
            copied,
            &models[number],
            "INFLIGHT_MUTANT_RECORD",
            value,
            "baseline",
            settings,
        )
    });
    let failed: Vec<_> = models
        .iter()
        .zip(&outcomes)
        .filter(|(_, o)| o.verdict != Verdict::Passed)
        .map(|(m, o)| {
            format!(
                "  {} {}: {}",
                o.verdict,
                m.name,
                o.message.as_deref().unwrap_or("")
            )
        })
        .collect();
    if !failed.is_empty() {
        bail!(
            "without mutants every model must pass, but:\n{}",
            failed.join("\n")
        );
    }
    let mut known = Vec::new();
    for (number, (model, outcome)) in models.into_iter().zip(outcomes).enumerate() {
        // A model that comes by no site writes no record.
        let text = fs::read_to_string(record(number)).unwrap_or_default();
        let reaches = text.lines().map(str::parse).collect::<Result<_, _>>()?;
        let height = copied.workspace.reaches(&model.package).len();
        known.push(Known {
            model,
            seconds: outcome.seconds,
            reaches,
            height,
        });
    }
    Ok(known)
}

/// Which models killed mutants in a file.
type Killers = Mutex<HashMap<PathBuf, BTreeSet<String>>>;

/// Runs the models that come by `site` until one fails.
fn hunt(
    copied: &Copied,
    known: &[Known],
    site: &Site,
    weaker: Weaker,
    killers: &Killers,
    settings: &Settings,
) -> Fate {
    let ordering = match weaker {
        Weaker::To(ordering) => ordering,
        Weaker::Removed => "removed",
    };
    let value = format!("{}={ordering}", site.number);
    let folder = format!("{}.{ordering}", site.number);
    let candidates = ranked(known, site, killers);
    let mut fate = Fate {
        site: site.number,
        weaker,
        end: End::Survived {
            models: candidates.len(),
        },
        seconds: 0.0,
    };
    for candidate in candidates {
        let model = &candidate.model;
        let outcome = one(
            copied,
            model,
            "INFLIGHT_MUTANT",
            value.clone(),
            &folder,
            settings,
        );
        fate.seconds += outcome.seconds;
        let name = model.name.clone();
        match outcome.verdict {
            // Exploring less is not noticing.
            Verdict::Passed | Verdict::Empty => {}
            // A real failure says more than a timeout: look for one.
            Verdict::TimedOut => {
                let quick = candidate.seconds * FAR_QUICKER <= settings.limit.as_secs_f64();
                if quick {
                    fate.end = End::Hung { model: name };
                } else if !fate.end.is_kill() {
                    fate.end = End::Unknown { model: name };
                }
            }
            Verdict::Failed => {
                let mut killers = killers.lock().expect("no hunt panics with the lock");
                killers
                    .entry(site.id.path.clone())
                    .or_default()
                    .insert(name.clone());
                let reason = outcome.message.unwrap_or_default();
                fate.end = End::Killed {
                    model: name,
                    reason,
                };
                break;
            }
        }
    }
    fate
}

/// The models that come by `site`, the most promising first: those that killed a neighbour, then
/// those of the site's own crate and the crates next above it, then the quick ones.
fn ranked<'k>(known: &'k [Known], site: &Site, killers: &Killers) -> Vec<&'k Known> {
    let killers = killers.lock().expect("no hunt panics with the lock");
    let neighbours = killers.get(&site.id.path);
    let mut found: Vec<_> = known
        .iter()
        .filter(|k| k.reaches.contains(&site.number))
        .collect();
    found.sort_by(|a, b| {
        let rank = |k: &Known| {
            let killed = neighbours.is_some_and(|n| n.contains(&k.model.name));
            (!killed, k.model.package != site.package, k.height)
        };
        rank(a).cmp(&rank(b)).then(a.seconds.total_cmp(&b.seconds))
    });
    found
}

fn one(
    copied: &Copied,
    model: &Model,
    variable: &str,
    value: String,
    folder: &str,
    settings: &Settings,
) -> Outcome {
    let settings = models::Settings {
        limit: settings.limit,
        deep: false,
        logs: copied.scratch.join(folder),
        env: vec![(variable.to_owned(), value)],
    };
    execute(model, &settings)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mutants::sites::in_file;

    #[test]
    fn promising_models_come_first() {
        let known = |name: &str, package: &str, height, seconds, reaches: &[u32]| Known {
            model: Model {
                package: package.into(),
                test: "loom_a".into(),
                name: name.into(),
                binary: PathBuf::new(),
                folder: PathBuf::new(),
                counts: true,
            },
            seconds,
            reaches: reaches.iter().copied().collect(),
            height,
        };
        let all = [
            known("top", "c", 3, 0.1, &[0]),
            known("middle", "b", 2, 0.1, &[0]),
            known("slow", "a", 1, 2.0, &[0, 1]),
            known("quick", "a", 1, 0.1, &[0]),
            known("elsewhere", "a", 1, 0.1, &[1]),
        ];
        let text = "fn f() { a.load(Ordering::Acquire); }".to_owned();
        let site = in_file(Path::new("x.rs"), text, &[], "a")
            .unwrap()
            .remove(0);
        let names = |killers: &Killers| -> Vec<String> {
            ranked(&all, &site, killers)
                .iter()
                .map(|k| k.model.name.clone())
                .collect()
        };
        let killers = Killers::default();
        assert_eq!(names(&killers), ["quick", "slow", "middle", "top"]);
        killers
            .lock()
            .unwrap()
            .entry("x.rs".into())
            .or_default()
            .insert("middle".into());
        assert_eq!(names(&killers), ["middle", "quick", "slow", "top"]);
    }
}
