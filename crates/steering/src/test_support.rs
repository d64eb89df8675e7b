//! Requests, and a sink whose done lists a test runs.

use crate::{CompletionSink, DoneListHandle, Item, Link, Runner, Steering, Submission, TenantId};
use inflight_sync::{Arc, Mutex, cpu};
use inflight_topology::CpuSet;
use std::ptr::NonNull;

/// Runs `f` as if on a CPU.
pub(crate) fn on<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
    cpu::set_current_for_thread(Some(cpu));
    let result = f();
    cpu::set_current_for_thread(None);
    result
}

/// It goes to the CPU of its submission.
pub(crate) struct Req {
    link: Link,
    tenant: TenantId,
    cpu: usize,
}

impl Req {
    pub(crate) fn of(tenant: TenantId, cpu: usize) -> Box<Self> {
        let link = Link::new();
        Box::new(Self { link, tenant, cpu })
    }

    pub(crate) fn from(cpu: usize) -> Box<Self> {
        Self::of(TenantId::FIRST, cpu)
    }
}

// SAFETY: a box stays where it is, and has its own link.
unsafe impl Item for Box<Req> {
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self)).cast()
    }
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: from `into_raw`, once.
        unsafe { Self::from_raw(raw.cast().as_ptr()) }
    }
    unsafe fn link<'a>(raw: NonNull<()>) -> &'a Link {
        // SAFETY: from `into_raw`.
        unsafe { &raw.cast::<Req>().as_ref().link }
    }
    unsafe fn tenant_of(raw: NonNull<()>) -> TenantId {
        // SAFETY: as above.
        unsafe { raw.cast::<Req>().as_ref().tenant }
    }
    fn tenant(&self) -> TenantId {
        self.tenant
    }
    fn submission(&self) -> Option<Submission> {
        Some(Submission::on(self.cpu).policy(Steering::Force))
    }
}

/// Keeps the done lists that it is woken for.
#[derive(Clone, Default)]
pub(crate) struct Woken(Arc<Mutex<Vec<DoneListHandle>>>);

struct OneList(Woken, DoneListHandle);

impl Woken {
    pub(crate) fn take(&self) -> Vec<DoneListHandle> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl CompletionSink for Woken {
    fn runner(&self, _: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
        Some(Box::new(OneList(self.clone(), list)))
    }
}

impl Runner for OneList {
    fn wake(&self, _: usize) -> bool {
        self.0.0.lock().push(self.1.clone());
        true
    }
}
