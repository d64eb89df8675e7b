//! Encryption under affinity scopes: issuers, a device, and worker pools whose decisions are those
//! of the shipped crate.
//!
//! The published experiment: an encrypted NVMe device, 32 KiB random reads and writes, 64 in flight
//! for each issuer, contents verified by the issuer. What is simulated is the machine, its
//! scheduler, the device and the issuers; which worker is woken, what it takes and how many items
//! are active is decided by the pool core, the lending rule and the limits of
//! `inflight-workqueue`.
//!
//! ```
//! use inflight_sim::dmcrypt::{Scenario, Scope};
//!
//! let outcome = Scenario::new(4, Scope::System).seconds(0.2).run(1);
//! assert!((900.0..1100.0).contains(&outcome.mib_s));
//! ```

mod goals;
mod issuers;
mod measure;
mod model;
mod plot;
mod pools;
mod published;
mod scenario;
mod table;

pub use crate::goal::Goal;
pub use measure::{Outcome, Summary};
pub use model::DmCrypt3900x;
pub use plot::plot;
pub use published::{Published, dmcrypt_scopes};
pub use scenario::{Scenario, Scope};
pub use table::{Row, Table};
