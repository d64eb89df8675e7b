//! Many sets in one process. One test in a process of its own, because it counts the sets that
//! live.

#![cfg(not(any(loom, shuttle)))]

use inflight_tags::{RedeemError, TagSet, Tenant};

fn sets(n: usize) -> Vec<(TagSet<()>, Tenant<()>)> {
    let set = || TagSet::builder().depth(1).build(|_, _| ()).unwrap();
    (0..n)
        .map(|_| set())
        .map(|set| (set.clone(), set.add_tenant("q").unwrap()))
        .collect()
}

/// Gives each token to every other set, counts the refusals by kind, then to its own.
fn mix_up(sets: &[(TagSet<()>, Tenant<()>)]) -> (usize, usize) {
    let submit = |dev: &Tenant<()>| dev.try_alloc().unwrap().into_token();
    let tokens: Vec<u64> = sets.iter().map(|(_, dev)| submit(dev)).collect();
    let (mut foreign, mut stale) = (0, 0);
    for (i, (set, _)) in sets.iter().enumerate() {
        for (_, &token) in tokens.iter().enumerate().filter(|&(j, _)| i != j) {
            match set.redeem(token).unwrap_err() {
                RedeemError::Foreign { .. } => foreign += 1,
                RedeemError::Stale { .. } => stale += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    for ((set, _), &token) in sets.iter().zip(&tokens) {
        assert!(set.redeem(token).is_ok(), "refusals changed nothing");
    }
    (foreign, stale)
}

#[test]
fn tokens_of_64_live_sets_are_told_apart() {
    let first = sets(64);
    assert_eq!(mix_up(&first), (64 * 63, 0));

    // Beyond, numbers of sets meet; generations do not.
    let more = sets(36);
    let all: Vec<_> = first.into_iter().chain(more).collect();
    let (foreign, stale) = mix_up(&all);
    assert_eq!(foreign + stale, 100 * 99);
    assert_eq!(stale, 2 * 36, "two sets have each of 36 numbers");

    // Numbers are given back.
    drop(all);
    assert_eq!(mix_up(&sets(64)), (64 * 63, 0));
}
