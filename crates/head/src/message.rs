//! What goes over a link of the head, before it is known who is at its other end.

use paceline_net::control::Carries;
use paceline_proto::Error;
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, Message, NodeToHead};
use paceline_proto::frame::Frame;
use paceline_proto::question::{Answer, Question};

/// From a client or a node.
#[derive(Debug)]
pub(crate) enum ToHead {
    Client(ClientToHead),
    Node(NodeToHead),
}

impl ToHead {
    /// How many bytes there are to it, of those messages that may be long.
    pub(crate) fn weight(&self) -> usize {
        let text = |answer: &Answer| answer.as_ref().unwrap_or_else(|why| why).len();
        match self {
            ToHead::Client(ClientToHead::Ask { question: Question::Submit { work }, .. }) => work.weight(),
            ToHead::Client(ClientToHead::Answer { text: answer, .. }) => text(answer),
            ToHead::Client(ClientToHead::Hello { leases, .. }) => size_of_val(leases.as_slice()),
            ToHead::Client(ClientToHead::Program { start, .. }) => start.weight(),
            ToHead::Client(ClientToHead::Placement { rule, .. }) => rule.weight(),
            ToHead::Client(ClientToHead::Actor { about, .. }) => about.len(),
            ToHead::Node(NodeToHead::Answer { text: answer, .. }) => text(answer),
            ToHead::Node(NodeToHead::Join { leases, .. }) => size_of_val(leases.as_slice()),
            ToHead::Node(NodeToHead::Output { text, .. }) => text.len(),
            ToHead::Client(_) | ToHead::Node(_) => 0,
        }
    }
}

/// To a client or a node.
#[derive(Debug)]
pub(crate) enum FromHead {
    Client(HeadToClient),
    Node(HeadToNode),
}

impl Message for ToHead {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            ToHead::Client(message) => message.encode(out),
            ToHead::Node(message) => message.encode(out),
        }
    }

    fn decode(frame: &Frame) -> Result<ToHead, Error> {
        match ClientToHead::decode(frame) {
            Err(Error::Kind { .. }) => NodeToHead::decode(frame).map(ToHead::Node),
            result => result.map(ToHead::Client),
        }
    }
}

impl Message for FromHead {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            FromHead::Client(message) => message.encode(out),
            FromHead::Node(message) => message.encode(out),
        }
    }

    fn decode(frame: &Frame) -> Result<FromHead, Error> {
        match HeadToClient::decode(frame) {
            Err(Error::Kind { .. }) => HeadToNode::decode(frame).map(FromHead::Node),
            result => result.map(FromHead::Client),
        }
    }
}

impl Carries for ToHead {}
impl Carries for FromHead {}
