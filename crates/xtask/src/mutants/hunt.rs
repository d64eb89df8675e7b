//! Running the models against each mutant.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, bail};

use super::copy::Copied;
use super::numbered;
use super::sites::{Site, Weaker};
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

impl Fate {
    /// Of a mutant that no model has met yet.
    fn new(site: &Site, weaker: Weaker) -> Self {
        Self {
            site: site.number,
            weaker,
            end: End::Survived { models: 0 },
            seconds: 0.0,
        }
    }
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
}

/// Runs all mutants of `sites`: against the models of the lowest crate first, and what survives
/// against those of the next. Without mutants each model must pass.
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
    let mut fates: Vec<Fate> = sites
        .iter()
        .flat_map(|s| s.weaker().into_iter().map(move |w| Fate::new(s, w)))
        .collect();
    let killers = Mutex::new(HashMap::new());
    for package in above {
        let (killed, open): (Vec<_>, _) = fates.into_iter().partition(|f| f.end.is_kill());
        fates = killed;
        if open.is_empty() {
            break;
        }
        let flags = "--cfg loom --cap-lints allow";
        let models = models::list(&copied.workspace, &[package], &copied.target, flags)?;
        eprintln!(
            "mutants: {} mutants, {} models of {}",
            open.len(),
            models.len(),
            package.name
        );
        let known = baseline(copied, models, settings)?;
        fates.extend(parallel::map(&open, settings.jobs, |fate| {
            let site = numbered(sites, fate.site).expect("mutants are made of sites");
            let fate = hunt(copied, &known, site, fate.clone(), &killers, settings);
            if fate.end.is_kill() {
                let ending = super::report::ending(&fate.end);
                eprintln!("{} -> {}: {ending}", site.id, site.shown(fate.weaker));
            }
            fate
        }));
    }
    fates.sort_by_key(|f| (f.site, f.weaker));
    Ok(fates)
}

/// The crates with models that stand on one of `packages`, the lowest first.
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
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|p| workspace.reaches(&p.name).len());
    found
}

/// Runs the models unmutated.
fn baseline(copied: &Copied, models: Vec<Model>, settings: &Settings) -> Result<Vec<Known>> {
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
        known.push(Known {
            model,
            seconds: outcome.seconds,
            reaches,
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
    mut fate: Fate,
    killers: &Killers,
    settings: &Settings,
) -> Fate {
    let ordering = match fate.weaker {
        Weaker::To(ordering) => ordering,
        Weaker::Removed => "removed",
    };
    let value = format!("{}={ordering}", site.number);
    let folder = format!("{}.{ordering}", site.number);
    let candidates = ranked(known, site, killers);
    if let End::Survived { models } = &mut fate.end {
        *models += candidates.len();
    }
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

/// The models that come by `site`: those that killed a neighbour first, then the quick ones.
fn ranked<'k>(known: &'k [Known], site: &Site, killers: &Killers) -> Vec<&'k Known> {
    let killers = killers.lock().expect("no hunt panics with the lock");
    let neighbours = killers.get(&site.id.path);
    let mut found: Vec<_> = known
        .iter()
        .filter(|k| k.reaches.contains(&site.number))
        .collect();
    found.sort_by(|a, b| {
        let killed = |k: &Known| neighbours.is_some_and(|n| n.contains(&k.model.name));
        (!killed(a))
            .cmp(&!killed(b))
            .then(a.seconds.total_cmp(&b.seconds))
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
        let known = |name: &str, seconds, reaches: &[u32]| Known {
            model: Model {
                package: "a".into(),
                test: "loom_a".into(),
                name: name.into(),
                binary: PathBuf::new(),
                folder: PathBuf::new(),
                counts: true,
            },
            seconds,
            reaches: reaches.iter().copied().collect(),
        };
        let all = [
            known("slow", 2.0, &[0, 1]),
            known("middle", 1.0, &[0]),
            known("quick", 0.1, &[0]),
            known("elsewhere", 0.1, &[1]),
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
        assert_eq!(names(&killers), ["quick", "middle", "slow"]);
        killers
            .lock()
            .unwrap()
            .entry("x.rs".into())
            .or_default()
            .insert("middle".into());
        assert_eq!(names(&killers), ["middle", "quick", "slow"]);
    }
}
