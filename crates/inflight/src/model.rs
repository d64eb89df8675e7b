//! One way to loom for the tests of your own code.

/// Runs `model` in every interleaving that loom knows, up to a bound of preemptions.
///
/// Loom is there only in a build with `--cfg loom`. Without it this panics and says what to type,
/// so that a model that was not explored does not pass in silence. In a build for models, what it
/// finds (a deadlock, a panic of `model`, a data race) is a panic too.
///
/// ```no_run
/// use inflight::sbitmap::SbitmapQueue;
/// use inflight::sync::{Arc, thread}; // loom's under this cfg, std's without it
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
/// runs for hours. `LOOM_MAX_PREEMPTIONS` sets another. `--release`, because the model runs
/// thousands of times and an unoptimised loom is some twenty times slower; `--target-dir
/// target/loom`, because otherwise each change of the flag builds everything anew.
///
/// # Panics
///
/// Without `--cfg loom`; and if `model` fails in an interleaving.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    inflight_sync::model::explore(model);
}
