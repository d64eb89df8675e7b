//! What the random schedules share: small sets in each mode, threads on their CPUs, and a record of
//! who has which tag.
#![allow(dead_code, unused_imports, reason = "each file uses its part")]

#[path = "../../../sync/tests/shuttle_support/mod.rs"]
mod all_crates;
mod modes;
mod world;

use all_crates::Threads as Running;
pub(crate) use all_crates::polled;
pub(crate) use modes::{Mode, Size, builder, check, check_whole_io};
pub(crate) use world::{Held, Slot, World};

use inflight_sync::{Arc, block_on, thread};
use inflight_tags::{AllocError, AllocOptions, Tenant};
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const PLAIN: AllocOptions = AllocOptions::new();
pub(crate) const RESERVED: AllocOptions = AllocOptions::new().reserved();

/// How somebody asks for a tag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Try,
    Task,
    Owned,
    /// Given up after so many polls.
    Dropped(usize),
    Blocking,
    Timeout,
}

pub(crate) const FORMS: [Form; 6] = [
    Form::Blocking,
    Form::Task,
    Form::Timeout,
    Form::Dropped(2),
    Form::Owned,
    Form::Try,
];

impl Form {
    /// `None`: it has given up.
    pub(crate) fn alloc<'a>(
        self,
        world: &'a World,
        tenant: &Tenant<Slot>,
        options: AllocOptions,
    ) -> Option<Result<Held<'a>, AllocError>> {
        let ask = world.ask();
        let result = match self {
            Self::Try => tenant.try_alloc_with(options),
            Self::Task => block_on(tenant.alloc_with(options)),
            Self::Owned => block_on(tenant.alloc_owned_with(options)),
            Self::Dropped(times) => polled(tenant.alloc_with(options), times)?,
            Self::Blocking => tenant.alloc_blocking_with(options),
            Self::Timeout => tenant.alloc_timeout_with(SECOND, options),
        };
        Some(ask.result(result))
    }

    /// Gets a tag of any hardware queue, submits it and completes; whether it got one.
    pub(crate) fn run(self, world: &World, tenant: &Tenant<Slot>, options: AllocOptions) -> bool {
        match self.alloc(world, tenant, options) {
            Some(result) => {
                let sure = matches!(self, Self::Task | Self::Owned | Self::Blocking);
                let got = world.submit_if(result);
                assert!(got || !sure, "{self:?}");
                got
            }
            None => false,
        }
    }
}

/// Threads of one model, with two tenants by turns.
pub(crate) struct Threads {
    world: Arc<World>,
    pub(crate) tenants: [Tenant<Slot>; 2],
    running: Running,
}

impl Threads {
    pub(crate) fn of(world: &Arc<World>) -> Self {
        Self {
            world: world.clone(),
            tenants: ["a", "b"].map(|name| world.set.add_tenant(name).unwrap()),
            running: Running::default(),
        }
    }

    pub(crate) fn spawn(
        &mut self,
        f: impl FnOnce(&World, &Tenant<Slot>) + Send + 'static,
    ) -> &mut Self {
        let n = self.running.len();
        let (world, tenant) = (self.world.clone(), self.tenants[n / 2 % 2].clone());
        self.running.spawn(move || f(&world, &tenant));
        self
    }

    /// Time goes on until they have ended.
    pub(crate) fn tick_while_busy(&self, by: Duration) {
        self.running.tick_while_busy(&self.world.clock, by);
    }

    /// Until all have ended.
    pub(crate) fn join_all(mut self) {
        self.running.join();
    }

    /// Until all have ended; then the set is whole.
    pub(crate) fn join(self) {
        let world = self.world.clone();
        self.join_all();
        world.assert_whole();
    }

    /// Until all have ended; then nothing is out of a set that is closed.
    pub(crate) fn join_closed(self) {
        let world = self.world.clone();
        self.join_all();
        assert_eq!((world.out(), world.set.in_use()), (0, 0));
        let stats = world.set.stats();
        assert_eq!(stats.allocs, stats.frees);
    }

    /// The same as [`join`](Self::join), while time goes on by so much so often.
    pub(crate) fn join_ticking(self, times: usize, by: Duration) {
        for _ in 0..times {
            self.world.clock.advance(by);
            thread::yield_now();
        }
        self.join();
    }
}
