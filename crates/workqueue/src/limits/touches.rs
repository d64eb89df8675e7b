//! How often `Share::Lend` writes what is not its node's, under arrivals in time.

use super::both::Limits;
use super::*;

/// Where items come from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Demand {
    /// All nodes alike.
    Balanced,
    /// Nine of ten from one node.
    Skewed,
    /// The same, and every 20 ms it is another node.
    Moving,
}

/// So many items count, after a quarter as many that do not.
const ITEMS: u64 = if cfg!(debug_assertions) {
    40_000
} else {
    400_000
};
/// What an item takes in the mean, in us.
const SERVICE: f64 = 200.0;

/// Poisson arrivals at `load` times what the limit can serve, exponential items. Touches per item.
fn touches(nodes: usize, max: usize, demand: Demand, load: f64) -> f64 {
    let mut limits = Limits::new(Share::Lend, max, &vec![12; nodes]);
    for node in 0..nodes {
        limits.add_front(Some(node));
    }
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut now, mut ended, mut before) = (0.0, 0, 0);
    // Items of one exponential time each: any of the active ones is the next to end.
    let mut active: Vec<FrontEnd> = Vec::new();
    let arrivals = load * max as f64 / SERVICE;
    let warm_up = ITEMS / 4;
    while ended < warm_up + ITEMS {
        let rate = arrivals + active.len() as f64 / SERVICE;
        now += -(1.0 - rng.f64()).ln() / rate;
        if rng.f64() * rate < arrivals {
            let hot = match demand {
                Demand::Moving => (now / 20_000.0) as usize % nodes,
                _ => 0,
            };
            let hit = demand != Demand::Balanced && rng.u8(..10) < 9;
            let front = if hit { hot } else { rng.usize(..nodes) };
            limits.admit(front, (), |front, ()| active.push(front));
        } else {
            let at = rng.usize(..active.len());
            let front = active.swap_remove(at);
            limits.leave(front, |front, ()| active.push(front));
            ended += 1;
            if ended == warm_up {
                before = limits.touches().sum();
            }
        }
        assert!(active.len() <= max);
    }
    assert_eq!(limits.touches().sum(), limits.slots.touches());
    (limits.touches().sum() - before) as f64 / ITEMS as f64
}

#[test]
fn few_words_are_shared_at_a_limit_of_768() {
    for nodes in [2, 8] {
        for demand in [Demand::Balanced, Demand::Skewed, Demand::Moving] {
            for load in [0.5, 0.9] {
                let seen = touches(nodes, 768, demand, load);
                println!("{nodes} nodes, {demand:?}, load {load}: {seen:.4} touches per item");
                let hard = nodes == 8 && demand == Demand::Balanced && load > 0.8;
                let most = if hard { 1.0 / 25.0 } else { 1.0 / 50.0 };
                assert!(
                    seen < most,
                    "{nodes} nodes, {demand:?}, load {load}: {seen}"
                );
            }
        }
    }
}

#[test]
fn one_count_for_all_costs_a_few_touches_for_each_item() {
    for max in [8, 64] {
        let seen = touches(8, max, Demand::Balanced, 0.9);
        println!("8 nodes, limit {max}: {seen:.4} touches per item");
        assert!(seen <= 4.0, "{seen} at {max}");
    }
}
