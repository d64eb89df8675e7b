//! The disk: service times of the published table, order, and that nothing is lost.

use inflight_sim::hdd::{
    Disk, Dispatch, Model, Reaction, Request, single_goals, single_io, singles,
};
use proptest::prelude::*;
use std::time::Duration;

const KIB: u64 = 1024;

fn model(cache_pieces: usize) -> Model {
    Model {
        cache_pieces,
        burst: 1,
        burst_chance: 0.5,
        ..Model::default()
    }
}

fn request(start: u64, len: u64) -> Request<u64> {
    Request {
        start,
        len,
        tag: start,
    }
}

/// Lets the disk write until it is idle: the tags in order of acknowledgement, and the time of
/// each write.
fn drain(disk: &mut Disk<u64>, begun: Reaction<u64>) -> (Vec<u64>, Vec<Duration>) {
    let (mut acknowledged, mut times) = (begun.acknowledged, Vec::new());
    let mut writes_for = begun.writes_for;
    while let Some(time) = writes_for {
        times.push(time);
        let reaction = disk.written();
        acknowledged.extend(reaction.acknowledged);
        writes_for = reaction.writes_for;
    }
    (acknowledged, times)
}

#[test]
fn single_ios_take_what_was_published() {
    let rows = singles();
    assert_eq!(rows.len(), single_io().len());
    let goals = single_goals(&rows);
    assert!(goals.len() == 1 && goals[0].holds, "{goals:?}");
}

#[test]
fn splitting_costs_nothing_where_pieces_are_contiguous() {
    let whole = model(320).run_time(4096 * KIB);
    let mut disk = Disk::new(model(320), 1);
    let mut times = Vec::new();
    let first = disk.submit(request(1 << 30, 128 * KIB));
    for piece in 1..32 {
        let reaction = disk.submit(request((1 << 30) + piece * 128 * KIB, 128 * KIB));
        assert!(reaction.writes_for.is_none(), "it writes already");
    }
    times.extend(drain(&mut disk, first).1);
    let pieces: Duration = times.iter().sum();
    assert!(
        pieces.abs_diff(whole) < Duration::from_micros(1),
        "{pieces:?} {whole:?}"
    );
    assert_eq!(disk.issued().requests, 32);
    assert_eq!(disk.issued().sequential, 31);
}

#[test]
fn a_request_is_acknowledged_when_the_cache_has_it_or_when_written_without_one() {
    let mut disk = Disk::new(model(2), 1);
    assert_eq!(disk.submit(request(5000, 1)).acknowledged, [5000]);
    assert_eq!(disk.submit(request(100, 1)).acknowledged, [100]);
    assert!(
        disk.submit(request(900, 1)).acknowledged.is_empty(),
        "the cache is full"
    );
    assert_eq!(disk.written().acknowledged, [900]);

    let mut disk = Disk::new(model(0), 1);
    assert!(disk.submit(request(5000, 1)).acknowledged.is_empty());
    assert_eq!(disk.written().acknowledged, [5000]);
}

#[test]
fn the_cache_is_written_upwards_and_then_from_the_lowest() {
    // Without a cache the order of acknowledgements is that of writes.
    let mut disk = Disk::new(model(0), 1);
    let begun = disk.submit(request(500, 10));
    for start in [400, 900, 510, 100, 505, 900] {
        let _ = disk.submit(request(start, 10));
    }
    let (order, times) = drain(&mut disk, begun);
    assert_eq!(order, [500, 510, 900, 100, 400, 505, 900]);
    let seeks = times
        .iter()
        .filter(|time| **time > Duration::from_millis(4))
        .count();
    assert_eq!(seeks, 6, "one continued the one before");
}

#[test]
fn what_a_write_lets_in_is_there_for_the_next_choice() {
    let mut disk = Disk::new(model(2), 1);
    let _ = disk.submit(request(0, 10));
    let _ = disk.submit(request(5000, 10));
    let _ = disk.submit(request(10, 10));
    let next = disk.written();
    assert_eq!(next.acknowledged, [10]);
    let time = next.writes_for.expect("two are in the cache");
    assert!(time < Duration::from_millis(1), "10 continues 0: {time:?}");
}

#[test]
fn a_sorting_scheduler_sends_upwards() {
    let model = Model {
        dispatch: Dispatch::Sorted,
        ..model(1)
    };
    let mut disk = Disk::new(model, 1);
    let mut order = disk.submit(request(500, 10)).acknowledged;
    for start in [700, 100, 510, 600] {
        order.extend(disk.submit(request(start, 10)).acknowledged);
    }
    for _ in 0..4 {
        order.extend(disk.written().acknowledged);
    }
    assert_eq!(order, [500, 510, 600, 700, 100]);
}

#[test]
fn a_cache_that_waits_for_room_acknowledges_in_bursts() {
    let model = Model {
        burst: 4,
        burst_chance: 1.0,
        ..model(8)
    };
    let mut disk = Disk::new(model, 1);
    let submit = |place: u64| disk.submit(request(place * 100, 10)).acknowledged.len();
    let taken: usize = (0..400).map(submit).sum();
    let at_once: Vec<_> = (0..400)
        .map(|_| disk.written().acknowledged.len())
        .collect();
    assert_eq!(taken + at_once.iter().sum::<usize>(), 400);
    assert_eq!(at_once.iter().max(), Some(&4));
    for burst in 1..=4 {
        assert!(at_once.contains(&burst), "bursts of {burst}: {at_once:?}");
    }
}

proptest! {
    /// Arrivals and writes in any order, places that coincide: each request is acknowledged once
    /// and written once, and the disk rests only when it has nothing.
    #[test]
    fn nothing_is_lost(
        cache in 0_usize..6,
        burst in 1_usize..5,
        sorted: bool,
        steps in prop::collection::vec(prop::option::of(0_u64..8), 1..80),
    ) {
        let dispatch = if sorted { Dispatch::Sorted } else { Dispatch::Fifo };
        let mut disk = Disk::new(Model { dispatch, burst, drive_depth: 3, ..model(cache) }, 1);
        let (mut acknowledged, mut writing, mut written) = (Vec::new(), false, 0);
        let mut arrived = 0;
        let mut note = |reaction: Reaction<u64>, writing: &mut bool| {
            acknowledged.extend(reaction.acknowledged);
            assert!(!(*writing && reaction.writes_for.is_some()), "one write at a time");
            *writing |= reaction.writes_for.is_some();
        };
        for step in steps.into_iter().chain(std::iter::repeat_n(None, 100)) {
            match step {
                Some(place) => {
                    let request = Request { start: place * 4, len: 4, tag: arrived };
                    arrived += 1;
                    note(disk.submit(request), &mut writing);
                    prop_assert!(writing);
                }
                None if writing => {
                    writing = false;
                    written += 1;
                    note(disk.written(), &mut writing);
                }
                None => {}
            }
        }
        prop_assert!(!writing);
        prop_assert_eq!(written, arrived);
        acknowledged.sort_unstable();
        prop_assert_eq!(acknowledged, (0..arrived).collect::<Vec<_>>());
    }
}
