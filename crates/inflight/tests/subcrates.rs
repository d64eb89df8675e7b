//! The umbrella re-exports each crate under its module name, and the prelude is of the same types.

use inflight::prelude as p;
use std::any::TypeId;

#[test]
fn the_prelude_is_the_crates() {
    let pairs = [
        (
            TypeId::of::<p::Sbitmap>(),
            TypeId::of::<inflight::sbitmap::Sbitmap>(),
        ),
        (
            TypeId::of::<p::SbitmapQueue>(),
            TypeId::of::<inflight::sbitmap::SbitmapQueue>(),
        ),
        (
            TypeId::of::<p::TagSet<u8>>(),
            TypeId::of::<inflight::tags::TagSet<u8>>(),
        ),
        (
            TypeId::of::<p::Topology>(),
            TypeId::of::<inflight::topology::Topology>(),
        ),
        (
            TypeId::of::<p::Work>(),
            TypeId::of::<inflight::workqueue::Work>(),
        ),
        (
            TypeId::of::<p::Workqueue>(),
            TypeId::of::<inflight::workqueue::Workqueue>(),
        ),
    ];
    for (prelude, module) in pairs {
        assert_eq!(prelude, module);
    }
}

#[test]
fn handles_are_shareable() {
    fn shareable<T: Send + Sync + 'static>() {}
    shareable::<inflight::sbitmap::SbitmapQueue>();
    shareable::<inflight::tags::TagSet<Vec<u8>>>();
    shareable::<inflight::tags::Tenant<Vec<u8>>>();
    shareable::<inflight::flush::FlushDomain>();
    shareable::<inflight::flush::log::Log>();
    shareable::<inflight::topology::Topology>();
    shareable::<inflight::workqueue::WorkqueueSystem>();
    shareable::<inflight::workqueue::Workqueue>();
    shareable::<inflight::workqueue::Work>();
}
