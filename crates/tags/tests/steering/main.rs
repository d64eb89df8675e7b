//! Where completions run, and that each runs once; on machines that change, too.
#![cfg(not(any(loom, shuttle)))]

mod mailboxes;
mod put_off;
mod queues;
mod refresh;
mod support;
