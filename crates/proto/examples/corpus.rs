//! Writes the fuzzer's corpus: one file for each kind of message, and some that lie.
//!
//! `cargo run -p paceline-proto --example corpus -- fuzz/corpus/frames`

use paceline_proto::control::{
    ClientToHead, HeadToClient, HeadToNode, Held, Met, NodeToHead, NodeToSlot, NodeToZygote, Placement,
    SlotToNode, Stream, Timing, ZygoteToNode,
};
use paceline_proto::data::{Call, Environment, FromSlot, Hello, Reply, Status, ToSlot};
use paceline_proto::frame::{self, Segment};
use paceline_proto::lending::{Lending, Returned};
use paceline_proto::objects::{FromStore, Full, Missing, Reference, Source, ToStore};
use paceline_proto::placement::Member;
use paceline_proto::question::{ClientQuestion, NodeQuestion, Question};
use paceline_proto::work::Command;
use paceline_proto::{
    ActorId, Address, Bytes, ClientId, ClusterId, Death, DeathCause, Device, Devices, Epoch, ExclusiveId,
    Facts, FunctionId, Incarnation, LeaseId, LeaseSecret, MemoryUse, NodeId, ObjectId, OutOfMemory, Part,
    PinId, PlacementId, ProgramId, Resources, Rule, Seq, Shape, SlotId, Start, StartError, TaskId, Work,
    open, work,
};
use std::path::PathBuf;
use std::time::Duration;

macro_rules! messages {
    ($out:ident, $($message:expr),+ $(,)?) => {$({
        let mut bytes = vec![7];
        $message.encode(&mut bytes).unwrap();
        $out.push(bytes);
    })+};
}

fn timing() -> Timing {
    Timing { heartbeat: Duration::from_secs(2), head_lost: Duration::from_secs(60) }
}

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("the folder to write to"));
    std::fs::create_dir_all(&folder).unwrap();
    for (index, bytes) in all().into_iter().enumerate() {
        std::fs::write(folder.join(format!("{index:03}")), bytes).unwrap();
    }
}

fn all() -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    data(&mut out);
    control(&mut out);
    stored(&mut out);
    let stream: Vec<u8> = std::iter::once(3).chain(out.iter().flat_map(|one| one[1..].to_vec())).collect();
    out.push(stream);
    out.push(open::encode(LeaseId(77)).to_vec());
    out.push(open::Header { kind: open::Kind::Client, id: 0 }.encode().to_vec());
    out.push(open::Answer::Lease.encode().to_vec());
    out.push(b"[fe80::1%eth0]:7077".to_vec());
    out.extend(lies(&out[4]));
    out
}

fn data(out: &mut Vec<Vec<u8>>) {
    let call = |seq: u64, payload: &'static [u8]| Call {
        seq: Seq(seq),
        task: TaskId(seq * 3),
        attempt: 1,
        at_most_once: false,
        function: FunctionId(0xfeed),
        timeout: Duration::from_secs(60),
        payload: Bytes::from_static(payload),
    };
    let reply = |seq: u64, status| Reply {
        seq: Seq(seq),
        status,
        took: Duration::from_micros(20),
        payload: Bytes::from_static(b"\x80\x05K\x01."),
    };
    messages!(
        out,
        ToSlot::Hello(Hello { client: ClientId(3), lease: LeaseId(1 << 100), replies: 4, keeps: false }),
        ToSlot::Environment(Environment {
            directory: "/home/ada".into(),
            path: vec!["/usr/lib".into(), String::new()],
            variables: vec![("OMP_NUM_THREADS".into(), "2".into())],
            files: 2,
        }),
        ToSlot::Define { function: FunctionId(9), bytes: Bytes::from_static(b"P...") },
        ToSlot::Run { acked: 0, calls: vec![] },
        ToSlot::Run { acked: 2, calls: vec![call(1, b""), call(2, b"abc"), call(3, b"\0")] },
        ToSlot::Withdraw { calls: vec![Seq(1), Seq(2)] },
        ToSlot::Cancel { calls: vec![Seq(u64::MAX)] },
        ToSlot::Kill { calls: vec![Seq(7)] },
        ToSlot::Ack { acked: 12 },
        FromSlot::Hello { received: Seq(3) },
        FromSlot::Replies {
            first: 5,
            replies: vec![
                reply(1, Status::Value),
                reply(2, Status::Raised),
                reply(3, Status::Unsendable),
                reply(4, Status::Cancelled),
                reply(5, Status::Withdrawn),
                reply(6, Status::TimedOut),
            ],
        },
        FromSlot::Running { call: Seq(8) },
        FromSlot::Begun { calls: vec![Seq(9), Seq(11)] },
    );
    let mut with_segments = vec![1];
    let segment = Segment { segment: 1, flags: 0, offset: 4096, length: 1 << 20 };
    frame::encode(200, &[segment; 3], &mut with_segments, |out| out.extend_from_slice(b"body")).unwrap();
    out.push(with_segments);
    let inline = Segment { segment: 0, flags: frame::INLINE, offset: 0, length: 5 };
    let mut with_bytes = vec![3];
    frame::encode(201, &[segment, inline, inline], &mut with_bytes, |out| out.extend_from_slice(b"body"))
        .unwrap();
    with_bytes.extend_from_slice(b"firstother");
    out.push(with_bytes);
    let huge = Segment { length: u64::MAX, ..inline };
    let mut liar = vec![9];
    frame::encode(202, &[inline, huge], &mut liar, |out| out.extend_from_slice(b"body")).unwrap();
    out.push(liar);
    messages!(
        out,
        Lending::Segment { segment: 3, size: 64 << 20 },
        Lending::Gone { segment: 3 },
        Lending::Returned(vec![Returned { segment: 3, offset: 4096, retired: true }]),
        Lending::Plain,
        Lending::Again,
    );
}

fn control(out: &mut Vec<Vec<u8>>) {
    let death = Death {
        cause: DeathCause::Signal(9),
        out_of_memory: OutOfMemory::Likely(MemoryUse { peak: 1 << 30, limit: 1 << 34 }),
        running: Some(Seq(4)),
        finished: Seq(3),
    };
    let (lease, shape, slot) = (LeaseId(5), Shape::cpus(1), SlotId(2));
    let devices = Devices::from_iter([0, 3]);
    let needs = Resources::cpus(1).with(Part::Gpus(0.5)).and_then(|it| it.with(Part::Custom("license", 1.0)));
    let rule = Rule {
        labels: vec![("zone".into(), "b".into())],
        gang: vec![Member {
            needs: needs.expect("it is a sensible need"),
            program: ProgramId::OWN,
            count: 4,
        }],
        ..Rule::default()
    };
    let facts = Facts {
        labels: vec![("disk".into(), "ssd".into())],
        devices: vec![Device { memory: 8 << 30 }; 4],
        resources: vec!["license".into()],
    };
    let program = ProgramId(77);
    let start = Start {
        command: vec!["/bin/shapes".into(), "paceline-zygote".into()],
        variables: vec![("PACELINE_ZYGOTE".into(), "1".into())],
    };
    let (client, node) = (ClientId(1), NodeId(1));
    let addresses = vec![Address::Unix("paceline-77".into()), Address::tcp("alpha", 7078)];
    let met = Met { cluster: ClusterId(1), epoch: Epoch(2) };
    let secret = LeaseSecret([7; 32]);
    let command = Command { arguments: vec!["python".into(), "train.py".into()], ..Command::default() };
    messages!(
        out,
        ClientToHead::Hello {
            client,
            name: "nightly".into(),
            leases: vec![Held {
                lease,
                node,
                incarnation: Incarnation(1),
                shape: Shape::cpus(1),
                exclusive: Some(ExclusiveId(1 << 80))
            }],
            met: Some(met),
            under: Some(lease),
            beats: false,
        },
        ClientToHead::Want { shape, count: 8, exclusive: Some(ExclusiveId(7)) },
        ClientToHead::Program { program, start: start.clone() },
        ClientToHead::Release { lease },
        ClientToHead::Bye,
        ClientToHead::Under { lease },
        ClientToHead::Unreachable { lease },
        ClientToHead::Broken { lease },
        ClientToHead::Heartbeat { beat: 7 },
        ClientToHead::Ask { number: 3, question: Question::Logs { of: Some("ada".into()), lines: 50 } },
        ClientToHead::Ask {
            number: 4,
            question: Question::Submit {
                work: Work { name: "train".into(), start: work::to_bytes(&command), ..Work::default() }
            }
        },
        ClientToHead::Ask { number: 5, question: Question::StopProgram { name: "train".into() } },
        ClientToHead::Placement { id: PlacementId(3), rule },
        ClientToHead::Named { resources: vec!["license".into()] },
        ClientToHead::Standing { weight: 2, priority: -1 },
        ClientToHead::Reopening,
        ClientToHead::Answer { number: 5, text: Ok("{}".into()) },
        ClientToHead::Actor {
            actor: ActorId(1 << 90),
            name: Some("learner".into()),
            about: b"about".to_vec(),
            lease: Some(lease),
            gone: None,
            program: Some("host".into()),
            named: false,
        },
        ClientToHead::Visit { actor: ActorId(9), stay: true, held: Some(lease) },
        ClientToHead::Find { number: 2, name: "learner".into() },
        ClientToHead::Near { shape, nodes: vec![(node, 3), (NodeId(70_000), 1)] },
        ClientToHead::Lost {
            lease: Held { lease, node, incarnation: Incarnation(1), shape, exclusive: Some(ExclusiveId(7)) }
        },
        ClientToHead::OwnedByProgram { exclusive: ExclusiveId(7), program: "actor.learner".into() },
        ClientToHead::Synced,
        ClientToHead::Welcomed,
        HeadToClient::Welcome { cluster: ClusterId(1), epoch: Epoch(2), timing: timing() },
        HeadToClient::Granted {
            lease,
            node,
            slot,
            shape,
            incarnation: Incarnation(1),
            secret,
            exclusive: Some(ExclusiveId(7))
        },
        HeadToClient::Recall { lease },
        HeadToClient::Crowded { shape },
        HeadToClient::Ended { lease, death: death.clone() },
        HeadToClient::Unplaceable { shape, largest: Resources::cpus(2), why: "no node has a GPU".into() },
        HeadToClient::Waits { shape, why: "all 8 CPUs are used".into() },
        HeadToClient::Ask { number: 5, question: ClientQuestion::Task { task: TaskId(42) } },
        HeadToClient::ProgramFailed { program, why: StartError::NotRun { reason: "no such file".into() } },
        HeadToClient::Output { slot, stream: Stream::Err, text: b"line\n".to_vec() },
        HeadToClient::NodeAt { node, name: "alpha".into(), addresses: addresses.clone() },
        HeadToClient::Via { lease, node, addresses: addresses.clone() },
        HeadToClient::Heartbeat { beat: 7 },
        HeadToClient::Answer { number: 3, text: Ok("{}".into()) },
        HeadToClient::Bye { by: "paceline stop on this machine".into() },
        HeadToClient::Over,
        HeadToClient::ActorKnown { actor: ActorId(9), refused: Some("ada".into()) },
        HeadToClient::NameHeld { actor: ActorId(9), within: Duration::from_secs(60), why: "ada".into() },
        HeadToClient::Visiting { actor: ActorId(9), lease, node, slot, secret },
        HeadToClient::ActorGone { actor: ActorId(9), why: "its owner has ended".into() },
        HeadToClient::ActorAway { actor: ActorId(9), why: "its node is silent".into() },
        HeadToClient::Found {
            number: 2,
            actor: Some(ActorId(9)),
            about: b"about".to_vec(),
            comes: false,
            gone: None
        },
        HeadToClient::Refused { why: "max_client_links".into() },
        NodeToHead::Join {
            node,
            incarnation: Incarnation(1),
            name: "alpha".into(),
            total: Resources::cpus(64),
            leases: vec![Placement {
                lease,
                client,
                slot,
                shape,
                blocked: true,
                holder: client,
                epoch: Epoch(9),
                devices,
                exclusive: Some(ExclusiveId(7)),
            }],
            met: Some(met),
            addresses: addresses.clone(),
            facts,
        },
        NodeToHead::Placed { lease, slot },
        NodeToHead::Ended { lease, death: Some(death) },
        NodeToHead::Output { client, slot, stream: Stream::Out, text: b"line".to_vec() },
        NodeToHead::ProgramFailed {
            program,
            why: StartError::Ended { cause: DeathCause::Exit(2), words: "usage".into() },
        },
        NodeToHead::Heartbeat { beat: 1 << 40 },
        NodeToHead::Blocked { lease, blocked: true, full: false },
        NodeToHead::Answer { number: 4, text: Err("no".into()) },
        NodeToHead::Leaving,
        HeadToNode::Welcome { cluster: ClusterId(1), epoch: Epoch(2), timing: timing() },
        HeadToNode::Program { program, start },
        HeadToNode::Place {
            lease,
            client,
            shape,
            holder: client,
            secret,
            devices,
            once: true,
            exclusive: Some(ExclusiveId(7)),
        },
        HeadToNode::End { lease },
        HeadToNode::Bye,
        HeadToNode::Relay { lease, addresses },
        HeadToNode::TooDeep { lease },
        HeadToNode::Heartbeat { beat: 7 },
        HeadToNode::Heard { lease },
        HeadToNode::HolderConfirmed { lease },
        HeadToNode::Ask { number: 4, question: NodeQuestion::Status },
        HeadToNode::Ask { number: 5, question: NodeQuestion::ProgramLog { name: "train".into(), lines: 9 } },
        HeadToNode::Run {
            lease,
            holder: client,
            shape,
            devices,
            name: "train".into(),
            start: work::to_bytes(&command),
        },
        HeadToNode::Admit { lease, host: LeaseId(6), secret, again: false },
        NodeToSlot::Guest { lease, number: 1, secret: Some(secret) },
        NodeToSlot::Bind {
            client,
            needs: Resources::cpus(1),
            total: Resources::cpus(2),
            own: true,
            devices,
            files: Some("/tmp/x".into())
        },
        NodeToSlot::Attach { lease, secret: None },
        NodeToSlot::Attach { lease, secret: Some(secret) },
        NodeToSlot::Detach { lease },
        NodeToSlot::Exit,
        NodeToSlot::TooDeep { lease },
        NodeToSlot::Become { start: work::to_bytes(&command), variables: vec![("A".into(), "1".into())] },
        SlotToNode::Ready { slot, pid: 4711 },
        SlotToNode::Detached { lease },
        SlotToNode::Blocked { lease, blocked: false },
        SlotToNode::Waits { lease },
        SlotToNode::Nest,
        SlotToNode::Connect,
        SlotToNode::Objects,
        NodeToZygote::Fork { slot },
        NodeToZygote::Exit,
        NodeToZygote::Lifeline,
        ZygoteToNode::Hello,
        ZygoteToNode::Forked { slot, pid: 4711 },
        ZygoteToNode::Exited { slot, pid: 4711, cause: DeathCause::Exit(1), peak: 1 << 24 },
        ZygoteToNode::Stopped { slot, signal: 19 },
        ZygoteToNode::Continued { slot },
    );
    objects(out);
}

fn objects(out: &mut Vec<Vec<u8>>) {
    let object = ObjectId(0xfeed_0b1e);
    let reference = Reference { object, owner: ClientId(9), home: NodeId(1) };
    let (number, pin, wait) = (3, PinId(77), Duration::from_secs(60));
    messages!(
        out,
        ToStore::Hello { owner: ClientId(9), root: true },
        ToStore::Reserve { number, object, size: 64 << 20, wait },
        ToStore::Put { object, inside: vec![reference] },
        ToStore::PutSmall { number, object, bytes: vec![1, 2, 3], inside: vec![], wait },
        ToStore::Abandon { object },
        ToStore::Hold { number, reference },
        ToStore::Release { object },
        ToStore::Get { number, reference },
        ToStore::LetGo { object },
        ToStore::Pin { number, pin, reference },
        ToStore::Claim { number, pin, reference },
        ToStore::Unpin { pin },
        ToStore::Node {
            owner: ClientId(9),
            node: NodeId(1),
            lease: LeaseId(5),
            secret: LeaseSecret([7; 32])
        },
        ToStore::Made { object, size: 64 << 20, inside: vec![reference] },
        ToStore::Has { object },
        ToStore::Send { object },
        ToStore::Remember { object, inputs: vec![object], bytes: 300, again: true },
        ToStore::Ran { object, failed: Some("ValueError".into()) },
        FromStore::Welcome { node: NodeId(1) },
        FromStore::Room { number },
        FromStore::Full { number, why: Full { size: 8, used: 4, limit: 5, disk: Some("full".into()) } },
        FromStore::Held { number },
        FromStore::Small { number, bytes: vec![1, 2, 3] },
        FromStore::Memory { number, object, size: 64 << 20 },
        FromStore::Missing { number, why: Missing::OwnerLost },
        FromStore::Unneeded { object },
        FromStore::Offered { number, object, size: 64 << 20, from: Source::Here },
        FromStore::Offered {
            number,
            object,
            size: 1,
            from: Source::Node {
                addresses: vec![Address::Unix("paceline-1".into())],
                lease: LeaseId(5),
                secret: LeaseSecret([7; 32]),
            },
        },
        FromStore::Unsent { object },
        FromStore::Make { object },
        FromStore::Forget { object },
        FromStore::Refused { why: "max_slot_links".into() },
        FromStore::Missing { number, why: Missing::Failed("ValueError".into()) },
        FromStore::Gone { object, why: Missing::Unlinked },
    );
}

fn stored(out: &mut Vec<Vec<u8>>) {
    use paceline_proto::store::{self, Failure, File, FromStore, Manifest, Name, Space, ToStore};
    let (number, space, name) = (5, Space::Files, Name([7; 32]));
    let file = File { path: "home/me/a.py".into(), name, length: 12, executable: false };
    let notes = vec![("packages".into(), vec!["numpy 1.26.4".into()])];
    let manifest = Manifest { files: vec![file], folders: vec!["home/me/empty".into()], notes };
    let mut frame = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = vec![7];
        encode(&mut bytes);
        out.push(bytes);
    };
    for message in [
        ToStore::Lacks { number, space, names: vec![name, Name([8; 32])] },
        ToStore::Put { number, space: Space::Objects, name, length: 1 << 30 },
        ToStore::Get { number, space, name, offset: 4096, length: u64::MAX },
        ToStore::Unpack { number, manifest: name },
        ToStore::Bye,
    ] {
        frame(&|out| store::encode(&message, out).unwrap());
    }
    let text = String::from("no room on node1");
    for message in [
        FromStore::Lacking { number, places: vec![0, 7] },
        FromStore::Stored { number },
        FromStore::Sending { number, length: 10, total: 20 },
        FromStore::Unpacked { number, directory: "/tmp/paceline-node-1/clients/2".into() },
        FromStore::Failed { number, why: Failure::Full { text } },
    ] {
        frame(&|out| store::encode(&message, out).unwrap());
    }
    frame(&|out| store::encode_chunk(number, &manifest.to_bytes(), out).unwrap());
    frame(&|out| frame::encode(90, &[], out, |out| out.extend(manifest.to_bytes())).unwrap());
}

/// A well-formed frame, made to lie: about its length, its count, its version, its segments.
fn lies(truth: &[u8]) -> Vec<Vec<u8>> {
    let changed = |place: usize, value: &[u8]| {
        let mut bytes = truth.to_vec();
        bytes[place..place + value.len()].copy_from_slice(value);
        bytes
    };
    vec![
        changed(5, &u32::MAX.to_le_bytes()),
        changed(5, &0u32.to_le_bytes()),
        changed(3, &[99]),
        changed(9, &u16::MAX.to_le_bytes()),
        changed(25, &u32::MAX.to_le_bytes()),
        changed(65, &u32::MAX.to_le_bytes()),
        truth[..truth.len() - 1].to_vec(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![],
        vec![0],
    ]
}
