//! `placement`: on which CPU a thread runs that is woken, and what a load file costs by that: the
//! published tables of stacked wakes of bound workers, and of wakes pulled to the interrupted CPU.
//!
//! Clients make small synchronous IOs in a closed loop. Each IO is handed from thread to thread: a
//! journal worker, a worker bound to the client's CPU, a device, that worker again. The shipped
//! [`Wake::place`](inflight_topology::wake::Wake::place) decides where a thread is woken, and the
//! shipped pool which worker takes which item. CPUs, their idle states, the device and the clients
//! are models.
//!
//! ```
//! use inflight_sim::placement::{Load, Machine, Side, run};
//! let machine = Machine::numa48();
//! let walking = run(&machine, Side::unstacked(Load::Requeue), 1, 1);
//! let stacked = run(&machine, Side::stacked(Load::Requeue), 1, 1);
//! assert!(stacked.file_ms < walking.file_ms);
//! assert!(walking.migrations_per_io > 0.9 && stacked.migrations_per_io < 0.01);
//! ```

mod clients;
mod controls;
mod cpus;
mod goals;
mod idle;
mod measure;
mod model;
mod plot;
mod pools;
mod published;
mod run;
mod table;

pub use controls::{CLIENTS as CONTROL_CLIENTS, Control, controls};
pub use goals::POINTS;
pub use idle::IdleState;
pub use measure::Outcome;
pub use model::{Interrupts, Load, Machine, Recent, Service, Side, Times};
pub use plot::plot;
pub use published::{Published, Which, published};
pub use run::run;
pub use table::{ControlRow, Pair, Row, Table};
