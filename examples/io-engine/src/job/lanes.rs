//! The lanes of a job as tasks: who was woken is polled, and nobody else.
//!
//! Most wakes come from the job's own thread and need no waker: see [`Woken`]. The others, of tags
//! and checksums, come from any thread.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Lanes woken by the job's own thread.
#[derive(Debug, Default)]
pub(super) struct Woken(RefCell<Vec<usize>>);

impl Woken {
    pub(super) fn push(&self, lane: usize) {
        self.0.borrow_mut().push(lane);
    }

    fn pop(&self) -> Option<usize> {
        self.0.borrow_mut().pop()
    }
}

/// Lanes woken by anybody.
#[derive(Debug)]
struct Called {
    lanes: Mutex<Vec<usize>>,
    /// Whether there are any.
    some: AtomicBool,
    /// That of the engine, which ends the job's wait.
    engine: Waker,
}

impl Called {
    /// Moves them behind those in `lanes`.
    fn empty_into(&self, lanes: &mut Vec<usize>) {
        // Ordering: Relaxed, `lanes` is behind a lock; who comes too late for this look wakes the
        // engine, and there is another one.
        if self.some.load(Ordering::Relaxed) {
            // A push is complete or has not begun, so a panic elsewhere spoils nothing.
            let mut called = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            self.some.store(false, Ordering::Relaxed);
            lanes.append(&mut called);
        }
    }
}

#[derive(Debug)]
struct LaneWaker {
    lane: usize,
    /// Whether it was woken and has not been polled since.
    awake: AtomicBool,
    called: Arc<Called>,
}

impl Wake for LaneWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: pairs with the swap in `poll`: who finds it awake is seen by the poll to come.
        if self.awake.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut lanes = (self.called.lanes.lock()).unwrap_or_else(PoisonError::into_inner);
        lanes.push(self.lane);
        // Ordering: Relaxed, as in `empty_into`: the wake orders the next look after this.
        self.called.some.store(true, Ordering::Relaxed);
        drop(lanes);
        self.called.engine.wake_by_ref();
    }
}

struct Lane<F> {
    /// Until it has ended.
    future: Option<Pin<Box<F>>>,
    waker: Waker,
    task: Arc<LaneWaker>,
}

/// All lanes of a job.
pub(super) struct Lanes<F> {
    lanes: Vec<Lane<F>>,
    called: Arc<Called>,
    /// Lanes to be polled, the next one last.
    next: Vec<usize>,
    /// How many have not ended.
    left: usize,
}

impl<F: Future> Lanes<F> {
    /// Lanes that have not begun: each is polled by the first `poll_woken`.
    pub(super) fn new(engine: Waker, futures: impl Iterator<Item = F>) -> Self {
        let called = Arc::new(Called {
            lanes: Mutex::default(),
            some: AtomicBool::new(false),
            engine,
        });
        let lane = |(lane, future)| {
            let task = Arc::new(LaneWaker {
                lane,
                awake: AtomicBool::new(true),
                called: Arc::clone(&called),
            });
            Lane {
                future: Some(Box::pin(future)),
                waker: Arc::clone(&task).into(),
                task,
            }
        };
        let lanes: Vec<_> = futures.enumerate().map(lane).collect();
        Self {
            left: lanes.len(),
            next: (0..lanes.len()).rev().collect(),
            lanes,
            called,
        }
    }

    /// Polls the lanes that were woken; passes their results to `ended`. A lane that is called
    /// meanwhile is polled the next time, because the engine has its turn in between.
    pub(super) fn poll_woken(&mut self, woken: &Woken, mut ended: impl FnMut(F::Output)) {
        self.called.empty_into(&mut self.next);
        while let Some(lane) = woken.pop().or_else(|| self.next.pop()) {
            let Lane {
                future: Some(future),
                waker,
                task,
            } = &mut self.lanes[lane]
            else {
                continue;
            };
            // Ordering: pairs with the swap in `wake_by_ref`: what it was woken for is seen. A
            // wake that comes during the poll queues the lane again.
            task.awake.swap(false, Ordering::AcqRel);
            if let Poll::Ready(end) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                self.lanes[lane].future = None;
                self.left -= 1;
                ended(end);
            }
        }
    }

    pub(super) fn have_ended(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_is_woken_is_polled_once_and_nobody_else() {
        let wakes = Arc::new(Wakes::default());
        let (polls, wakers) = (RefCell::new(vec![0; 3]), RefCell::new(vec![None; 3]));
        let lane = |lane: usize| {
            let (polls, wakers) = (&polls, &wakers);
            poll_fn(move |cx: &mut Context<'_>| {
                polls.borrow_mut()[lane] += 1;
                wakers.borrow_mut()[lane] = Some(cx.waker().clone());
                if polls.borrow()[lane] == 3 {
                    Poll::Ready(lane)
                } else {
                    Poll::Pending
                }
            })
        };
        let woken = Woken::default();
        let mut ended = Vec::new();
        let mut lanes = Lanes::new(Arc::clone(&wakes).into(), (0..3).map(lane));
        lanes.poll_woken(&woken, |lane| ended.push(lane));
        assert_eq!(*polls.borrow(), [1, 1, 1]);
        lanes.poll_woken(&woken, |lane| ended.push(lane));
        assert_eq!(*polls.borrow(), [1, 1, 1], "nobody was woken");
        // By its own thread, without a wake of the engine.
        woken.push(1);
        lanes.poll_woken(&woken, |lane| ended.push(lane));
        assert_eq!(
            (polls.borrow().clone(), wakes.0.load(Ordering::SeqCst)),
            (vec![1, 2, 1], 0)
        );
        // By another thread, twice: the engine is woken once, and it is polled once.
        let waker = wakers.borrow()[1].clone().unwrap();
        thread::spawn(move || {
            waker.wake_by_ref();
            waker.wake();
        })
        .join()
        .unwrap();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        lanes.poll_woken(&woken, |lane| ended.push(lane));
        assert_eq!(
            (polls.borrow().clone(), ended.clone()),
            (vec![1, 3, 1], vec![1])
        );
        // A wake of one that has ended does nothing.
        woken.push(1);
        lanes.poll_woken(&woken, |lane| ended.push(lane));
        for _ in 0..2 {
            woken.push(0);
            woken.push(2);
            assert!(!lanes.have_ended());
            lanes.poll_woken(&woken, |lane| ended.push(lane));
        }
        assert!(lanes.have_ended());
        assert_eq!(*polls.borrow(), [3, 3, 3]);
    }

    #[test]
    fn a_wake_during_the_poll_is_not_lost() {
        let mut left = 5;
        let lane = poll_fn(move |cx: &mut Context<'_>| {
            left -= 1;
            cx.waker().wake_by_ref();
            if left == 0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let mut lanes = Lanes::new(Waker::noop().clone(), std::iter::once(lane));
        for _ in 0..5 {
            assert!(!lanes.have_ended());
            lanes.poll_woken(&Woken::default(), |()| ());
        }
        assert!(lanes.have_ended());
    }
}
