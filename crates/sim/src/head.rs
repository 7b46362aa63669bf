//! The head's shell.

use crate::link::{End, LinkId, Repeat};
use crate::world::{Event as Happening, Machine, Sim};
use paceline_core::Tick;
use paceline_core::head::{Config, Effect, Event, Head};
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, NodeToHead};
use paceline_proto::{ClientId, NodeId};
use std::collections::BTreeMap;

pub(crate) struct HeadHost {
    pub core: Head,
    /// The link of each peer that has said who it is.
    pub clients: BTreeMap<ClientId, LinkId>,
    pub nodes: BTreeMap<NodeId, LinkId>,
    wake: Option<Tick>,
}

impl HeadHost {
    pub fn new(config: Config) -> HeadHost {
        HeadHost { core: Head::new(config), clients: BTreeMap::new(), nodes: BTreeMap::new(), wake: None }
    }
}

impl Sim {
    fn head_handles(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.head.core.handle(self.now, event, &mut effects);
        self.touch(Machine::Head);
        for effect in effects {
            match effect {
                Effect::ToClient(client, message) => self.head_tells_client(client, &message),
                Effect::ToNode(node, message) => self.head_tells_node(node, &message),
                Effect::DropNode(node) => {
                    if let Some(link) = self.head.nodes.remove(&node) {
                        self.note(|_| format!("head drops {node:?}"));
                        self.close_end(link, End::Far);
                    }
                }
                Effect::DropClient(client) => {
                    if let Some(link) = self.head.clients.remove(&client) {
                        self.note(|_| format!("head drops {client:?}"));
                        self.close_end(link, End::Far);
                    }
                }
                Effect::Superseded { .. } => panic!("there is one head"),
                Effect::WakeAt(at) => {
                    self.head.wake = Some(at);
                    let late = self.lateness();
                    self.agenda.add(at + late, Happening::WakeHead { at });
                }
            }
        }
    }

    pub(crate) fn wake_head(&mut self, at: Tick) {
        if self.head.wake == Some(at) {
            self.head.wake = None;
            self.head_handles(Event::Tick);
        }
    }

    fn head_tells_client(&mut self, client: ClientId, message: &HeadToClient) {
        let repeat = match message {
            HeadToClient::Welcome { .. }
            | HeadToClient::Recall { .. }
            | HeadToClient::Crowded { .. }
            | HeadToClient::Heartbeat { .. }
            | HeadToClient::Ended { .. } => Repeat::Later,
            HeadToClient::Granted { .. } => Repeat::AtOnce,
            HeadToClient::ProgramFailed { .. }
            | HeadToClient::Unplaceable { .. }
            | HeadToClient::Answer { .. }
            | HeadToClient::Bye
            | HeadToClient::Waits { .. }
            | HeadToClient::Output { .. } => Repeat::Never,
        };
        self.ledger.tally.recalls += u64::from(matches!(message, HeadToClient::Recall { .. }));
        self.ledger.tally.crowded += u64::from(matches!(message, HeadToClient::Crowded { .. }));
        self.note(|_| format!("head -> {client:?}: {message:?}"));
        if let Some(&link) = self.head.clients.get(&client) {
            self.post(link, End::Near, encoded(|out| message.encode(out)), None, repeat);
        }
    }

    fn head_tells_node(&mut self, node: NodeId, message: &HeadToNode) {
        let repeat = match message {
            HeadToNode::Welcome { .. } | HeadToNode::Program { .. } | HeadToNode::End { .. } => Repeat::Later,
            HeadToNode::Heartbeat { .. } | HeadToNode::Heard { .. } => Repeat::Later,
            HeadToNode::Place { .. } => Repeat::AtOnce,
            HeadToNode::Bye | HeadToNode::Ask { .. } => Repeat::Never,
        };
        self.note(|_| format!("head -> {node:?}: {message:?}"));
        if let Some(&link) = self.head.nodes.get(&node) {
            self.post(link, End::Near, encoded(|out| message.encode(out)), None, repeat);
        }
    }

    pub(crate) fn head_hears_client(&mut self, link: LinkId, client: usize, message: ClientToHead) {
        let id = self.clients[client].id;
        if matches!(message, ClientToHead::Hello { .. }) {
            match self.head.clients.get(&id) {
                // The end of an older link is reported first.
                Some(&older) if older < link => {
                    self.head_handles(Event::ClientDown { client: id, dead: false });
                }
                // This is the older one: what it says was overtaken.
                Some(&newer) if newer > link => return self.close_end(link, End::Far),
                _ => {}
            }
            self.head.clients.insert(id, link);
        }
        if self.head.clients.get(&id) == Some(&link) {
            self.head_handles(Event::FromClient(id, message));
        }
    }

    pub(crate) fn head_loses_client(&mut self, link: LinkId, client: usize) {
        let (id, dead) = (self.clients[client].id, !self.clients[client].alive);
        if self.head.clients.get(&id) == Some(&link) {
            self.head.clients.remove(&id);
            self.note(|_| format!("head: the link of {id:?} is down, dead: {dead}"));
            self.head_handles(Event::ClientDown { client: id, dead });
        }
    }

    pub(crate) fn head_hears_node(&mut self, link: LinkId, node: usize, message: NodeToHead) {
        let id = self.nodes[node].id;
        if matches!(message, NodeToHead::Join { .. }) {
            match self.head.nodes.get(&id) {
                Some(&older) if older < link => self.head_handles(Event::NodeDown(id)),
                Some(&newer) if newer > link => return self.close_end(link, End::Far),
                _ => {}
            }
            self.head.nodes.insert(id, link);
        }
        if self.head.nodes.get(&id) == Some(&link) {
            self.head_handles(Event::FromNode(id, message));
        }
    }

    pub(crate) fn head_loses_node(&mut self, link: LinkId, node: usize) {
        let id = self.nodes[node].id;
        if self.head.nodes.get(&id) == Some(&link) {
            self.head.nodes.remove(&id);
            self.note(|_| format!("head: the link of {id:?} is down"));
            self.head_handles(Event::NodeDown(id));
        }
    }
}

/// The bytes of a message.
pub(crate) fn encoded(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), paceline_proto::Error>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes).expect("every message can be encoded");
    bytes
}
