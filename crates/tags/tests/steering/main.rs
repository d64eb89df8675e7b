//! Where completions run, and that each runs once; on machines that change, too.
#![cfg(not(any(loom, shuttle)))]

mod defer;
mod done_lists;
mod done_lists_random;
mod queues;
mod refresh;
mod support;
