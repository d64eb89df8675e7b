//! Which CPUs there are, what they share, and where a thread runs.
//!
//! Placement rests on few facts: which CPUs are threads of one core, which share a last-level
//! cache, which are near one memory. A [`Topology`] holds them as plain data. Algorithms take a
//! topology as a parameter, so the same code runs on [this machine](Topology::discover), on
//! [a recorded one](Topology::from_sysfs) and on [a described one](Topology::synthetic), of up to
//! 1,024 CPUs, in a test.
//!
//! A [`Scope`] is a size of groups of CPUs, a [`Pod`] is one such group, a [`CpuSet`] names CPUs.
//! The scopes and the rules by which CPUs join pods are those of the affinity scopes of Linux's
//! concurrency-managed workqueues. As in its block layer, [`Topology::shares_cache`] decides where
//! a completion runs.
//!
//! ```
//! use inflight_topology::{CpuSet, Scope, Topology};
//!
//! let topo = Topology::discover()?;                                // this machine
//! let big = Topology::synthetic("numa:2 cache:2 core:6 smt:2")?;   // 48 CPUs
//! for pod in big.pods(Scope::Cache) {
//!     println!("{} on node {:?}", pod.cpus(), pod.node());         // 0-5,24-29 on node Some(0)
//! }
//! assert!(big.shares_cache(0, 24));
//! let cpu: usize = inflight_topology::current_cpu();               // a hint
//! # let _ = cpu;
//! # #[cfg(target_os = "linux")]
//! # if !topo.cpus().is_disjoint(&"0-1".parse()?) {
//! let guard = topo.pin_current_thread(&"0-1".parse::<CpuSet>()?)?; // until the guard is dropped
//! # drop(guard);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two modules hold rules as pure functions of such values: [`steering`] for the CPU on which a
//! completion runs, [`wake`] for the CPU on which a woken thread runs.
//!
//! Facts that a machine does not describe are assumed in the simplest way.
//! [`Topology::assumptions`] lists these assumptions. An unknown CPU number is not an error in a
//! query, because a CPU number is only a hint.
//!
//! On systems other than Linux all CPUs are taken to be alike, and pinning is reduced.
//!
//! The feature `serde` reads and writes [`CpuSet`], [`Scope`] and
//! [`Steering`](steering::Steering) as their texts, and writes a [`Topology`].

#![deny(missing_docs)]
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod assumption;
mod cgroup;
mod cpuset;
mod current;
mod display;
mod error;
mod mask;
mod model;
mod os;
mod pin;
mod place;
mod pod;
mod recording;
mod refresh;
mod render;
mod scope;
#[cfg(feature = "serde")]
mod serial;
mod shards;
mod speed;
mod synthetic;
mod sysfs;
mod topology;
mod tree;

pub mod steering;
pub mod wake;

pub use assumption::Assumption;
pub use cpuset::{CpuSet, CpuSetIter, ParseCpuSetError};
pub use current::{current_cpu, set_current_cpu_for_thread};
pub use error::{DiscoverError, SysfsError};
pub use pin::{PinCheck, PinError, PinGuard};
pub use pod::Pod;
pub use refresh::{Refresh, RefreshError};
pub use scope::{ParseScopeError, Scope};
pub use speed::SpeedClass;
pub use synthetic::SyntheticError;
pub use topology::Topology;

// Keeps the example of the README true; guards, which it shows, are a thing of Linux.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/topology.md")]
struct Page;
