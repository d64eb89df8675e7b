//! `instructions NAME PAIRS`: get+put pairs of one contender, for callgrind to count.
//! `instructions --list`: the names.
//! `instructions --step checked|trusted`: a few pairs of ours, for a debugger to step through.
//! `instructions --items spawn|work MACHINE ITEMS`: items of an unbound queue on a described
//! machine.
//! What `ci/instructions.sh` and `ci/workqueue-instructions.sh` run.

use inflight_benches::pools::{Own, Submitted};
use inflight_benches::{ours, rivals};
use inflight_sbitmap::SbitmapQueue;
use inflight_topology::{Scope, Topology};
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
        ["--step", check @ ("checked" | "trusted")] => {
            let queue = SbitmapQueue::builder(64).trusted(check == "trusted");
            let queue = queue.build().expect("valid");
            println!("{:?}", queue.back_end());
            assert!((0..8).all(|_| counted_pair(black_box(&queue))));
            ExitCode::SUCCESS
        }
        ["--items", what @ ("spawn" | "work"), machine, items] => {
            let (Ok(machine), Ok(items)) = (Topology::synthetic(machine), items.parse()) else {
                return usage();
            };
            inflight_sync::cpu::set_current_for_thread(Some(0));
            let own = Own::on(machine, Scope::CacheShard, 1024);
            Submitted::new(own, what == "work").run(items);
            ExitCode::SUCCESS
        }
        [name, pairs] => {
            let found = contenders().find(|contender| contender.name == name);
            let (Some(contender), Ok(pairs)) = (found, pairs.parse()) else {
                return usage();
            };
            // What the C library answers from a page of the kernel's, valgrind makes a call of the
            // system: sixty instructions and more that no other process spends.
            inflight_sync::cpu::set_current_for_thread(Some(0));
            let ids = (contender.make)(64);
            black_box(ids.pairs(pairs));
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

/// A pair that a debugger finds by its name.
#[inline(never)]
fn counted_pair(queue: &SbitmapQueue) -> bool {
    queue.try_get().is_some_and(|id| queue.put(id).is_ok())
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: instructions --list | --step checked|trusted \
         | --items spawn|work MACHINE ITEMS | NAME PAIRS"
    );
    ExitCode::from(2)
}
