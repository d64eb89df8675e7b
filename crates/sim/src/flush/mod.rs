//! What an eager flush costs a journal: the published regression, on the shipped machine.
//!
//! Clients do a little work, write, and commit. Workers, at most four, push commits into log
//! buffers; a buffer is written after a flush, and durably. The *eager* journal also flushes when a
//! push begins, so that the buffer need not; but somebody always waits for the buffer, which is
//! then flushed anyway. The *flush-before* journal leaves it to the buffer.
//!
//! Which flushes are issued, who shares them and what comes next is decided by the shipped
//! [`Machine`](inflight_flush::machine::Machine); the disk and the clients are models.
//!
//! ```
//! use inflight_sim::flush::{Journal, Model, run};
//! let model = &Model::published()[0];
//! let eager = run(model, Journal::Eager, 1, 1);
//! let before = run(model, Journal::FlushBefore, 1, 1);
//! assert!(eager.file_ms > before.file_ms);
//! assert!(eager.flushes_per_commit > 1.9 * before.flushes_per_commit);
//! ```

mod goals;
mod journal;
mod model;
mod plot;
mod published;
mod table;

pub use journal::{Outcome, run};
pub use model::{Journal, Model};
pub use plot::plot;
pub use published::{FLUSH_RATIO, Published, cil_flush};
pub use table::{Row, Table};
