//! Threads of the back end.

use crate::backend::native_thread as native;
use crate::fault::Faults;
use std::io;

/// Waits for a thread and takes its result.
///
/// ```
/// let handle: inflight_sync::thread::JoinHandle<i32> = inflight_sync::thread::spawn(|| 2);
/// assert_eq!(handle.join().unwrap(), 2);
/// ```
pub use native::JoinHandle;

/// Names a running thread.
///
/// ```
/// let id: inflight_sync::thread::ThreadId = inflight_sync::thread::current_id();
/// # let _ = id;
/// ```
pub use native::ThreadId;

/// Starts threads that borrow, and waits for them. Not under a model checker.
///
/// ```
/// use inflight_sync::thread;
/// let (mut a, mut b) = (1, 2);
/// thread::scope(|scope| {
///     scope.spawn(|| a += 1);
///     b += 1;
/// });
/// assert_eq!((a, b), (2, 3));
/// ```
#[cfg(not(any(loom, shuttle)))]
pub use std::thread::scope;

/// Lets another thread run; under a model checker, the way a spin loop makes progress.
///
/// ```
/// inflight_sync::thread::yield_now();
/// ```
pub use native::yield_now;

/// The calling thread's id.
///
/// ```
/// use inflight_sync::thread;
/// let here = thread::current_id();
/// let there = thread::spawn(thread::current_id).join().unwrap();
/// assert_ne!(here, there);
/// ```
#[must_use]
pub fn current_id() -> ThreadId {
    native::current().id()
}

/// Whether the calling thread is unwinding from a panic.
///
/// ```
/// assert!(!inflight_sync::thread::panicking());
/// ```
pub use std::thread::panicking;

/// Starts a thread.
///
/// # Panics
///
/// If the system refuses the thread; [`Builder::spawn`] reports it instead.
///
/// ```
/// assert_eq!(inflight_sync::thread::spawn(|| 1 + 1).join().unwrap(), 2);
/// ```
pub use native::spawn;

/// Starts a thread with a name, through the fault point.
///
/// ```
/// use inflight_sync::thread;
/// let handle = thread::Builder::new().name("worker".into()).spawn(|| 3).unwrap();
/// assert_eq!(handle.join().unwrap(), 3);
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing runs before `spawn`"]
pub struct Builder {
    name: Option<String>,
    faults: Faults,
}

impl Builder {
    /// A thread without a name, never refused on purpose.
    ///
    /// ```
    /// let builder = inflight_sync::thread::Builder::new();
    /// # let _ = builder;
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the thread. Linux shows the first 15 bytes.
    ///
    /// ```
    /// let builder = inflight_sync::thread::Builder::new().name("inflight/0:1".into());
    /// # let _ = builder;
    /// ```
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// Lets `faults` refuse this thread.
    ///
    /// ```
    /// use inflight_sync::{fault::Faults, thread::Builder};
    /// let builder = Builder::new().faults(&Faults::none());
    /// # let _ = builder;
    /// ```
    pub fn faults(mut self, faults: &Faults) -> Self {
        self.faults = faults.clone();
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// What the system says when it refuses a thread, or the injected fault.
    ///
    /// ```
    /// let handle = inflight_sync::thread::Builder::new().spawn(|| "done").unwrap();
    /// assert_eq!(handle.join().unwrap(), "done");
    /// ```
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.faults.before_spawn()?;
        let builder = native::Builder::new();
        let builder = match self.name {
            Some(name) => builder.name(name),
            None => builder,
        };
        builder.spawn(f)
    }
}
