//! Rule `circle`: files of a crate that use each other in a ring, so that none can be read before
//! the others.
//!
//! A file uses another one if a `use` or a path names something that is defined there. A name that
//! a module only hands on leads to the file that has it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use super::Finding;
use super::file::{Area, File};
use crate::scan::{Kind, Source};

/// The largest number of files in a circle.
const GOAL: usize = 3;
/// Crates that are not there yet, and how large their largest circle is. May only become less.
const LARGEST: [(&str, usize); 4] = [("flush", 5), ("sim", 7), ("topology", 8), ("xtask", 4)];

/// A path from the root of a crate.
type Place = Vec<String>;

/// A file of a crate, as a module.
pub(crate) struct Module {
    package: String,
    file: PathBuf,
    at: Place,
    /// What it names.
    uses: BTreeSet<Place>,
    /// Names that it hands on, and where they come from.
    exports: BTreeMap<String, Place>,
    /// Modules all of whose names it hands on.
    globs: Vec<Place>,
    /// Names that stand behind `struct`, `fn` and the like.
    defined: HashSet<String>,
}

/// The file as a module, if it is shipped code.
pub(crate) fn module(file: &File) -> Option<Module> {
    let (source, _) = file.rust.as_ref()?;
    let package = file.package.clone()?;
    if file.area != Area::Src || file.is_test_only() {
        return None;
    }
    let inside = file.path.strip_prefix("crates").ok()?;
    let inside = inside.strip_prefix(&package).ok()?.strip_prefix("src");
    let path = inside.ok()?.with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    let mut at: Place = parts.collect();
    if at.last().is_some_and(|last| last == "mod")
        || matches!(&at[..], [a] if a == "lib" || a == "main")
    {
        at.pop();
    }
    let mut module = Module {
        package,
        file: file.path.clone(),
        at,
        uses: BTreeSet::new(),
        exports: BTreeMap::new(),
        globs: Vec::new(),
        defined: HashSet::new(),
    };
    module.read(file, source);
    Some(module)
}

impl Module {
    fn read(&mut self, file: &File, source: &Source) {
        let mut plain = HashSet::new();
        let mut i = 0;
        while i < source.tokens.len() {
            if file.is_test(i) || source.tokens[i].kind != Kind::Ident {
                i += 1;
                continue;
            }
            match source.text(i) {
                "use" if source.text(i + 1) != "<" => {
                    let handed_on = i > 0 && matches!(source.text(i - 1), "pub" | ")");
                    let mut found = Vec::new();
                    i = tree(source, i + 1, &[], &mut found);
                    found
                        .into_iter()
                        .for_each(|path| self.import(path, handed_on));
                    continue;
                }
                "crate" | "super" | "self" if source.matches(i + 1, &[":", ":"]) => {
                    let (path, next) = path(source, i);
                    if let Some(place) = self.place(&path) {
                        self.uses.insert(place);
                    }
                    i = next;
                    continue;
                }
                "struct" | "enum" | "trait" | "fn" | "const" | "static" | "type" => {
                    self.defined.insert(source.text(i + 1).to_owned());
                }
                name => {
                    if i < 1 || source.text(i - 1) != ":" {
                        plain.insert(name.to_owned());
                    }
                }
            }
            i += 1;
        }
        // What it hands on and uses itself too.
        let own = self
            .exports
            .iter()
            .filter(|(name, _)| plain.contains(*name));
        self.uses.extend(own.map(|(_, place)| place.clone()));
    }

    fn import(&mut self, mut path: Vec<String>, handed_on: bool) {
        let name = path.last().cloned().unwrap_or_default();
        if name == "self" {
            path.pop();
        }
        let Some(mut place) = self.place(&path) else {
            return;
        };
        match (handed_on, name.as_str()) {
            (true, "*") => {
                place.pop();
                self.globs.push(place);
            }
            (true, _) => drop(self.exports.insert(name, place)),
            (false, _) => drop(self.uses.insert(place)),
        }
    }

    /// Where a path begins that is one of this crate.
    fn place(&self, path: &[String]) -> Option<Place> {
        let up = path.iter().take_while(|part| *part == "super").count();
        let (base, rest) = match path.first()?.as_str() {
            "crate" => (&[][..], &path[1..]),
            "self" => (&self.at[..], &path[1..]),
            "super" => (self.at.get(..self.at.len().checked_sub(up)?)?, &path[up..]),
            // Perhaps a module of its own; else nothing is found there.
            _ => (&self.at[..], path),
        };
        Some(base.iter().chain(rest).cloned().collect())
    }
}

/// The paths of a `use`, whose tree begins at token `i`. Returns the first token behind.
fn tree(source: &Source, i: usize, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    let mut i = i;
    while i < source.tokens.len() {
        match source.text(i) {
            ":" => i += 1,
            "{" => {
                let end = source.tokens[i].mate;
                let mut at = i + 1;
                while at < end {
                    at = tree(source, at, &path, found) + 1;
                }
                return end + 1;
            }
            "as" => i += 2,
            "," | ";" | "}" => break,
            part => {
                path.push(part.to_owned());
                i += 1;
            }
        }
    }
    if path.len() > before.len() {
        found.push(path);
    }
    i
}

/// The path that begins at token `i`, and the first token behind.
fn path(source: &Source, mut i: usize) -> (Vec<String>, usize) {
    let mut path = vec![source.text(i).to_owned()];
    while source.matches(i + 1, &[":", ":"])
        && source
            .tokens
            .get(i + 3)
            .is_some_and(|t| t.kind == Kind::Ident)
    {
        i += 3;
        path.push(source.text(i).to_owned());
    }
    (path, i + 1)
}

/// The circles of each crate that are larger than they may be.
pub(crate) fn check(modules: &[Module]) -> Vec<Finding> {
    let packages: BTreeSet<_> = modules.iter().map(|m| m.package.as_str()).collect();
    packages
        .into_iter()
        .flat_map(|p| check_crate(p, modules))
        .collect()
}

fn check_crate(package: &str, modules: &[Module]) -> Vec<Finding> {
    let modules: Vec<_> = modules.iter().filter(|m| m.package == package).collect();
    let by_place: BTreeMap<&[String], usize> = modules
        .iter()
        .enumerate()
        .map(|(i, m)| (&m.at[..], i))
        .collect();
    let arrows: Vec<BTreeSet<usize>> = (0..modules.len())
        .map(|from| {
            let uses = modules[from].uses.iter();
            let to = uses.filter_map(|place| resolve(&modules, &by_place, place, 0));
            to.filter(|to| *to != from).collect()
        })
        .collect();
    let known = LARGEST.iter().find(|(name, _)| *name == package);
    let most = known.map_or(GOAL, |(_, most)| *most);
    let circles = circles(&arrows);
    let finding = |circle: &[usize], message: String| Finding {
        file: modules[circle[0]].file.clone(),
        line: 1,
        rule: "circle",
        message,
    };
    let mut findings = Vec::new();
    for circle in circles.iter().filter(|circle| circle.len() > most) {
        let names: Vec<_> = circle
            .iter()
            .map(|m| modules[*m].file.display().to_string())
            .collect();
        let message = format!(
            "{} files use each other in a circle, at most {most}: {}",
            circle.len(),
            names.join(", ")
        );
        findings.push(finding(circle, message));
    }
    let largest = circles.iter().max_by_key(|circle| circle.len());
    if let Some(largest) = largest.filter(|largest| known.is_some() && largest.len() < most) {
        let message = format!(
            "the largest circle has {} files now: lower the number for {package} from {most}",
            largest.len()
        );
        findings.push(finding(largest, message));
    }
    findings
}

/// The module that has what a place names.
fn resolve(
    modules: &[&Module],
    by_place: &BTreeMap<&[String], usize>,
    place: &[String],
    depth: usize,
) -> Option<usize> {
    let lengths = (0..=place.len()).rev();
    let (length, at) = lengths
        .into_iter()
        .find_map(|n| Some((n, *by_place.get(&place[..n])?)))?;
    let module = modules[at];
    let Some(name) = place.get(length).filter(|_| depth < 10) else {
        return Some(at);
    };
    if let Some(from) = module.exports.get(name) {
        let whole: Place = from.iter().chain(&place[length + 1..]).cloned().collect();
        return resolve(modules, by_place, &whole, depth + 1);
    }
    let has = |glob: &&Place| {
        let there = by_place.get(&glob[..]);
        there.is_some_and(|there| modules[*there].defined.contains(name))
    };
    match module.globs.iter().find(has) {
        Some(glob) => by_place.get(&glob[..]).copied(),
        None => Some(at),
    }
}

/// The sets of modules each of which leads to all others.
fn circles(arrows: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..arrows.len()).map(|from| reach(arrows, from)).collect();
    let mut seen = HashSet::new();
    let mut circles = Vec::new();
    for (from, reached_from) in reached.iter().enumerate() {
        if !reached_from.contains(&from) || seen.contains(&from) {
            continue;
        }
        let back = |to: &&usize| reached[**to].contains(&from);
        let circle: Vec<_> = reached_from.iter().filter(back).copied().collect();
        seen.extend(circle.iter().copied());
        circles.push(circle);
    }
    circles
}

fn reach(arrows: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        open.extend(arrows[at].iter().filter(|to| reached.insert(**to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn said(package: &str, files: &[(&str, &str)]) -> Vec<String> {
        let modules = files.iter().filter_map(|(name, text)| {
            let path = format!("crates/{package}/src/{name}");
            let file = File::new(Path::new(""), path.into(), (*text).into(), Vec::new());
            module(&file.unwrap())
        });
        let findings = check(&modules.collect::<Vec<_>>());
        findings.into_iter().map(|f| f.message).collect()
    }

    /// Four files, each of which uses the next one.
    const RING: [(&str, &str); 4] = [
        ("a.rs", "use crate::b::{C, self};"),
        ("b.rs", "fn f() { crate::c::g() }"),
        ("c/mod.rs", "use super::d::Deep as D; mod inner;"),
        ("d.rs", "mod m { use crate::a; }"),
    ];

    #[test]
    fn a_circle_beyond_the_goal_is_named() {
        let found = said("tags", &RING);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("4 files use each other in a circle, at most 3:"));
        assert_eq!(said("tags", &RING[..3]), [""; 0]);
    }

    #[test]
    fn what_tests_use_and_what_is_in_comments_does_not_count() {
        let mut files = RING;
        files[3].1 = "#[cfg(test)] mod tests { use crate::a; }\n// use crate::a;\n";
        assert_eq!(said("tags", &files), [""; 0]);
    }

    #[test]
    fn a_name_that_is_handed_on_leads_to_where_it_is() {
        let mut files = RING;
        files[3].1 = "pub use crate::a::A;";
        assert_eq!(said("tags", &files), [""; 0], "`d` needs nothing of `a`");
        files[3].1 = "pub use crate::a::A; struct B(A);";
        assert_eq!(said("tags", &files).len(), 1);
        files[3].1 = "pub use crate::a::*;";
        files[0].1 = "use crate::b::C; struct Deep;";
        let found = said("xtask", &files);
        assert_eq!(
            found.len(),
            1,
            "`c` uses `a` by way of `d`, so three are in a circle"
        );
    }

    #[test]
    fn a_number_that_could_be_lower_is_lowered() {
        let found = said("xtask", &RING[..]);
        assert_eq!(found, [""; 0]);
        let mut files = RING;
        files[2].1 = "use crate::a;";
        let found = said("xtask", &files);
        assert_eq!(
            found,
            ["the largest circle has 3 files now: lower the number for xtask from 4"]
        );
    }
}
