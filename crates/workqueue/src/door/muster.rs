//! A queue whose pools have no CPU left gets those that it has not needed so far.
//! `PROTOCOL-lending.md`.

use super::Shared;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;

impl Shared {
    /// Whether some of its pods may have no pool, although they could help.
    pub(crate) fn lacks_pools(&self) -> bool {
        // Relaxed: as said where it is.
        !self.mode.is_bound() && !self.mustered.load(Ordering::Relaxed)
    }

    /// Y2: each pod gets its pool, as if an item had been queued there. What is refused now comes
    /// when an item does. No lock of gates, pools or items may be held.
    pub(crate) fn muster(self: &Arc<Self>) {
        // Relaxed: as said where it is. Of those who come at the same time one does it.
        if self.mustered.swap(true, Ordering::Relaxed) {
            return;
        }
        let layout = self.layout();
        for place in 0..layout.places.len() {
            let Some(cpu) = layout.served_by(place).next() else {
                continue;
            };
            let gate = self.gate_of(cpu, None);
            let (mut state, deeds) = self.open(gate);
            if state.refusal(self.key()).is_none() {
                let place = state.layout.place_of(cpu);
                // If a thread is refused, that is as without this.
                let _ = self.pool(gate, &mut state, place);
            }
            drop(state);
            deeds.perform();
        }
    }

    /// Its places are others from now on.
    pub(super) fn dismiss(&self) {
        // Relaxed: as said where it is.
        self.mustered.store(false, Ordering::Relaxed);
    }
}
