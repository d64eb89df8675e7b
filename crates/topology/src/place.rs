//! Where each CPU is: its core, its cache, its memory node.

/// A place among others. Cores and caches go by their lowest CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) core: usize,
    pub(crate) cache: usize,
    pub(crate) node: usize,
}

/// The places of the CPUs that are described, usable or not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// By CPU id. A table, because this is asked for every completion.
    by_cpu: Vec<Option<Place>>,
}

impl Places {
    pub(crate) fn of(&self, cpu: usize) -> Option<Place> {
        self.by_cpu.get(cpu).copied().flatten()
    }

    /// The described CPUs in ascending order, and where they are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Place)> + '_ {
        let all = self.by_cpu.iter().enumerate();
        all.filter_map(|(cpu, place)| Some((cpu, (*place)?)))
    }
}

impl FromIterator<(usize, Place)> for Places {
    fn from_iter<I: IntoIterator<Item = (usize, Place)>>(places: I) -> Self {
        let mut by_cpu = Vec::new();
        for (cpu, place) in places {
            if cpu >= by_cpu.len() {
                by_cpu.resize(cpu + 1, None);
            }
            by_cpu[cpu] = Some(place);
        }
        Self { by_cpu }
    }
}
