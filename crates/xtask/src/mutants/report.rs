//! What `mutants` prints.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};

use super::argued::{Judged, name};
use super::hunt::{End, Fate};
use super::numbered;
use super::sites::{Class, Site};
use crate::output::say;
use crate::table::Table;

/// The sites without results.
pub(crate) fn list(sites: &[Site], as_json: bool) -> Result<()> {
    if as_json {
        let all: Vec<_> = sites.iter().map(describe).collect();
        say!(
            "{}",
            serde_json::to_string_pretty(&json!({ "sites": all }))?
        );
        return Ok(());
    }
    let mut table = Table::new(&["site", "line", "mutants"], &[1]);
    for site in sites {
        table.row(vec![
            site.id.to_string(),
            site.line.to_string(),
            mutants(site),
        ]);
    }
    say!("{}", table.to_string().trim_end());
    for package in packages(sites) {
        say!("{package}: {}", census(sites, Some(&package)));
    }
    say!("all: {}", census(sites, None));
    Ok(())
}

fn mutants(site: &Site) -> String {
    match site.class {
        Class::Weakenable => {
            let shown: Vec<_> = site.weaker().into_iter().map(|w| site.shown(w)).collect();
            shown.join(", ")
        }
        Class::Relaxed => "- (Relaxed)".to_owned(),
        Class::Unmodelled => "- (not modelled)".to_owned(),
    }
}

fn packages(sites: &[Site]) -> BTreeSet<String> {
    sites.iter().map(|s| s.package.clone()).collect()
}

fn of<'s>(sites: &'s [Site], package: Option<&'s str>) -> impl Iterator<Item = &'s Site> {
    sites
        .iter()
        .filter(move |s| package.is_none_or(|p| s.package == p))
}

fn census(sites: &[Site], package: Option<&str>) -> String {
    let count = |class| of(sites, package).filter(|s| s.class == class).count();
    let mutants: usize = of(sites, package).map(|s| s.weaker().len()).sum();
    format!(
        "{} sites: {} weakenable ({mutants} mutants), {} Relaxed, {} not modelled",
        of(sites, package).count(),
        count(Class::Weakenable),
        count(Class::Relaxed),
        count(Class::Unmodelled)
    )
}

/// How a mutant ended, in words.
pub(crate) fn ending(end: &End) -> String {
    match end {
        End::Killed { model, .. } => format!("killed by {model}"),
        End::Hung { model } => format!("killed by {model} (ran far longer, was stopped)"),
        End::Unknown { model } => format!("timeout of {model}, which is slow anyway"),
        End::Survived { models: 0 } => "survived: no model comes by".to_owned(),
        End::Survived { models } => format!("survived {models} models"),
    }
}

/// The mutants with their fates, and the sums.
pub(crate) fn results(
    sites: &[Site],
    fates: &[Fate],
    judged: &Judged,
    as_json: bool,
) -> Result<()> {
    if as_json {
        let all: Vec<_> = fates
            .iter()
            .filter_map(|f| fate(sites, f, judged))
            .collect();
        let sums: Vec<_> = packages(sites)
            .iter()
            .map(|p| json!({ "crate": p, "sums": Sums::of(sites, fates, judged, Some(p)).json() }))
            .collect();
        let value = json!({
            "sites": sites.iter().map(describe).collect::<Vec<_>>(), "mutants": all,
            "unargued": judged.unargued, "stale": judged.stale,
            "crates": sums, "all": Sums::of(sites, fates, judged, None).json(),
        });
        say!("{}", serde_json::to_string_pretty(&value)?);
        return Ok(());
    }
    let mut table = Table::new(&["site", "weakened to", "seconds", "result"], &[2]);
    for fate in fates {
        let Some(site) = numbered(sites, fate.site) else {
            continue;
        };
        let end = ending(&fate.end);
        let result = if fate.end.is_kill() {
            end
        } else {
            with_verdict(end, &name(site, fate), judged)
        };
        let seconds = format!("{:.1}", fate.seconds);
        table.row(vec![
            site.id.to_string(),
            site.shown(fate.weaker),
            seconds,
            result,
        ]);
    }
    for site in sites.iter().filter(|s| s.class == Class::Unmodelled) {
        let id = site.id.to_string();
        let result = with_verdict("not modelled".to_owned(), &id, judged);
        table.row(vec![id, "-".to_owned(), "-".to_owned(), result]);
    }
    say!("{}", table.to_string().trim_end());
    for line in &judged.stale {
        say!("STALE {}:{line}", super::ARGUMENTS);
    }
    for package in packages(sites) {
        say!(
            "{package}: {}",
            Sums::of(sites, fates, judged, Some(&package))
        );
    }
    say!("all: {}", Sums::of(sites, fates, judged, None));
    Ok(())
}

fn with_verdict(end: String, name: &str, judged: &Judged) -> String {
    let verdict = if judged.argued.contains(name) {
        "argued"
    } else {
        "NOT argued"
    };
    format!("{end}: {verdict}")
}

fn describe(site: &Site) -> Value {
    let weaker: Vec<_> = site.weaker().into_iter().map(|w| site.shown(w)).collect();
    let class = match site.class {
        Class::Weakenable => "weakenable",
        Class::Relaxed => "relaxed",
        Class::Unmodelled => "unmodelled",
    };
    json!({
        "crate": site.package, "site": site.id.to_string(), "line": site.line,
        "class": class, "mutants": weaker,
    })
}

fn fate(sites: &[Site], fate: &Fate, judged: &Judged) -> Option<Value> {
    let site = numbered(sites, fate.site)?;
    let mut value = json!({
        "site": site.id.to_string(), "weakened": site.shown(fate.weaker),
        "seconds": (fate.seconds * 100.0).round() / 100.0, "killed": fate.end.is_kill(),
        "result": ending(&fate.end),
    });
    match &fate.end {
        End::Killed { model, reason } => {
            value["model"] = json!(model);
            value["reason"] = json!(reason);
        }
        End::Hung { model } | End::Unknown { model } => value["model"] = json!(model),
        End::Survived { .. } => {}
    }
    if !fate.end.is_kill() {
        value["argued"] = json!(judged.argued.contains(&name(site, fate)));
    }
    Some(value)
}

/// What is counted for a crate or for all.
struct Sums {
    mutants: usize,
    killed: usize,
    /// Of the killed, those that only ran far longer.
    hung: usize,
    argued: usize,
    relaxed: usize,
    unmodelled: usize,
    unmodelled_argued: usize,
}

impl Sums {
    fn of(sites: &[Site], fates: &[Fate], judged: &Judged, package: Option<&str>) -> Self {
        let own: Vec<_> = of(sites, package).collect();
        let fates: Vec<_> = fates
            .iter()
            .filter_map(|f| own.iter().find(|s| s.number == f.site).map(|s| (s, f)))
            .collect();
        let count = |what: &dyn Fn(&Fate) -> bool| fates.iter().filter(|(_, f)| what(f)).count();
        let unmodelled = || own.iter().filter(|s| s.class == Class::Unmodelled);
        let argued = |name: &str| judged.argued.contains(name);
        Self {
            mutants: fates.len(),
            killed: count(&|f| f.end.is_kill()),
            hung: count(&|f| matches!(f.end, End::Hung { .. })),
            argued: fates.iter().filter(|(s, f)| argued(&name(s, f))).count(),
            relaxed: own.iter().filter(|s| s.class == Class::Relaxed).count(),
            unmodelled: unmodelled().count(),
            unmodelled_argued: unmodelled().filter(|s| argued(&s.id.to_string())).count(),
        }
    }

    fn json(&self) -> Value {
        json!({
            "mutants": self.mutants, "killed": self.killed, "hung": self.hung,
            "argued": self.argued, "relaxed": self.relaxed,
            "unmodelled": self.unmodelled, "unmodelled_argued": self.unmodelled_argued,
        })
    }
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "killed {} of {}, argued {}",
            self.killed, self.mutants, self.argued
        )?;
        if self.hung > 0 {
            write!(f, " ({} of the killed by a timeout)", self.hung)?;
        }
        let (unmodelled, argued) = (self.unmodelled, self.unmodelled_argued);
        write!(
            f,
            "; beside them {} Relaxed, {unmodelled} not modelled ({argued} argued)",
            self.relaxed
        )
    }
}
