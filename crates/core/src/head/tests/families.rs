//! Slots that are clients: whose they are, and what they take and leave.

use super::*;

const ONE: fn() -> Shape = || Shape::cpus(1);

impl Bench {
    /// A slot that holds this lease says so, and what it wants.
    fn nest(&mut self, client: ClientId, under: u64, count: u32) -> Vec<Effect> {
        self.hello(client, &[]);
        self.client_says(client, ClientToHead::Under { lease: lease(under) });
        self.want(client, ONE(), count)
    }

    fn blocked(&mut self, number: u64, blocked: bool) -> Vec<Effect> {
        self.node_says(N1, NodeToHead::Blocked { lease: lease(number), blocked, full: false })
    }
}

#[test]
fn a_task_that_waits_leaves_its_cpus_to_what_it_waits_for() {
    let mut bench = Bench::holding(A, 2);
    bench.want(A, ONE(), 9);
    assert_eq!(bench.nest(B, 1, 1), [], "it has just asked");
    assert_eq!(bench.blocked(1, true), [place(N1, 3, A, ONE())], "HD-7: before those of the client itself");
    bench.placed(N1, 3);
    assert_eq!(bench.head.leases[&lease(3)].client, B);
    // When it goes on there is more than the node has, and nothing new until that is over.
    assert_eq!(bench.blocked(1, false), [], "HD-1");
    bench.release(B, 3);
    bench.want(B, ONE(), 0);
    assert_eq!(bench.ended(N1, 3, None), [], "it is only even");
    bench.release(A, 1);
    assert_eq!(bench.ended(N1, 1, None), [place(N1, 4, A, ONE())]);
}

#[test]
fn a_deeper_task_takes_from_a_shallower_one() {
    let mut bench = Bench::holding(A, 2);
    bench.want(A, ONE(), 9);
    bench.nest(B, 1, 1);
    let recalled = bench.pass(Duration::from_millis(5));
    assert_eq!(recalled, [recall(A, 2)], "RC-4, and never its own task's");
    bench.release(A, 2);
    assert_eq!(bench.ended(N1, 2, None), [place(N1, 3, A, ONE())]);
    bench.placed(N1, 3);
    bench.hello(C, &[]);
    bench.client_says(C, ClientToHead::Under { lease: lease(3) });
    let depths: Vec<u32> = bench.head.clients.values().map(|client| client.depth).collect();
    assert_eq!(depths, [0, 1, 2]);
    assert_eq!(bench.pass(seconds(2)), [], "the client itself takes nothing back");
}

#[test]
fn what_a_slot_has_ends_with_it() {
    let mut bench = Bench::holding(A, 2);
    bench.nest(B, 1, 1);
    bench.blocked(1, true);
    bench.placed(N1, 3);
    let effects = bench.ended(N1, 1, Some(killed()));
    assert!(effects.contains(&end(N1, 3)), "{effects:?}");
    assert!(!bench.head.clients.contains_key(&B));
}

#[test]
fn a_slot_whose_lease_has_ended_gets_nothing_until_it_has_another() {
    let mut bench = Bench::holding(A, 2);
    bench.hello(B, &[]);
    bench.client_says(B, ClientToHead::Under { lease: LeaseId(5) });
    bench.release(A, 2);
    bench.want(A, ONE(), 1);
    bench.ended(N1, 2, None);
    assert_eq!(bench.want(B, ONE(), 1), []);
    assert_eq!(
        bench.client_says(B, ClientToHead::Under { lease: lease(1) }),
        [place(N1, 3, A, ONE())],
        "it need not ask again"
    );
}

/// A node with two CPUs, one of them free, on which as many tasks wait as may.
fn full_node() -> Bench {
    let mut bench = Bench::holding(A, 2);
    bench.want(A, ONE(), 1);
    bench.release(A, 2);
    bench.ended(N1, 2, None);
    bench.node_says(N1, full(false));
    bench
}

fn full(blocked: bool) -> NodeToHead {
    NodeToHead::Blocked { lease: lease(1), blocked, full: true }
}

#[test]
fn nothing_is_granted_to_a_task_that_will_have_to_get_on_by_itself() {
    let mut bench = full_node();
    assert_eq!(bench.nest(B, 1, 1), [], "DP-1: there is a CPU, but it is about to be told to run it itself");
    assert_eq!(bench.node_says(N1, full(true)), [place(N1, 3, A, ONE())], "it had nothing to run, and waits");
}

#[test]
fn a_task_that_only_looks_from_time_to_time_gets_what_it_asks_for() {
    let mut bench = full_node();
    bench.nest(B, 1, 1);
    assert_eq!(bench.pass(Duration::from_millis(900)), []);
    assert_eq!(bench.pass(Duration::from_millis(200)), [place(N1, 3, A, ONE())], "DP-1");
}

#[test]
fn a_node_that_is_full_no_more_holds_nobody_back() {
    let mut bench = full_node();
    bench.nest(B, 1, 1);
    assert_eq!(bench.blocked(1, false), [place(N1, 3, A, ONE())]);
}

/// A slot of `A` is the client `B`, one of `B` is `C`, and one of `C` is `D`.
const D: ClientId = ClientId(4);

fn chain() -> Bench {
    let mut bench = Bench::holding(A, 1);
    for (client, lease) in [(B, 1), (C, 2), (D, 3)] {
        bench.nest(client, lease, 1);
        bench.blocked(lease, true);
        bench.placed(N1, lease + 1);
    }
    bench
}

fn place_of(bench: &Bench, id: ClientId) -> (ClientId, u32, bool) {
    let client = &bench.head.clients[&id];
    (client.root, client.depth, client.orphan)
}

#[test]
fn under_that_closes_a_cycle_gets_no_place() {
    let mut bench = chain();
    assert_eq!(place_of(&bench, D), (A, 3, false));
    // B works under a lease of D, which works for C, which works for B.
    bench.client_says(B, ClientToHead::Under { lease: lease(4) });
    assert_eq!(place_of(&bench, B), (A, 1, true), "FM-1");
    assert_eq!(place_of(&bench, C), (A, 2, false), "it works for whom it did");
    // What each of them says again changes nothing.
    for (client, under) in [(C, 2), (D, 3), (B, 4)] {
        bench.client_says(client, ClientToHead::Under { lease: lease(under) });
    }
    assert!(place_of(&bench, B).2);
}

#[test]
fn slot_in_a_cycle_gets_its_place_when_the_cycle_ends() {
    let mut bench = chain();
    bench.client_says(B, ClientToHead::Under { lease: lease(4) });
    // The child whose parent has returned ends, and its slot goes on as a client of somebody's.
    bench.release(B, 2);
    bench.ended(N1, 2, None);
    assert_eq!(place_of(&bench, C), (A, 2, false));
    assert_eq!(place_of(&bench, B), (A, 4, false), "below D, which is below C");
}

#[test]
fn chain_of_slots_is_placed_whole_when_its_root_comes_back() {
    let mut bench = Bench::new();
    bench.handle(Event::Tick);
    // A head that was started again: the last of the chain comes first, so all are placed by the word of the root.
    let links = 40;
    let total = Resources::cpus(links);
    let node = |number: u64| Placement {
        lease: LeaseId(number.into()),
        client: A,
        slot: SlotId(number),
        shape: Shape::cpus(1),
        blocked: false,
        devices: Devices::default(),
        holder: ClientId(number),
        epoch: Epoch(0),
        exclusive: None,
    };
    let join = NodeToHead::Join {
        node: N1,
        incarnation: Incarnation(1),
        name: "test".into(),
        total,
        leases: (1..links).map(node).collect(),
        met: Some(met(0)),
        addresses: vec![],
        facts: Facts::default(),
    };
    bench.node_says(N1, join);
    for number in (1..links).rev() {
        let held = Held {
            lease: LeaseId(number.into()),
            node: N1,
            incarnation: Incarnation(1),
            shape: Shape::cpus(1),
            exclusive: None,
        };
        let under = (number > 1).then_some(LeaseId(u128::from(number) - 1));
        let client = ClientId(number);
        let hello = ClientToHead::Hello {
            client,
            name: "x".into(),
            leases: vec![held],
            met: Some(met(0)),
            under,
            beats: false,
        };
        bench.client_says(client, hello);
    }
    assert_eq!(place_of(&bench, ClientId(links - 1)), (ClientId(1), links as u32 - 2, false));
}
