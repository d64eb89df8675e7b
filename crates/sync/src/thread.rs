//! The threads of the back end.

use crate::backend::native_thread as native;
use crate::fault::Faults;
use std::io;

/// Waits for a thread and takes its result.
pub use native::JoinHandle;

/// Names a running thread.
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
pub use native::yield_now;

/// Returns the calling thread's id.
///
/// ```
/// use inflight_sync::thread::{self, JoinHandle, ThreadId};
/// let here = thread::current_id();
/// let there: JoinHandle<ThreadId> = thread::spawn(thread::current_id);
/// assert_ne!(here, there.join().unwrap());
/// assert!(!thread::panicking());
/// ```
#[must_use]
pub fn current_id() -> ThreadId {
    native::current().id()
}

/// Returns the calling thread's name; `None` if it has none.
///
/// ```
/// use inflight_sync::thread::{self, Builder};
/// let reader = Builder::new().name("reader".into()).spawn(thread::current_name).unwrap();
/// assert_eq!(reader.join().unwrap().as_deref(), Some("reader"));
/// ```
#[must_use]
pub fn current_name() -> Option<String> {
    native::current().name().map(str::to_owned)
}

/// Returns whether the calling thread is unwinding from a panic.
pub use std::thread::panicking;

/// Starts a thread.
///
/// # Panics
///
/// If the system refuses the thread; [`Builder::spawn`] reports it instead.
pub use native::spawn;

/// Starts a thread with a name, through the fault point.
///
/// ```
/// use inflight_sync::{fault::Faults, thread};
/// let builder = thread::Builder::new().name("worker".into()).faults(&Faults::none());
/// assert_eq!(builder.spawn(|| 3).unwrap().join().unwrap(), 3);
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing runs before `spawn`"]
pub struct Builder {
    name: Option<String>,
    faults: Faults,
}

impl Builder {
    /// Makes a builder of a thread without a name, which is never refused on purpose.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the thread. Linux shows the first 15 bytes.
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// Lets `faults` refuse this thread.
    pub fn faults(mut self, faults: &Faults) -> Self {
        self.faults = faults.clone();
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's error when it refuses a thread, or the injected fault.
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
