//! The three back ends behind one set of names.

#[cfg(not(loom))]
pub mod cell;
#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod native;

#[cfg(any(loom, shuttle))]
pub use model::*;
#[cfg(not(any(loom, shuttle)))]
pub use native::*;

/// Interior mutability that loom watches.
#[cfg(loom)]
pub mod cell {
    pub use loom::cell::UnsafeCell;
}
