//! What a core gives to other pools, and its workers take from them. `PROTOCOL-lending.md`.

use super::{Action, Core, Item};

impl<T: Item> Core<T> {
    /// Y1: an item that may run now has come. Whom to wake for it is decided elsewhere.
    #[cfg(any(test, feature = "unstable-sim"))]
    pub(crate) fn append(&mut self, item: T) {
        self.ready.push_back(item);
    }

    /// Y2: until this is taken back nobody is brought here as long as somebody runs. Only where
    /// somebody then looks at the pool ([`waits`](Core::waits)).
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held && self.patience > 0;
    }

    /// Y2: a worker is wanted although nothing may be ready here.
    pub(crate) fn invite(&mut self) -> Action {
        if self.running >= self.target || self.stopped {
            return Action::None;
        }
        self.bring(None)
    }

    /// Y4: whether the worker, which asks for more, is to look at other pools: nothing is to be
    /// done here, and it may run.
    pub(crate) fn may_look(&mut self, me: usize) -> bool {
        if self.has_work() {
            return false;
        }
        self.arrive(me);
        self.release(me);
        !self.has_work() && !self.stopped && !self.is_too_many(me)
    }

    /// Y5: the oldest item, for a worker of another pool.
    pub(crate) fn lend(&mut self) -> Option<T> {
        let item = self.ready.front()?;
        if self.runner_of(item).is_some() {
            return None; // It has to wait for that one.
        }
        self.taken += 1;
        self.ready.pop_front()
    }

    /// Y6: the worker, which has nothing to do here, runs an item of another pool. What has come
    /// here meanwhile is for the next one.
    pub(crate) fn adopt(&mut self, me: usize, item: &T) -> Action {
        self.arrive(me);
        self.release(me);
        self.begin(me, item);
        self.kick()
    }

    /// Items that no worker has taken, those behind a run of the same thing aside.
    #[cfg(any(test, feature = "unstable-sim"))]
    pub(crate) fn listed(&self) -> usize {
        self.ready.len()
    }

    /// Those of them for which no worker is on its way.
    pub(crate) fn unattended(&self) -> usize {
        self.ready.len().saturating_sub(self.arriving)
    }

    /// There may be more that nobody has looked at.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail
    }

    /// What an item takes, in ns.
    pub(crate) fn estimate(&self) -> u64 {
        self.pace.estimate()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{Next, State};
    use super::*;

    /// A number, whether it ran when it was queued, and whether it computes for long.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Job(usize, bool, bool);

    impl Item for Job {
        type Key = usize;
        fn key(&self) -> usize {
            self.0
        }
        fn may_be_running(&self) -> bool {
            self.1
        }
        fn is_intensive(&self) -> bool {
            self.2
        }
    }

    const PLAIN: Job = Job(1, false, false);
    const AGAIN: Job = Job(1, true, false);
    const LONG: Job = Job(2, false, true);

    /// A worker that has been sent for.
    fn invited(target: usize) -> Core<Job> {
        let mut core = Core::new(target);
        let first = core.created();
        assert_eq!(core.next(first), (Next::Sleep, Action::None));
        assert_eq!(core.invite(), Action::Wake(first));
        assert!(core.may_look(first));
        core
    }

    #[test]
    fn what_is_lent_has_left_the_list() {
        let mut core = Core::new(1);
        let first = core.created();
        assert_eq!(core.push_all([LONG, PLAIN].into_iter()), Action::None);
        assert_eq!(
            (core.lend(), core.listed(), core.taken()),
            (Some(LONG), 1, 1)
        );
        assert_eq!(core.next(first).0, Next::Run(PLAIN));
        assert_eq!(core.lend(), None);
    }

    /// Y6 names the item: what is queued of it meanwhile is lent to nobody.
    #[test]
    fn an_adopted_item_is_not_lent_while_it_runs() {
        let mut core = invited(1);
        assert_eq!(core.adopt(0, &PLAIN), Action::None);
        assert_eq!(core.push(AGAIN), Action::None);
        assert_eq!(core.lend(), None);
        assert_eq!(core.next(0).0, Next::Run(AGAIN), "its run has ended");
    }

    /// As one taken at home it holds nobody back.
    #[test]
    fn an_adopted_item_that_computes_for_long_does_not_count() {
        let mut core = invited(1);
        assert_eq!(core.adopt(0, &LONG), Action::None);
        assert_eq!(
            (core.states().next(), core.running()),
            (Some(State::Intensive), 0)
        );
        assert_eq!(core.push(PLAIN), Action::Create);
    }

    /// What came home while the worker looked elsewhere gets the next one.
    #[test]
    fn who_has_taken_elsewhere_brings_the_next_at_home() {
        let mut core = invited(2);
        assert_eq!(core.push_all([PLAIN].into_iter()), Action::Create);
        assert_eq!(core.push(AGAIN), Action::None, "one at a time");
        core.create_failed();
        assert_eq!(core.adopt(0, &LONG), Action::Create);
    }

    /// Nobody looks elsewhere while there is something at home, nor is sent for beyond the target.
    #[test]
    fn own_items_first() {
        let mut core = invited(1);
        assert_eq!(core.invite(), Action::None, "as many run as may");
        assert_eq!(core.push(PLAIN), Action::None);
        assert!(!core.may_look(0));
        assert_eq!(core.next(0).0, Next::Run(PLAIN));
        assert!(core.may_look(0), "its run has ended");
        assert_eq!(core.mail_came(), Action::None);
        assert!(!core.may_look(0));
    }

    /// What was behind its own last run is at home.
    #[test]
    fn what_waited_behind_a_run_is_at_home() {
        let mut core = Core::new(2);
        let (first, second) = (core.created(), core.created());
        let _ = core.push(PLAIN);
        assert_eq!(core.next(first).0, Next::Run(PLAIN));
        let _ = core.push(AGAIN);
        assert_eq!(core.next(second).0, Next::Sleep, "the first one runs it");
        assert!(!core.may_look(first));
        assert_eq!(core.next(first).0, Next::Run(AGAIN));
    }

    /// Who was brought in place of one that is back already is one too many.
    #[test]
    fn who_is_one_too_many_does_not_look() {
        let mut core = Core::new(1);
        let first = core.created();
        core.at(first, 1);
        let _ = core.push_all([PLAIN, Job(3, false, false)].into_iter());
        assert_eq!(core.next(first).0, Next::Run(PLAIN));
        assert_eq!(core.block(first), Action::Create);
        let second = core.created();
        core.unblock(first);
        assert_eq!(core.next(first).0, Next::Run(Job(3, false, false)));
        assert!(!core.may_look(second));
        assert_eq!(core.next(second).0, Next::Sleep);
    }

    /// Nor does asking change what it does then: of tiny items another one takes all.
    #[test]
    fn who_may_not_look_is_superfluous_all_the_same() {
        let mut core = Core::new(2);
        core.be_patient(20_000);
        for item in [PLAIN, LONG] {
            let me = core.created();
            let _ = core.push(Job(item.0, false, false));
            assert!(matches!(core.next(me).0, Next::Run(_)));
        }
        core.took(0);
        (0..100).for_each(|_| core.took(0));
        let _ = core.push_all((3..9).map(|n| Job(n, false, false)));
        assert!(matches!(core.next(1).0, Next::Run(_)));
        assert!(!core.may_look(0));
        assert_eq!(core.next(0).0, Next::Sleep, "the other one gets on");
    }

    /// Items for which a worker is on its way are not offered.
    #[test]
    fn who_is_on_its_way_is_counted_on() {
        let mut core = Core::new(1);
        let first = core.created();
        assert_eq!(core.next(first).0, Next::Sleep);
        assert_eq!(core.push(PLAIN), Action::Wake(first));
        assert_eq!(core.unattended(), 0);
        assert_eq!(core.push(LONG), Action::None);
        assert_eq!((core.unattended(), core.listed()), (1, 2));
    }
}
