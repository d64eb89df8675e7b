//! The switch behind every ordering of the copied workspace, set by the environment.
//!
//! This file is no module of xtask: `mutants` adds it to the copy of the crate that all
//! atomics come from. It uses std bare, because it must stay invisible to the model checker.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

use crate::atomic::Ordering;

/// What the process is to do with its sites.
enum Plan {
    /// Run the code as it is.
    Nothing,
    /// Use this ordering at this site; no ordering means no fence.
    Weaken(u32, Option<Ordering>),
    /// Write down which sites are reached.
    Record(Mutex<(HashSet<u32>, File)>),
}

static PLAN: OnceLock<Plan> = OnceLock::new();

fn plan() -> &'static Plan {
    PLAN.get_or_init(|| {
        if let Ok(path) = std::env::var("INFLIGHT_MUTANT_RECORD") {
            let file = File::create(path).expect("the record can be written");
            return Plan::Record(Mutex::new((HashSet::new(), file)));
        }
        let Ok(mutant) = std::env::var("INFLIGHT_MUTANT") else { return Plan::Nothing };
        let (site, ordering) = mutant.split_once('=').expect("INFLIGHT_MUTANT is SITE=ORDERING");
        let ordering = match ordering {
            "Relaxed" => Some(Ordering::Relaxed),
            "Acquire" => Some(Ordering::Acquire),
            "Release" => Some(Ordering::Release),
            "AcqRel" => Some(Ordering::AcqRel),
            "removed" => None,
            other => panic!("{other} is not weaker than anything"),
        };
        Plan::Weaken(site.parse().expect("a site has a number"), ordering)
    })
}

/// What to do at `site`: nothing special, or the weaker form.
fn weaker(site: u32) -> Option<Option<Ordering>> {
    match plan() {
        Plan::Weaken(chosen, ordering) if *chosen == site => Some(*ordering),
        Plan::Nothing | Plan::Weaken(..) => None,
        Plan::Record(record) => {
            let mut record = record.lock().unwrap_or_else(|e| e.into_inner());
            if record.0.insert(site) {
                writeln!(record.1, "{site}").expect("the record can be written");
            }
            None
        }
    }
}

/// The ordering to use at `site`.
pub fn pick(site: u32, ordering: Ordering) -> Ordering {
    weaker(site).flatten().unwrap_or(ordering)
}

/// The fence at `site`.
pub fn fence(site: u32, ordering: Ordering) {
    match weaker(site) {
        Some(None) => {}
        Some(Some(weak)) => crate::atomic::fence(weak),
        None => crate::atomic::fence(ordering),
    }
}
