//! A peer that says untrue things: it names leases, actors and ids that are others', and is gone again. Nobody may notice.
//!
//! What it says is drawn from the time and not from the seed's numbers, so that plans without it draw what they always drew.

use crate::random::mix;
use crate::world::Sim;
use paceline_core::head::{Event, LinkEnd};
use paceline_proto::control::{ClientToHead, NodeToHead};
use paceline_proto::placement::Member;
use paceline_proto::{
    ActorId, ClientId, LeaseId, NodeId, PlacementId, ProgramId, Resources, Rule, Shape, SlotId, WorkId,
};

const LIAR: ClientId = ClientId(1 << 40);
const LIAR_NODE: NodeId = NodeId(1 << 40);

/// Share of faults after which somebody lies.
const LYING_PERCENT: u64 = 25;

impl Sim {
    /// Lets a peer that nobody knows say something untrue to a head, now and then.
    pub(crate) fn tell_lies(&mut self) {
        let dice = mix(self.now.0 ^ 0x6c69_6172);
        let Some(&head) = self.heads_alive().first() else { return };
        if dice % 100 >= LYING_PERCENT {
            return;
        }
        let leases: Vec<LeaseId> =
            self.processes.iter().flat_map(|process| process.granted.clone()).collect();
        let lease = leases.get(dice as usize % leases.len().max(1)).copied().unwrap_or(LeaseId(7));
        let lie = lie(dice >> 8, lease);
        self.note(|_| format!("somebody says to head {head}: {lie:?}"));
        self.ledger.tally.lies += 1;
        let hello = |client| ClientToHead::Hello {
            client,
            name: "liar".into(),
            leases: Vec::new(),
            met: None,
            under: Some(lease),
            beats: false,
        };
        let work = ClientId::of_work(WorkId((1 + dice % 3) << 32 | 1));
        for client in [LIAR, work] {
            self.head_handles(head, Event::FromClient(client, hello(client)));
            self.head_handles(head, Event::FromClient(client, lie.clone()));
            self.head_handles(head, Event::ClientDown { client, end: LinkEnd::Dead });
        }
        self.claim_visits(head, dice >> 16);
        let said = [
            NodeToHead::Placed { lease, slot: SlotId(9) },
            NodeToHead::Ended { lease, death: None },
            NodeToHead::Blocked { lease, blocked: true, full: true },
        ];
        let said = said[(dice >> 40) as usize % 3].clone();
        self.head_handles(head, Event::FromNode(LIAR_NODE, said));
    }
}

impl Sim {
    /// Lets it say that leases of others are its own, to call actors with them.
    fn claim_visits(&mut self, head: usize, dice: u64) {
        let guests = self.processes.iter().flat_map(|process| process.guests.keys());
        let hosts = self.processes.iter().flat_map(|process| &process.granted);
        let leases: Vec<LeaseId> = guests.chain(hosts).copied().collect();
        let Some(&lease) = leases.get(dice as usize % leases.len().max(1)) else { return };
        let hello = ClientToHead::Hello {
            client: LIAR,
            name: "liar".into(),
            leases: Vec::new(),
            met: None,
            under: None,
            beats: false,
        };
        self.head_handles(head, Event::FromClient(LIAR, hello));
        for actor in self.actors.iter().map(|actor| actor.id).collect::<Vec<_>>() {
            let visit = ClientToHead::Visit { actor, stay: true, held: Some(lease) };
            self.head_handles(head, Event::FromClient(LIAR, visit));
        }
        self.head_handles(head, Event::ClientDown { client: LIAR, end: LinkEnd::Dead });
    }
}

fn lie(dice: u64, lease: LeaseId) -> ClientToHead {
    let (actor, id) = (ActorId(u128::from(dice % 4)), PlacementId(1 + dice % 3));
    let member = Member { needs: Resources::cpus(1), program: ProgramId::OWN, count: u32::MAX };
    match dice % 9 {
        0 => ClientToHead::Release { lease },
        1 => ClientToHead::Broken { lease },
        2 => ClientToHead::Unreachable { lease },
        3 => ClientToHead::Under { lease },
        4 => ClientToHead::Visit { actor, stay: false, held: Some(lease) },
        5 => ClientToHead::Placement { id, rule: Rule { gang: vec![member; 3], ..Rule::default() } },
        6 => ClientToHead::Want {
            shape: Shape { placement: id, ..Shape::cpus(1) },
            count: u32::MAX,
            exclusive: None,
        },
        7 => ClientToHead::Heartbeat { beat: u64::MAX },
        _ => ClientToHead::Reopening,
    }
}
