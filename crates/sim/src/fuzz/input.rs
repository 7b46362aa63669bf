//! Bytes as choices.

use paceline_core::Tick;
use paceline_proto::control::Timing;
use paceline_proto::placement::{Member, Order};
use paceline_proto::program::{Start, StartError};
use paceline_proto::resources::Part;
use paceline_proto::{
    ActorId, Address, ClientId, Death, DeathCause, Devices, ExclusiveId, Incarnation, LeaseId, MemoryUse,
    NodeId, OutOfMemory, PlacementId, ProgramId, Resources, Rule, Seq, Shape, SlotId,
};
use std::time::Duration;

/// The rest of the bytes. When they are used up every choice is the first one.
pub struct Input<'a> {
    bytes: &'a [u8],
    /// Leases that the core has named, or that peers have made up.
    pub leases: Vec<LeaseId>,
    pub now: Tick,
}

/// So many leases are remembered.
const MAX_LEASES: usize = 64;

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, leases: (1..4).map(LeaseId).collect(), now: Tick(1) }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.byte()) % bound.max(1)
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub fn rarely(&mut self) -> bool {
        self.byte() < 16
    }

    pub fn option<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.flag() { Some(make(self)) } else { None }
    }

    pub fn some<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| make(self)).collect()
    }

    /// Lets time pass: mostly little, sometimes longer than any deadline.
    pub fn pass(&mut self) {
        let spans = [0, 0, 0, 1, 5, 50, 210, 1_100, 2_100, 7_000, 31_000, 63_000];
        let millis = spans[self.below(spans.len() as u64) as usize];
        self.now = self.now + Duration::from_millis(millis);
    }

    pub fn client(&mut self) -> ClientId {
        match self.byte() {
            0..=1 => ClientId(1 << 63 | 2 << 32 | 1),
            2..=3 => ClientId(1 << 63 | 1 << 32 | 1),
            4..=7 => ClientId(2 << 32 | 1),
            other => ClientId(1 + u64::from(other) % 4),
        }
    }

    pub fn node(&mut self) -> NodeId {
        NodeId(1 + self.below(3))
    }

    pub fn slot(&mut self) -> SlotId {
        SlotId(1 + self.below(6))
    }

    pub fn actor(&mut self) -> ActorId {
        ActorId(1 + u128::from(self.below(3)))
    }

    /// What must exist once, under some leases.
    pub fn exclusive(&mut self) -> Option<ExclusiveId> {
        match self.byte() {
            0..160 => None,
            other => Some(ExclusiveId(1 + u128::from(other) % 3)),
        }
    }

    pub fn incarnation(&mut self) -> Incarnation {
        Incarnation(1 + u64::from(self.rarely()))
    }

    /// A lease: one of the latest as a rule, so that messages refer to each other.
    pub fn lease(&mut self) -> LeaseId {
        let count = self.leases.len();
        let among = if self.flag() { 4 } else { count as u64 };
        let back = self.below(among) as usize;
        self.leases[count - 1 - back.min(count - 1)]
    }

    pub fn learn(&mut self, lease: LeaseId) {
        if !self.leases.contains(&lease) {
            self.leases.push(lease);
        }
        if self.leases.len() > MAX_LEASES {
            self.leases.remove(0);
        }
    }

    pub fn resources(&mut self) -> Resources {
        let mut sum = Resources::cpus(self.below(4));
        if self.rarely() {
            sum = Resources::fractional_cpus(0.5).unwrap_or(sum);
        }
        let more = self.byte();
        if more & 3 == 1 {
            sum = sum.with(Part::Gpus([0.5, 1.0, 2.0, 0.25][self.below(4) as usize])).unwrap_or(sum);
        }
        if more & 12 == 4 {
            sum = sum.and_memory([1 << 20, 1 << 30, 1 << 50][self.below(3) as usize]);
        }
        if more & 48 == 16 {
            let (name, amount) = (["a", "b", "c", "d", "e"][self.below(5) as usize], self.below(3));
            let amount = if amount == 2 { 800_000_000.0 } else { amount as f64 };
            sum = sum.with(Part::Custom(name, amount)).unwrap_or(sum);
        }
        if more == 255 {
            // The most that a message can say.
            sum = sum.with(Part::Cpus((1_u64 << 43) as f64 / 10_000.0)).unwrap_or(sum);
        }
        sum
    }

    pub fn program(&mut self) -> ProgramId {
        match self.byte() {
            0..200 => ProgramId::OWN,
            other => ProgramId(u64::from(other) % 3),
        }
    }

    pub fn placement(&mut self) -> PlacementId {
        match self.byte() {
            0..150 => PlacementId::ANY,
            other => PlacementId(u64::from(other) % 4),
        }
    }

    pub fn timing(&mut self) -> Timing {
        let spans = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(60), Duration::MAX];
        let mut span = || spans[self.below(4) as usize];
        Timing { heartbeat: span(), head_lost: span() }
    }

    pub fn shape(&mut self) -> Shape {
        match self.byte() {
            0..128 => Shape::cpus(1),
            _ => Shape { needs: self.resources(), program: self.program(), placement: self.placement() },
        }
    }

    pub fn devices(&mut self) -> Devices {
        match self.byte() {
            0..128 => Devices::default(),
            _ => self.some(3, |input| input.below(5) as usize).into_iter().collect(),
        }
    }

    pub fn rule(&mut self) -> Rule {
        let member = |input: &mut Self| Member {
            needs: input.resources(),
            program: input.program(),
            count: if input.rarely() { u32::MAX } else { input.below(4) as u32 },
        };
        Rule {
            order: if self.flag() { Order::Spread } else { Order::Pack },
            one_per_node: self.rarely(),
            labels: self.some(1, |_| ("zone".into(), "a".into())),
            nodes: self.some(1, |_| "n".into()),
            not_nodes: self.some(1, |_| "m".into()),
            gpu_memory: self.below(2),
            gang: self.some(3, member),
            nonce: self.below(2),
            kept: self.rarely(),
        }
    }

    pub fn seq(&mut self) -> Seq {
        Seq(if self.rarely() { u64::MAX } else { self.below(8) })
    }

    pub fn death(&mut self) -> Death {
        let cause = match self.below(6) {
            0 => DeathCause::Exit(0),
            1 => DeathCause::Exit(1),
            2 => DeathCause::NodeLost,
            3 => DeathCause::TimedOut,
            4 => DeathCause::Stopped(19),
            _ => DeathCause::Signal(9),
        };
        let memory = MemoryUse { peak: 1, limit: 2 };
        let out_of_memory = match self.below(8) {
            0 => OutOfMemory::Yes(memory),
            1 => OutOfMemory::Likely(memory),
            2 => OutOfMemory::Exceeded(memory),
            _ => OutOfMemory::No,
        };
        Death { cause, out_of_memory, running: self.option(Self::seq), finished: self.seq() }
    }

    pub fn start(&mut self) -> Start {
        Start { command: self.some(1, |_| "/bin/program".into()), variables: Vec::new() }
    }

    pub fn start_error(&mut self) -> StartError {
        StartError::NotRun { reason: "there is none".into() }
    }

    pub fn addresses(&mut self) -> Vec<Address> {
        self.some(1, |input| Address::Tcp { host: "h".into(), port: input.below(2) as u16 })
    }

    pub fn name(&mut self) -> String {
        ["n", "m", "actor.n", "", "a b"][self.below(5) as usize].into()
    }

    pub fn text(&mut self) -> Vec<u8> {
        self.some(3, Self::byte)
    }
}
