//! tmp
#![cfg(not(any(loom, shuttle)))]
#[path = "common/tasks.rs"]
mod tasks;
use inflight_sbitmap::SbitmapQueue;
use inflight_sync::cpu;
use inflight_sync::Arc;
use std::future::Future;
use std::pin::pin;
use std::task::*;
use tasks::*;

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |_| { cpu::set_current_for_thread(Some(1)); RawWaker::new(std::ptr::null(), &VTABLE) }, |_| {}, |_| {}, |_| {});

#[test]
fn migrate() {
    let queue = SbitmapQueue::builder(16).shift(4).round_robin(true).build().unwrap();
    for c in [0, 1] {
        cpu::set_current_for_thread(Some(c));
        for b in 0..15 { assert_eq!(queue.try_get(), Some(b)); }
        if c == 0 { queue.put_batch(&(0..15).collect::<Vec<_>>()).unwrap(); }
    }
    assert_eq!(queue.try_get(), Some(15));
    queue.put_batch(&(0..14).collect::<Vec<_>>()).unwrap();
    queue.put_batch(&[14]).unwrap();
    // CPU1's hint is 0 now: move it again
    for b in 0..15 { assert_eq!(queue.try_get(), Some(b)); }
    queue.put_batch(&(0..15).collect::<Vec<_>>()).unwrap();
    println!("{}", queue.snapshot());
    cpu::set_current_for_thread(Some(0));
    let mut get = pin!(queue.get());
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) };
    let r = get.as_mut().poll(&mut Context::from_waker(&waker));
    println!("{r:?}\n{}", queue.snapshot());
    queue.put(15).unwrap();
    println!("{}", queue.snapshot());
}

#[test]
fn two_bombs() {
    struct Bomb;
    impl Wake for Bomb { fn wake(self: Arc<Self>) { panic!("x") } }
    let queue = SbitmapQueue::builder(64).build().unwrap();
    queue.try_get_batch(64, &mut vec![]);
    let mut gets: Vec<_> = (0..8).map(|_| Box::pin(queue.get())).collect();
    for g in &mut gets {
        let w = Waker::from(Arc::new(Bomb));
        assert!(g.as_mut().poll(&mut Context::from_waker(&w)).is_pending());
    }
    let p = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.put_batch(&[0,1,2,3,4,5,6,7])));
    println!("{p:?}");
}
