//! What a user of the crate relies on, except pinning, which has a test binary of its own.

mod api;
mod changes;
mod cpuset;
mod damage;
mod fixtures;
mod machine;
mod mask;
mod mixed;
mod qemu;
mod record;
mod recorded;
mod scope;
mod synthetic;
mod tree;
