//! Where completions run, and that each runs once; on machines that change, too.
#![cfg(not(any(loom, shuttle)))]

mod done_lists;
mod done_lists_random;
mod put_off;
mod queues;
mod refresh;
mod support;
