//! The builder of completions.

use super::Completions;
use crate::set::TagSet;
use crate::tag::Tag;
use inflight_steering::{CompletionSink, InlineSink, Router};
use inflight_topology::{Scope, Topology};

/// The builder of [`Completions`], made by [`TagSet::completions`].
///
/// ```
/// use inflight_tags::steering::InlineSink;
/// use inflight_tags::{Tag, TagSet};
/// use inflight_topology::{Scope, Topology};
///
/// let set = TagSet::builder().depth(1).build(|_, _| 0)?;
/// let completions = set
///     .completions(&Topology::synthetic("cache:2 core:4")?)
///     .scope(Scope::Cache) // a done list for each last-level cache, not for each CPU
///     .sink(InlineSink)
///     .build(|req: Tag<i32>| println!("{} done", req.index()));
/// assert_eq!(completions.shard_stats().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct CompletionsBuilder<T, S = InlineSink> {
    set: TagSet<T>,
    topology: Topology,
    scope: Scope,
    sink: S,
}

impl<T: Send + 'static> TagSet<T> {
    /// Returns the builder of this set's completions; `topology` has the CPUs and what they share.
    ///
    /// From its [`build`](CompletionsBuilder::build) on, each request records the CPU of its
    /// submission. Requests that are already in flight run where they are seen. See the
    /// [module](crate::steering).
    pub fn completions(&self, topology: &Topology) -> CompletionsBuilder<T> {
        CompletionsBuilder {
            set: self.clone(),
            topology: topology.clone(),
            scope: Scope::Cpu,
            sink: InlineSink,
        }
    }
}

impl<T: Send + 'static, S: CompletionSink> CompletionsBuilder<T, S> {
    /// Sets which CPUs share a done list and its worker; by default each CPU has its own.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets the sink whose workers empty the done lists. By default there are no workers, and each
    /// completion runs where it is seen.
    pub fn sink<N: CompletionSink>(self, sink: N) -> CompletionsBuilder<T, N> {
        CompletionsBuilder {
            set: self.set,
            topology: self.topology,
            scope: self.scope,
            sink,
        }
    }

    /// Builds them. `callback` gets the tag of each completed request, with the result filled in;
    /// the request is free when the callback drops the tag. It runs on the thread that sees a
    /// completion or empties a done list, outside all locks. It may submit, and complete others. It
    /// should not wait for a tag, because it holds one and others wait behind it in the done list.
    ///
    /// # Panics
    ///
    /// Panics with [`CompletionSink::runner`], which is called here for each done list.
    pub fn build(self, callback: impl Fn(Tag<T>) + Send + Sync + 'static) -> Completions<T> {
        let router = Router::new(self.topology, self.scope, self.sink, callback);
        self.set.shared.bitmaps.policies.turn_on();
        Completions::new(self.set, router)
    }
}

inflight_sync::debug_fields!([T, S] CompletionsBuilder<T, S>: |this| scope = this.scope);
