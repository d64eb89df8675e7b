//! How a queue goes over to other pools while it is in use. `PROTOCOL.md`, move.

use super::mail::Bell;
use super::{Promoted, Shared, cpu_of};
use crate::attrs::Attrs;
use crate::layout::{Layout, Settings};
use crate::limits::FrontEnd;
use crate::pools::Lease;
use inflight_sync::Arc;
use std::collections::BTreeSet;
use std::io;

/// All that a queue needs for other attributes, or another machine. Nothing can fail any more.
pub(crate) struct Move {
    queue: Arc<Shared>,
    attrs: Attrs,
    layout: Arc<Layout>,
    /// By place: those that the queue is to have from the start.
    pools: Vec<Option<Arc<Lease>>>,
    /// If it has front ends: which they are then, by gate, and the CPUs it may use, by node.
    fronts: Option<(Vec<FrontEnd>, Vec<usize>)>,
}

impl Shared {
    /// O1: what the queue needs for these attributes with these settings. Where it has a pool now,
    /// for the same CPUs it has one then.
    pub(crate) fn prepare(self: &Arc<Self>, attrs: Attrs, settings: &Settings) -> io::Result<Move> {
        let layout = Layout::new(settings, self.mode, &attrs, self.highpri);
        let mut pools = vec![None; layout.places.len()];
        for place in self.places_in_use(&layout) {
            let rescued = self.rescuer.is_some();
            let pool = self.system.pool(&layout.places[place], rescued)?;
            if !rescued {
                pool.man()?;
            }
            pools[place] = Some(pool);
        }
        let fronts = self.fronts.as_ref().map(|fronts| {
            let leading = fronts.leading(&settings.topology, &layout, &self.by_cpu);
            (leading, fronts.cpus_by_node(settings, &attrs))
        });
        Ok(Move {
            fronts,
            queue: self.clone(),
            attrs,
            layout: Arc::new(layout),
            pools,
        })
    }

    fn places_in_use(&self, new: &Layout) -> BTreeSet<usize> {
        let mut used = BTreeSet::new();
        for (gate, door) in self.gates.iter().enumerate() {
            let state = door.state.lock();
            let known = state.pools.iter().enumerate();
            for (place, _) in known.filter(|(_, pool)| pool.is_some()) {
                match self.fronts {
                    Some(_) => drop(used.insert(new.place_of(cpu_of(&self.by_cpu, gate)))),
                    None => used.extend(state.layout.served_by(place).map(|cpu| new.place_of(cpu))),
                }
            }
        }
        used
    }
}

impl Move {
    /// O2: from now on items go the new way. Those that are queued end on the old one.
    pub(crate) fn perform(self) -> Option<Promoted> {
        let Self {
            queue,
            attrs,
            layout,
            pools,
            fronts,
        } = self;
        for (gate, door) in queue.gates.iter().enumerate() {
            let (layout, pools) = match queue.fronts {
                Some(_) => {
                    let place = layout.place_of(cpu_of(&queue.by_cpu, gate));
                    (Arc::new(layout.only(place)), vec![pools[place].clone()])
                }
                None => (layout.clone(), pools.clone()),
            };
            let (mut state, mut deeds) = queue.open(gate);
            let (letters, old_bells) = {
                let mut mail = door.mail.inside.lock();
                // Letters name places of the old layout.
                let letters = door.empty(&mut mail, &mut state.room);
                mail.layout = layout.clone();
                let bell = |pool: &Arc<Lease>| Bell {
                    pool: pool.clone(),
                    rung: false,
                };
                let bells = pools.iter().map(|pool| pool.as_ref().map(bell));
                (letters, std::mem::replace(&mut mail.bells, bells.collect()))
            };
            deeds.append(super::Door::sort(&queue, gate, &mut state, letters));
            state.layout = layout;
            let old_pools = std::mem::replace(&mut state.pools, pools);
            if let Some((leading, _)) = &fronts {
                state.gate.set_front(leading[gate]);
            }
            drop(state);
            deeds.perform();
            // From now on whoever has them recalled asks the new ones.
            old_pools
                .iter()
                .flatten()
                .for_each(|lease| lease.pool().recall());
            // Outside the locks: with the last lease a pool goes.
            drop((old_bells, old_pools));
        }
        let old = {
            let mut way = queue.way.lock();
            std::mem::replace(&mut *way, super::Way { attrs, layout })
        };
        drop(old);
        queue.dismiss();
        let ((_, cpus), limit) = (fronts?, queue.fronts.as_ref()?);
        Some(limit.set_cpus(&cpus).perform(&queue))
    }
}
