//! All that the server asks of tag sets and workqueues, in one place.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_channel::oneshot;
use inflight::Requeue;
pub(crate) use inflight::tags::TenantError;
use inflight::tags::{self, Admission, SharePolicy, Split, Tag, TagSet};
use inflight::topology::{Scope, Topology};
use inflight::workqueue::serve::Server;
use inflight::workqueue::{Attrs, Workqueue, WorkqueueSystem, blocking};

/// A request that was refused for now is sent again after this.
const PAUSE: Duration = Duration::from_millis(1);

/// Where the tag of a request goes that is to be sent again.
#[derive(Default)]
pub(crate) struct Again(Option<oneshot::Sender<Tag<Again>>>);

/// A place at the files.
pub(crate) type Held = Tag<Again>;

/// The tags of all exports: how many requests are at the files at once.
pub(crate) struct Tags {
    set: TagSet<Again>,
    requeue: Requeue<Again>,
}

/// An export's, or a client's, share of the tags.
#[derive(Clone)]
pub(crate) struct Tenant {
    tags: tags::Tenant<Again>,
    requeue: Requeue<Again>,
}

/// The tags of the pieces of one request.
pub(crate) struct Pieces(Split<Again>);

impl Tags {
    pub(crate) fn new(depth: usize, workers: &Workers) -> Result<Self> {
        let set = TagSet::builder()
            .depth(depth)
            .admission(Admission::WholeIo)
            .share(SharePolicy::Weighted { min: 1 })
            .build(|_, _| Again::default());
        let set = set.with_context(|| format!("--depth {depth}"))?;
        let requeue = Requeue::new(&workers.requeue, |mut tag: Held| {
            if let Some(owner) = tag.0.take() {
                // If the owner has gone its tag is free.
                let _ = owner.send(tag);
            }
        });
        Ok(Self { set, requeue })
    }

    /// A tenant of a name that no other has.
    pub(crate) fn tenant(&self, name: &str, weight: u32) -> Result<Tenant, TenantError> {
        let tags = self.set.add_tenant(name)?;
        tags.set_weight(weight);
        Ok(Tenant {
            tags,
            requeue: self.requeue.clone(),
        })
    }

    pub(crate) fn in_use(&self) -> usize {
        self.set.in_use()
    }

    pub(crate) fn record_metrics(&self) {
        self.set.record_metrics("nbd");
    }
}

impl Tenant {
    /// The tags for so many pieces.
    pub(crate) fn pieces(&self, count: usize) -> Pieces {
        Pieces(self.tags.split(count))
    }

    /// Waits for the turn of a request that the file refused for now, behind those that were
    /// refused before. It keeps its tag. None if the set is closed.
    pub(crate) async fn again(&self, mut tag: Held) -> Option<Held> {
        let (owner, sent) = oneshot::channel();
        tag.0 = Some(owner);
        self.requeue.requeue(tag, PAUSE);
        sent.await.ok()
    }

    pub(crate) fn record_metrics(&self) {
        self.tags.record_metrics("nbd");
    }
}

impl Pieces {
    /// The next piece's tag; none after the last, or if the set is closed.
    pub(crate) async fn next(&mut self) -> Option<Held> {
        self.0.next().await.ok().flatten()
    }
}

/// The workers: for encryption, and for what blocks.
pub(crate) struct Workers {
    system: WorkqueueSystem,
    crypt: Workqueue,
    files: Workqueue,
    requeue: Workqueue,
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
        let requeue = system.workqueue("requeue").bound().highpri().build();
        Ok(Self {
            requeue: requeue.context("making the workqueue for requests sent again")?,
            system,
            crypt,
            files,
        })
    }

    pub(crate) fn files(&self) -> &Workqueue {
        &self.files
    }

    /// Begins to compute something. None if the workers have gone.
    pub(crate) fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> {
        let begun = self.crypt.spawn(work);
        async move { begun.await.ok() }
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
    tags::describe_metrics();
    WorkqueueSystem::describe_metrics();
}
