//! Random tokens, replays and late completions against a live set: exactly what is out is
//! accepted, once, and nothing is lost. Every byte stands for 64 steps.
#![no_main]

#[path = "../../crates/tags/tests/common/attack.rs"]
mod attack;

use attack::{Attack, Words};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: (u64, &[u8])| {
    let mut words = Words(case.0);
    let mut attack = Attack::default();
    for &byte in case.1.iter().take(256) {
        attack.step(u64::from(byte));
        for _ in 0..63 {
            attack.step(words.next());
        }
    }
    attack.finish();
});
