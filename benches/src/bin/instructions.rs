//! `instructions NAME PAIRS`: get+put pairs of one contender, for callgrind to count.
//! `instructions --list`: the names. What `ci/instructions` runs.

use inflight_benches::{ours, rivals};
use std::hint::black_box;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let contenders = || ours().into_iter().chain(rivals());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--list"] => {
            contenders().for_each(|contender| println!("{}", contender.name));
            ExitCode::SUCCESS
        }
        [name, pairs] => {
            let found = contenders().find(|contender| contender.name == name);
            let (Some(contender), Ok(pairs)) = (found, pairs.parse()) else {
                return usage();
            };
            let ids = (contender.make)(64);
            black_box(ids.pairs(pairs));
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: instructions --list | NAME PAIRS");
    ExitCode::from(2)
}
