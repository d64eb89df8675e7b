//! The three back ends behind one set of names.

#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod native;

#[cfg(any(loom, shuttle))]
pub use model::*;
#[cfg(not(any(loom, shuttle)))]
pub use native::*;
