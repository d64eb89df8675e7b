//! The tables of what a limit means, with their numbers.

use super::both::Limits;
use super::*;

/// A row: limit, CPUs by node, floor, shares.
type Row<'a> = (usize, &'a [usize], usize, &'a [usize]);

#[test]
fn c2_shares_of_the_nodes() {
    let rows: [Row<'_>; 23] = [
        (16, &[8, 8], 8, &[8, 8]),
        (16, &[8, 8], 0, &[8, 8]),
        (16, &[8, 8], 1, &[8, 8]),
        (8, &[8, 8], 8, &[8, 8]),
        (4, &[8, 8], 4, &[4, 4]),
        (1, &[8, 8], 1, &[1, 1]),
        (64, &[8, 8], 8, &[32, 32]),
        (16, &[12, 4], 8, &[12, 8]),
        (32, &[12, 4], 8, &[24, 8]),
        (100, &[12, 4], 8, &[75, 25]),
        (10, &[3, 5], 8, &[8, 8]),
        (10, &[3, 5], 0, &[4, 7]),
        (96, &[1, 95], 8, &[8, 95]),
        (96, &[48, 48], 16, &[48, 48]),
        (20, &[8, 8, 0], 8, &[10, 10, 8]),
        (16, &[7, 8], 8, &[8, 9]),
        (16, &[8, 0], 8, &[16, 8]),
        (16, &[1, 1, 1], 0, &[6, 6, 6]),
        (512, &[1, 1, 1], 8, &[171, 171, 171]),
        (2048, &[24; 4], 8, &[512; 4]),
        (768, &[32; 8], 8, &[96; 8]),
        (16, &[16], 8, &[16]),
        (0, &[8, 8], 0, &[0, 0]),
    ];
    for (max, cpus, min, nodes) in rows {
        let seen = shares(max, min, cpus);
        assert_eq!(seen.nodes, nodes, "{max} over {cpus:?}, at least {min}");
        assert_eq!(seen.nodeless, max);
    }
    assert_eq!(shares(64, 8, &[0, 0]).nodes, [8, 8], "no CPU anywhere");
    assert_eq!(shares(16, 0, &[4, 0]).nodes, [16, 1], "nobody starves");
}

#[test]
fn default_floors() {
    assert_eq!([1, 8, 64].map(default_min_active), [1, 8, 8]);
}

/// A queue, what has started and has not ended, and in which order all of it started.
struct Bench {
    limits: Limits<u32>,
    running: Vec<(FrontEnd, u32)>,
    order: Vec<u32>,
}

impl Bench {
    fn new(share: Share, max: usize, cpus: &[usize], fronts: &[Option<usize>]) -> Self {
        let mut limits = Limits::new(share, max, cpus);
        for node in fronts {
            limits.add_front(*node);
        }
        Self {
            limits,
            running: Vec::new(),
            order: Vec::new(),
        }
    }

    fn event(&mut self, event: impl FnOnce(&mut Limits<u32>, &mut dyn FnMut(FrontEnd, u32))) {
        let Self {
            limits,
            running,
            order,
        } = self;
        event(limits, &mut |front, item| {
            running.push((front, item));
            order.push(item);
        });
    }

    fn queue(&mut self, front: FrontEnd, item: u32) {
        self.event(|limits, started| limits.admit(front, item, started));
    }

    fn end(&mut self, item: u32) {
        let at = self.running.iter().position(|(_, other)| *other == item);
        let (front, _) = self.running.swap_remove(at.expect("it runs"));
        self.event(|limits, started| limits.leave(front, started));
    }

    fn end_any_of(&mut self, front: FrontEnd) {
        let any = self.running.iter().find(|(other, _)| *other == front);
        self.end(any.expect("one runs").1);
    }

    fn set_max(&mut self, max: usize) {
        self.event(|limits, started| limits.set_max_active(max, started));
    }

    fn inactive(&self, front: FrontEnd) -> usize {
        self.limits.front(front).1
    }
}

/// Two nodes of eight CPUs, the front ends of CPUs 3, 5 and 9.
fn two_nodes(share: Share, max: usize) -> Bench {
    Bench::new(share, max, &[8, 8], &[Some(0), Some(0), Some(1)])
}

const ON_3: FrontEnd = 0;
const ON_5: FrontEnd = 1;
const ON_9: FrontEnd = 2;

#[test]
fn c9_the_worked_example() {
    let mut bench = two_nodes(Share::PerNode, 16);
    let nodes = |bench: &Bench| [0, 1].map(|n| bench.limits.node(Some(n)));
    let line = |bench: &Bench| bench.limits.fronts.line(0).collect::<Vec<_>>();
    (0..10).for_each(|n| bench.queue(ON_3, n));
    assert_eq!(nodes(&bench), [(8, 8), (0, 8)]);
    assert_eq!(bench.inactive(ON_3), 2);
    bench.queue(ON_5, 10);
    assert_eq!((bench.inactive(ON_3), bench.inactive(ON_5)), (2, 1));
    assert_eq!(line(&bench), [ON_3, ON_5]);
    (11..15).for_each(|n| bench.queue(ON_9, n));
    assert_eq!(nodes(&bench), [(8, 8), (4, 8)]);
    bench.end(0);
    assert_eq!(nodes(&bench), [(8, 8), (4, 8)]);
    assert_eq!((bench.inactive(ON_3), bench.inactive(ON_5)), (1, 1));
    assert_eq!(line(&bench), [ON_5, ON_3]);
    bench.end(1);
    assert_eq!((bench.inactive(ON_3), bench.inactive(ON_5)), (1, 0));
    assert_eq!(line(&bench), [ON_3]);
    bench.set_max(32);
    assert_eq!(nodes(&bench), [(9, 16), (4, 16)]);
    assert_eq!((bench.inactive(ON_3), bench.inactive(ON_5)), (0, 0));
    bench.set_max(8);
    assert_eq!(nodes(&bench), [(9, 8), (4, 8)]);
    bench.queue(ON_3, 20);
    bench.end(2);
    assert_eq!(nodes(&bench), [(8, 8), (4, 8)], "the end activates nothing");
    bench.end(3);
    assert_eq!(nodes(&bench), [(8, 8), (4, 8)], "now it does");
    assert_eq!(bench.order.last(), Some(&20));
}

#[test]
fn c9_with_lending_all_sixteen_run_on_one_node() {
    let mut bench = two_nodes(Share::Lend, 16);
    (0..20).for_each(|n| bench.queue(ON_3, n));
    assert_eq!(bench.running.len(), 16);
    // The other node comes too: it is served as items end.
    (20..24).for_each(|n| bench.queue(ON_9, n));
    (0..4).for_each(|n| bench.end(n));
    assert_eq!(bench.running.len(), 16);
    assert!(bench.limits.node(Some(1)).0 > 0, "{:?}", bench.running);
}

#[test]
fn c21_turn_by_turn_among_front_ends() {
    for share in [Share::PerNode, Share::Lend] {
        let mut bench = Bench::new(share, 1, &[4], &[Some(0); 4]);
        bench.queue(3, 0);
        for (front, item) in [(0, 11), (0, 12), (0, 13), (1, 21), (1, 22), (2, 31)] {
            bench.queue(front, item);
        }
        while let Some((_, item)) = bench.running.first().copied() {
            bench.end(item);
        }
        assert_eq!(bench.order, [0, 11, 21, 31, 12, 22, 13], "{share:?}");
    }
}

#[test]
fn a_newcomer_does_not_pass_those_of_its_front_end_when_the_limit_rises() {
    for share in [Share::PerNode, Share::Lend] {
        let mut bench = Bench::new(share, 1, &[4], &[Some(0); 2]);
        (0..3).for_each(|n| bench.queue(0, n));
        bench.set_max(2);
        bench.queue(0, 3);
        assert_eq!(bench.order, [0, 1], "{share:?}");
        bench.end(0);
        bench.end(1);
        assert_eq!(bench.order, [0, 1, 2, 3], "{share:?}");
    }
}

#[test]
fn a_cancelled_front_end_is_passed_over() {
    for share in [Share::PerNode, Share::Lend] {
        let mut bench = Bench::new(share, 1, &[4], &[Some(0); 3]);
        bench.queue(0, 0);
        bench.queue(1, 1);
        bench.queue(2, 2);
        assert_eq!(bench.limits.remove(1, |item| *item == 1), Some(1));
        assert_eq!(bench.limits.remove(1, |item| *item == 1), None);
        bench.end(0);
        assert_eq!(bench.order, [0, 2], "{share:?}");
        bench.queue(1, 3);
        bench.end(2);
        assert_eq!(bench.order, [0, 2, 3], "{share:?}");
    }
}

#[test]
fn a_limit_of_one_is_no_order_on_two_nodes_unless_they_lend() {
    for (share, expected) in [(Share::PerNode, 2), (Share::Lend, 1)] {
        let mut bench = two_nodes(share, 1);
        bench.queue(ON_3, 0);
        bench.queue(ON_9, 1);
        assert_eq!(bench.running.len(), expected, "{share:?}");
    }
}

#[test]
fn with_a_limit_of_one_lent_nodes_take_turns() {
    let mut bench = two_nodes(Share::Lend, 1);
    for n in 0..4 {
        bench.queue(ON_3, n);
        bench.queue(ON_9, 10 + n);
    }
    while let Some((_, item)) = bench.running.first().copied() {
        bench.end(item);
    }
    assert_eq!(bench.order, [0, 10, 1, 11, 2, 12, 3, 13]);
}

#[test]
fn items_without_a_node_have_a_part_of_their_own_unless_nodes_lend() {
    for (share, expected) in [(Share::PerNode, 24), (Share::Lend, 16)] {
        let mut bench = Bench::new(share, 16, &[8, 8], &[Some(0), None]);
        (0..20).for_each(|n| bench.queue(0, n));
        (20..40).for_each(|n| bench.queue(1, n));
        assert_eq!(bench.running.len(), expected, "{share:?}");
    }
}

#[test]
fn nothing_starts_while_frozen_and_limits_set_meanwhile_count_after() {
    for share in [Share::PerNode, Share::Lend] {
        let mut bench = two_nodes(share, 16);
        (0..4).for_each(|n| bench.queue(ON_3, n));
        bench.limits.freeze();
        (4..30).for_each(|n| bench.queue(ON_9, n));
        (0..4).for_each(|n| bench.end(n));
        assert_eq!((bench.running.len(), bench.limits.active()), (0, 0));
        bench.set_max(2);
        assert_eq!(bench.running.len(), 0, "{share:?}");
        assert_eq!(bench.limits.max_active(), 2, "what was set is shown");
        bench.event(|limits, started| limits.thaw(started));
        assert_eq!(bench.running.len(), 2, "{share:?}");
    }
}

#[test]
fn the_floor_follows_the_limit_down_and_not_up() {
    let mut limits = Limits::<u32>::new(Share::PerNode, 64, &[8, 8]);
    limits.set_max_active(4, |_, _| ());
    assert_eq!(limits.min_active(), 4);
    limits.set_max_active(64, |_, _| ());
    assert_eq!(limits.min_active(), 4);
    limits.set_min_active(100, |_, _| ());
    assert_eq!((limits.min_active(), limits.node(Some(0))), (64, (0, 64)));
}

#[test]
fn a_cpu_that_leaves_changes_the_parts() {
    let mut bench = two_nodes(Share::PerNode, 16);
    (0..20).for_each(|n| bench.queue(ON_9, n));
    assert_eq!(bench.running.len(), 8);
    bench.event(|limits, started| limits.set_cpus(&[7, 8], started));
    assert_eq!(bench.limits.node(Some(1)), (9, 9));
}

#[test]
fn front_ends_are_served_evenly_after_a_rise() {
    let mut bench = two_nodes(Share::PerNode, 8);
    bench.set_max(1);
    bench.event(|limits, started| limits.set_min_active(1, started));
    (0..5).for_each(|n| bench.queue(ON_3, n));
    (10..15).for_each(|n| bench.queue(ON_5, n));
    bench.set_max(10); // five on each node
    assert_eq!(bench.order, [0, 1, 10, 2, 11]);
    bench.end_any_of(ON_3);
    assert_eq!(bench.running.len(), 5);
}

#[test]
fn a_limit_below_32_for_each_node_is_one_count() {
    let central = |max, nodes: usize| {
        let limits = Limits::<u32>::new(Share::Lend, max, &vec![4; nodes]);
        limits.is_central()
    };
    assert_eq!([63, 64].map(|max| central(max, 2)), [true, false]);
    assert_eq!([255, 256].map(|max| central(max, 8)), [true, false]);
    assert!(!central(1, 1), "one node shares nothing");
}

#[test]
fn one_node_writes_no_shared_word() {
    let mut bench = Bench::new(Share::Lend, 4, &[8], &[Some(0), None]);
    (0..50).for_each(|n| bench.queue((n % 2) as usize, n));
    bench.set_max(9);
    bench.set_max(3);
    while let Some((_, item)) = bench.running.first().copied() {
        bench.end(item);
    }
    assert_eq!(bench.order.len(), 50);
    assert_eq!(bench.limits.touches(), Touches::default());
}

mod ordered {
    use super::super::Ordered;

    #[derive(Default)]
    struct Log {
        queue: Ordered<u32>,
        running: Option<(usize, u32)>,
        order: Vec<u32>,
    }

    impl Log {
        fn note(running: &mut Option<(usize, u32)>, order: &mut Vec<u32>, front: usize, item: u32) {
            assert_eq!(running.replace((front, item)), None, "one at a time");
            order.push(item);
        }

        fn queue(&mut self, item: u32) {
            let (running, order) = (&mut self.running, &mut self.order);
            self.queue
                .admit(item, |f, i| Self::note(running, order, f, i));
        }

        fn end(&mut self) {
            let (front, _) = self.running.take().expect("one runs");
            let (running, order) = (&mut self.running, &mut self.order);
            self.queue
                .leave(front, |f, i| Self::note(running, order, f, i));
        }

        fn cancel(&mut self, front: usize, item: u32) {
            let (running, order) = (&mut self.running, &mut self.order);
            let note = |f, i| Self::note(running, order, f, i);
            assert_eq!(self.queue.remove(front, |i| *i == item, note), Some(item));
        }
    }

    /// The old front end has one item, the plugged one three: all run, in order.
    #[test]
    fn i27_the_plugged_ones_follow_when_the_old_one_has_run_dry() {
        let mut log = Log::default();
        log.queue(0);
        assert_eq!(log.queue.change(), 1);
        (1..4).for_each(|n| log.queue(n));
        assert_eq!(log.order, [0]);
        for n in 1..4 {
            log.end();
            assert_eq!(log.running, Some((1, n)));
        }
        log.end();
        assert_eq!(log.running, None);
    }

    #[test]
    fn c29_several_quick_changes_open_one_front_end_after_the_other() {
        let mut log = Log::default();
        log.queue(0);
        log.queue(1);
        log.queue.change();
        log.queue.change(); // without an item in between
        log.queue(2);
        log.queue.change();
        log.queue(3);
        for _ in 0..4 {
            log.end();
        }
        assert_eq!(log.order, [0, 1, 2, 3]);
        log.queue(4);
        assert_eq!(log.running, Some((3, 4)), "the newest is open");
    }

    #[test]
    fn a_change_of_an_idle_queue_opens_the_new_front_end_at_once() {
        let mut log = Log::default();
        log.queue.change();
        log.queue(0);
        assert_eq!(log.running, Some((1, 0)));
    }

    #[test]
    fn cancelling_the_last_of_an_old_front_end_opens_the_next() {
        let mut log = Log::default();
        log.queue(0);
        log.queue.change();
        log.queue(1);
        log.queue.change();
        log.queue(2);
        log.cancel(1, 1);
        assert_eq!(log.order, [0]);
        log.end();
        assert_eq!(log.order, [0, 2]);
    }
}
