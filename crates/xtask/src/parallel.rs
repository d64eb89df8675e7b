//! Doing a list of things, a few at a time.

use std::sync::Mutex;
use std::thread;

/// How many at a time, unless told.
pub(crate) fn default_jobs() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `job` on each of `items`, at most `jobs` at a time; the results are in the items' order.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    job: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let queue = Mutex::new(items.iter().enumerate());
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no job panics with the lock").next();
                    let Some((number, item)) = next else { break };
                    let result = job(item);
                    results.lock().expect("as above").push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("as above");
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_their_order() {
        let items: Vec<u64> = (0..50).collect();
        let doubled = super::map(&items, 4, |i| i * 2);
        assert_eq!(doubled, (0..100).step_by(2).collect::<Vec<_>>());
        assert!(super::map(&[0_u8; 0], 4, |_| ()).is_empty());
    }
}
