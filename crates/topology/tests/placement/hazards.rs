//! Ways in which placement has gone wrong, or would: the section "Placement" of the list of
//! hazards.

use inflight_topology::steering::{Completion, Decision, DoneList, InlineReason, Steering, decide};

use crate::machine::MACHINES;

/// A completion is decided with one snapshot and pushed after another has taken its place: every
/// redirect finds an open done list of the new one or runs inline, and runs once.
#[test]
fn p1_a_decision_outlives_its_snapshot() {
    for before in &MACHINES {
        for after in &MACHINES {
            let (old, new) = (before.topology(), after.topology());
            let mut lists: Vec<Option<Vec<usize>>> = after
                .numbers()
                .map(|cpu| after.knows(cpu).then(Vec::new))
                .collect();
            let (mut id, mut inline) = (0, 0);
            for steering in Steering::ALL {
                for o in before.numbers() {
                    for s in before.numbers() {
                        let decision = decide(o, s, steering, &old, true).on(&new);
                        match decision {
                            Decision::Inline(_) => inline += 1,
                            Decision::Redirect { cpu, .. } => {
                                lists[cpu].as_mut().expect("open").push(id)
                            }
                        }
                        // A second look at the same snapshot changes nothing.
                        assert_eq!(decision.on(&new), decision);
                        id += 1;
                    }
                }
            }
            let pushed: usize = lists.iter().flatten().map(Vec::len).sum();
            assert_eq!(inline + pushed, id);
        }
    }
}

/// The done list is closed between decision and push: asked again, the answer is inline.
#[test]
fn p1_a_closed_done_list_is_inline_under_every_policy() {
    for machine in &MACHINES {
        let topo = machine.topology();
        for steering in Steering::ALL {
            for s in topo.cpus() {
                let done = Completion::new(0, s).policy(steering);
                let decision = done.done_list(DoneList::Closed).decide(&topo);
                assert_eq!(decision, Decision::Inline(InlineReason::Closed));
            }
        }
    }
}

/// The submitter's CPU is a number that names none: every policy, `Force` too, runs inline.
#[test]
fn p3_a_hint_out_of_range_is_inline() {
    for machine in &MACHINES {
        let topo = machine.topology();
        let end = *machine.numbers().end();
        let holes = machine.numbers().filter(|&cpu| !machine.knows(cpu));
        let hints = [
            end,
            end + 1,
            1_023,
            1_024,
            65_536,
            u32::MAX as usize,
            usize::MAX,
        ];
        for hint in holes.chain(hints) {
            for steering in Steering::ALL {
                for awake in [true, false] {
                    for observer in machine.numbers().chain([hint, usize::MAX]) {
                        let decision = decide(observer, hint, steering, &topo, awake);
                        assert_eq!(decision, Decision::Inline(InlineReason::UnknownCpu));
                    }
                }
            }
        }
    }
}

/// The same of the observer: what is known of the submitter decides, and nothing panics.
#[test]
fn p3_an_observer_out_of_range_is_near_everyone() {
    for machine in &MACHINES {
        let topo = machine.topology();
        for s in topo.cpus() {
            for observer in [usize::MAX, u32::MAX as usize, *machine.numbers().end()] {
                let decision = decide(observer, s, Steering::SameCache, &topo, true);
                assert_eq!(decision, Decision::Inline(InlineReason::UnknownCpu));
                // It must not go deeper and deeper: the submitter's done list is the one there is.
                let deep = Completion::new(observer, s).depth(100).decide(&topo);
                assert_eq!(deep.redirect(), Some(s));
            }
        }
    }
}
