//! What goes over a link of the head, before it is known who is at its other end.

use paceline_net::control::Carries;
use paceline_proto::Error;
use paceline_proto::control::{ClientToHead, HeadToClient, HeadToNode, Message, NodeToHead};
use paceline_proto::frame::Frame;

/// From a client or a node.
#[derive(Debug)]
pub(crate) enum ToHead {
    Client(ClientToHead),
    Node(NodeToHead),
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
