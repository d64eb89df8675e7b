//! The attack of the fuzz target `token_attack` from fixed seeds. `INFLIGHT_ATTACK_SEEDS` asks for
//! another number of them, of 10,000 steps each.

#![cfg(not(any(loom, shuttle)))]

#[path = "common/attack.rs"]
mod attack;

use attack::{Attack, Words};

#[test]
fn nothing_is_accepted_that_is_not_out_and_nothing_is_lost() {
    let (seeds, steps) = if cfg!(miri) { (2, 200) } else { (20, 10_000) };
    let seeds = std::env::var("INFLIGHT_ATTACK_SEEDS")
        .map_or(seeds, |seeds| seeds.parse().expect("a number of seeds"));
    let (mut refused, mut accepted) = (0, 0);
    for seed in 0..seeds {
        let mut words = Words(seed);
        let mut attack = Attack::default();
        for _ in 0..steps {
            attack.step(words.next());
        }
        assert!(
            attack.refused > steps / 6,
            "an attack that tries too little"
        );
        refused += attack.refused;
        accepted += attack.accepted;
        attack.finish();
    }
    println!("{seeds} seeds: {refused} tokens refused, {accepted} accepted");
}
