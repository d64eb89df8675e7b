//! All that the server asks of tag sets and workqueues, in one place.

use std::path::Path;

use anyhow::{Context as _, Result};
use inflight::tags::{Admission, SharePolicy, Split, Tag, TagSet};
use inflight::topology::{Scope, Topology};
use inflight::workqueue::serve::Server;
use inflight::workqueue::{Attrs, Workqueue, WorkqueueSystem, blocking};

/// The tags of all exports: how many requests are at the files at once.
pub(crate) struct Tags(TagSet<()>);

/// An export's, or a client's, share of the tags.
#[derive(Clone)]
pub(crate) struct Tenant(inflight::tags::Queue<()>);

/// The tags of the pieces of one request.
pub(crate) struct Pieces(Split<()>);

impl Tags {
    pub(crate) fn new(depth: usize) -> Result<Self> {
        let set = TagSet::builder()
            .depth(depth)
            .admission(Admission::WholeIo)
            .share(SharePolicy::Weighted { min: 1 })
            .build(|_, _| ());
        Ok(Self(set.with_context(|| format!("--depth {depth}"))?))
    }

    pub(crate) fn tenant(&self, name: &str, weight: u32) -> Tenant {
        let queue = self.0.add_queue(name);
        queue.set_weight(weight);
        Tenant(queue)
    }

    pub(crate) fn in_use(&self) -> usize {
        self.0.in_use()
    }

    pub(crate) fn record_metrics(&self) {
        self.0.record_metrics("nbd");
    }
}

impl Tenant {
    /// The tags for so many pieces.
    pub(crate) fn pieces(&self, count: usize) -> Pieces {
        Pieces(self.0.split(count))
    }

    pub(crate) fn record_metrics(&self) {
        self.0.record_metrics("nbd");
    }
}

impl Pieces {
    /// The next piece's tag; none after the last, or if the set is closed.
    pub(crate) async fn next(&mut self) -> Option<Tag<()>> {
        self.0.next().await.ok().flatten()
    }
}

/// The workers: for encryption, and for what blocks.
pub(crate) struct Workers {
    system: WorkqueueSystem,
    crypt: Workqueue,
    files: Workqueue,
}

/// Where encryption runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CryptOptions {
    pub(crate) scope: Scope,
    pub(crate) strict: bool,
    pub(crate) max_active: usize,
}

impl Workers {
    pub(crate) fn new(crypt: CryptOptions, depth: usize) -> Result<Self> {
        let topology = Topology::discover().context("looking at this machine's CPUs")?;
        let system = WorkqueueSystem::builder().topology(&topology).build();
        let system = system.context("making the workers")?;
        let attrs = Attrs::new().scope(crypt.scope).strict(crypt.strict);
        let crypt = system
            .workqueue("crypt")
            .unbound(attrs)
            .max_active(crypt.max_active)
            .build()
            .context("making the workqueue for encryption")?;
        let files = system
            .workqueue("files")
            .unbound(Attrs::new().scope(Scope::System))
            .max_active(depth.clamp(1, 512))
            .build()
            .context("making the workqueue for files")?;
        Ok(Self {
            system,
            crypt,
            files,
        })
    }

    pub(crate) fn files(&self) -> &Workqueue {
        &self.files
    }

    /// Runs something that computes. None if the workers have gone.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.crypt.spawn(work).await.ok()
    }

    /// Runs something that blocks. None if the workers have gone.
    pub(crate) async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.files.spawn(|| blocking(work)).await.ok()
    }

    pub(crate) fn serve(&self, path: &Path) -> Result<Server> {
        let served = self.system.serve(path);
        served.with_context(|| format!("--serve {}", path.display()))
    }

    pub(crate) fn record_metrics(&self) {
        self.system.record_metrics();
    }
}

/// Tells the recorder what the numbers are.
pub(crate) fn describe_metrics() {
    inflight::tags::describe_metrics();
    WorkqueueSystem::describe_metrics();
}
