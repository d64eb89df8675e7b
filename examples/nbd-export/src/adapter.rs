//! All that the server asks of tag sets and workqueues, in one place.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_channel::oneshot;
use inflight::serve::{Serve, Server};
pub(crate) use inflight::tags::TenantError;
use inflight::tags::steering::Steered;
use inflight::tags::{self, Admission, Completions, SharePolicy, Split, Steering, Tag, TagSet};
use inflight::topology::{Scope, Topology};
use inflight::workqueue::{Attrs, Workqueue, WorkqueueSystem, blocking};
use inflight::{Requeue, WorkqueueSink};

use crate::disk::Disk;
use crate::reactor::Ended;

/// A request that was refused for now is sent again after this.
const PAUSE: Duration = Duration::from_millis(1);

/// What the tag of a request knows.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The number of its disk.
    disk: usize,
    next: Next,
}

/// Where it goes when it is on its way.
#[derive(Debug, Default)]
enum Next {
    #[default]
    Nowhere,
    /// Back to the request, which is to be sent again.
    Again(oneshot::Sender<Held>),
    /// To the request's thread, with the answer.
    Ended(Ended),
}

/// A place at a disk.
pub(crate) type Held = Tag<Slot>;

/// The tags of one disk: how many requests are at its files at once.
pub(crate) struct Tags {
    name: String,
    set: TagSet<Slot>,
    requeue: Requeue<Slot>,
    completions: Completions<Slot>,
}

/// Has operations that ended go on where the tags' policy says: by the numbers of disks.
#[derive(Clone, Debug)]
pub(crate) struct Completer(Arc<[Completions<Slot>]>);

/// An export's, or a client's, share of the tags.
#[derive(Clone)]
pub(crate) struct Tenant {
    tags: tags::Tenant<Slot>,
    requeue: Requeue<Slot>,
    /// The disk's name.
    disk: String,
}

/// The tags of the pieces of one request.
pub(crate) struct Pieces(Split<Slot>);

impl Tags {
    /// For the disk of this number.
    pub(crate) fn new(
        (disk, name): (usize, &str),
        (depth, steering): (usize, Steering),
        workers: &Workers,
    ) -> Result<Self> {
        let set = TagSet::builder()
            .depth(depth)
            .admission(Admission::WholeIo)
            .topology(&workers.topology)
            .steering(steering)
            .share(SharePolicy::Weighted { min: 1 })
            .build(move |_, _| Slot {
                disk,
                next: Next::Nowhere,
            });
        let set = set.with_context(|| format!("--depth {depth}"))?;
        let requeue = Requeue::new(&workers.requeue, |mut tag: Held| {
            if let Next::Again(owner) = std::mem::take(&mut tag.next) {
                // If the owner has gone its tag is free.
                let _ = owner.send(tag);
            }
            Ok(())
        });
        let completions = set
            .completions(&workers.topology)
            .sink(WorkqueueSink::new(&workers.complete))
            .build(|mut tag: Held| {
                if let Next::Ended(ended) = std::mem::take(&mut tag.next) {
                    ended.deliver(tag);
                }
            });
        Ok(Self {
            name: name.to_owned(),
            set,
            requeue,
            completions,
        })
    }

    /// A tenant of a name that no other has.
    pub(crate) fn tenant(&self, name: &str, weight: u32) -> Result<Tenant, TenantError> {
        let tags = self.set.add_tenant(name)?;
        let weighted = tags.set_weight(weight);
        weighted.expect("its set shares by weights");
        Ok(Tenant {
            tags,
            requeue: self.requeue.clone(),
            disk: self.name.clone(),
        })
    }

    /// The disk's.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many went on where they were seen, and how many were sent to the CPU that submitted.
    pub(crate) fn completed(&self) -> [(&'static str, u64); 2] {
        let stats = self.completions.stats();
        [("seen", stats.inlined()), ("submitter", stats.redirected)]
    }

    pub(crate) fn in_use(&self) -> usize {
        self.set.in_use()
    }

    pub(crate) fn record_metrics(&self) {
        self.set.record_metrics(&self.name);
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
        tag.next = Next::Again(owner);
        self.requeue.requeue(tag, PAUSE);
        sent.await.ok()
    }

    pub(crate) fn record_metrics(&self) {
        self.tags.record_metrics(&self.disk);
    }
}

impl Completer {
    /// For disks in the order of their numbers.
    pub(crate) fn new(disks: &[Arc<Disk>]) -> Self {
        Self(
            disks
                .iter()
                .map(|disk| disk.tags.completions.clone())
                .collect(),
        )
    }

    /// Comes back with the operation if it goes on here; else its thread gets it from the worker of
    /// the CPU that submitted it.
    pub(crate) fn steer(&self, mut tag: Held, ended: Ended) -> Option<(Ended, Held)> {
        tag.next = Next::Ended(ended);
        match self.0[tag.disk].steer_tag(tag) {
            Steered::Here(mut tag, _) => match std::mem::take(&mut tag.next) {
                Next::Ended(ended) => Some((ended, tag)),
                _ => None,
            },
            Steered::Sent { .. } => None,
        }
    }

    /// The same on a worker: the operation's thread gets it from here, or from the worker of the
    /// CPU that submitted it.
    pub(crate) fn complete(&self, mut tag: Held, ended: Ended) {
        tag.next = Next::Ended(ended);
        self.0[tag.disk].complete_tag(tag);
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
    topology: Topology,
    system: WorkqueueSystem,
    crypt: Workqueue,
    requeue: Workqueue,
    complete: Workqueue,
}

/// Where encryption runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CryptOptions {
    pub(crate) scope: Scope,
    pub(crate) strict: bool,
    pub(crate) max_active: usize,
}

impl Workers {
    pub(crate) fn new(crypt: CryptOptions) -> Result<Self> {
        let topology = Topology::discover().context("looking at this machine's CPUs")?;
        Self::on(topology, crypt)
    }

    fn on(topology: Topology, crypt: CryptOptions) -> Result<Self> {
        let system = WorkqueueSystem::builder().topology(&topology).build();
        let system = system.context("making the workers")?;
        let attrs = Attrs::new().scope(crypt.scope).strict(crypt.strict);
        let crypt = system
            .workqueue("crypt")
            .unbound(attrs)
            .max_active(crypt.max_active)
            .build()
            .context("making the workqueue for encryption")?;
        let requeue = system.workqueue("requeue").bound().highpri().build();
        let complete = system.workqueue("complete").bound().highpri().build();
        Ok(Self {
            requeue: requeue.context("making the workqueue for requests sent again")?,
            complete: complete.context("making the workqueue for completions")?,
            topology,
            system,
            crypt,
        })
    }

    /// For what blocks at a disk. Each has its own, so that one that has stopped stops no other.
    pub(crate) fn files(&self, disk: &str, depth: usize) -> Result<Files> {
        let files = self
            .system
            .workqueue(format!("files-{disk}"))
            .unbound(Attrs::new().scope(Scope::System))
            .max_active(depth.clamp(1, 512))
            .build();
        files.map(Files).context("making the workqueue for files")
    }

    /// Begins to compute something. None if the workers have gone.
    pub(crate) fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> {
        let begun = self.crypt.spawn(work);
        async move { begun.await.ok() }
    }

    pub(crate) fn serve(&self, path: &Path) -> Result<Server> {
        let served = self.system.serve(path);
        served.with_context(|| format!("--serve {}", path.display()))
    }

    pub(crate) fn record_metrics(&self) {
        self.system.record_metrics();
    }
}

/// Workers for what blocks at one disk.
#[derive(Clone)]
pub(crate) struct Files(pub(crate) Workqueue);

impl Files {
    /// Runs something that blocks. None if the workers have gone.
    pub(crate) async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.0.spawn(|| blocking(work)).await.ok()
    }
}

/// Tells the recorder what the numbers are.
pub(crate) fn describe_metrics() {
    tags::describe_metrics();
    WorkqueueSystem::describe_metrics();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::Inbox;
    use inflight::topology::set_current_cpu_for_thread;

    /// Submitted on CPU 0, seen on CPU 1, which has another cache.
    #[test]
    fn what_is_seen_on_another_cpu_goes_on_where_the_mode_says() {
        for (steering, sent) in [
            (Steering::Inline, false),
            (Steering::SameCache, true),
            (Steering::SameCpu, true),
            (Steering::Force, true),
        ] {
            let crypt = CryptOptions {
                scope: Scope::System,
                strict: false,
                max_active: 1,
            };
            let topology = Topology::synthetic("cache:2 core:1").unwrap();
            let workers = Workers::on(topology, crypt).unwrap();
            let tags = Tags::new((0, "a"), (4, steering), &workers).unwrap();
            let completer = Completer(Arc::new([tags.completions.clone()]));
            let tenant = tags.tenant("disk", 1).unwrap();
            let tag = tenant.tags.alloc_blocking().unwrap();
            set_current_cpu_for_thread(Some(0));
            tag.submit_here();
            set_current_cpu_for_thread(Some(1));
            let inbox = Inbox::new().unwrap();
            let here = completer.steer(tag, inbox.ended(17));
            assert_eq!(here.is_none(), sent, "{steering}");
            if sent {
                workers.complete.flush_blocking().unwrap();
                assert_eq!(inbox.arrived(), [(17, true)], "{steering}: with its tag");
            }
            let counted = [("seen", u64::from(!sent)), ("submitter", u64::from(sent))];
            assert_eq!(tags.completed(), counted, "{steering}");
            drop(here);
            assert_eq!(tags.in_use(), 0);
        }
    }
}
