//! Waiting for a time.

use super::World;
use super::queue::Event;
use inflight_sync::time::Instant;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A wait for a time, made by [`World::sleep`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct Sleep {
    world: World,
    until: Instant,
    planned: bool,
}

impl Sleep {
    pub(super) fn new(world: World, until: Instant) -> Self {
        Self {
            world,
            until,
            planned: false,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    /// The timer goes to the task that polls first.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.world.now() >= self.until {
            return Poll::Ready(());
        }
        if !self.planned {
            self.planned = true;
            let timer = Event::Timer(cx.waker().clone());
            self.world.plan(self.until, timer);
        }
        Poll::Pending
    }
}
