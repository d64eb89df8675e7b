//! Guards that put their bit back.

use crate::queue::SbitmapQueue;
use inflight_sync::{Arc, thread};
use std::fmt;
use std::ops::Deref;

/// A bit of a queue that is put back when the guard is dropped; see [`SbitmapQueue::id`].
///
/// # Panics
///
/// The drop panics with the panic of a waker, as [`SbitmapQueue::put`] does. It also panics if the
/// bit cannot be put: somebody else has put it, or it was [adopted](Guard::adopt) and is not in use
/// or not a bit of the queue. On a thread that is unwinding from another panic it does not.
///
/// ```
/// use inflight_sbitmap::{IdGuard, SbitmapQueue};
/// let queue = SbitmapQueue::builder(4).build()?;
/// let mut buffers = vec![0u64; 4];
/// let id: IdGuard<'_> = queue.id_blocking()?;
/// buffers[id.id()] = 7; // nobody else has this index
/// let id = id.into_id(); // now the caller puts it back
/// drop(IdGuard::adopt(&queue, id));
/// assert_eq!(queue.weight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type IdGuard<'a> = Guard<&'a SbitmapQueue>;

/// An [`IdGuard`] that owns a reference to the queue, so it is `'static`; see
/// [`SbitmapQueue::id_owned`].
///
/// ```
/// use inflight_sbitmap::{OwnedIdGuard, SbitmapQueue};
/// use std::sync::Arc;
/// let queue = Arc::new(SbitmapQueue::builder(4).build()?);
/// let id = OwnedIdGuard::adopt(queue.clone(), queue.get_blocking()?);
/// std::thread::spawn(move || drop(id)).join().unwrap();
/// assert_eq!(queue.weight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type OwnedIdGuard = Guard<Arc<SbitmapQueue>>;

/// The type behind [`IdGuard`] and [`OwnedIdGuard`].
#[must_use = "the bit is put back when the guard is dropped"]
pub struct Guard<Q: Deref<Target = SbitmapQueue>> {
    queue: Q,
    /// `None` once the bit belongs to the caller.
    id: Option<usize>,
}

impl<Q: Deref<Target = SbitmapQueue>> Guard<Q> {
    /// Makes a guard for a bit that the caller has got from this queue. This is not checked here:
    /// the drop of the guard panics if it cannot put the bit.
    ///
    /// ```should_panic
    /// # use inflight_sbitmap::{IdGuard, SbitmapQueue};
    /// let queue = SbitmapQueue::builder(4).build().unwrap();
    /// drop(IdGuard::adopt(&queue, 2)); // bit 2 is free
    /// ```
    pub const fn adopt(queue: Q, id: usize) -> Self {
        Self {
            queue,
            id: Some(id),
        }
    }

    /// Returns the bit.
    #[must_use]
    pub const fn id(&self) -> usize {
        self.id.expect("a guard has its bit until it ends")
    }

    /// Returns the bit as a plain number, which the caller must put back. It may be a ring's user
    /// data meanwhile.
    #[must_use = "a bit that is dropped is never given back"]
    pub fn into_id(mut self) -> usize {
        let id = self.id();
        self.id = None;
        id
    }
}

impl<Q: Deref<Target = SbitmapQueue>> Drop for Guard<Q> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            if let Err(error) = self.queue.put(id) {
                // A second panic while unwinding would abort.
                assert!(thread::panicking(), "a guard cannot put its bit: {error}");
            }
        }
    }
}

impl<Q: Deref<Target = SbitmapQueue>> fmt::Debug for Guard<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.id).finish()
    }
}
