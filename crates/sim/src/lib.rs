//! Simulations in virtual time over the shipped types, so they measure the library itself and not a
//! copy of it.
//!
//! | | |
//! |---|---|
//! | [`exec`] | the executor: a heap of events, tasks that run some time after they are woken, a clock that its user moves |
//! | [`cpus`] | CPUs, caches and a scheduler, with threads that run segments of work |
//! | [`dmcrypt`] | encryption under affinity scopes, with the shipped decisions of worker pools |
//! | [`enqueue`] | what queueing costs when a pool is shared by more and more CPUs |
//! | [`flush`] | what an eager flush costs a journal, over the shipped flush machine |
//! | [`hdd`] | split IO on one hard disk, under each admission policy of a tag set |
//! | [`limit`] | what it costs that a queue's limit is multiplied by the CPUs |
//! | [`placement`] | on which CPU a woken thread runs, by the shipped rules |
//!
//! The program `inflight-sim` is its command line. Models, constants and results are in
//! `docs/simulator.md`.
#![deny(missing_docs)]

mod chart;
pub mod cpus;
pub mod dmcrypt;
pub mod enqueue;
pub mod exec;
pub mod flush;
mod goal;
pub mod hdd;
pub mod limit;
pub mod placement;
mod pool;
mod seeds;

pub use goal::Goal;
pub use seeds::Seeds;
