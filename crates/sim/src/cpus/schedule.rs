//! Who runs where.

use super::{Cpus, Event, Kind, Load, Ns, State, ThreadId};

/// Runs the load until that time.
pub fn run_until<L: Load>(cpus: &mut Cpus<L::Event>, load: &mut L, end: Ns) {
    cpus.start_woken(load);
    while let Some((at, event)) = cpus.events.pop_until(end) {
        cpus.now = at;
        match event {
            Event::SegmentEnds { cpu, version } => {
                if cpus.cpus[cpu].version == version {
                    cpus.segment_ends(load, cpu);
                }
            }
            Event::Tick { cpu } => {
                let tick = cpus.scheduler.tick;
                cpus.events.plan(at + tick, event);
                if cpus.is_idle(cpu) {
                    cpus.pull(load, cpu);
                }
            }
            Event::Drift { thread } => {
                let after = cpus.exponential(1e9 / cpus.scheduler.drift_per_s);
                cpus.events.plan(at + after, event);
                cpus.drift(load, thread);
            }
            Event::OfLoad(event) => load.event(cpus, event),
        }
        cpus.start_woken(load);
    }
    cpus.now = end;
}

impl<E: Copy> Cpus<E> {
    /// Brings what is left of the CPU's segment up to date.
    pub(super) fn settle(&mut self, cpu: usize) {
        let now = self.now;
        let cpu = &mut self.cpus[cpu];
        if cpu.running.is_some() {
            let ran = (now - cpu.as_of) as f64;
            cpu.left -= ran * cpu.speed;
            cpu.busy += ran;
        }
        cpu.as_of = now;
    }

    fn sibling_runs(&self, cpu: usize) -> bool {
        let sibling = self.cpus[cpu].sibling;
        sibling.is_some_and(|sibling| !self.is_idle(sibling))
    }

    /// Plans the end of the CPU's segment anew.
    fn replan(&mut self, cpu: usize) {
        let slow = self.sibling_runs(cpu);
        let slowdown = self.scheduler.sibling_slowdown;
        let now = self.now;
        let state = &mut self.cpus[cpu];
        state.version += 1;
        state.speed = if slow { 1.0 / slowdown } else { 1.0 };
        if state.running.is_some() {
            let at = now + (state.left.max(0.0) / state.speed).ceil() as Ns;
            let version = state.version;
            self.events.plan(at, Event::SegmentEnds { cpu, version });
        }
    }

    /// The CPU has begun or ceased to run: its sibling runs at another speed.
    fn tell_sibling(&mut self, cpu: usize) {
        if let Some(sibling) = self.cpus[cpu].sibling.filter(|s| !self.is_idle(*s)) {
            self.settle(sibling);
            self.replan(sibling);
        }
    }

    fn is_whole_core(&self, cpu: usize) -> bool {
        self.is_idle(cpu) && !self.sibling_runs(cpu)
    }

    /// An idle CPU of the cache: the preferred one if its core is idle, else another idle core,
    /// else whatever is idle.
    fn idle_in(&mut self, cache: usize, preferred: usize) -> Option<usize> {
        let here = self.cache_of(preferred) == cache;
        if here && self.is_whole_core(preferred) {
            return Some(preferred);
        }
        let count = self.caches[cache].len();
        let first = self.rng.usize(..count);
        let members = (0..count).map(|k| self.caches[cache][(first + k) % count]);
        let mut any = None;
        for cpu in members {
            if self.is_whole_core(cpu) {
                return Some(cpu);
            }
            if self.is_idle(cpu) {
                any = Some(cpu);
            }
        }
        if here && self.is_idle(preferred) {
            return Some(preferred);
        }
        any
    }

    fn start_woken(&mut self, load: &mut impl Load<Event = E>) {
        while let Some((thread, cache)) = self.wakes.pop_front() {
            if self.threads[thread].state != State::Asleep {
                continue;
            }
            let now = self.now;
            let woken = &mut self.threads[thread];
            woken.woken = now;
            woken.fresh = true;
            let last = woken.cpu;
            match self.idle_in(cache, last) {
                Some(cpu) => self.start(load, thread, cpu),
                None => self.enqueue(thread, cache),
            }
        }
    }

    fn enqueue(&mut self, thread: ThreadId, cache: usize) {
        self.threads[thread].state = State::Waiting;
        self.queues[cache].push_back(thread);
    }

    /// Puts the thread on an idle CPU.
    fn start(&mut self, load: &mut impl Load<Event = E>, thread: ThreadId, cpu: usize) {
        self.note_move(thread, cpu);
        self.settle(cpu);
        let now = self.now;
        let state = &mut self.cpus[cpu];
        state.running = Some(thread);
        state.slice_began = now;
        self.threads[thread].state = State::Running;
        self.counters.switches += 1;
        self.continue_with(load, thread, cpu);
        if !self.is_idle(cpu) {
            self.tell_sibling(cpu);
        }
    }

    fn note_move(&mut self, thread: ThreadId, cpu: usize) {
        let (from, to) = (self.cache_of(self.threads[thread].cpu), self.cache_of(cpu));
        if from != to && self.threads[thread].kind == Kind::Drifter {
            // Its stack and its queues come along.
            self.threads[thread].moved += 4.0 * self.transfer(from, to);
            self.counters.moves += 1;
        }
        self.threads[thread].cpu = cpu;
    }

    /// The running thread's next segment, or it sleeps and the CPU looks for another one.
    fn continue_with(&mut self, load: &mut impl Load<Event = E>, thread: ThreadId, cpu: usize) {
        if let Some(ns) = load.next(self, thread, cpu) {
            self.cpus[cpu].left = ns;
            self.replan(cpu);
            return;
        }
        self.threads[thread].state = State::Asleep;
        self.vacate(cpu);
        self.pick(load, cpu);
    }

    fn vacate(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        state.running = None;
        state.version += 1;
    }

    fn segment_ends(&mut self, load: &mut impl Load<Event = E>, cpu: usize) {
        self.settle(cpu);
        let Some(thread) = self.cpus[cpu].running else {
            return;
        };
        load.done(self, thread, cpu);
        self.start_woken(load);
        let cache = self.cache_of(cpu);
        let ran = self.now - self.cpus[cpu].slice_began;
        if ran >= self.scheduler.slice && !self.queues[cache].is_empty() {
            self.threads[thread].woken = self.now;
            self.vacate(cpu);
            self.enqueue(thread, cache);
            self.pick(load, cpu);
            return;
        }
        self.continue_with(load, thread, cpu);
    }

    /// The CPU has nothing to run.
    fn pick(&mut self, load: &mut impl Load<Event = E>, cpu: usize) {
        let cache = self.cache_of(cpu);
        if let Some(thread) = self.queues[cache].pop_front() {
            self.start(load, thread, cpu);
            return;
        }
        if self.rng.f64() < self.scheduler.look_when_idle && self.pull(load, cpu) {
            return;
        }
        self.settle(cpu);
        self.tell_sibling(cpu);
    }

    /// Pulls the thread that has waited longest in another cache, if it has waited long enough.
    fn pull(&mut self, load: &mut impl Load<Event = E>, cpu: usize) -> bool {
        let (here, now) = (self.cache_of(cpu), self.now);
        let mut oldest: Option<(Ns, usize, usize)> = None;
        for cache in (0..self.caches()).filter(|cache| *cache != here) {
            let queue = self.queues[cache].iter().enumerate();
            let movable = |t: &ThreadId| self.threads[*t].kind != Kind::Pinned;
            let first = queue.map(|(at, t)| (at, *t)).find(|(_, t)| movable(t));
            let Some((at, thread)) = first else { continue };
            let since = self.threads[thread].woken;
            let long = now - since >= self.scheduler.pull_after;
            if long && oldest.is_none_or(|(before, ..)| since < before) {
                oldest = Some((since, cache, at));
            }
        }
        let Some((_, cache, at)) = oldest else {
            return false;
        };
        let thread = self.queues[cache].remove(at).expect("it was found there");
        self.counters.pulls += 1;
        self.start(load, thread, cpu);
        true
    }

    /// Load balancing, interrupts, other load: the thread is moved to a random cache.
    fn drift(&mut self, load: &mut impl Load<Event = E>, thread: ThreadId) {
        let to = self.rng.usize(..self.caches());
        let first = self.caches[to][0];
        let from = self.threads[thread].cpu;
        match self.threads[thread].state {
            State::Asleep => {
                let cpu = self.caches[to][self.rng.usize(..self.caches[to].len())];
                self.counters.moves += u64::from(self.cache_of(from) != to);
                self.threads[thread].cpu = cpu;
            }
            State::Waiting => {
                let waits_in = |queue: &std::collections::VecDeque<ThreadId>| {
                    queue.iter().position(|other| *other == thread)
                };
                let found = (0..self.caches()).find_map(|c| Some((c, waits_in(&self.queues[c])?)));
                let Some((cache, at)) = found.filter(|(cache, _)| *cache != to) else {
                    return;
                };
                self.queues[cache].remove(at);
                self.threads[thread].woken = self.now;
                match self.idle_in(to, first) {
                    Some(cpu) => self.start(load, thread, cpu),
                    None => self.enqueue(thread, to),
                }
            }
            State::Running => {
                if self.cache_of(from) == to {
                    return;
                }
                // Only to an idle CPU: nobody is preempted for it.
                let Some(cpu) = self.idle_in(to, first) else {
                    return;
                };
                self.settle(from);
                let left = self.cpus[from].left;
                self.vacate(from);
                self.note_move(thread, cpu);
                let toll = self.toll_of(thread);
                self.settle(cpu);
                let now = self.now;
                let state = &mut self.cpus[cpu];
                state.running = Some(thread);
                state.left = left + toll;
                state.slice_began = now;
                self.replan(cpu);
                self.tell_sibling(cpu);
                self.pick(load, from);
            }
        }
    }
}
