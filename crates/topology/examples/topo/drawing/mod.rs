//! The machine as a drawing: nodes hold caches, caches hold cores, cores hold threads.

mod tile;

use std::collections::BTreeMap;

use inflight_topology::{CpuSet, Scope, Topology};
use tile::{Tile, text_width};

/// The look of everything. Every kind of CPU has a border of its own too, for eyes and printers
/// without colours.
const STYLE: &str = "\
text{font:12px 'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;fill:#1c2733}\
.head{font-weight:bold}.title{fill:#33475b}\
.node{fill:#e9eff6;stroke:#8fa3b8}.cache{fill:#cfdfef;stroke:#6f8fb0}\
.shard{fill:#bcd2e8;stroke:#6f8fb0;stroke-dasharray:4 3}.core{fill:#fff;stroke:#33475b}\
.cpu rect{fill:#2b5f94}.cpu text{fill:#fff}\
.slow rect{fill:#a9d3c4;stroke:#1f6f57}\
.isolated rect{fill:#ffc46b;stroke:#8a5200;stroke-width:2;stroke-dasharray:4 2}\
.closed rect{fill:#dcdcdc;stroke:#777}\
.offline rect{fill:#fff;stroke:#999;stroke-dasharray:2 2}.offline text{fill:#777}";

const MARGIN: f64 = 16.0;
const CELL_HEIGHT: f64 = 22.0;
/// So that the title and the legend of a very small machine have room.
const LEAST_WIDTH: f64 = 560.0;

/// What the drawing tells about a CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Usable,
    /// Usable, and of a slower class than the fastest.
    Slow,
    Isolated,
    /// Online, but not for this process.
    Closed,
    Offline,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Usable,
        Self::Slow,
        Self::Isolated,
        Self::Closed,
        Self::Offline,
    ];

    fn of(topo: &Topology, cpu: usize) -> Self {
        if !topo.online().contains(cpu) {
            Self::Offline
        } else if topo.isolated().contains(cpu) {
            Self::Isolated
        } else if let Some(class) = topo.speed_of(cpu) {
            if class.rank() + 1 == topo.speed_classes().len() {
                Self::Usable
            } else {
                Self::Slow
            }
        } else {
            Self::Closed
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Usable => "cpu",
            Self::Slow => "slow",
            Self::Isolated => "isolated",
            Self::Closed => "closed",
            Self::Offline => "offline",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Usable => "thread (CPU number)",
            Self::Slow => "slower thread",
            Self::Isolated => "isolated",
            Self::Closed => "not for this process",
            Self::Offline => "offline",
        }
    }
}

/// The text of an SVG file.
pub(crate) fn draw(topo: &Topology) -> String {
    let nodes: Vec<Tile> = topo
        .pods(Scope::Numa)
        .iter()
        .map(|pod| node(topo, pod.cpus(), pod.node()))
        .collect();
    let machine = Tile::block(&nodes, 14.0);
    let width = machine.width.max(LEAST_WIDTH);

    let summary = topo.to_string();
    let summary = summary.lines().next().unwrap_or_default();
    let mut parts = vec![Tile::paragraph("head", summary, width), machine];
    let elsewhere = topo.possible().difference(topo.cpus());
    if !elsewhere.is_empty() {
        parts.push(outside(topo, &elsewhere, width));
    }
    parts.push(Tile::flow(&legend(topo), width, 16.0));
    for assumption in topo.assumptions() {
        let text = format!("assumed: {assumption}");
        parts.push(Tile::paragraph("note", &text, width));
    }
    page(Tile::column(parts, 12.0))
}

fn page(content: Tile) -> String {
    let width = (content.width + 2.0 * MARGIN).ceil();
    let height = (content.height + 2.0 * MARGIN).ceil();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n{}</g>\n</svg>\n",
        content.body
    )
}

/// The parts of `within` that the pods of a scope make, with the number of each pod. A pod that
/// reaches beyond is drawn wherever a part of it is: nothing says that caches respect nodes.
fn parts(topo: &Topology, scope: Scope, within: &CpuSet) -> Vec<(usize, CpuSet, bool)> {
    let mut parts: BTreeMap<usize, CpuSet> = BTreeMap::new();
    for cpu in within {
        if let Some(pod) = topo.pod_of(scope, cpu) {
            parts.entry(pod.id()).or_default().insert(cpu);
        }
    }
    let parts = parts.into_iter().map(|(id, part)| {
        let whole = &part == topo.pods(scope)[id].cpus();
        (id, part, whole)
    });
    parts.collect()
}

fn node(topo: &Topology, cpus: &CpuSet, number: Option<usize>) -> Tile {
    let caches: Vec<Tile> = parts(topo, Scope::Cache, cpus)
        .iter()
        .map(|(id, part, whole)| cache(topo, *id, part, *whole))
        .collect();
    let name = number.map_or("no node".to_owned(), |number| format!("node {number}"));
    let title = format!("{name}: {}", short(cpus));
    Tile::block(&caches, 10.0).framed("node", &title, 10.0)
}

fn cache(topo: &Topology, id: usize, cpus: &CpuSet, whole: bool) -> Tile {
    let shards = parts(topo, Scope::CacheShard, cpus);
    let rows: Vec<Tile> = shards
        .iter()
        .map(|(_, part, _)| {
            let cores = parts(topo, Scope::Smt, part);
            let cores = cores.iter().map(|(_, part, _)| core(topo, part)).collect();
            let row = Tile::row(cores, 5.0);
            if shards.len() > 1 {
                row.framed("shard", "", 5.0)
            } else {
                row
            }
        })
        .collect();
    let title = format!("cache {id}{}", if whole { "" } else { " (a part)" });
    Tile::block(&rows, 5.0).framed("cache", &title, 8.0)
}

fn core(topo: &Topology, cpus: &CpuSet) -> Tile {
    let threads = cpus.iter().map(|cpu| thread(topo, cpu)).collect();
    Tile::column(threads, 2.0).framed("core", "", 3.0)
}

fn thread(topo: &Topology, cpu: usize) -> Tile {
    let kind = Kind::of(topo, cpu);
    let place: Vec<String> = [Scope::Numa, Scope::Cache, Scope::CacheShard, Scope::Smt]
        .iter()
        .filter_map(|&scope| {
            let pod = topo.pod_of(scope, cpu)?;
            Some(format!("{} {}", scope.name(), pod.id()))
        })
        .collect();
    let mut hint = format!("CPU {cpu}: {}", kind.meaning());
    if !place.is_empty() {
        hint = format!("{hint}; pods: {}", place.join(", "));
    }
    let classes = topo.speed_classes().len();
    if let Some(class) = topo.speed_of(cpu).filter(|_| classes > 1) {
        let place = class.rank() + 1;
        hint = format!("{hint}; speed class {place} of {classes}");
    }
    let label = cpu.to_string();
    // Equal widths, so that rows of cores align.
    let digits = topo.possible().last().unwrap_or(0).to_string();
    let width = (text_width(&digits) + 8.0).max(26.0);
    Tile::cell(kind.class(), &label, &hint, width, CELL_HEIGHT)
}

/// The CPUs about which only their number is known.
fn outside(topo: &Topology, cpus: &CpuSet, width: f64) -> Tile {
    let cells: Vec<Tile> = cpus.iter().map(|cpu| thread(topo, cpu)).collect();
    let title = format!("not in use: {}", short(cpus));
    Tile::flow(&cells, width - 20.0, 4.0).framed("core", &title, 10.0)
}

fn legend(topo: &Topology) -> Vec<Tile> {
    let entry =
        |swatch: Tile, meaning: &str| Tile::row(vec![swatch, Tile::text("note", meaning)], 6.0);
    let plain = |class: &str| {
        let inside = Tile {
            width: 12.0,
            height: 6.0,
            ..Tile::default()
        };
        inside.framed(class, "", 5.0)
    };
    let mut entries = vec![
        entry(plain("node"), "memory node"),
        entry(plain("cache"), "last-level cache"),
    ];
    if topo.pods(Scope::CacheShard).len() > topo.pods(Scope::Cache).len() {
        entries.push(entry(plain("shard"), "cache shard"));
    }
    entries.push(entry(plain("core"), "core"));
    for kind in Kind::ALL {
        let occurs = |cpu| Kind::of(topo, cpu) == kind;
        if topo.possible().iter().any(occurs) {
            let swatch = Tile::cell(kind.class(), "", kind.meaning(), 22.0, 16.0);
            entries.push(entry(swatch, kind.meaning()));
        }
    }
    entries
}

/// The list form, or its beginning where it is long.
fn short(cpus: &CpuSet) -> String {
    if cpus.len() == 1 {
        return format!("CPU {cpus}");
    }
    let list = cpus.to_string();
    let mut items = list.split(',');
    let first: Vec<&str> = items.by_ref().take(4).collect();
    let more = if items.next().is_some() { ",…" } else { "" };
    format!("CPUs {}{more} ({})", first.join(","), cpus.len())
}
