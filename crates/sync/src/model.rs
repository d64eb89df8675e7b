//! Running a model: every interleaving of a small one, or random schedules of a larger one.

// The count must survive loom's reset between executions, so it is std's.
#[cfg(loom)]
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `model` in every interleaving that loom knows, with at most `preemptions` of them or as
/// many as `LOOM_MAX_PREEMPTIONS` says, and prints how many there were. For the tests of other
/// people's crates, who reach it as `inflight::model::check`.
///
/// # Panics
///
/// Without `--cfg loom`, with the line to type; and if `model` fails in an interleaving, or an item
/// of a queue panics in it.
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    #[cfg(not(loom))]
    {
        let _ = preemptions;
        drop(model);
        panic!(
            "this model was not explored, because it was built without loom; type\n    \
             RUSTFLAGS=\"--cfg loom\" cargo test --release --target-dir target/loom\n\
             (--release, because the model runs thousands of times)"
        );
    }
    #[cfg(loom)]
    {
        let mut builder = loom::model::Builder::new(); // reads loom's environment variables
        builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
        builder.location = true; // what fails names its line
        let current = std::thread::current();
        CONTAINED.take(); // a model that failed may have left one
        run(current.name().unwrap_or("?"), builder, move || {
            model();
            fail_if_contained();
        });
        fail_if_contained();
    }
}

/// Explores `model` in a process of its own, and returns what that printed when `model` had failed.
/// For the tests of other people's crates, who reach it as `inflight::model::check_fails`.
///
/// # Panics
///
/// Without `--cfg loom`; and if no interleaving fails.
pub fn explore_in_child(preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> String {
    const CHILD: &str = "INFLIGHT_MODEL_CHILD";
    let current = std::thread::current();
    let name = current.name().unwrap_or("?");
    if cfg!(not(loom)) || std::env::var(CHILD).is_ok_and(|child| child == name) {
        explore(preemptions, model);
        std::process::exit(0); // the parent takes success for "nothing was found"
    }
    let this = std::env::current_exe().expect("the path of the test program is not known");
    let child = std::process::Command::new(this)
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env(CHILD, name)
        .output()
        .expect("the test program cannot be run again");
    let printed = [child.stdout, child.stderr].map(|t| String::from_utf8_lossy(&t).into_owned());
    let printed = printed.concat();
    assert!(
        !child.status.success(),
        "`{name}` did not fail (is it the whole name of the test that calls this?):\n\
         {printed}"
    );
    printed
}

#[cfg(loom)]
std::thread_local! {
    /// The first panic that a worker caught. loom runs all threads of a model on the thread that
    /// explores it, so this is the model's own.
    static CONTAINED: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

/// Records that an item has panicked and that its worker continues. loom reports what it finds in
/// an item, for example a race, as a panic of the item, so [`explore`] fails then.
#[cfg(loom)]
pub fn contained(item: &str, message: Option<&str>) {
    let text = format!("{item}: {}", message.unwrap_or("no text"));
    CONTAINED.with_borrow_mut(|first| first.get_or_insert(text).len());
}

#[cfg(loom)]
fn fail_if_contained() {
    if let Some(first) = CONTAINED.take() {
        panic!("an item of a queue panicked: {first}");
    }
}

/// How many preemptions loom may insert in one execution; `None` explores everything.
#[cfg(loom)]
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// For every change: seconds.
    pub quick: Option<usize>,
    /// For a long run by hand.
    pub deep: Option<usize>,
}

/// Explores `model` and prints `model NAME executions N`.
///
/// The bound is `bound.deep` if the environment variable `INFLIGHT_MODEL_DEPTH` is `deep`, else
/// `bound.quick`.
///
/// # Panics
///
/// If an execution panics, deadlocks or races; the process may abort, because loom objects
/// panic again while unwinding. Run each model in a process of its own.
#[cfg(loom)]
pub fn check(name: &str, bound: Bound, model: impl Fn() + Sync + Send + 'static) {
    let deep = std::env::var("INFLIGHT_MODEL_DEPTH").is_ok_and(|v| v == "deep");
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = if deep { bound.deep } else { bound.quick };
    run(name, builder, model);
}

#[cfg(loom)]
fn run(name: &str, mut builder: loom::model::Builder, model: impl Fn() + Sync + Send + 'static) {
    builder.max_branches = builder.max_branches.max(20_000);
    let shown = builder
        .preemption_bound
        .map_or("none".to_owned(), |b| b.to_string());
    let executions = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let (most, limit) = (builder.max_permutations, builder.max_duration);
    let began = std::time::Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    let early = most.is_some_and(|most| executions >= most)
        || limit.is_some_and(|limit| began.elapsed() >= limit);
    let early = if early { " (ended early)" } else { "" };
    println!("model {name} bound {shown} executions {executions}{early}");
}

/// How many times as many runs as a test asks for: for a long run by hand.
#[cfg(shuttle)]
fn times() -> usize {
    let times = std::env::var("INFLIGHT_SHUTTLE_TIMES");
    times.map_or(1, |t| {
        t.parse().expect("INFLIGHT_SHUTTLE_TIMES is not a number")
    })
}

/// Runs `model` under `runs` random schedules and prints `model NAME random runs N`.
///
/// If the environment variable `INFLIGHT_SHUTTLE_TIMES` is a number, that many times as many.
///
/// # Panics
///
/// If a run panics or deadlocks; the message says how to replay its schedule.
#[cfg(shuttle)]
pub fn check_random(name: &str, runs: usize, model: impl Fn() + Sync + Send + 'static) {
    let runs = runs * times();
    let scheduler = shuttle::scheduler::RandomScheduler::new(runs);
    shuttle::Runner::new(scheduler, config()).run(model);
    println!("model {name} random runs {runs}");
}

/// As [`check_random`], with priorities that change `changes` times in a run: probabilistic
/// concurrency testing, which finds a bug that needs that many particular switches with a known
/// probability.
#[cfg(shuttle)]
pub fn check_pct(
    name: &str,
    runs: usize,
    changes: usize,
    model: impl Fn() + Sync + Send + 'static,
) {
    let runs = runs * times();
    let scheduler = shuttle::scheduler::PctScheduler::new(changes, runs);
    shuttle::Runner::new(scheduler, config()).run(model);
    println!("model {name} pct runs {runs}");
}

/// Stacks large enough for unoptimised code, whose futures lie on the stack several times over.
#[cfg(shuttle)]
fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 18;
    config
}
