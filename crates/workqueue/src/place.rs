//! Where an item is, and what few items have to do with.

use crate::door::Home;
use crate::item::Instance;
use crate::timekeeper::Armed;
use inflight_sync::Arc;
use inflight_sync::wait::Event;

/// Its lock comes before those of gates and pools. What a function that is spawned has no use for
/// is made when it is needed.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<Box<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Leads to the queue through which the item goes.
    home: Option<Arc<Home>>,
    /// While it is pending and waits for its time, and as which instance.
    armed: Option<(Armed, Instance)>,
    /// `disable` without `enable` yet.
    depth: u16,
    /// Running `cancel_sync` calls. Apart from the depth, so that a stray `enable` cannot end one.
    cancels: usize,
    /// A run has ended, or a pending instance was taken back.
    ended: Option<Arc<Event>>,
}

impl Place {
    pub(crate) fn lasting() -> Self {
        Self(Some(Box::default()))
    }

    fn known(&mut self) -> &mut Known {
        self.0.get_or_insert_default()
    }

    pub(crate) fn home(&self) -> Option<Arc<Home>> {
        self.0.as_ref()?.home.clone()
    }

    pub(crate) fn learn_home(&mut self, home: Option<&Arc<Home>>) {
        let known = &mut self.known().home;
        if known.is_none() {
            *known = home.cloned();
        }
    }

    /// Returns the old one, for outside the lock.
    #[must_use]
    pub(crate) fn move_home(&mut self, home: Arc<Home>) -> Option<Arc<Home>> {
        self.known().home.replace(home)
    }

    /// Where the item waits for its time, and as which instance.
    pub(crate) fn armed(&self) -> Option<(&Armed, Instance)> {
        let armed = self.0.as_ref()?.armed.as_ref();
        armed.map(|(armed, instance)| (armed, *instance))
    }

    /// Whether the item waits for its time as this instance.
    pub(crate) fn is_armed(&self, instance: Instance) -> bool {
        self.armed().is_some_and(|(_, armed)| armed == instance)
    }

    /// S3: pending as this instance, it waits for its time from now on.
    pub(crate) fn arm(&mut self, armed: Armed, instance: Instance) -> Option<Armed> {
        let old = self.known().armed.replace((armed, instance));
        old.map(|(armed, _)| armed)
    }

    /// It does not wait for its time any more.
    pub(crate) fn disarmed(&mut self) -> Option<Armed> {
        self.0.as_mut()?.armed.take().map(|(armed, _)| armed)
    }

    pub(crate) fn depth(&self) -> u16 {
        self.0.as_ref().map_or(0, |known| known.depth)
    }

    pub(crate) fn depth_mut(&mut self) -> &mut u16 {
        &mut self.known().depth
    }

    pub(crate) fn cancels(&mut self) -> &mut usize {
        &mut self.known().cancels
    }

    /// What whoever waits for the item waits for.
    pub(crate) fn make_event(&mut self) -> Arc<Event> {
        let ended = self
            .known()
            .ended
            .get_or_insert_with(|| Arc::new(Event::new()));
        ended.clone()
    }

    /// The same, if anybody has waited yet.
    pub(crate) fn event(&self) -> Option<Arc<Event>> {
        self.0.as_ref()?.ended.clone()
    }
}
