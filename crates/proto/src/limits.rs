//! How long each part of a message may be that a head or a node keeps or works on.
//!
//! Owns: the longest length of every text, list and record that a client, a node or a slot sends. Does not own: how much
//! of it all one client may have kept (the head's core counts that), nor the frame that carries a message.
//!
//! A peer that sends more than this has a defect, or means harm, so its link is closed: decoding refuses the message, and the
//! error names the field and its limit. Whatever a user can choose is checked before it is sent, by the same functions.
//!
//! * LM-1 (every field): each text and list of a message to a head or a node has a longest length.
//! * LM-2 (before decoding): a message that no field makes long is refused by its length alone, before anything of it is
//!   decoded, so that a short frame cannot become a large value.

use crate::address::Address;
use crate::control::{
    ClientToHead, Gone, HeadToClient, HeadToNode, NodeToHead, NodeToSlot, NodeToZygote, SlotToNode,
    ZygoteToNode,
};
use crate::data::from_postcard;
use crate::error::Error;
use crate::objects;
use crate::placement::Rule;
use crate::program::{Start, StartError};
use crate::question::{Answer, Question};
use crate::store;
use crate::work::{LONGEST_RECORD, Work};

/// A name: of a client, a node, an actor, a program, a label, a resource or a host.
pub const LONGEST_NAME: usize = 1 << 10;
/// A sentence for people: why something is over, or what a process printed last.
pub const LONGEST_TEXT: usize = 64 << 10;
/// What those who find an actor have to know, and what its constructor raised.
pub const LONGEST_ABOUT: usize = 1 << 20;
/// The answer of a client to a question of the head's.
pub const LONGEST_ANSWER: usize = 1 << 20;
/// A piece of what a slot has printed.
pub const LONGEST_OUTPUT: usize = 1 << 20;
/// All that starts a program: its command and its variables.
pub const LONGEST_START: usize = 1 << 20;
/// All names of a placement rule.
pub const LONGEST_RULE: usize = 1 << 20;
/// An object that travels in a message.
pub const LONGEST_SMALL_OBJECT: usize = 1 << 20;

/// Arguments of a program, and variables.
pub const MOST_ARGUMENTS: usize = 16 << 10;
/// Labels, or names of nodes, in a rule.
pub const MOST_LABELS: usize = 4 << 10;
/// Parts of a group that differ.
pub const MOST_MEMBERS: usize = 16 << 10;
/// Names of custom resources in one message.
pub const MOST_RESOURCES: usize = 4 << 10;
/// Nodes that are preferred for one shape.
pub const MOST_PREFERRED: usize = 64 << 10;
/// Leases that a peer names when it opens a link.
pub const MOST_LEASES: usize = 128 << 10;
/// Addresses of a node, and its devices.
pub const MOST_ADDRESSES: usize = 256;
pub const MOST_DEVICES: usize = 4 << 10;
/// References inside of one object, and inputs of the task that makes one.
pub const MOST_REFERENCES: usize = 256 << 10;

/// A message that carries no record, no answer and no list of leases or references.
const LONGEST_PLAIN: usize = 2 << 20;
/// A message with a list of leases or references.
const LONGEST_LIST: usize = 8 << 20;

/// The variants that may be longer.
const HELLO: u8 = 0;
const ASK: u8 = 9;
const JOIN: u8 = 0;
const NODE_ANSWER: u8 = 7;

/// A message that a head or a node takes from a peer that it does not trust.
pub(crate) trait Bounded {
    /// The longest body of the message whose first byte is this: its variant.
    fn longest_body(_variant: u8) -> usize {
        usize::MAX
    }

    /// Returns the first field that is too long.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Messages of those that are trusted: a head, a node to its slots, a store to its processes.
impl Bounded for HeadToClient {}
impl Bounded for HeadToNode {}
impl Bounded for NodeToSlot {}
impl Bounded for NodeToZygote {}
impl Bounded for objects::FromStore {}
/// Those of slots and zygotes have no parts of their own length.
impl Bounded for SlotToNode {}
impl Bounded for ZygoteToNode {}

/// Decodes a message and checks it, in this order: its length, its layout, its fields.
pub(crate) fn decode<'a, M: Bounded + serde::Deserialize<'a>>(
    body: &'a [u8],
    what: &'static str,
) -> Result<M, Error> {
    let longest = M::longest_body(body.first().copied().unwrap_or(0));
    within(what, body.len(), longest)?;
    let message: M = from_postcard(body, what)?;
    message.check()?;
    Ok(message)
}

/// Refuses a text or a list of more than `limit` bytes or entries.
pub fn within(field: &'static str, length: usize, limit: usize) -> Result<(), Error> {
    match length <= limit {
        true => Ok(()),
        false => Err(Error::TooLong { field, length: length as u64, limit: limit as u64 }),
    }
}

/// Checks a message to the head before it is sent: one that is too long would cost the link.
pub fn check_to_head(message: &ClientToHead) -> Result<(), Error> {
    message.check()
}

/// Checks one name, or every name of a list.
pub fn name(field: &'static str, name: &str) -> Result<(), Error> {
    within(field, name.len(), LONGEST_NAME)
}

fn names(field: &'static str, names: &[String], most: usize) -> Result<(), Error> {
    within(field, names.len(), most)?;
    names.iter().try_for_each(|each| name(field, each))
}

fn pairs(field: &'static str, pairs: &[(String, String)], most: usize) -> Result<(), Error> {
    within(field, pairs.len(), most)?;
    pairs.iter().try_for_each(|(key, value)| name(field, key).and(name(field, value)))
}

fn addresses(addresses: &[Address]) -> Result<(), Error> {
    within("addresses", addresses.len(), MOST_ADDRESSES)?;
    addresses.iter().try_for_each(|address| match address {
        Address::Unix(host) | Address::Tcp { host, .. } => name("address", host),
    })
}

fn gone(gone: &Gone) -> Result<(), Error> {
    within("reason", gone.why.len(), LONGEST_TEXT)?;
    within("error of the constructor", gone.error.len(), LONGEST_ABOUT)
}

fn answer(answer: &Answer, longest: usize) -> Result<(), Error> {
    within("answer", answer.as_ref().unwrap_or_else(|why| why).len(), longest)
}

impl Start {
    /// How many bytes it takes to keep this.
    pub fn weight(&self) -> usize {
        let each = size_of::<String>();
        let command: usize = self.command.iter().map(|word| word.len() + each).sum();
        let variables = self.variables.iter().map(|(key, value)| key.len() + value.len() + 2 * each);
        command + variables.sum::<usize>()
    }

    /// Returns the first part that is too long.
    pub fn check(&self) -> Result<(), Error> {
        within("command of a program", self.command.len(), MOST_ARGUMENTS)?;
        within("variables of a program", self.variables.len(), MOST_ARGUMENTS)?;
        let command: usize = self.command.iter().map(String::len).sum();
        let variables: usize = self.variables.iter().map(|(key, value)| key.len() + value.len()).sum();
        within("command and variables of a program", command + variables, LONGEST_START)
    }
}

impl Rule {
    /// How many bytes it takes to keep this.
    pub fn weight(&self) -> usize {
        let each = size_of::<String>();
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len() + 2 * each).sum();
        let names = self.nodes.iter().chain(&self.not_nodes).map(|name| name.len() + each);
        labels + names.sum::<usize>() + self.gang.len() * size_of::<crate::placement::Member>()
    }

    /// Returns the first part that is too long.
    pub fn check(&self) -> Result<(), Error> {
        pairs("labels", &self.labels, MOST_LABELS)?;
        names("nodes of a placement rule", &self.nodes, MOST_LABELS)?;
        names("excluded nodes of a placement rule", &self.not_nodes, MOST_LABELS)?;
        within("members of a group", self.gang.len(), MOST_MEMBERS)?;
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        let nodes: usize = self.nodes.iter().chain(&self.not_nodes).map(String::len).sum();
        within("placement rule", labels + nodes, LONGEST_RULE)
    }
}

impl Work {
    /// How many bytes it takes to keep this.
    pub fn weight(&self) -> usize {
        let resources: usize = self.resources.iter().map(|name| name.len() + size_of::<String>()).sum();
        self.name.len() + resources + self.start.len()
    }
}

impl StartError {
    fn check(&self) -> Result<(), Error> {
        within("output of a program", self.words().len(), LONGEST_TEXT)?;
        match self {
            StartError::NotRun { reason } | StartError::Foreign { reason, .. } => {
                within("reason", reason.len(), LONGEST_TEXT)
            }
            StartError::Ended { .. } | StartError::Silent { .. } | StartError::SlotsDie { .. } => Ok(()),
        }
    }
}

fn question(question: &Question) -> Result<(), Error> {
    match question {
        Question::Explain { what: Some(what) } => name("what is to be explained", what),
        Question::Logs { of: Some(of), .. } => name("name of a log", of),
        Question::Drain { node } => name("name of a node", node),
        Question::StopProgram { name: program } => name("name of a program", program),
        Question::Submit { work } => {
            name("name of a program", &work.name)?;
            names("names of resources", &work.resources, MOST_RESOURCES)
        }
        Question::Explain { what: None }
        | Question::Logs { of: None, .. }
        | Question::Status
        | Question::CleanLogs
        | Question::Stop
        | Question::Token { .. }
        | Question::StopHead
        | Question::Programs => Ok(()),
    }
}

impl Bounded for ClientToHead {
    fn longest_body(variant: u8) -> usize {
        match variant {
            HELLO => LONGEST_LIST,
            // A record that is a little too long is answered with a sentence.
            ASK => LONGEST_RECORD + (64 << 10),
            _ => LONGEST_PLAIN,
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self {
            ClientToHead::Hello { name: called, leases, .. } => {
                name("name of a client", called)?;
                within("leases", leases.len(), MOST_LEASES)
            }
            ClientToHead::Program { start, .. } => start.check(),
            ClientToHead::Placement { rule, .. } => rule.check(),
            ClientToHead::Ask { question: asked, .. } => question(asked),
            ClientToHead::Named { resources } => names("names of resources", resources, MOST_RESOURCES),
            ClientToHead::Answer { text, .. } => answer(text, LONGEST_ANSWER),
            ClientToHead::Actor { name: called, about, gone: over, program, .. } => {
                called.iter().try_for_each(|called| name("name of an actor", called))?;
                program.iter().try_for_each(|program| name("program of an actor", program))?;
                within("description of an actor", about.len(), LONGEST_ABOUT)?;
                over.iter().try_for_each(gone)
            }
            ClientToHead::Find { name: called, .. } => name("name of an actor", called),
            ClientToHead::OwnedByProgram { program, .. } => name("program of an actor", program),
            ClientToHead::Near { nodes, .. } => within("preferred nodes", nodes.len(), MOST_PREFERRED),
            ClientToHead::Want { .. }
            | ClientToHead::Release { .. }
            | ClientToHead::Bye
            | ClientToHead::Under { .. }
            | ClientToHead::Unreachable { .. }
            | ClientToHead::Broken { .. }
            | ClientToHead::Heartbeat { .. }
            | ClientToHead::Standing { .. }
            | ClientToHead::Reopening
            | ClientToHead::Synced
            | ClientToHead::Welcomed
            | ClientToHead::Visit { .. }
            | ClientToHead::Lost { .. } => Ok(()),
        }
    }
}

impl Bounded for NodeToHead {
    fn longest_body(variant: u8) -> usize {
        match variant {
            JOIN => LONGEST_LIST,
            NODE_ANSWER => LONGEST_RECORD,
            _ => LONGEST_PLAIN,
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self {
            NodeToHead::Join { name: called, leases, addresses: listens, facts, .. } => {
                name("name of a node", called)?;
                within("leases", leases.len(), MOST_LEASES)?;
                addresses(listens)?;
                pairs("labels", &facts.labels, MOST_LABELS)?;
                within("devices", facts.devices.len(), MOST_DEVICES)?;
                names("names of resources", &facts.resources, MOST_RESOURCES)
            }
            NodeToHead::ProgramFailed { why, .. } => why.check(),
            NodeToHead::Output { text, .. } => within("output", text.len(), LONGEST_OUTPUT),
            NodeToHead::Answer { text, .. } => answer(text, LONGEST_RECORD),
            NodeToHead::Placed { .. }
            | NodeToHead::Ended { .. }
            | NodeToHead::Heartbeat { .. }
            | NodeToHead::Blocked { .. }
            | NodeToHead::Leaving => Ok(()),
        }
    }
}

impl Bounded for objects::ToStore {
    fn longest_body(_variant: u8) -> usize {
        // References are longer than leases, and an object of few bytes may come along.
        2 * LONGEST_LIST
    }

    fn check(&self) -> Result<(), Error> {
        match self {
            objects::ToStore::Put { inside, .. } | objects::ToStore::Made { inside, .. } => {
                within("references of an object", inside.len(), MOST_REFERENCES)
            }
            objects::ToStore::PutSmall { bytes, inside, .. } => {
                within("bytes of an object", bytes.len(), LONGEST_SMALL_OBJECT)?;
                within("references of an object", inside.len(), MOST_REFERENCES)
            }
            objects::ToStore::Remember { inputs, .. } => {
                within("inputs of a task", inputs.len(), MOST_REFERENCES)
            }
            objects::ToStore::Ran { failed, .. } => {
                within("reason", failed.as_ref().map_or(0, String::len), LONGEST_TEXT)
            }
            objects::ToStore::Hello { .. }
            | objects::ToStore::Reserve { .. }
            | objects::ToStore::Abandon { .. }
            | objects::ToStore::Hold { .. }
            | objects::ToStore::Release { .. }
            | objects::ToStore::Get { .. }
            | objects::ToStore::LetGo { .. }
            | objects::ToStore::Pin { .. }
            | objects::ToStore::Claim { .. }
            | objects::ToStore::Unpin { .. }
            | objects::ToStore::Node { .. }
            | objects::ToStore::Has { .. }
            | objects::ToStore::Send { .. } => Ok(()),
        }
    }
}

/// A message to the store of files: its frames have a limit of their own, and only one kind has a list.
pub(crate) fn check_store(message: &store::ToStore) -> Result<(), Error> {
    match message {
        store::ToStore::Lacks { names, .. } => within("names", names.len(), store::MOST_NAMES),
        store::ToStore::Put { .. }
        | store::ToStore::Get { .. }
        | store::ToStore::Unpack { .. }
        | store::ToStore::Bye => Ok(()),
    }
}

/// Shortens a text for people to so many bytes, at the end of a character.
pub fn clip(text: &mut String, longest: usize) {
    if text.len() > longest {
        let mark = " [...]";
        let mut end = longest.saturating_sub(mark.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Message;
    use crate::frame::{Decoder, Frame};
    use crate::ids::{ActorId, ClientId, Incarnation, NodeId, ObjectId, PlacementId, ProgramId, SlotId};
    use crate::placement::{Device, Facts, Member};
    use crate::resources::{Resources, Shape};
    use std::time::Duration;

    fn frame_of(message: &impl Message) -> Frame {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        decoder.next_frame().unwrap().unwrap()
    }

    /// The message at the limit is decoded, and the one above is refused by the name of its field.
    fn bounds<M: Message + PartialEq + std::fmt::Debug>(
        field: &str,
        limit: usize,
        make: impl Fn(usize) -> M,
    ) {
        let fits = make(limit);
        assert_eq!(M::decode(&frame_of(&fits)).as_ref(), Ok(&fits), "LM-1: {field} of {limit}");
        let refused = M::decode(&frame_of(&make(limit + 1))).unwrap_err();
        let Error::TooLong { field: named, length, limit: named_limit } = refused else {
            panic!("LM-1: {field}: {refused:?}")
        };
        assert_eq!((named, length, named_limit), (field, limit as u64 + 1, limit as u64), "LM-1");
    }

    fn text(length: usize) -> String {
        "x".repeat(length)
    }

    fn names_of(length: usize) -> Vec<String> {
        vec![String::new(); length]
    }

    fn labels_of(length: usize) -> Vec<(String, String)> {
        vec![Default::default(); length]
    }

    fn hello(name: String, leases: usize) -> ClientToHead {
        let shape = Shape::cpus(1);
        let held = crate::control::Held {
            lease: crate::ids::LeaseId(u128::MAX),
            node: NodeId(u64::MAX),
            incarnation: Incarnation(u64::MAX),
            shape,
            exclusive: None,
        };
        ClientToHead::Hello {
            client: ClientId(1),
            name,
            leases: vec![held; leases],
            met: None,
            under: None,
            beats: true,
        }
    }

    #[test]
    fn every_field_of_a_client_is_bounded() {
        bounds("name of a client", LONGEST_NAME, |length| hello(text(length), 0));
        bounds("leases", MOST_LEASES, |length| hello(String::new(), length));
        let program = |command, variables| ClientToHead::Program {
            program: ProgramId(1),
            start: Start { command, variables },
        };
        bounds("command of a program", MOST_ARGUMENTS, |length| program(names_of(length), vec![]));
        bounds("variables of a program", MOST_ARGUMENTS, |length| program(vec![], labels_of(length)));
        bounds("command and variables of a program", LONGEST_START, |length| {
            program(vec![text(length / 2)], vec![(text(length - length / 2), String::new())])
        });
        let rule = |rule| ClientToHead::Placement { id: PlacementId(1), rule };
        bounds("labels", MOST_LABELS, |length| rule(Rule { labels: labels_of(length), ..Rule::default() }));
        bounds("labels", LONGEST_NAME, |length| {
            rule(Rule { labels: vec![(text(length), String::new())], ..Rule::default() })
        });
        bounds("labels", LONGEST_NAME, |length| {
            rule(Rule { labels: vec![(String::new(), text(length))], ..Rule::default() })
        });
        let nodes = "nodes of a placement rule";
        bounds(nodes, MOST_LABELS, |length| rule(Rule { nodes: names_of(length), ..Rule::default() }));
        bounds(nodes, LONGEST_NAME, |length| rule(Rule { nodes: vec![text(length)], ..Rule::default() }));
        let nodes = "excluded nodes of a placement rule";
        bounds(nodes, MOST_LABELS, |length| rule(Rule { not_nodes: names_of(length), ..Rule::default() }));
        bounds(nodes, LONGEST_NAME, |length| rule(Rule { not_nodes: vec![text(length)], ..Rule::default() }));
        let member = Member { needs: Resources::cpus(1), program: ProgramId(0), count: 1 };
        bounds("members of a group", MOST_MEMBERS, |length| {
            rule(Rule { gang: vec![member; length], ..Rule::default() })
        });
        bounds("placement rule", LONGEST_RULE, |length| {
            let mut names = vec![text(LONGEST_NAME); length / LONGEST_NAME];
            names.push(text(length % LONGEST_NAME));
            rule(Rule { nodes: names, ..Rule::default() })
        });
        let resources = "names of resources";
        bounds(resources, MOST_RESOURCES, |length| ClientToHead::Named { resources: names_of(length) });
        bounds(resources, LONGEST_NAME, |length| ClientToHead::Named { resources: vec![text(length)] });
        bounds("answer", LONGEST_ANSWER, |length| ClientToHead::Answer { number: 1, text: Ok(text(length)) });
        bounds("answer", LONGEST_ANSWER, |length| ClientToHead::Answer {
            number: 1,
            text: Err(text(length)),
        });
        bounds("name of an actor", LONGEST_NAME, |length| ClientToHead::Find {
            number: 1,
            name: text(length),
        });
        bounds("preferred nodes", MOST_PREFERRED, |length| ClientToHead::Near {
            shape: Shape::cpus(1),
            nodes: vec![(NodeId(1), 1); length],
        });
    }

    #[test]
    fn every_field_of_an_actor_is_bounded() {
        let actor = |name: usize, about: usize, gone: Option<Gone>, program: usize| ClientToHead::Actor {
            actor: ActorId(1),
            name: Some(text(name)),
            about: vec![0; about],
            lease: None,
            gone,
            program: Some(text(program)),
            named: false,
        };
        bounds("name of an actor", LONGEST_NAME, |length| actor(length, 0, None, 0));
        bounds("program of an actor", LONGEST_NAME, |length| actor(0, 0, None, length));
        bounds("description of an actor", LONGEST_ABOUT, |length| actor(0, length, None, 0));
        bounds("reason", LONGEST_TEXT, |length| actor(0, 0, Some(text(length).into()), 0));
        bounds("error of the constructor", LONGEST_ABOUT, |length| {
            actor(0, 0, Some(Gone { why: String::new(), error: vec![0; length] }), 0)
        });
    }

    #[test]
    fn every_field_of_a_question_is_bounded() {
        let ask = |question| ClientToHead::Ask { number: 1, question };
        bounds("what is to be explained", LONGEST_NAME, |length| {
            ask(Question::Explain { what: Some(text(length)) })
        });
        bounds("name of a log", LONGEST_NAME, |length| {
            ask(Question::Logs { of: Some(text(length)), lines: 1 })
        });
        bounds("name of a node", LONGEST_NAME, |length| ask(Question::Drain { node: text(length) }));
        bounds("name of a program", LONGEST_NAME, |length| ask(Question::StopProgram { name: text(length) }));
        bounds("name of a program", LONGEST_NAME, |length| {
            ask(Question::Submit { work: Work { name: text(length), ..Work::default() } })
        });
        let submit = |resources| ask(Question::Submit { work: Work { resources, ..Work::default() } });
        bounds("names of resources", MOST_RESOURCES, |length| submit(names_of(length)));
        bounds("names of resources", LONGEST_NAME, |length| submit(vec![text(length)]));
        let record = Work { start: vec![0; LONGEST_RECORD], ..Work::default() };
        let record = ask(Question::Submit { work: record });
        assert_eq!(ClientToHead::decode(&frame_of(&record)), Ok(record), "the longest record");
    }

    #[test]
    fn every_field_of_a_node_is_bounded() {
        let join = |name: usize, addresses: Vec<Address>, facts: Facts| NodeToHead::Join {
            node: NodeId(1),
            incarnation: Incarnation(1),
            name: text(name),
            total: Resources::cpus(1),
            leases: vec![],
            met: None,
            addresses,
            facts,
        };
        let none = Facts::default;
        bounds("name of a node", LONGEST_NAME, |length| join(length, vec![], none()));
        bounds("addresses", MOST_ADDRESSES, |length| join(0, vec![Address::tcp("a", 1); length], none()));
        bounds("address", LONGEST_NAME, |length| join(0, vec![Address::tcp(text(length), 1)], none()));
        bounds("address", LONGEST_NAME, |length| join(0, vec![Address::Unix(text(length))], none()));
        bounds("labels", MOST_LABELS, |length| {
            join(0, vec![], Facts { labels: labels_of(length), ..none() })
        });
        bounds("labels", LONGEST_NAME, |length| {
            join(0, vec![], Facts { labels: vec![(String::new(), text(length))], ..none() })
        });
        bounds("devices", MOST_DEVICES, |length| {
            join(0, vec![], Facts { devices: vec![Device { memory: 1 }; length], ..none() })
        });
        bounds("names of resources", MOST_RESOURCES, |length| {
            join(0, vec![], Facts { resources: names_of(length), ..none() })
        });
        let failed = |why| NodeToHead::ProgramFailed { program: ProgramId(1), why };
        bounds("reason", LONGEST_TEXT, |length| failed(StartError::NotRun { reason: text(length) }));
        bounds("output of a program", LONGEST_TEXT, |length| {
            failed(StartError::Silent { after: Duration::ZERO, words: text(length) })
        });
        bounds("output", LONGEST_OUTPUT, |length| NodeToHead::Output {
            client: ClientId(1),
            slot: SlotId(1),
            stream: crate::control::Stream::Out,
            text: vec![0; length],
        });
        let long = NodeToHead::Answer { number: 1, text: Ok(text(LONGEST_RECORD - 100)) };
        assert_eq!(NodeToHead::decode(&frame_of(&long)), Ok(long));
    }

    #[test]
    fn every_field_for_a_store_is_bounded() {
        use objects::{Reference, ToStore};
        let object = ObjectId(u128::MAX);
        let inside =
            |length| vec![Reference { object, owner: ClientId(u64::MAX), home: NodeId(u64::MAX) }; length];
        let references = "references of an object";
        bounds(references, MOST_REFERENCES, |length| ToStore::Put { object, inside: inside(length) });
        bounds(references, MOST_REFERENCES, |length| ToStore::Made {
            object,
            size: 1,
            inside: inside(length),
        });
        let small = |bytes, references| ToStore::PutSmall {
            number: 1,
            object,
            bytes: vec![0; bytes],
            inside: inside(references),
            wait: Duration::ZERO,
        };
        bounds("bytes of an object", LONGEST_SMALL_OBJECT, |length| small(length, 0));
        bounds(references, MOST_REFERENCES, |length| small(0, length));
        bounds("inputs of a task", MOST_REFERENCES, |length| ToStore::Remember {
            object,
            inputs: vec![object; length],
            bytes: 1,
            again: true,
        });
        bounds("reason", LONGEST_TEXT, |length| ToStore::Ran { object, failed: Some(text(length)) });
    }

    #[test]
    fn a_message_that_no_field_makes_long_is_not_decoded() {
        // A list of so many empty texts would take twenty-four times as much memory as its frame.
        let long = ClientToHead::Named { resources: names_of(LONGEST_PLAIN) };
        let refused = ClientToHead::decode(&frame_of(&long)).unwrap_err();
        assert!(matches!(refused, Error::TooLong { field: "ClientToHead", .. }), "LM-2: {refused:?}");
        // Those that may be long are the ones that are meant.
        let first = |message: &ClientToHead| frame_of(message).body[0];
        assert_eq!(first(&hello(String::new(), 0)), HELLO);
        assert_eq!(first(&ClientToHead::Ask { number: 1, question: Question::Status }), ASK);
        let answer = NodeToHead::Answer { number: 1, text: Ok(String::new()) };
        assert_eq!(frame_of(&answer).body[0], NODE_ANSWER);
    }

    #[test]
    fn texts_are_shortened_at_a_character() {
        let mut text = "ä".repeat(100);
        clip(&mut text, 50);
        assert!(text.len() <= 50 && text.ends_with("ä [...]"), "{text}");
        let mut short = "as it is".to_owned();
        clip(&mut short, 8);
        assert_eq!(short, "as it is");
    }
}
