//! Random events against naive done lists.

use super::done_lists::{identities, set_of};

use crate::support::{Recorder, machine, on};
use inflight_sync::{Arc, Mutex};
use inflight_tags::Tag;
use inflight_tags::steering::{Decision, Steering, SteeringPolicy};
use inflight_topology::Topology;
use inflight_topology::steering::{Completion, DoneList};
use proptest::prelude::*;
use std::collections::VecDeque;

/// What a test of random events does next.
#[derive(Clone, Debug)]
enum Event {
    Submit { cpu: usize },
    Complete { which: usize, observer: usize },
    Policy(Steering, bool),
    Awake(bool),
    Refuse(bool),
    Close { cpu: usize },
    Open { cpu: usize },
    Run,
}

fn event() -> impl Strategy<Value = Event> {
    let cpu = || prop_oneof![9 => 0..4usize, 1 => Just(9)];
    prop_oneof![
        6 => cpu().prop_map(|cpu| Event::Submit { cpu }),
        6 => (0..8usize, cpu()).prop_map(|(which, observer)| Event::Complete { which, observer }),
        2 => (0..4usize, any::<bool>()).prop_map(|(n, even)| Event::Policy(Steering::ALL[n], even)),
        1 => any::<bool>().prop_map(Event::Awake),
        1 => any::<bool>().prop_map(Event::Refuse),
        1 => cpu().prop_map(|cpu| Event::Close { cpu }),
        2 => cpu().prop_map(|cpu| Event::Open { cpu }),
        2 => Just(Event::Run),
    ]
}

/// The done lists as anybody would write them: a queue of numbers for each CPU.
struct Oracle {
    topo: Topology,
    queues: [VecDeque<u64>; 4],
    closed: [bool; 4],
    awake: bool,
    refuse: bool,
    ran: Vec<u64>,
}

impl Oracle {
    fn complete(&mut self, id: u64, policy: SteeringPolicy, submitter: usize, observer: usize) {
        let list = match self.queues.get(submitter) {
            None => DoneList::Awake,
            Some(_) if self.closed[submitter] => DoneList::Closed,
            Some(queue) if self.awake || !queue.is_empty() => DoneList::Awake,
            Some(_) => DoneList::Asleep,
        };
        let decision = Completion::new(observer, submitter)
            .policy(policy)
            .done_list(list)
            .decide(&self.topo);
        match decision {
            Decision::Inline(_) => self.ran.push(id),
            Decision::Redirect { cpu, .. } => {
                let first = self.queues[cpu].is_empty();
                self.queues[cpu].push_back(id);
                if first && self.refuse {
                    self.drain(cpu);
                }
            }
        }
    }

    fn drain(&mut self, cpu: usize) {
        self.ran.extend(self.queues[cpu].drain(..));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Random events: callbacks run when and in the order in which those of naive done lists do.
    #[test]
    fn done_lists_are_queues(events in prop::collection::vec(event(), 1..120)) {
        let (set, dev) = set_of(8);
        let recorder = Recorder::new();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let completions = set.completions(&machine()).sink(recorder.clone()).build({
            let ran = ran.clone();
            move |tag: Tag<u64>| ran.lock().push(*tag)
        });
        let mut oracle = Oracle {
            topo: machine(),
            queues: Default::default(),
            closed: [false; 4],
            awake: false,
            refuse: false,
            ran: Vec::new(),
        };
        let mut flying: Vec<(u64, SteeringPolicy, usize)> = Vec::new();
        let (mut id, mut completed) = (0, 0);
        for event in events {
            match event {
                Event::Submit { cpu } => {
                    if let Ok(tag) = dev.try_alloc_with(Default::default()) {
                        let token = on(cpu, || tag.into_token());
                        flying.push((token, set.steering(), cpu));
                    }
                }
                Event::Complete { which, observer } => {
                    if which < flying.len() {
                        let (token, policy, submitter) = flying.swap_remove(which);
                        (id, completed) = (id + 1, completed + 1);
                        oracle.complete(id, policy, submitter, observer);
                        on(observer, || completions.complete(token, |req| *req = id)).unwrap();
                    }
                }
                Event::Policy(steering, even) => {
                    let policy = SteeringPolicy::from(steering);
                    set.set_steering(if even { policy.even_if_asleep() } else { policy });
                }
                Event::Awake(awake) => {
                    recorder.awake(awake);
                    oracle.awake = awake;
                }
                Event::Refuse(refuse) => {
                    recorder.refuse(refuse);
                    oracle.refuse = refuse;
                }
                Event::Close { cpu } => {
                    completions.close_cpu(cpu);
                    if cpu < 4 {
                        oracle.closed[cpu] = true;
                        oracle.drain(cpu);
                    }
                }
                Event::Open { cpu } => {
                    completions.open_cpu(cpu);
                    if cpu < 4 {
                        oracle.closed[cpu] = false;
                    }
                }
                Event::Run => {
                    for cpu in recorder.woken() {
                        oracle.drain(cpu);
                    }
                    recorder.run_all();
                }
            }
            prop_assert_eq!(&*ran.lock(), &oracle.ran);
            let in_done_lists: usize = oracle.queues.iter().map(VecDeque::len).sum();
            prop_assert_eq!(set.in_use(), flying.len() + in_done_lists);
        }
        completions.close();
        identities(&completions.stats(), completed);
        prop_assert_eq!(ran.lock().len() as u64, completed);
        for (token, ..) in flying {
            drop(set.redeem(token).unwrap());
        }
        prop_assert_eq!(set.in_use(), 0);
    }
}
