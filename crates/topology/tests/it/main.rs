//! What a user of the crate relies on, except pinning, which has a test binary of its own.

mod api;
mod cpuset;
mod machine;
mod mask;
mod record;
mod recorded;
mod scope;
mod synthetic;
mod tree;
