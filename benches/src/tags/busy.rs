//! What a set in use costs and gives: shares, visits, freezes.

use crate::machine::{thread_cpu_time, together};
use crate::rounds::quantile;
use inflight_tags::{SharePolicy, TagSet, Tenant};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How many tags each tenant would like to hold, of 64: none less than an eighth of them.
const GREED: [usize; 8] = [64, 8, 8, 10, 12, 16, 24, 32];
const DEPTH: usize = 64;

/// What eight tenants of unequal greed got.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The largest distance of a tenant from an eighth of all completions, in percent of that;
    /// without the one that asks for everything.
    pub error: f64,
    /// Completions per second of all.
    pub per_second: f64,
}

/// Eight tenants, four on each of two threads, submit all they may; the oldest request of a
/// thread completes. `shared` are the tags' rules; with `None` each tenant has a set of its own
/// with an eighth of the tags.
#[must_use]
pub fn share_error(shared: Option<SharePolicy>, steps: u64) -> Shares {
    let set = |depth, policy| {
        let set = TagSet::<u64>::builder().depth(depth).ages(false);
        set.share(policy).build(|_, _| 0).expect("valid")
    };
    let one = shared.map(|policy| set(DEPTH, policy));
    let devs: Vec<Tenant<u64>> = (0..GREED.len())
        .map(|tenant| {
            let own = || set(DEPTH / GREED.len(), SharePolicy::None);
            let set = one.clone().unwrap_or_else(own);
            set.add_tenant(format!("tenant {tenant}"))
                .expect("a name of its own")
        })
        .collect();
    let (counts, overlap) = together(|thread| {
        // The tenants are dealt out in turn, so that greed is on both threads.
        let mine: Vec<usize> = (thread..GREED.len()).step_by(2).collect();
        let sets: Vec<_> = devs.iter().map(Tenant::set).collect();
        let mut flying = VecDeque::new();
        let (mut held, mut done) = ([0; GREED.len()], [0u64; GREED.len()]);
        let warm_up = steps / 4;
        for step in 0..steps + warm_up {
            for &tenant in &mine {
                while held[tenant] < GREED[tenant] {
                    let Ok(tag) = devs[tenant].try_alloc() else {
                        break;
                    };
                    flying.push_back((tenant, tag.into_token()));
                    held[tenant] += 1;
                }
            }
            if let Some((tenant, token)) = flying.pop_front() {
                drop(sets[tenant].redeem(token).expect("in flight"));
                held[tenant] -= 1;
                done[tenant] += u64::from(step >= warm_up);
            }
        }
        for (tenant, token) in flying {
            drop(sets[tenant].redeem(token).expect("in flight"));
        }
        done
    });
    let done: Vec<u64> = (0..GREED.len())
        .map(|tenant| counts[0][tenant] + counts[1][tenant])
        .collect();
    let total: u64 = done.iter().sum();
    let share = total as f64 / GREED.len() as f64;
    let errors = done[1..].iter().map(|&n| (n as f64 / share - 1.0).abs());
    Shares {
        error: errors.fold(0.0, f64::max) * 100.0,
        per_second: total as f64 * 1.25 / overlap.wall.as_secs_f64(),
    }
}

/// What a visit of all slots costs while two threads complete.
#[derive(Clone, Copy, Debug)]
pub struct Visits {
    /// CPU time of the visitor for each slot it looked at.
    pub ns_per_slot: f64,
    /// CPU time of a round trip meanwhile.
    pub ns_per_round_trip: f64,
    /// CPU time of a round trip without visitor.
    pub alone: f64,
}

const SLOTS: usize = 10_240;
/// What each thread has in flight.
const WINDOW: usize = 4_000;

/// Two threads complete their oldest requests and submit others, `n` times each, first alone and
/// then while a third thread visits all slots over and over.
#[must_use]
pub fn iterate(n: u64) -> Visits {
    let set = TagSet::<u64>::builder().depth(SLOTS);
    let set = set.build(|_, _| 0).expect("valid");
    let dev = set.add_tenant("bench").expect("the only one");
    let submit = || dev.try_alloc().expect("enough").into_token();
    let completer = || {
        let mut flying: VecDeque<_> = (0..WINDOW).map(|_| submit()).collect();
        let start = thread_cpu_time();
        for _ in 0..n {
            let token = flying.pop_front().expect("a window of them");
            drop(set.redeem(token).expect("in flight"));
            flying.push_back(submit());
        }
        let spent = thread_cpu_time() - start;
        for token in flying {
            drop(set.redeem(token).expect("in flight"));
        }
        spent.as_secs_f64() * 1e9 / n as f64
    };
    let both = || {
        let times = thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(completer));
            threads.map(|thread| thread.join().expect("does not panic"))
        });
        f64::midpoint(times[0], times[1])
    };
    let alone = both();
    let stop = AtomicBool::new(false);
    // In flight from before the first visit to after the last, whenever the visitor gets a CPU.
    let kept = submit();
    let (ns_per_round_trip, ns_per_slot) = thread::scope(|scope| {
        let visitor = scope.spawn(|| {
            let (start, mut visits, mut seen) = (thread_cpu_time(), 0u64, 0u64);
            // Relaxed: nothing is handed over.
            while visits == 0 || !stop.load(Ordering::Relaxed) {
                set.for_each_in_flight(|_| seen += 1);
                visits += 1;
            }
            let spent = thread_cpu_time() - start;
            assert!(seen >= visits, "one request was in flight all the time");
            spent.as_secs_f64() * 1e9 / (visits * SLOTS as u64) as f64
        });
        let busy = both();
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        (busy, visitor.join().expect("does not panic"))
    });
    drop(set.redeem(kept).expect("in flight"));
    Visits {
        ns_per_slot,
        ns_per_round_trip,
        alone,
    }
}

fn small_set() -> TagSet<u64> {
    let set = TagSet::<u64>::builder().depth(256);
    set.build(|_, _| 0).expect("valid")
}

/// A freeze and a thaw of an unused set, in nanoseconds.
#[must_use]
pub fn freeze_idle(n: u64) -> f64 {
    let set = small_set();
    let start = Instant::now();
    for _ in 0..n {
        drop(set.freeze_blocking());
    }
    start.elapsed().as_secs_f64() * 1e9 / n as f64
}

/// How long a freeze takes until it is frozen while two threads make round trips: the middle and
/// the 99th percentile of `n`, in microseconds.
#[must_use]
pub fn freeze_loaded(n: usize) -> (f64, f64) {
    let set = small_set();
    let (stop, trips) = (AtomicBool::new(false), AtomicU64::new(0));
    let times: Vec<f64> = thread::scope(|scope| {
        for name in ["one", "two"] {
            let (set, stop, trips) = (&set, &stop, &trips);
            scope.spawn(move || {
                let dev = set.add_tenant(name).expect("a name of its own");
                // Relaxed: nothing is handed over.
                while !stop.load(Ordering::Relaxed) {
                    let token = dev.alloc_blocking().expect("alive").into_token();
                    drop(set.redeem(token).expect("in flight"));
                    // Relaxed: as above.
                    trips.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let times = (0..n).map(|_| {
            // Relaxed: as above.
            let before = trips.load(Ordering::Relaxed);
            while trips.load(Ordering::Relaxed) < before + 1_000 {
                thread::sleep(Duration::from_micros(200)); // The load is there again.
            }
            let start = Instant::now();
            let frozen = set.freeze_blocking();
            let time = start.elapsed();
            drop(frozen);
            time.as_secs_f64() * 1e6
        });
        let times = times.collect();
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        times
    });
    (quantile(times.iter().copied(), 0.5), quantile(times, 0.99))
}
