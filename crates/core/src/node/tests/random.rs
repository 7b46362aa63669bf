//! A zygote, slots and a head that do anything at any time.

use super::*;
use crate::random::Random;
use paceline_proto::Part;
use paceline_proto::resources::UNIT;
use std::collections::BTreeSet;

fn broken() -> StartError {
    StartError::NotRun { reason: "broken".into() }
}

/// What the world around the node is like.
struct Model {
    bench: Bench,
    random: Random,
    head_up: bool,
    zygote: bool,
    /// Other programs' zygotes that live.
    programs: BTreeSet<ProgramId>,
    /// Fork requests that a zygote has not read.
    requests: VecDeque<(SlotId, ProgramId)>,
    /// Processes that live, and what their node told them.
    processes: BTreeMap<SlotId, VecDeque<NodeToSlot>>,
    /// Messages to slots that are not forked yet.
    early: BTreeMap<SlotId, VecDeque<NodeToSlot>>,
    /// Leases that the head placed and has not seen ending.
    leases: BTreeMap<LeaseId, (Shape, Devices)>,
    gpus: u64,
    connections: u64,
    /// Nothing goes wrong any more.
    works: bool,
    closed: bool,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut model = Model {
            bench: Bench::new(1 + seed % 4, seed % 3),
            random: Random::new(seed),
            head_up: false,
            zygote: false,
            programs: BTreeSet::new(),
            requests: VecDeque::new(),
            processes: BTreeMap::new(),
            early: BTreeMap::new(),
            leases: BTreeMap::new(),
            gpus: seed % 5,
            connections: 0,
            works: false,
            closed: false,
        };
        let total = &mut model.bench.node.config.total;
        *total = total.and_gpus(model.gpus);
        model.handle(Event::Tick);
        model
    }

    fn handle(&mut self, event: Event) {
        for effect in self.bench.handle(event) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::ToHead(message) => {
                assert!(self.head_up || matches!(message, NodeToHead::Ended { .. }));
                self.on_node(message);
            }
            Effect::KillAt { .. } => {}
            Effect::KillZygote { .. } => unreachable!("none stands still"),
            Effect::StartZygote => {
                assert!(!self.zygote, "one zygote at a time");
                self.zygote = self.random.below(8) > 0 || self.works;
                self.handle(if self.zygote { Event::ZygoteUp } else { Event::ZygoteDied });
            }
            Effect::StartProgram { program, .. } => {
                assert!(!self.programs.contains(&program), "one zygote of a program at a time");
                match self.random.below(8) {
                    0 => {}
                    1 => self.handle(Event::ProgramDown(program, broken())),
                    _ => {
                        self.programs.insert(program);
                        self.handle(Event::ProgramUp(program));
                    }
                }
            }
            Effect::EndProgram { program } => {
                assert!(!self.requests.iter().any(|(_, it)| *it == program), "it is in use");
                self.programs.remove(&program);
            }
            Effect::Fork { slot, program } => {
                let zygote = if program.is_own() { self.zygote } else { self.programs.contains(&program) };
                assert!(zygote, "somebody must fork it");
                self.requests.push_back((slot, program));
                self.early.insert(slot, VecDeque::new());
            }
            Effect::ToSlot { slot, message, connection } => {
                assert_eq!(connection.is_some(), matches!(message, NodeToSlot::Attach { .. }));
                let inbox = self.processes.get_mut(&slot).or_else(|| self.early.get_mut(&slot));
                if let Some(inbox) = inbox {
                    inbox.push_back(message);
                }
            }
            Effect::Kill { slot }
            | Effect::EndForMemory { slot, .. }
            | Effect::Exceeded { slot, .. }
            | Effect::EndStopped { slot, .. } => {
                self.exit(slot, None);
            }
            Effect::ForgetSlot { slot } => {
                assert!(!self.processes.contains_key(&slot), "{slot:?} lives");
                self.early.remove(&slot);
                self.requests.retain(|(request, _)| *request != slot);
            }
            Effect::Refuse { .. } | Effect::Relay { .. } | Effect::Stray { .. } | Effect::Confine { .. } => {}
            Effect::DropHead => unreachable!("it answers"),
            Effect::Closed => {
                assert!(self.processes.is_empty());
                self.closed = true;
            }
            Effect::WakeAt(_) => unreachable!("taken out by the bench"),
            Effect::Terminate { .. } | Effect::Printed { .. } => {
                unreachable!("no slot becomes anything here")
            }
        }
    }

    fn on_node(&mut self, message: NodeToHead) {
        match message {
            NodeToHead::Join { leases, .. } => {
                let known: BTreeSet<LeaseId> = leases.iter().map(|placement| placement.lease).collect();
                assert_eq!(known.len(), leases.len(), "ND-1");
                self.leases.retain(|lease, _| known.contains(lease));
            }
            NodeToHead::Ended { lease, death } => {
                self.leases.remove(&lease);
                if death.is_some() && self.head_up && self.random.below(2) == 0 {
                    self.handle(Event::FromHead(HeadToNode::Heard { lease }));
                }
            }
            NodeToHead::Placed { .. }
            | NodeToHead::Output { .. }
            | NodeToHead::Blocked { .. }
            | NodeToHead::ProgramFailed { .. }
            | NodeToHead::Answer { .. }
            | NodeToHead::Leaving
            | NodeToHead::Heartbeat { .. } => {}
        }
    }

    /// The process ends now; the node hears of it at once or, if the zygote is slow, later.
    fn exit(&mut self, slot: SlotId, running: Option<Seq>) {
        if self.processes.remove(&slot).is_some() {
            self.handle(Event::Exited { slot, death: died(running) });
        }
    }

    fn some_process(&mut self) -> Option<SlotId> {
        let count = self.processes.len() as u64;
        (count > 0).then(|| *self.processes.keys().nth(self.random.below(count) as usize).unwrap())
    }

    fn step(&mut self) {
        match self.random.below(30) {
            29 => {
                let client = ClientId(self.random.below(3));
                self.handle(Event::ClientLeft(client));
            }
            26..=28 => self.task_waits(),
            0 => self.toggle_head(),
            1..=3 => {
                let longest = if self.random.below(10) == 0 { 12_000 } else { 50 };
                let span = millis(self.random.below(longest));
                for effect in self.bench.pass(span) {
                    self.perform(effect);
                }
            }
            4..=7 => self.head_places(),
            8..=10 => self.head_ends(),
            11..=14 => self.zygote_forks(),
            15..=19 => self.slot_reads(),
            20 => self.slot_dies(),
            21 => self.connects(),
            22 => self.nonsense(),
            23 => self.memory_is_short(),
            24 => self.slot_stops(),
            _ => self.zygote_dies(),
        }
    }

    fn toggle_head(&mut self) {
        self.head_up = !self.head_up;
        self.handle(if self.head_up { Event::HeadUp } else { Event::HeadDown });
    }

    fn head_places(&mut self) {
        let of = |program| Shape { program: ProgramId(program), ..Shape::cpus(1) };
        let shapes = [Shape::cpus(1), Shape::cpus(2), Shape::default(), of(8), of(9)];
        let (lease, client) = (LeaseId(self.random.next().into()), ClientId(self.random.below(3)));
        let shape = shapes[self.random.below(5) as usize];
        let (shape, devices) = self.with_gpus(shape);
        if self.head_up && self.leases.len() < 8 {
            self.leases.insert(lease, (shape, devices));
            if !shape.program.is_own() {
                let message = HeadToNode::Program { program: shape.program, start: Start::default() };
                self.handle(Event::FromHead(message));
            }
            let secret = LeaseSecret::default();
            let once = self.random.below(5) == 0;
            let place = HeadToNode::Place {
                lease,
                client,
                shape,
                holder: client,
                secret,
                devices,
                once,
                exclusive: None,
            };
            self.handle(Event::FromHead(place.clone()));
            if self.random.below(8) == 0 && self.leases.contains_key(&lease) {
                self.handle(Event::FromHead(place));
            }
        }
    }

    /// The same with some GPUs that no lease has, if there are any.
    fn with_gpus(&mut self, shape: Shape) -> (Shape, Devices) {
        let wanted = [0.0, 0.0, 0.3, 0.7, 1.0, 2.0][self.random.below(6) as usize];
        let needs = shape.needs.with(Part::Gpus(wanted)).expect("it is a sensible number");
        let share = needs.gpu_units().min(UNIT);
        let used = |number: usize| -> u64 {
            let here = self.leases.values().filter(|(_, devices)| devices.contains(number));
            here.map(|(shape, _)| shape.needs.gpu_units().min(UNIT)).sum()
        };
        let fit: Vec<usize> =
            (0..self.gpus as usize).filter(|number| used(*number) + share <= UNIT).collect();
        let count = wanted.ceil() as usize;
        if fit.len() < count {
            return (shape, Devices::default());
        }
        (Shape { needs, ..shape }, fit.into_iter().take(count).collect())
    }

    fn head_ends(&mut self) {
        let count = self.leases.len() as u64;
        if self.head_up && count > 0 {
            let lease = *self.leases.keys().nth(self.random.below(count) as usize).unwrap();
            self.handle(Event::FromHead(HeadToNode::End { lease }));
        }
    }

    fn zygote_forks(&mut self) {
        let Some((slot, _)) = self.requests.pop_front() else { return };
        let inbox = self.early.remove(&slot).expect("a request is for a slot that is expected");
        self.processes.insert(slot, inbox);
        self.handle(Event::Forked { slot, pid: pid(slot.0) });
        if self.processes.contains_key(&slot) && self.random.below(4) > 0 {
            self.handle(Event::FromSlot(slot, SlotToNode::Ready { slot, pid: pid(slot.0) }));
        }
    }

    fn slot_reads(&mut self) {
        let Some(slot) = self.some_process() else { return };
        match self.processes.get_mut(&slot).and_then(VecDeque::pop_front) {
            Some(NodeToSlot::Detach { lease }) if self.random.below(5) > 0 => {
                self.handle(Event::FromSlot(slot, SlotToNode::Detached { lease }));
            }
            Some(NodeToSlot::Exit) if self.random.below(5) > 0 => self.exit(slot, None),
            _ => {}
        }
    }

    /// A task waits for others, or goes on; at times what is said is old.
    fn task_waits(&mut self) {
        let Some(slot) = self.some_process() else { return };
        let count = self.leases.len() as u64;
        if count > 0 {
            let lease = *self.leases.keys().nth(self.random.below(count) as usize).unwrap();
            let blocked = self.random.below(2) == 0;
            self.handle(Event::FromSlot(slot, SlotToNode::Blocked { lease, blocked }));
            if blocked && self.random.below(2) == 0 {
                self.handle(Event::FromSlot(slot, SlotToNode::Waits { lease }));
            }
        }
    }

    fn slot_dies(&mut self) {
        if let Some(slot) = self.some_process() {
            let running = (self.random.below(2) == 0).then_some(Seq(4));
            self.exit(slot, running);
        }
    }

    /// Or goes on; at times a slot is meant that is gone.
    fn slot_stops(&mut self) {
        let slot = SlotId(self.random.below(20));
        let slot = self.some_process().filter(|_| self.random.below(4) > 0).unwrap_or(slot);
        let ends_at = (self.random.below(2) == 0).then_some(self.bench.now);
        let event = match self.random.below(2) {
            0 => Event::Stopped { slot, signal: 19, ends_at },
            _ => Event::Continued { slot },
        };
        self.handle(event);
    }

    fn memory_is_short(&mut self) {
        let slots = self.processes.keys().map(|slot| (*slot, slot.0 % 7)).collect();
        self.handle(Event::Memory { used: 10, limit: 10, slots });
    }

    fn connects(&mut self) {
        self.connections += 1;
        let lease = self.leases.keys().next().copied().unwrap_or_default();
        self.handle(Event::Connection { connection: self.connections, lease, way: Way::Unix });
    }

    fn nonsense(&mut self) {
        let slot = SlotId(self.random.below(20));
        let lease = LeaseId(self.random.next().into());
        match self.random.below(4) {
            0 => self.handle(Event::FromSlot(slot, SlotToNode::Detached { lease })),
            1 if !self.processes.contains_key(&slot) && !self.early.contains_key(&slot) => {
                self.handle(Event::Exited { slot, death: died(None) });
            }
            2 if self.head_up => self.handle(Event::FromHead(HeadToNode::End { lease })),
            _ => self.handle(Event::Output { slot, stream: Stream::Out, text: b"x".to_vec() }),
        }
    }

    fn zygote_dies(&mut self) {
        if self.zygote && self.random.below(4) == 0 {
            self.zygote = false;
            self.requests.retain(|(_, program)| !program.is_own());
            self.handle(Event::ZygoteDied);
        }
        if let Some(program) = self.programs.first().copied().filter(|_| self.random.below(4) == 0) {
            self.programs.remove(&program);
            self.requests.retain(|(_, other)| *other != program);
            self.handle(Event::ProgramDown(program, broken()));
        }
    }

    /// Everything works from here on.
    fn settle(&mut self) {
        self.works = true;
        if !self.head_up {
            self.toggle_head();
        }
        // Longer than any place backs off, also one whose slot has just died.
        for _ in 0..800 {
            self.zygote_forks();
            self.slot_reads();
            for effect in self.bench.pass(millis(100)) {
                self.perform(effect);
            }
        }
    }
}

#[test]
fn anything_may_happen_and_leases_find_their_slots() {
    for seed in 0..60 {
        let mut model = Model::new(seed);
        (0..3000).for_each(|_| model.step());
        model.settle();
        let node = &model.bench.node;
        let here: BTreeSet<LeaseId> =
            node.slots.values().filter_map(|slot| slot.state.lease()).map(|lease| lease.lease).collect();
        let known: BTreeSet<LeaseId> = model.leases.keys().copied().collect();
        assert_eq!(here, known, "seed {seed}: ND-3, the head knows how things stand");
        assert!(node.generic() >= node.places(), "seed {seed}: ND-5");
        model.handle(Event::Close);
        for effect in model.bench.pass(Duration::from_secs(1)) {
            model.perform(effect);
        }
        assert!(model.closed, "seed {seed}: everything ends");
    }
}
