//! How long a turn that finds no id spins before it sleeps.

use super::Turns;
use crate::store::Store;
use inflight_sync::{hint, thread};

impl<S: Store> Turns<S> {
    /// What a thread tries before it waits for one id.
    pub(crate) fn try_get_or_linger(&self) -> Option<usize> {
        self.try_get().or_else(|| self.wait_in_turn())
    }

    /// G2 again, before a thread in its turn sleeps: a wake costs more than a short wait for a put.
    ///
    /// That pays only while the putter can run. If the putter is on another CPU, it may be running,
    /// so the thread spins. If it shares this CPU, it is not running, and the thread yields the CPU
    /// to it.
    fn wait_in_turn(&self) -> Option<usize> {
        let (mut spins, mut yields) = (self.rules.spins, self.rules.yields);
        loop {
            self.turn()?;
            if self.unlocked.is_putter_here() {
                yields = yields.checked_sub(1)?;
                thread::yield_now();
            } else {
                spins = spins.checked_sub(1)?;
                (0..4).for_each(|_| hint::spin_loop());
            }
            let id = self.try_get();
            if id.is_some() {
                return id;
            }
        }
    }
}
