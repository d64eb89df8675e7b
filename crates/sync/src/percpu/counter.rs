//! A count to which each CPU adds in a line of its own, until it is closed.

use super::{ABORTED, Backend, REFUSED, RESTARTS, section};
use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::cpu;
use crate::rseq::Rseq;

/// The result of an addition that was made.
pub(super) const ADDED: i32 = 0;

/// One CPU's part. The offsets are known to the section in assembly.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Part {
    count: AtomicU64,
    closed: AtomicU32,
}

#[cfg(inflight_rseq)]
const _: () = {
    assert!(size_of::<Part>() == 128, "the section shifts by 7");
    assert!(std::mem::offset_of!(Part, count) == 0);
    assert!(std::mem::offset_of!(Part, closed) == 8);
};

/// In a count that is added to by read-modify-writes: closed.
const CLOSED: u64 = 1 << 63;

/// A number to which all CPUs add and which is seldom read: for statistics, and for counting the
/// users of an object that is about to end.
///
/// An addition is a plain one on the caller's CPU if the system has restartable sequences, and
/// otherwise one read-modify-write on a line that few others use. [`close`](PerCpuCounter::close)
/// is one moment for all: each addition is in the sum that it returns, or is refused.
///
/// Numbers are added modulo 2^63.
///
/// The idea is the per-CPU reference count of the Linux kernel.
///
/// ```
/// use inflight_sync::percpu::{Backend, PerCpuCounter};
/// let counter = PerCpuCounter::new(Backend::best(), 4_096);
/// assert!(counter.add(2) && counter.add(3));
/// assert_eq!((counter.sum(), counter.is_closed()), (5, false));
/// assert_eq!(counter.close(), 5);
/// assert!(counter.is_closed() && !counter.add(1));
/// ```
#[derive(Debug)]
pub struct PerCpuCounter {
    rseq: Option<Rseq>,
    parts: Box<[Part]>,
}

impl PerCpuCounter {
    /// Makes a count of 0 with a line for each of `cpus` CPUs, at least one and at most 4,096.
    #[must_use]
    pub fn new(backend: Backend, cpus: usize) -> Self {
        let part = |_| Part {
            count: AtomicU64::new(0),
            closed: AtomicU32::new(0),
        };
        Self {
            rseq: match backend {
                Backend::Rseq => Rseq::probe(),
                _ => None,
            },
            parts: (0..cpus.clamp(1, 1 << 12)).map(part).collect(),
        }
    }

    /// Adds `n`. `false`: nothing was added. The count is closed then, or (rarely, and only with
    /// [`Backend::Rseq`]) the kernel did not let the thread finish, or its CPU has no line.
    #[inline(always)]
    #[must_use = "a refused number is not counted"]
    pub fn add(&self, n: u64) -> bool {
        // SAFETY: the reference keeps it alive.
        unsafe { Self::add_last(self, n) }
    }

    /// Adds as [`add`](PerCpuCounter::add), for a caller whose counter may be freed as soon as the
    /// number is added: the call does not touch it afterwards.
    ///
    /// # Safety
    ///
    /// `this` points to a counter that lives until the number is added or refused.
    ///
    /// ```
    /// use inflight_sync::percpu::{Backend, PerCpuCounter};
    /// let counter = PerCpuCounter::new(Backend::TryLock, 1);
    /// // SAFETY: it lives to the end.
    /// assert!(unsafe { PerCpuCounter::add_last(&counter, 1) });
    /// ```
    #[inline(always)]
    #[must_use = "a refused number is not counted"]
    pub unsafe fn add_last(this: *const Self, n: u64) -> bool {
        // SAFETY: nothing has been added, so it lives.
        let rseq = unsafe { (*this).rseq };
        // SAFETY: as above. A place, not a reference, which would promise that it outlives this.
        let parts = unsafe { &raw const *(*this).parts };
        match rseq {
            Some(rseq) => {
                let result = section::add(rseq, parts, n);
                result == ADDED || (result == ABORTED && Self::add_again(rseq, parts, n))
            }
            // SAFETY: as above.
            None => unsafe { Self::add_to_part(parts, n) },
        }
    }

    #[cold]
    #[inline(never)]
    fn add_again(rseq: Rseq, parts: *const [Part], n: u64) -> bool {
        (0..RESTARTS)
            .map(|_| section::add(rseq, parts, n))
            .find(|&result| result != ABORTED)
            .unwrap_or(REFUSED)
            == ADDED
    }

    /// Not inlined: a call costs little beside a read-modify-write.
    ///
    /// # Safety
    ///
    /// The parts live until the number is added or refused.
    #[inline(never)]
    unsafe fn add_to_part(parts: *const [Part], n: u64) -> bool {
        let here = cpu::current() % parts.len();
        // SAFETY: the index is below the length.
        let part = unsafe { parts.cast::<Part>().add(here) };
        // SAFETY: by the contract it lives.
        let count: *const AtomicU64 = unsafe { &raw const (*part).count };
        // Relaxed: `CLOSED` is never taken back, and the exchange reads again.
        // SAFETY: as above.
        let mut old = unsafe { (*count).load(Ordering::Relaxed) };
        while old & CLOSED == 0 {
            let new = old.wrapping_add(n) & !CLOSED;
            // Ordering: Release pairs with the Acquire in `close`.
            let (success, failure) = (Ordering::Release, Ordering::Relaxed);
            // SAFETY: the number is neither added nor refused yet, so it lives.
            match unsafe { (*count).compare_exchange_weak(old, new, success, failure) } {
                Ok(_) => return true,
                Err(found) => old = found,
            }
        }
        false
    }

    /// Returns the sum. While others add, it is exact for no one moment; after
    /// [`close`](PerCpuCounter::close) it is what that returned.
    #[must_use]
    pub fn sum(&self) -> u64 {
        // Relaxed: a statistic, or after `close`.
        self.sum_of(|part| part.count.load(Ordering::Relaxed))
    }

    fn sum_of(&self, count: impl Fn(&Part) -> u64) -> u64 {
        let counts = self.parts.iter().map(count);
        counts.fold(0, u64::wrapping_add) & !CLOSED
    }

    /// Closes the count, and returns the sum of all additions that were and will ever be made.
    /// Earlier writes of the adders are visible to the caller. To be called once. It panics as
    /// [`Rseq::barrier`].
    // Callers that only close the count ignore the sum.
    #[allow(clippy::must_use_candidate)]
    pub fn close(&self) -> u64 {
        for part in &self.parts {
            // Relaxed: the barrier or the fence below orders it.
            part.closed.store(1, Ordering::Relaxed);
        }
        match self.rseq {
            Some(rseq) => {
                rseq.barrier();
                self.sum()
            }
            None => {
                // Ordering: pairs with the fence of a caller that asks `is_closed`, also of one
                // that was refused by what is written after it.
                fence(Ordering::SeqCst);
                // Ordering: Acquire pairs with the Release in `add_to_part`.
                self.sum_of(|part| part.count.fetch_or(CLOSED, Ordering::Acquire))
            }
        }
    }

    /// Returns whether it is closed, or about to be. After a full fence of the caller's: earlier
    /// writes of the caller are visible to the closer, or this is `true`.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // Relaxed: the caller's fence orders it. The last one is written last.
        self.parts
            .last()
            .is_some_and(|part| part.closed.load(Ordering::Relaxed) != 0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Arc, thread};

    fn both(test: impl Fn(PerCpuCounter)) {
        for cpus in [1, cpu::possible()] {
            test(PerCpuCounter::new(Backend::TryLock, cpus));
            test(PerCpuCounter::new(Backend::best(), cpus));
        }
    }

    #[test]
    fn what_is_added_is_in_the_sum() {
        both(|counter| {
            let mut added = 0;
            for n in [1, 5, u64::from(u32::MAX)] {
                // A line may be missing where only one was asked for.
                added += if counter.add(n) { n } else { 0 };
            }
            assert_eq!(counter.sum(), added);
            assert!(!counter.is_closed());
            assert_eq!(counter.close(), added);
            assert!(counter.is_closed() && !counter.add(1) && !counter.add(u64::MAX));
            assert_eq!(counter.sum(), added);
        });
    }

    #[test]
    fn large_numbers_close_nothing() {
        both(|counter| {
            let mut added = 0_u64;
            for n in [1 << 63, 5, u64::MAX, 1 << 62, 1 << 62] {
                added = added.wrapping_add(if counter.add(n) { n } else { 0 });
                assert_eq!(counter.sum(), added & !CLOSED);
            }
            assert!(!counter.is_closed());
            assert_eq!(counter.close(), added & !CLOSED);
        });
    }

    /// The other back end may refuse for want of a line.
    #[test]
    fn a_lock_refuses_nothing_but_what_comes_after_the_close() {
        let counter = PerCpuCounter::new(Backend::TryLock, 1);
        for n in [3, 1 << 63, 1 << 62, 1 << 62] {
            assert!(counter.add(n), "{n}");
        }
        assert_eq!(counter.close(), 3);
        assert!(!counter.add(5));
        assert_eq!(counter.sum(), 3);
    }

    /// Threads add until they are refused: each addition is in the sum of the close, or refused.
    #[test]
    fn a_close_is_one_moment() {
        for round in 0..if cfg!(miri) { 4 } else { 12 } {
            both(|counter| {
                let counter = Arc::new(counter);
                let adders: Vec<_> = (0..3)
                    .map(|_| {
                        let counter = counter.clone();
                        thread::spawn(move || {
                            let mut added = 0;
                            loop {
                                if counter.add(1) {
                                    added += 1;
                                } else if counter.is_closed() {
                                    return added;
                                }
                                thread::yield_now();
                            }
                        })
                    })
                    .collect();
                for _ in 0..round % 4 {
                    thread::yield_now();
                }
                let closed = counter.close();
                let added: u64 = adders.into_iter().map(|a| a.join().unwrap()).sum();
                assert_eq!(closed, added);
            });
        }
    }
}
