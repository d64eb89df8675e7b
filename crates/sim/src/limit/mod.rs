//! What a queue's limit counts: all of its items, or those of each CPU.
//!
//! The published regression: kernels 6.6 to 6.8 gave each CPU's part of an unbound queue the whole
//! limit. So 96 CPUs ran 96 times as many items as was asked for, and a file system whose items
//! meet at one lock wrote half as fast. What is simulated is time: of an item's own work, of the
//! lock, and of wakes. Which item may run is decided by the shipped pool core and its limits.
//!
//! ```
//! use inflight_sim::limit::{Counted, Model, run};
//!
//! let asked = run(&Model::default(), Counted::System, 8, 1);
//! let multiplied = run(&Model::default(), Counted::Cpu, 8, 1);
//! assert_eq!(asked.most_running, 8);
//! assert!(multiplied.most_running > 600 && multiplied.mib_s < 0.6 * asked.mib_s);
//! ```

mod goals;
mod machine;
mod model;
mod plot;
mod published;
mod table;

pub use machine::{Outcome, run};
pub use model::{Counted, Model};
pub use plot::plot;
pub use published::{Published, max_active};
pub use table::{Row, Table};
