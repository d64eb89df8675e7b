//! An entry to loom for the tests of your own code.

/// Runs `model` in every interleaving that loom knows, up to a bound of preemptions.
///
/// Loom is available only in a build with `--cfg loom`. Without it this panics and prints the
/// command to type, so that a model that was not explored does not pass in silence. In a build for
/// models, a fault that loom finds (a deadlock, a panic of `model`, a data race) is a panic too.
///
/// ```no_run
/// use inflight::sbitmap::SbitmapQueue;
/// use inflight::sync::{Arc, thread}; // threads are loom's under this cfg, else std's
///
/// #[test]
/// # fn nothing() {}
/// #[cfg_attr(not(loom), ignore = "a model: RUSTFLAGS='--cfg loom' cargo test --release")]
/// fn the_second_getter_waits_for_the_first() {
///     inflight::model::check(|| {
///         let queue = Arc::new(SbitmapQueue::builder(1).build().unwrap());
///         let bit = queue.get_blocking().unwrap();
///         let waiter = thread::spawn({
///             let queue = queue.clone();
///             move || queue.get_blocking().unwrap()
///         });
///         queue.put(bit).unwrap();
///         assert_eq!(waiter.join().unwrap(), bit);
///     });
/// }
/// # the_second_getter_waits_for_the_first();
/// ```
///
/// The bound is two preemptions: with more, and with more than three threads or a few ids, a model
/// runs for hours. `LOOM_MAX_PREEMPTIONS` sets another for all models, [`check_within`] for one.
/// `--release`, because the model runs thousands of times and an unoptimised loom is some twenty
/// times slower; `--target-dir target/loom`, because otherwise each change of the flag builds
/// everything anew.
///
/// A deadlock panics in the thread that loom runs at that moment. A destructor of that thread may
/// panic again, and that aborts the process. So for a model that is to fail use [`check_fails`],
/// not `#[should_panic]`.
///
/// The panic of an item of a queue is caught by its worker, in a model too. It still fails the
/// model, once the other threads have ended: an assertion may be in an item. An item that panics on
/// purpose catches that itself.
///
/// # Panics
///
/// Panics without `--cfg loom`; and if `model` fails in an interleaving, or an item of a queue
/// panics.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    check_within(2, model);
}

/// Runs a model as [`check`], with a bound of its own, for a model that takes too long with two
/// preemptions, or needs more of them. `LOOM_MAX_PREEMPTIONS` overrides it.
///
/// # Panics
///
/// The panics of [`check`].
pub fn check_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    inflight_sync::model::explore(preemptions, model);
}

/// Runs a model that has to fail, the opposite of [`check`]: for a bug that was put in on purpose.
/// Returns the printed text, so that a test can check the reason of the failure. The bound is two
/// preemptions, as that of [`check`]; `LOOM_MAX_PREEMPTIONS` sets another.
///
/// The model runs in a process of its own, because loom may abort the process. The process is the
/// program of the test, called for this test alone: call it from a `#[test]` function, once in
/// each.
///
/// ```no_run
/// use inflight::sync::{Arc, Mutex, thread};
///
/// #[test]
/// # fn nothing() {}
/// #[cfg_attr(not(loom), ignore = "a model: RUSTFLAGS='--cfg loom' cargo test --release")]
/// fn two_locks_in_two_orders_are_found() {
///     let printed = inflight::model::check_fails(|| {
///         let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
///         let other = thread::spawn({
///             let (a, b) = (a.clone(), b.clone());
///             move || drop((a.lock(), b.lock()))
///         });
///         drop((b.lock(), a.lock()));
///         other.join().unwrap();
///     });
///     assert!(printed.contains("deadlock"), "{printed}");
/// }
/// # two_locks_in_two_orders_are_found();
/// ```
///
/// # Panics
///
/// Panics without `--cfg loom`; and if `model` fails in no interleaving.
pub fn check_fails(model: impl Fn() + Send + Sync + 'static) -> String {
    inflight_sync::model::explore_in_child(2, model)
}
