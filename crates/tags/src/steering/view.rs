//! Which CPUs share a mailbox: a view for each topology, and what is kept from one to the next.

use super::seats::Seat;
use super::shard::{Core, Panic, Post, Shard, first_of};
use super::sink::CompletionSink;
use super::{ShardStats, SteeringStats};
use crate::versions::Versions;
use inflight_sync::{Arc, Mutex};
use inflight_topology::{Scope, Topology};

/// Wants to know what happens to the set. All of a set are told by [`TagSet`](crate::TagSet).
pub(crate) trait Follow: Send + Sync {
    /// From now on by this topology. One call at a time. What comes back is run outside all locks.
    fn refresh(&self, topology: &Topology) -> Leftover;

    /// The queues of these seats are gone, and so are their tags.
    fn forget(&self, seats: &[Seat]);
}

/// What is left to do: runs what was in mailboxes that are closed.
///
/// # Errors
/// The first panic of a callback, after all have been called.
pub(crate) type Leftover = Box<dyn FnOnce() -> Result<(), Panic>>;

const NONE: u32 = u32::MAX;

pub(super) struct View<T> {
    pub(super) topology: Topology,
    /// The post of each CPU; `NONE` if the topology does not know it.
    post_of: Box<[u32]>,
    posts: Box<[Post<T>]>,
}

impl<T> View<T> {
    fn new(topology: Topology, posts: Box<[Post<T>]>) -> Self {
        let cpus = posts.iter().filter_map(|post| post.cpus.last());
        let mut post_of = vec![NONE; cpus.max().map_or(0, |last| last + 1)];
        for (index, post) in posts.iter().enumerate() {
            for cpu in &post.cpus {
                post_of[cpu] = index as u32;
            }
        }
        Self {
            topology,
            post_of: post_of.into(),
            posts,
        }
    }

    pub(super) fn post(&self, cpu: usize) -> Option<&Post<T>> {
        let post = *self.post_of.get(cpu)?;
        (post != NONE).then(|| &self.posts[post as usize])
    }

    /// Where what is seen on a CPU is counted.
    pub(super) fn counting(&self, cpu: usize) -> &Shard<T> {
        &self.post(cpu).unwrap_or(&self.posts[0]).shard
    }

    pub(super) fn is_one_shard(&self) -> bool {
        self.posts.len() == 1
    }
}

/// The shards of some completions, by view.
pub(super) struct Views<T> {
    core: Arc<Core<T>>,
    scope: Scope,
    sink: Box<dyn CompletionSink>,
    view: Versions<View<T>>,
    shards: Mutex<Shards<T>>,
}

/// All that there have been.
struct Shards<T> {
    known: Vec<Known<T>>,
    /// Those that come later are closed too.
    closed: bool,
}

struct Known<T> {
    /// With the CPUs it serves, or served last.
    post: Post<T>,
    /// It is in the present view. Else its mailbox is closed until it is in one again.
    posted: bool,
}

/// The posts of a topology: each pod gets the shard that has served most of its CPUs and that no
/// other pod got, or a new one.
fn posts<T: Send + 'static>(
    pods: &Topology,
    scope: Scope,
    known: &[Post<T>],
    core: &Arc<Core<T>>,
    sink: &dyn CompletionSink,
) -> Box<[Post<T>]> {
    let mut left: Vec<&Post<T>> = known.iter().collect();
    let post = |cpus: &inflight_topology::CpuSet| {
        let common = |post: &Post<T>| post.cpus.iter().filter(|&cpu| cpus.contains(cpu)).count();
        let best = (0..left.len()).max_by_key(|&n| (common(left[n]), std::cmp::Reverse(n)));
        if let Some(best) = best.filter(|&n| common(left[n]) > 0) {
            let post = left.remove(best);
            return post.of(cpus.clone());
        }
        let shard = Arc::new(Shard::new());
        let runner = sink.runner(cpus, core.handle(&shard)).map(Arc::from);
        Post {
            cpus: cpus.clone(),
            shard,
            runner,
        }
    };
    pods.pods(scope)
        .iter()
        .map(|pod| pod.cpus())
        .map(post)
        .collect()
}

impl<T: Send + 'static> Views<T> {
    pub(super) fn new(
        core: Arc<Core<T>>,
        topology: Topology,
        scope: Scope,
        sink: Box<dyn CompletionSink>,
    ) -> Self {
        let posts = posts(&topology, scope, &[], &core, &*sink);
        let known = |post: &Post<T>| Known {
            post: post.of(post.cpus.clone()),
            posted: true,
        };
        let shards = Shards {
            known: posts.iter().map(known).collect(),
            closed: false,
        };
        Self {
            core,
            scope,
            sink,
            view: Versions::new(View::new(topology, posts)),
            shards: Mutex::new(shards),
        }
    }

    pub(super) fn core(&self) -> &Arc<Core<T>> {
        &self.core
    }

    #[inline]
    pub(super) fn current(&self) -> &View<T> {
        self.view.current()
    }

    /// See [`Follow::refresh`]. A shard whose CPUs are gone is closed.
    pub(super) fn refresh(&self, topology: &Topology) -> Leftover {
        if self.current().topology == *topology {
            return Box::new(|| Ok(()));
        }
        self.view.replace(
            |view| view.topology == *topology,
            || {
                let known: Vec<Post<T>> = {
                    let shards = self.shards.lock();
                    let posts = shards.known.iter().map(|known| &known.post);
                    posts.map(|post| post.of(post.cpus.clone())).collect()
                };
                let posts = posts(topology, self.scope, &known, &self.core, &*self.sink);
                View::new(topology.clone(), posts)
            },
        );
        let left = self.shards.lock().follow(&self.current().posts);
        // M4 now, before the next refresh may open them.
        let left = left.into_iter().map(|shard| (shard.close(), shard));
        let (left, core) = (left.collect::<Vec<_>>(), self.core.clone());
        Box::new(move || {
            first_of(left.into_iter().map(|(batch, shard)| {
                let panic = core.run_batch(&shard, batch);
                panic.map_or(Ok(()), Err)
            }))
        })
    }

    pub(super) fn forget(&self, seats: &[Seat]) {
        for known in &self.shards.lock().known {
            seats.iter().for_each(|&seat| known.post.shard.forget(seat));
        }
    }

    /// Closes all, also those that are to come.
    ///
    /// # Errors
    /// The first panic of a callback, after all have been called.
    pub(super) fn close(&self) -> Result<(), Panic> {
        let shards: Vec<_> = {
            let mut shards = self.shards.lock();
            shards.closed = true;
            let known = shards.known.iter();
            known.map(|known| known.post.shard.clone()).collect()
        };
        first_of(shards.iter().map(|shard| self.core.close(shard)))
    }

    pub(super) fn stats(&self, seat: Option<Seat>) -> SteeringStats {
        let mut sum = SteeringStats::default();
        for known in &self.shards.lock().known {
            let shard = &known.post.shard;
            sum.add(&seat.map_or_else(|| shard.stats(), |seat| shard.stats_of(seat)));
        }
        sum
    }

    pub(super) fn shard_stats(&self) -> Vec<ShardStats> {
        let shards = self.shards.lock();
        let of = |known: &Known<T>| ShardStats {
            cpus: known.post.cpus.clone(),
            stats: known.post.shard.stats(),
        };
        shards.known.iter().map(of).collect()
    }
}

impl<T: Send + 'static> Shards<T> {
    /// Opens those that are back and makes the new ones known. Those that have left now.
    fn follow(&mut self, posts: &[Post<T>]) -> Vec<Arc<Shard<T>>> {
        let mut left = Vec::new();
        for known in &mut self.known {
            let same = |post: &&Post<T>| Arc::ptr_eq(&post.shard, &known.post.shard);
            let now = posts.iter().find(same);
            if let Some(post) = now {
                known.post.cpus = post.cpus.clone();
                if !known.posted && !self.closed {
                    known.post.shard.open();
                }
            } else if known.posted {
                left.push(known.post.shard.clone());
            }
            known.posted = now.is_some();
        }
        for post in posts {
            let is_known = |known: &Known<T>| Arc::ptr_eq(&known.post.shard, &post.shard);
            if !self.known.iter().any(is_known) {
                if self.closed {
                    // It is new and empty.
                    drop(post.shard.close());
                }
                self.known.push(Known {
                    post: post.of(post.cpus.clone()),
                    posted: true,
                });
            }
        }
        left
    }
}
