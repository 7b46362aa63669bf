//! Work that the head owns.

mod ends;

use super::*;
use paceline_proto::work::{End, Ended, Placed, Standing};

/// The client that the first piece of work is, whose id no peer can have.
const W: ClientId = ClientId(1 << 63 | 1 << 32 | 1);

/// A head whose disk works: what it writes is written at once.
struct Desk {
    bench: Bench,
    /// What is in the journal.
    works: BTreeMap<WorkId, (Work, Standing)>,
    ended: Vec<(WorkId, Ended)>,
    starts: u64,
}

impl Desk {
    fn new() -> Desk {
        let mut desk = Desk {
            bench: Bench::with(|config| config.epoch = Epoch(1 << 32)),
            works: BTreeMap::new(),
            ended: Vec::new(),
            starts: 1,
        };
        desk.handle(Event::Tick);
        desk
    }

    /// The head is killed and started again, with what is on its disk.
    fn restart(&mut self) {
        self.restart_as(|_| ());
    }

    /// The same, with other settings than before.
    fn restart_as(&mut self, adjust: impl FnOnce(&mut Config)) {
        self.starts += 1;
        let epoch = self.starts << 32;
        let now = self.bench.now;
        self.bench = Bench::with(|config| {
            config.epoch = Epoch(epoch);
            adjust(config);
        });
        self.bench.now = now;
        let works = self.works.iter().map(|(&id, (work, standing))| (id, work.clone(), standing.clone()));
        self.bench.head.restore(works.collect(), self.ended.clone());
        self.handle(Event::Tick);
    }

    /// What the head does, its disk apart.
    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.bench.handle(event);
        self.write(effects)
    }

    fn write(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut done = Vec::new();
        for effect in effects {
            match effect {
                Effect::Write { work, write } => {
                    match write {
                        Write::Keep(record) => drop(self.works.insert(work, (record, Standing::default()))),
                        Write::Note(standing) => self.works.get_mut(&work).unwrap().1 = standing,
                        Write::End(ended) => {
                            self.works.remove(&work);
                            self.ended.push((work, ended));
                        }
                        Write::Forget => drop(self.works.remove(&work)),
                        Write::HeadLost(_) => {}
                    }
                    let more = self.handle(Event::Written { work, wrote: Ok(77) });
                    done.extend(more);
                }
                effect => done.push(effect),
            }
        }
        done
    }

    fn pass(&mut self, span: Duration) -> Vec<Effect> {
        let effects = self.bench.pass(span);
        self.write(effects)
    }

    fn submit(&mut self, name: &str, restarts: u32) -> Vec<Effect> {
        let token = name.bytes().fold(0, |sum: u128, byte| sum * 256 + u128::from(byte));
        let work = Work {
            token,
            name: name.into(),
            needs: Resources::cpus(1),
            restarts,
            start: b"start".to_vec(),
            ..Work::default()
        };
        self.handle(Event::Submit { asker: 5, work })
    }

    fn join(&mut self, node: NodeId, incarnation: u64, leases: &[(LeaseId, ClientId)]) -> Vec<Effect> {
        let mut out = self.handle(Desk::joining(node, incarnation, leases));
        // It has heard the welcome.
        out.extend(self.says(node, NodeToHead::Heartbeat { beat: 0 }));
        out
    }

    fn joining(node: NodeId, incarnation: u64, leases: &[(LeaseId, ClientId)]) -> Event {
        let leases = leases.iter().map(|&(lease, client)| Placement {
            lease,
            client,
            slot: SlotId(4),
            shape: Shape::cpus(1),
            blocked: false,
            devices: Devices::default(),
            holder: client,
            epoch: Epoch(1 << 32),
            exclusive: None,
        });
        let join = NodeToHead::Join {
            node,
            incarnation: Incarnation(incarnation),
            name: format!("n{}", node.0),
            total: Resources::cpus(1),
            leases: leases.collect(),
            met: None,
            addresses: Vec::new(),
            facts: Facts::default(),
        };
        Event::FromNode(node, join)
    }

    fn says(&mut self, node: NodeId, message: NodeToHead) -> Vec<Effect> {
        self.handle(Event::FromNode(node, message))
    }

    /// One node, on which a piece of work runs.
    fn running(restarts: u32) -> Desk {
        let mut desk = Desk::new();
        desk.join(N1, 1, &[]);
        assert_eq!(runs(&desk.submit("w", restarts)), [(N1, lease(1))]);
        desk.says(N1, NodeToHead::Placed { lease: lease(1), slot: SlotId(4) });
        assert_eq!(desk.state(), "running");
        desk
    }

    fn state(&self) -> &'static str {
        self.bench.head.works().last().unwrap().state
    }

    fn end(&self) -> Option<End> {
        self.bench.head.works().last().unwrap().end.map(|(end, _)| end)
    }
}

/// Where something is to run, and under which lease.
fn runs(effects: &[Effect]) -> Vec<(NodeId, LeaseId)> {
    let run = |effect: &Effect| match effect {
        Effect::ToNode(node, HeadToNode::Run { lease, .. }) => Some((*node, *lease)),
        _ => None,
    };
    effects.iter().filter_map(run).collect()
}

fn exit(code: i32) -> Option<Death> {
    let cause = DeathCause::Exit(code);
    Some(Death { cause, out_of_memory: OutOfMemory::No, running: None, finished: Seq(0) })
}

#[test]
fn whoever_submits_hears_of_it_when_it_is_on_disk() {
    let mut bench = Bench::with(|config| config.epoch = Epoch(1 << 32));
    bench.join(N1, 1, &[]);
    let work = Work { token: 1, name: "w".into(), needs: Resources::cpus(1), ..Work::default() };
    let submit = |asker| Event::Submit { asker, work: work.clone() };
    let id = WorkId(1 << 32 | 1);
    assert_eq!(
        bench.handle(submit(5)),
        [Effect::Write { work: id, write: Write::Keep(work.clone()) }],
        "DT-1: neither an answer nor a lease before"
    );
    assert_eq!(bench.handle(submit(6)), [], "DT-6: it is being written");
    let effects = bench.handle(Event::Written { work: id, wrote: Ok(77) });
    assert_eq!(effects[..2], [told(5), told(6)], "DT-1, DT-6");
    let placed = Placed { node: N1, incarnation: Incarnation(1), lease: lease(1), name: "test".into() };
    let standing = Standing { placed: Some(placed), submitted: 77, ..Standing::default() };
    assert_eq!(effects[2..], [Effect::Write { work: id, write: Write::Note(standing) }], "DT-2");
    assert_eq!(runs(&bench.handle(Event::Written { work: id, wrote: Ok(78) })), [(N1, lease(1))], "DT-2");
}

fn told(asker: u64) -> Effect {
    Effect::Told { asker, told: Ok("w".into()) }
}

#[test]
fn what_cannot_be_written_is_refused_and_forgotten() {
    let mut bench = Bench::with(|config| config.epoch = Epoch(1 << 32));
    bench.join(N1, 1, &[]);
    let work = Work { token: 1, name: "w".into(), needs: Resources::cpus(1), ..Work::default() };
    bench.handle(Event::Submit { asker: 5, work });
    let wrote = Err("the disk is full".into());
    let effects = bench.handle(Event::Written { work: WorkId(1 << 32 | 1), wrote });
    assert_eq!(effects, [Effect::Told { asker: 5, told: Err("the disk is full".into()) }], "DT-1");
    assert_eq!(bench.head.works(), []);
}

#[test]
fn a_place_that_cannot_be_written_is_told_to_nobody() {
    let mut bench = Bench::with(|config| config.epoch = Epoch(1 << 32));
    let id = WorkId(1 << 32 | 1);
    bench.join(N1, 1, &[]);
    let work = Work { token: 1, name: "w".into(), needs: Resources::cpus(1), ..Work::default() };
    bench.handle(Event::Submit { asker: 5, work });
    bench.handle(Event::Written { work: id, wrote: Ok(77) });
    assert_eq!(bench.handle(Event::Written { work: id, wrote: Err("full".into()) }), [], "DT-2");
    let again = bench.pass_beating(N1, seconds(3));
    assert!(
        matches!(again[..], [Effect::Write { write: Write::Note(_), .. }]),
        "it is tried again: {again:?}"
    );
    assert_eq!(runs(&bench.handle(Event::Written { work: id, wrote: Ok(78) })), [(N1, lease(1))]);
}

#[test]
fn an_end_is_heard_when_it_is_on_disk() {
    let mut desk = Desk::running(0);
    let mut out = Vec::new();
    let ended = NodeToHead::Ended { lease: lease(1), death: exit(3) };
    desk.bench.head.handle(desk.bench.now, Event::FromNode(N1, ended), &mut out);
    let heard = Effect::ToNode(N1, HeadToNode::Heard { lease: lease(1) });
    assert!(!out.contains(&heard), "DT-4: {out:?}");
    assert!(out.iter().any(|effect| matches!(effect, Effect::Write { write: Write::End(_), .. })));
    let mut out = Vec::new();
    let written = Event::Written { work: W.work().unwrap(), wrote: Ok(80) };
    desk.bench.head.handle(desk.bench.now, written, &mut out);
    assert!(out.contains(&heard), "DT-4: {out:?}");
    let cause = DeathCause::Exit(3);
    assert_eq!(desk.end(), Some(End::Died { cause, out_of_memory: false }));
    assert!(desk.bench.head.status().clients.is_empty() && desk.bench.head.status().leases.is_empty());
}

#[test]
fn a_silent_node_is_waited_for_until_it_has_ended_its_work() {
    let mut desk = Desk::running(1);
    desk.join(N2, 1, &[]);
    let mut again = Vec::new();
    for second in 0..61 {
        desk.says(N2, NodeToHead::Heartbeat { beat: 0 });
        let effects = desk.pass(seconds(1));
        assert_eq!(runs(&effects), [], "DT-3: {second} s after its node was last heard");
        if second > 8 {
            assert_eq!(desk.state(), "unreachable");
        }
    }
    for _ in 61..64 {
        desk.says(N2, NodeToHead::Heartbeat { beat: 0 });
        again.extend(runs(&desk.pass(seconds(1))));
    }
    assert_eq!(again, [(N2, lease(2))], "DT-3: head_lost and a heartbeat after");
    // The first node comes back with what it should not have any more.
    let effects = desk.join(N1, 1, &[(lease(1), W)]);
    assert!(effects.contains(&super::end(N1, 1)), "{effects:?}");
    assert_eq!(desk.state(), "starting");
}

#[test]
fn a_node_that_comes_back_goes_on_with_its_work() {
    let mut desk = Desk::running(1);
    desk.join(N2, 1, &[]);
    for _ in 0..30 {
        desk.says(N2, NodeToHead::Heartbeat { beat: 0 });
        desk.pass(seconds(1));
    }
    assert_eq!(desk.state(), "unreachable");
    let effects = desk.join(N1, 1, &[(lease(1), W)]);
    assert_eq!((desk.state(), runs(&effects).len()), ("running", 0));
    desk.says(N1, NodeToHead::Ended { lease: lease(1), death: exit(0) });
    assert_eq!(desk.end(), Some(End::Died { cause: DeathCause::Exit(0), out_of_memory: false }));
}

#[test]
fn a_node_that_comes_back_without_it_shows_that_it_is_gone() {
    for incarnation in [1, 2] {
        let mut desk = Desk::running(1);
        desk.pass(seconds(20));
        assert_eq!(desk.state(), "unreachable");
        assert_eq!(runs(&desk.join(N1, incarnation, &[])), [(N1, lease(2))], "DT-3");
    }
}

#[test]
fn another_start_of_its_node_shows_that_it_is_gone() {
    let mut desk = Desk::running(1);
    assert_eq!(runs(&desk.join(N1, 2, &[])), [(N1, lease(2))], "DT-3");
    assert_eq!(desk.bench.head.works()[0].restarted, 1);
    desk.says(N1, NodeToHead::Placed { lease: lease(2), slot: SlotId(5) });
    assert_eq!(runs(&desk.join(N1, 3, &[])), [], "once more is not allowed");
    assert_eq!(desk.end(), Some(End::NodeLost));
}

#[test]
fn a_head_that_starts_again_adopts_what_runs() {
    let mut desk = Desk::running(1);
    desk.restart();
    assert_eq!(desk.state(), "unreachable");
    assert_eq!(runs(&desk.join(N2, 1, &[])), [], "DT-3: it may be running elsewhere");
    assert_eq!(runs(&desk.join(N1, 1, &[(lease(1), W)])), []);
    assert_eq!(desk.state(), "running");
    let free = desk.bench.head.status().nodes[0].free;
    assert_eq!(free, Resources::default(), "its lease counts");
    for _ in 0..200 {
        desk.says(N1, NodeToHead::Heartbeat { beat: 0 });
        desk.says(N2, NodeToHead::Heartbeat { beat: 0 });
        assert_eq!(runs(&desk.pass(seconds(1))), []);
    }
}

#[test]
fn a_head_that_starts_again_starts_what_cannot_be_running() {
    let mut desk = Desk::running(1);
    desk.restart();
    desk.join(N2, 1, &[]);
    let mut began = None;
    for second in 0..70 {
        desk.says(N2, NodeToHead::Heartbeat { beat: 0 });
        if !runs(&desk.pass(seconds(1))).is_empty() {
            began = began.or(Some(second));
        }
    }
    assert_eq!(began, Some(63), "DT-3: with what clocks may differ");
    // What was never placed need not be waited for.
    let mut desk = Desk::new();
    desk.submit("w", 0);
    desk.restart();
    assert_eq!(runs(&desk.join(N1, 1, &[])).len(), 1);
}

#[test]
fn it_waits_for_room_and_is_never_asked_back() {
    let mut desk = Desk::running(0);
    desk.submit("second", 0);
    let waiting = desk.bench.head.works().pop().unwrap();
    assert_eq!(waiting.state, "waiting");
    assert!(waiting.why.unwrap().contains("1 CPU"));
    desk.bench.hello(A, &[]);
    desk.bench.want(A, Shape::cpus(1), 1);
    for _ in 0..20 {
        desk.says(N1, NodeToHead::Heartbeat { beat: 0 });
        let effects = desk.pass(seconds(1));
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::ToClient(W, _))), "{effects:?}");
    }
    let effects = desk.handle(Event::Drain(N1));
    assert_eq!(effects, [], "DT-5: it is let finish");
    let effects = desk.says(N1, NodeToHead::Ended { lease: lease(1), death: exit(0) });
    assert!(effects.contains(&Effect::ToNode(N1, HeadToNode::Bye)), "{effects:?}");
}

#[test]
fn what_fails_is_started_again_as_often_as_allowed() {
    let mut desk = Desk::running(2);
    for number in 1..=3 {
        desk.says(N1, NodeToHead::Placed { lease: lease(number), slot: SlotId(4) });
        let effects = desk.says(N1, NodeToHead::Ended { lease: lease(number), death: exit(9) });
        let expected: &[_] = if number < 3 { &[(N1, lease(number + 1))] } else { &[] };
        assert_eq!(runs(&effects), expected);
    }
    assert_eq!(desk.end(), Some(End::Died { cause: DeathCause::Exit(9), out_of_memory: false }));
    assert!(desk.works.is_empty());
}

#[test]
fn a_node_without_room_costs_nothing() {
    let mut desk = Desk::new();
    desk.join(N1, 1, &[]);
    desk.submit("w", 0);
    let effects = desk.says(N1, NodeToHead::Ended { lease: lease(1), death: None });
    assert_eq!(runs(&effects), [(N1, lease(2))], "it never began");
    // The link broke before it was told, and it was not lost for that.
    desk.handle(Event::NodeDown(N1));
    assert_eq!(runs(&desk.join(N1, 1, &[])), [(N1, lease(3))]);
    assert_eq!(desk.bench.head.works()[0].restarted, 0);
}

#[test]
fn names_are_taken_once_and_tokens_mean_the_same() {
    let mut desk = Desk::running(0);
    assert_eq!(desk.submit("w", 0), [told(5)], "DT-6");
    let other = Work { token: 99, name: "w".into(), ..Work::default() };
    let refused = desk.handle(Event::Submit { asker: 8, work: other });
    assert!(
        matches!(&refused[..], [Effect::Told { told: Err(why), .. }] if why.contains("there already on n1"))
    );
    desk.says(N1, NodeToHead::Ended { lease: lease(1), death: exit(0) });
    assert_eq!(desk.submit("w", 0), [told(5)], "DT-6: it has ended");
    let large = Work { token: 7, name: "large".into(), start: vec![0; (16 << 20) + 1], ..Work::default() };
    let refused = desk.handle(Event::Submit { asker: 8, work: large });
    assert!(matches!(&refused[..], [Effect::Told { told: Err(why), .. }] if why.contains("may have")));
    let needs = Resources::cpus(64);
    let refused = desk.handle(Event::Submit {
        asker: 8,
        work: Work { token: 8, name: "x".into(), needs, ..Work::default() },
    });
    assert!(
        matches!(&refused[..], [Effect::Told { told: Err(why), .. }] if why.contains("can never run")),
        "{refused:?}"
    );
}

#[test]
fn it_is_stopped_wherever_it_is() {
    let stop = || Event::StopWork { asker: 6, name: "w".into() };
    let mut desk = Desk::new();
    desk.submit("w", 3);
    desk.handle(stop());
    assert_eq!(desk.end(), Some(End::Stopped), "it waited");
    let mut desk = Desk::running(3);
    assert_eq!(desk.handle(stop()), [told(6), super::end(N1, 1)]);
    assert_eq!(desk.state(), "stopping");
    desk.says(N1, NodeToHead::Ended { lease: lease(1), death: None });
    assert_eq!((desk.end(), desk.works.len()), (Some(End::Stopped), 0));
    // Out of reach, and the head starts again meanwhile.
    let mut desk = Desk::running(3);
    desk.pass(seconds(20));
    desk.handle(stop());
    desk.restart();
    let effects = desk.join(N1, 1, &[(lease(1), W)]);
    assert!(effects.contains(&super::end(N1, 1)), "{effects:?}");
    desk.says(N1, NodeToHead::Ended { lease: lease(1), death: None });
    assert_eq!(desk.end(), Some(End::Stopped));
    let unknown = desk.handle(Event::StopWork { asker: 6, name: "other".into() });
    assert!(matches!(&unknown[..], [Effect::Told { told: Err(_), .. }]));
}

#[test]
fn the_end_of_the_cluster_is_the_end_of_its_work() {
    let mut desk = Desk::running(3);
    desk.handle(Event::Close { by: String::new() });
    assert!(desk.works.is_empty());
    desk.says(N1, NodeToHead::Ended { lease: lease(1), death: None });
    assert_eq!(desk.end(), Some(End::NodeLost));
}

#[test]
fn hello_with_the_id_of_the_next_work_is_refused() {
    let mut desk = Desk::new();
    for id in [W, ClientId(1 << 32 | 1)] {
        let effects = desk.handle(Event::FromClient(
            id,
            ClientToHead::Hello {
                client: id,
                name: "x".into(),
                leases: vec![],
                met: None,
                under: None,
                beats: false,
            },
        ));
        assert_eq!(effects.contains(&Effect::DropClient(id)), id == W, "{effects:?}");
        desk.handle(Event::FromClient(
            id,
            ClientToHead::Want { shape: Shape::cpus(1), count: 1, exclusive: None },
        ));
    }
    desk.submit("a", 0);
    let mut effects = desk.join(N1, 1, &[]);
    effects.extend(desk.join(N2, 1, &[]));
    assert_eq!(runs(&effects).len(), 1, "the work has one CPU, the client the other: {effects:?}");
}

#[test]
fn work_that_was_placed_and_never_begun_starts_again_for_free() {
    let mut desk = Desk::new();
    desk.join(N1, 1, &[]);
    // The head dies after it has noted where the work runs, and before its node hears of it.
    assert_eq!(runs(&desk.submit("w", 0)), [(N1, lease(1))]);
    desk.restart();
    assert_eq!(desk.state(), "unreachable");
    assert_eq!(runs(&desk.join(N1, 1, &[])).len(), 1, "DT-7: the same start of the node does not know it");
    assert_eq!(desk.bench.head.works()[0].restarted, 0);
    // Another start of the node may have run it.
    desk.restart();
    assert_eq!(runs(&desk.join(N1, 2, &[])), []);
    assert_eq!(desk.end(), Some(End::NodeLost));
}

#[test]
fn earlier_start_of_a_node_proves_nothing_of_what_a_later_one_runs() {
    let mut desk = Desk::new();
    desk.join(N1, 7, &[]);
    desk.submit("once", 3);
    desk.restart();
    desk.join(N2, 1, &[]);
    let effects = desk.join(N1, 6, &[]);
    assert_eq!(runs(&effects), [], "start 7 of the node may still run it");
}

/// The program that owns a detached actor runs again after a restart of the head, and asks for the actor's slot. Returns
/// whether it gets one at once.
fn owner_runs_again(desk: &mut Desk) -> bool {
    // The program itself takes the place on one of them.
    desk.join(N2, 1, &[]);
    desk.join(NodeId(3), 1, &[]);
    desk.bench.hello(A, &[]);
    let exclusive = actors::EXCLUSIVE;
    desk.handle(Event::FromClient(A, ClientToHead::OwnedByProgram { exclusive, program: "w".into() }));
    let want = ClientToHead::Want { shape: Shape::cpus(1), count: 1, exclusive: Some(exclusive) };
    builds_actor(&desk.handle(Event::FromClient(A, want)))
}

fn builds_actor(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::ToNode(_, HeadToNode::Place { client: A, .. })))
}

impl Desk {
    /// Lets time pass, with two nodes there. Returns whether the actor is built.
    fn builds_actor_within(&mut self, span: Duration) -> bool {
        (0..span.as_secs()).any(|_| {
            self.says(N2, NodeToHead::Heartbeat { beat: 0 });
            self.says(NodeId(3), NodeToHead::Heartbeat { beat: 0 });
            builds_actor(&self.pass(seconds(1)))
        })
    }
}

#[test]
fn next_run_of_an_owner_waits_for_the_actor_of_the_run_before() {
    let mut desk = Desk::running(3);
    desk.restart();
    assert!(!owner_runs_again(&mut desk), "FE-6: nobody can tell where the actor is");
    assert!(!desk.builds_actor_within(seconds(92)), "FE-6");
    assert!(desk.builds_actor_within(seconds(4)), "FE-6: every node has ended what was there");
}

#[test]
fn first_run_of_an_owner_gets_its_slot_at_once_after_a_restart() {
    let mut desk = Desk::new();
    desk.restart();
    desk.submit("w", 3);
    assert!(owner_runs_again(&mut desk));
}

#[test]
fn work_waits_for_as_long_as_it_may_run_under_the_timing_of_before() {
    let mut desk = Desk::running(3);
    desk.restart_as(|config| (config.head_lost, config.earlier_head_lost) = (seconds(10), seconds(60)));
    desk.join(N2, 1, &[]);
    let mut runs_within = |span: u64| {
        (0..span).any(|_| {
            desk.says(N2, NodeToHead::Heartbeat { beat: 0 });
            !runs(&desk.pass(seconds(1))).is_empty()
        })
    };
    assert!(!runs_within(62), "FE-4");
    assert!(runs_within(4), "FE-4");
}

/// The first node comes from the head before, and has not heard this one's welcome yet.
fn joining_with(leases: Vec<Placement>) -> NodeToHead {
    NodeToHead::Join {
        node: N1,
        incarnation: Incarnation(1),
        name: "n1".into(),
        total: Resources::cpus(1),
        leases,
        met: Some(met(1 << 32)),
        addresses: Vec::new(),
        facts: Facts::default(),
    }
}

/// The actor of the run before.
fn placement_of_before() -> Placement {
    Placement {
        lease: lease(50),
        client: C,
        slot: SlotId(5),
        shape: Shape::cpus(0),
        blocked: false,
        devices: Devices::default(),
        holder: C,
        epoch: Epoch(1 << 32),
        exclusive: Some(actors::EXCLUSIVE),
    }
}

#[test]
fn next_run_of_an_owner_waits_no_longer_for_an_actor_that_is_found() {
    let mut desk = Desk::running(3);
    desk.restart();
    owner_runs_again(&mut desk);
    desk.handle(Event::FromNode(N1, joining_with(vec![placement_of_before()])));
    assert!(!desk.builds_actor_within(seconds(1)), "it lives");
    let ended = NodeToHead::Ended { lease: lease(50), death: Some(killed()) };
    assert!(!builds_actor(&desk.says(N1, ended)), "FE-5: the node may still go back to an earlier head");
    assert!(builds_actor(&desk.says(N1, NodeToHead::Heartbeat { beat: 0 })), "FE-6");
}

#[test]
fn actor_that_a_node_reports_once_is_not_found_before_the_node_obeys() {
    let mut desk = Desk::running(3);
    desk.restart();
    owner_runs_again(&mut desk);
    desk.handle(Event::FromNode(N1, joining_with(vec![placement_of_before()])));
    desk.handle(Event::NodeDown(N1));
    assert!(!builds_actor(&desk.handle(Event::FromNode(N1, joining_with(Vec::new())))), "FE-6");
    assert!(!builds_actor(&desk.says(N1, NodeToHead::Heartbeat { beat: 0 })), "FE-6");
}

#[test]
fn actor_that_is_found_and_lost_again_is_waited_for() {
    let mut desk = Desk::running(3);
    desk.restart();
    owner_runs_again(&mut desk);
    desk.handle(Event::FromNode(N1, joining_with(vec![placement_of_before()])));
    assert!(!desk.builds_actor_within(seconds(92)), "FE-6");
}
