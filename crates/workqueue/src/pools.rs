//! The pools of a system: which there are, who uses them, and when one goes.
//!
//! Queues with equal places share a pool. A gate, an inactive entry or a call in progress that
//! knows a pool holds a [`Lease`] on it; a pool of a group of CPUs on which there is no lease goes
//! as soon as nothing is left in it (`PROTOCOL.md`, release).

use crate::item::Instance;
use crate::layout::{Cpus, Place};
use crate::peers::{Needy, Peers};
use crate::pool::{Entry, Env, Pool, Retired};
use inflight_sync::{Arc, Mutex, Weak};
use std::fmt;
use std::io;
use std::ops::Deref;

/// The pools of a system.
#[derive(Default)]
pub(crate) struct Pools {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    /// Pools that were ever made, to number them.
    made: usize,
    needy: Arc<Needy>,
}

struct Slot {
    pool: Arc<Pool>,
    lease: Weak<Lease>,
    /// A pool of one CPU stays.
    _kept: Option<Arc<Lease>>,
}

/// The right to put items into a pool. While there is one the pool stays.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    table: Weak<Pools>,
}

impl Lease {
    fn new(pool: &Arc<Pool>, table: &Arc<Pools>) -> Arc<Self> {
        Arc::new(Self {
            pool: pool.clone(),
            table: Arc::downgrade(table),
        })
    }
}

impl Lease {
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Deref for Lease {
    type Target = Arc<Pool>;

    fn deref(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // G1
        if let Some(table) = self.table.upgrade() {
            table.release(&self.pool);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl Slot {
    /// A lease on its pool, which stays from now on.
    fn lease(&mut self, table: &Arc<Pools>) -> Arc<Lease> {
        if let Some(lease) = self.lease.upgrade() {
            return lease;
        }
        let lease = Lease::new(&self.pool, table);
        self.pool.leased();
        self.lease = Arc::downgrade(&lease);
        lease
    }
}

impl Table {
    /// Takes that pool out, if nobody has a lease on it and nothing is left in it.
    fn retire(&mut self, at: usize) -> Option<(Slot, Retired)> {
        if self.slots[at].lease.strong_count() > 0 {
            return None;
        }
        let retired = self.slots[at].pool.retire()?;
        let slot = self.slots.remove(at);
        self.introduce(&slot.pool);
        Some((slot, retired))
    }

    /// That pool has come or gone: it and those that it may help learn who there is.
    fn introduce(&self, changed: &Arc<Pool>) {
        let pools = || self.slots.iter().map(|slot| &slot.pool);
        let peers_of = |pool: &Arc<Pool>| {
            let is_peer = |p: &&Arc<Pool>| p.place().is_peer_of(pool.place());
            pools().filter(is_peer).cloned().collect::<Vec<_>>()
        };
        if !changed.place().may_have_peers() {
            return;
        }
        let topology = changed.env().machine();
        let affected = peers_of(changed);
        let own = pools().find(|pool| Arc::ptr_eq(pool, changed));
        for pool in affected.iter().chain(own) {
            pool.meet(Peers::new(&topology, pool, peers_of(pool), &self.needy));
        }
    }
}

impl Pools {
    /// The pool that serves a place, made if there is none.
    pub(crate) fn lease(
        self: &Arc<Self>,
        place: &Place,
        env: &Arc<Env>,
        rescued: bool,
    ) -> io::Result<Arc<Lease>> {
        let mut table = self.table.lock();
        if let Some(slot) = table.slots.iter_mut().find(|s| s.pool.place() == place) {
            return Ok(slot.lease(self));
        }
        let pool = Pool::new(place.clone(), table.made, env, self, rescued)?;
        table.made += 1;
        let lease = Lease::new(&pool, self);
        let stays = matches!(place.cpus, Cpus::One(_));
        table.slots.push(Slot {
            pool: pool.clone(),
            lease: Arc::downgrade(&lease),
            _kept: stays.then(|| lease.clone()),
        });
        table.introduce(&pool);
        Ok(lease)
    }

    /// The pool of that name, if it is one of these.
    pub(crate) fn find(self: &Arc<Self>, key: u32) -> Option<Arc<Lease>> {
        let mut table = self.table.lock();
        let slot = table.slots.iter_mut().find(|s| s.pool.key() == key);
        slot.map(|slot| slot.lease(self))
    }

    /// All there are now.
    pub(crate) fn all(&self) -> Vec<Arc<Pool>> {
        let table = self.table.lock();
        table.slots.iter().map(|slot| slot.pool.clone()).collect()
    }

    /// Takes an entry out of whichever pool it is in.
    pub(crate) fn remove(&self, key: usize, instance: Instance) -> Option<Entry> {
        let mut table = self.table.lock();
        let mut slots = table.slots.iter().enumerate();
        let (at, entry) = slots.find_map(|(at, slot)| {
            let entry = slot.pool.remove(key, instance)?;
            Some((at, entry))
        })?;
        // A pool that could get no worker has nobody who would look.
        let gone = table.retire(at);
        drop(table);
        if let Some((slot, retired)) = gone {
            drop(slot);
            retired.settle();
        }
        Some(entry)
    }

    /// G2: the pool goes, if nobody has a lease on it and nothing is left in it. Else whoever takes
    /// a lease, or the worker that finds nothing left, has the matter in hand.
    pub(crate) fn release(&self, pool: &Arc<Pool>) {
        let mut table = self.table.lock();
        let at = table.slots.iter().position(|s| Arc::ptr_eq(&s.pool, pool));
        let gone = at.and_then(|at| table.retire(at));
        drop(table);
        if let Some((slot, retired)) = gone {
            drop(slot);
            retired.settle();
        }
    }
}
