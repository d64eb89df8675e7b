//! A set as text for people: the tags in use and their tenants.

use crate::set::TagSet;
use crate::slot::Phase;
use crate::tag_layout::TagMap;
use inflight_steering::TenantId;
use inflight_sync::Printed;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The number of tags with their own line.
const TAGS: usize = 64;
/// The number of tenants with their own line.
const TENANTS: usize = 32;
/// The number of bitmaps with their own line.
const BITMAPS: usize = 32;

/// A tag that is in use.
struct InUse {
    age: Option<Duration>,
    tenant: TenantId,
    hw_queue: usize,
    index: usize,
    what: &'static str,
    token: Option<u64>,
}

impl<T: Send + 'static> TagSet<T> {
    /// Returns the set as text for people: the number of tags of each tenant, the tags that waiters
    /// have been given and have not taken, then the tags in use with tenant, hardware queue, index
    /// and age, the oldest first and those without a running time last. Its form may change.
    ///
    /// A tag is *granted* to a waiter that has not run or been polled since. It is *collected* by a
    /// waiter for several that has not all of them, or by a [`Split`](crate::Split) for its next
    /// pieces. Such a tag is not in use, but nobody else gets it, and a freeze waits for it. If the
    /// number does not change, there is a future that is kept and not polled, or a `Split` that is
    /// not asked for its next piece.
    ///
    /// It has at most some hundred lines, and says how many tenants and tags are left out. It reads
    /// all slots, and takes the lock of each list of waiters for a moment: tags taken or freed
    /// meanwhile may be in it or not, or count as collected.
    /// Ages count from [`into_token`](crate::Tag::into_token) or [`track`](crate::Tag::track) on.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(8).build(|_, _| ())?;
    /// let disk = set.add_tenant("disk0")?;
    /// let _held = disk.try_alloc()?;
    /// let dump = set.dump();
    /// assert!(dump.starts_with("tag set: 1 hardware queue(s), 8 tags each, 1 in use\n"));
    /// assert!(dump.ends_with(": held\n") && dump.contains("\ndisk0 hw_queue 0 tag "));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn dump(&self) -> String {
        let now = self.shared.bitmaps.age_time();
        let (mut rows, mut in_use) = (Vec::new(), 0_usize);
        let mut counts: BTreeMap<TenantId, usize> = BTreeMap::new();
        for slot in self.shared.slots().filter(|slot| slot.record.is_tag()) {
            let state = slot.record.observe();
            let (what, runs) = match state.phase {
                Phase::InFlight => ("in flight", true),
                Phase::Overdue => ("timed out, not redeemed", true),
                Phase::Tracked => ("held, tracked", true),
                Phase::Reported => ("held, overdue", true),
                _ => ("held", false),
            };
            let in_flight = state.phase.is_in_flight();
            let age = |now| slot.record.issued_at().min(now);
            rows.push(InUse {
                age: now
                    .filter(|_| runs)
                    .map(|now| now.saturating_duration_since(age(now))),
                tenant: slot.info.tenant(),
                hw_queue: slot.hw_queue(),
                index: slot.tag(),
                what,
                token: in_flight.then(|| slot.id.token(state.generation)),
            });
            *counts.entry(slot.info.tenant()).or_default() += 1;
            in_use += 1;
            if rows.len() >= 2 * TAGS {
                oldest(&mut rows);
            }
        }
        oldest(&mut rows);
        self.write(&rows, in_use, &counts)
    }

    fn write(&self, rows: &[InUse], in_use: usize, counts: &BTreeMap<TenantId, usize>) -> String {
        let names: BTreeMap<TenantId, String> = {
            let names = self.shared.names.lock();
            let names = names.iter().filter_map(|(name, id)| Some(((*id)?, name)));
            names
                .map(|(id, name)| (id, Printed(name).to_string()))
                .collect()
        };
        // Tags of a tenant without handles may be left.
        let name = |tenant| names.get(tenant).map_or("(gone)", String::as_str);
        let mut text = format!(
            "tag set: {} hardware queue(s), {} tags each, {in_use} in use",
            self.shared.bitmaps.size.hw_queues(),
            self.depth(),
        );
        if let Some(why) = self.shared.bitmaps.gate.state().refuses() {
            let _ = write!(text, "; {why}");
        }
        text.push('\n');
        for (tenant, n) in counts.iter().take(TENANTS) {
            let _ = writeln!(text, "tenant {}: {n} in use", name(tenant));
        }
        if let Some(more) = counts.len().checked_sub(TENANTS).filter(|n| *n > 0) {
            let _ = writeln!(text, "and {more} more tenants");
        }
        self.write_not_taken(&mut text);
        for row in rows {
            let (name, hw_queue, index) = (name(&row.tenant), row.hw_queue, row.index);
            let _ = write!(text, "{name} hw_queue {hw_queue} tag {index}: {}", row.what);
            if let Some(age) = row.age {
                let _ = write!(text, " for {age:?}");
            }
            if let Some(token) = row.token {
                let _ = write!(text, ", token {token:#018x}");
            }
            text.push('\n');
        }
        if in_use > rows.len() {
            let _ = writeln!(text, "and {} more tags", in_use - rows.len());
        }
        text
    }

    /// Writes how many tags of each bitmap belong to waiters.
    fn write_not_taken(&self, text: &mut String) {
        let bitmaps = &self.shared.bitmaps;
        let mut lines = 0_usize;
        for tag_map in bitmaps.layout.tag_map_ids() {
            let bitmap = bitmaps.bitmap(tag_map);
            let granted = bitmap.snapshot().granted;
            // All other bits that are no tags. A split keeps bits that it has fetched, and the
            // bitmap does not know them.
            let mut not_taken = 0_usize;
            bitmap.for_each_set(0, |bit| {
                let tag = bitmaps.layout.tag_of(tag_map, bit);
                let slot = self.shared.slot(tag_map.hw_queue, tag);
                not_taken += usize::from(!slot.record.is_tag());
                true
            });
            let collected = not_taken.saturating_sub(granted);
            if granted + collected == 0 {
                continue;
            }
            lines += 1;
            if lines <= BITMAPS {
                let kind = match tag_map.kind {
                    TagMap::Normal => "",
                    TagMap::Reserved => " reserved",
                    TagMap::Extra => " extra",
                };
                let _ = writeln!(
                    text,
                    "waiters of hw_queue {}{kind}: {granted} granted and not taken, {collected} \
                     collected",
                    tag_map.hw_queue
                );
            }
        }
        if lines > BITMAPS {
            let _ = writeln!(
                text,
                "and {} more with granted or collected tags",
                lines - BITMAPS
            );
        }
    }
}

/// Keeps the rows to be shown.
fn oldest(rows: &mut Vec<InUse>) {
    rows.sort_by_key(|row| (Reverse(row.age), row.hw_queue, row.index));
    rows.truncate(TAGS);
}
