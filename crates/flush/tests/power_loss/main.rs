//! The power is cut at every step of random runs: what was acknowledged as durable is there.
#![cfg(not(any(loom, shuttle)))]

mod committers;
mod domain;
mod history;
mod killed;
mod log;
mod unwritten;
