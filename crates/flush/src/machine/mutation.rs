//! Ways to break the machine. The exploration must notice each. Outside of tests there is none, and
//! the checks for them compile to nothing.

/// One step left out, or done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutation {
    /// A request that comes while a flush is in flight joins it.
    JoinRunning,
    /// No flush is considered when data has ended.
    NoIssueAfterData,
    /// No flush is considered when one has ended.
    NoIssueAfterFlush,
    /// A second flush is issued while one is in flight.
    IssueTwice,
    /// What was written during a flush counts as flushed.
    CleanAtEnd,
    /// A durable write is reported as a success while a call beside it is under way.
    WriteIsNotHeld,
    /// The same of a flush.
    FlushIsNotHeld,
    /// A flush succeeds though a call beside it has failed.
    FlushIgnoresFailures,
    /// Data counts as durable though a call beside it has failed.
    DataIgnoresFailures,
}

/// The machine's mutation, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Mutant(#[cfg(test)] pub(super) Option<Mutation>);

impl Mutant {
    /// Whether the machine is broken in this way.
    #[cfg(test)]
    pub(super) fn is(self, mutation: Mutation) -> bool {
        self.0 == Some(mutation)
    }

    /// Whether the machine is broken in this way: never.
    #[cfg(not(test))]
    pub(super) const fn is(self, _: Mutation) -> bool {
        false
    }
}
