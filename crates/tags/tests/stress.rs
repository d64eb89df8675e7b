//! Many threads, all forms of allocation, tokens that travel; ownership is checked in the slot
//! itself.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_tags::{AllocError, AllocOptions, RedeemError, Tag, TagSet, Tenant};
use std::future::Future;
use std::time::Duration;

const ROUNDS: usize = if cfg!(miri) { 20 } else { 3000 };
const THREADS: usize = if cfg!(miri) { 2 } else { 6 };

/// Who is inside. A second owner would be seen by the first, or by itself.
#[derive(Default)]
struct Owned {
    owner: Arc<AtomicU64>,
    plain: u64,
}

impl Owned {
    fn with_exclusive(&mut self, me: u64) {
        let seen = self.owner.swap(me, Ordering::Relaxed);
        assert_eq!(seen, 0, "two owners of one slot");
        self.plain = self.plain.wrapping_add(me);
        let plain = self.plain;
        thread::yield_now();
        assert_eq!(self.plain, plain);
        assert_eq!(self.owner.swap(0, Ordering::Relaxed), me);
    }
}

fn any_form(dev: &Tenant<Owned>, kind: usize, reserved: bool) -> Vec<Tag<Owned>> {
    let options = AllocOptions::new();
    let options = if reserved {
        options.reserved()
    } else {
        options
    };
    let long = Duration::from_secs(600);
    match kind % 5 {
        0 => vec![dev.alloc_blocking_with(options).unwrap()],
        1 => vec![block_on(dev.alloc_with(options)).unwrap()],
        2 => vec![dev.alloc_timeout_with(long, options).unwrap()],
        3 => dev.try_alloc_with(options).into_iter().collect(),
        _ => dev.try_alloc_batch(3),
    }
}

/// Submitters put tokens into a pool, completers (the same threads) take any token out of it.
#[test]
fn tags_have_one_owner_each() {
    let set = TagSet::builder().hw_queues(2).depth(6).reserved(1);
    let set = set.build(|_, _| Owned::default()).unwrap();
    let ring = Arc::new(Mutex::new(Vec::<u64>::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            let (set, ring) = (set.clone(), ring.clone());
            let dev = set.add_tenant(format!("q{i}")).unwrap();
            thread::spawn(move || {
                let me = i as u64 + 1;
                let complete = |token: u64| {
                    let mut tag = set.redeem(token).unwrap();
                    tag.with_exclusive(me);
                    drop(tag);
                    let again = set.redeem(token).unwrap_err();
                    assert!(matches!(again, RedeemError::Stale { .. }), "{again:?}");
                };
                for round in 0..ROUNDS {
                    for mut tag in any_form(&dev, i + round, round % 7 == 0) {
                        tag.with_exclusive(me);
                        if round % 3 != 0 {
                            ring.lock().push(tag.into_token());
                        }
                    }
                    // What this thread put in somebody takes out, so nobody waits for ever.
                    while let Some(token) = { ring.lock().pop() } {
                        complete(token);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(set.in_use(), 0);
    let stats = set.stats();
    assert_eq!(stats.allocs, stats.frees);
}

/// Completions race with a scan that times out everything it sees.
#[test]
fn completion_and_timeout_share_out_the_tags() {
    let set = TagSet::builder().depth(4).build(|_, _| Owned::default());
    let set = set.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let handler = thread::spawn({
        let (set, stop) = (set.clone(), stop.clone());
        move || {
            let mut handled = 0u64;
            while !stop.load(Ordering::Acquire) {
                let mut late = Vec::new();
                set.for_each_in_flight(|t| {
                    if t.mark_timed_out() {
                        late.push(t.token());
                    }
                });
                for token in late {
                    set.redeem_timed_out(token).unwrap().with_exclusive(99);
                    handled += 1;
                }
                thread::yield_now();
            }
            handled
        }
    });
    let workers: Vec<_> = (0..THREADS as u64)
        .map(|i| {
            let dev = set.add_tenant(format!("q{i}")).unwrap();
            let set = set.clone();
            thread::spawn(move || {
                let mut completed = 0u64;
                for _ in 0..ROUNDS {
                    let mut tag = dev.alloc_blocking().unwrap();
                    tag.with_exclusive(i + 1);
                    let token = tag.into_token();
                    thread::yield_now();
                    match set.redeem(token) {
                        Ok(mut tag) => {
                            tag.with_exclusive(i + 1);
                            completed += 1;
                        }
                        Err(error) => {
                            assert!(matches!(
                                error,
                                RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
                            ));
                        }
                    }
                }
                completed
            })
        })
        .collect();
    let completed: u64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
    // The handler takes what it has marked before it looks at `stop` again.
    stop.store(true, Ordering::Release);
    let handled = handler.join().unwrap();
    assert_eq!(completed + handled, (THREADS * ROUNDS) as u64);
    assert_eq!(set.in_use(), 0);
}

/// Waiters that give up, by time or by dropping their future, among waiters that do not.
#[test]
fn given_up_waits_lose_nothing() {
    let set = TagSet::builder().depth(2).build(|_, _| Owned::default());
    let set = set.unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            let dev = set.add_tenant(format!("q{i}")).unwrap();
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    let tag = match (i + round) % 3 {
                        0 => dev.alloc_blocking(),
                        1 => dev.alloc_timeout(Duration::from_nanos(1 + round as u64 % 50_000)),
                        _ => block_on(first_poll_only(&dev)),
                    };
                    match tag {
                        Ok(mut tag) => tag.with_exclusive(i as u64 + 1),
                        Err(error) => assert_eq!(error, AllocError::TimedOut),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(set.in_use(), 0);
    assert_eq!(set.add_tenant("q").unwrap().try_alloc_batch(9).len(), 2);
}

/// Polls an allocation twice at most, then drops it.
async fn first_poll_only(dev: &Tenant<Owned>) -> Result<Tag<Owned>, AllocError> {
    let mut alloc = Box::pin(dev.alloc());
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        polls += 1;
        match alloc.as_mut().poll(cx) {
            std::task::Poll::Pending if polls == 1 => {
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            }
            std::task::Poll::Pending => std::task::Poll::Ready(Err(AllocError::TimedOut)),
            ready => ready,
        }
    })
    .await
}
