//! No restartable sequences on this target or under this tool.

/// Proof that restartable sequences can be used; never available here.
#[derive(Clone, Copy, Debug)]
pub struct Rseq(std::convert::Infallible);

impl Rseq {
    /// Always `None` here.
    #[must_use]
    pub const fn probe() -> Option<Self> {
        None
    }

    /// Restarts every running sequence of the process.
    pub const fn barrier(self) {
        match self.0 {}
    }

    pub(crate) const fn cpu_or_large(self) -> u32 {
        match self.0 {}
    }
}

pub(super) const fn cpu_id() -> Option<u32> {
    None
}
