//! What leases need beside CPUs, which nodes will do, and who comes first.

use super::*;
use paceline_proto::placement::{Member, Order};
use paceline_proto::{Device, Part, Rule};

const ONE: fn() -> Shape = || Shape::cpus(1);

impl Bench {
    fn join_with(&mut self, node: NodeId, name: &str, total: Resources, facts: Facts) -> Vec<Effect> {
        let (incarnation, name) = (Incarnation(1), name.to_owned());
        let (leases, met, addresses) = (Vec::new(), None, Vec::new());
        self.node_says(
            node,
            NodeToHead::Join { node, incarnation, name, total, leases, met, addresses, facts },
        )
    }

    fn rule(&mut self, client: ClientId, number: u64, rule: Rule) -> PlacementId {
        let id = PlacementId(number);
        self.client_says(client, ClientToHead::Placement { id, rule });
        id
    }

    fn standing(&mut self, client: ClientId, weight: u32, priority: i32) {
        self.client_says(client, ClientToHead::Standing { weight, priority });
    }
}

fn gpus(count: f64) -> Resources {
    Resources::default().with(Part::Gpus(count)).unwrap()
}

/// Where leases were placed, and on which devices.
fn placed_on(effects: &[Effect]) -> Vec<(NodeId, Vec<usize>)> {
    let places = effects.iter().filter_map(|effect| match effect {
        Effect::ToNode(node, HeadToNode::Place { devices, .. }) => Some((*node, devices.numbers().collect())),
        _ => None,
    });
    places.collect()
}

fn recalls(effects: &[Effect]) -> usize {
    effects.iter().filter(|it| matches!(it, Effect::ToClient(_, HeadToClient::Recall { .. }))).count()
}

fn why(effects: &[Effect]) -> String {
    let found = effects.iter().find_map(|effect| match effect {
        Effect::ToClient(_, HeadToClient::Unplaceable { why, .. }) => Some(why.clone()),
        _ => None,
    });
    found.unwrap_or_default()
}

#[test]
fn parts_of_gpus_never_share_more_than_a_device() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join_with(N1, "a", Resources::cpus(8).and_gpus(2), Facts::default());
    let part = Shape::of(gpus(0.6));
    let effects = bench.want(A, part, 5);
    assert_eq!(placed_on(&effects), [(N1, vec![0]), (N1, vec![1])], "DV-1: three would fit the sum");
    let rest = bench.want(A, Shape::of(gpus(0.4)), 5);
    assert_eq!(placed_on(&rest), [(N1, vec![0]), (N1, vec![1])]);
}

#[test]
fn gpus_with_too_little_memory_are_skipped() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    let devices = vec![Device { memory: 4 }, Device { memory: 16 }];
    bench.join_with(N1, "a", Resources::cpus(8).and_gpus(2), Facts { devices, ..Facts::default() });
    let placement = bench.rule(A, 1, Rule { gpu_memory: 8, ..Rule::default() });
    let large = Shape { placement, ..Shape::of(gpus(1.0)) };
    assert_eq!(placed_on(&bench.want(A, large, 2)), [(N1, vec![1])]);
    let both = Shape { placement, ..Shape::of(gpus(2.0)) };
    assert!(why(&bench.want(A, both, 1)).contains("enough GPUs with 8 bytes"));
}

#[test]
fn nodes_are_chosen_by_label_and_packed() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    let labels = |zone: &str| Facts { labels: vec![("zone".into(), zone.into())], ..Facts::default() };
    bench.join_with(N1, "a", Resources::cpus(8), labels("a"));
    bench.join_with(N2, "b", Resources::cpus(2), labels("b"));
    let zone = |name: &str| vec![("zone".to_owned(), name.to_owned())];
    let placement = bench.rule(A, 1, Rule { labels: zone("b"), ..Rule::default() });
    assert_eq!(placed_on(&bench.want(A, Shape { placement, ..ONE() }, 3)), [(N2, vec![]), (N2, vec![])]);
    let placement = bench.rule(A, 2, Rule { labels: zone("c"), ..Rule::default() });
    assert_eq!(why(&bench.want(A, Shape { placement, ..ONE() }, 1)), "no node has the label zone=c");
    let placement = bench.rule(A, 3, Rule { labels: zone("b"), ..Rule::default() });
    let large = Shape { placement, ..Shape::cpus(4) };
    let refused = why(&bench.want(A, large, 1));
    assert_eq!(refused, "no node with the label zone=b has more than 2 CPUs");
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 8, &[]);
    bench.join(N2, 2, &[]);
    let placement = bench.rule(A, 1, Rule { order: Order::Pack, ..Rule::default() });
    let packed = bench.want(A, Shape { placement, ..ONE() }, 3);
    assert_eq!(placed_on(&packed).iter().map(|it| it.0).collect::<Vec<_>>(), [N2, N2, N1]);
}

#[test]
fn one_per_node_is_one_per_node() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 4, &[]);
    bench.join(N2, 4, &[]);
    let placement = bench.rule(A, 1, Rule { one_per_node: true, ..Rule::default() });
    assert_eq!(placed_on(&bench.want(A, Shape { placement, ..ONE() }, 4)).len(), 2);
}

#[test]
fn shares_go_by_weight() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.hello(B, &[]);
    bench.standing(A, 3, 0);
    bench.want(A, ONE(), 9);
    bench.want(B, ONE(), 9);
    bench.join(N1, 8, &[]);
    let leases = |client: &Client| client.leases.values().flatten().count();
    assert_eq!(bench.head.clients.values().map(leases).collect::<Vec<_>>(), [6, 2]);
}

#[test]
fn a_higher_priority_comes_first_and_takes_from_a_lower_one() {
    let mut bench = Bench::holding(A, 2);
    bench.want(A, ONE(), 9);
    bench.hello(B, &[]);
    bench.standing(B, 1, 5);
    assert_eq!(recalls(&bench.want(B, ONE(), 2)), 2, "RC-5: both, although that is more than its share");
    for number in [1, 2] {
        bench.release(A, number);
        assert_eq!(placed_on(&bench.ended(N1, number, None)).len(), 1);
    }
    assert_eq!(bench.head.clients[&B].leases.values().flatten().count(), 2);
    bench.placed(N1, 3);
    bench.placed(N1, 4);
    assert_eq!(bench.pass_beating(N1, seconds(4)), [], "RC-5: never the other way round");
    assert_eq!(recalls(&bench.pass_beating(N1, seconds(3))), 1, "but nobody starves");
}

#[test]
fn a_gang_is_granted_all_or_none() {
    let mut bench = Bench::holding(B, 2);
    bench.hello(A, &[]);
    bench.join(N2, 1, &[]);
    let gang = vec![Member { needs: Resources::cpus(1), program: ProgramId::OWN, count: 3 }];
    let placement = bench.rule(A, 1, Rule { gang, ..Rule::default() });
    let shape = Shape { placement, ..ONE() };
    assert_eq!(placed_on(&bench.want(A, shape, 2)), [], "GA-1: not all members are wanted yet");
    let effects = bench.want(A, shape, 3);
    assert_eq!(placed_on(&effects), [], "GA-1: one of three is free");
    bench.want(B, ONE(), 3);
    assert_eq!(bench.head.clients[&B].count(ONE()), 2, "GA-2: and it is kept");
    bench.want(B, ONE(), 0);
    bench.release(B, 1);
    assert_eq!(placed_on(&bench.ended(N1, 1, None)), []);
    bench.release(B, 2);
    assert_eq!(placed_on(&bench.ended(N1, 2, None)).len(), 3);
    let too_many = vec![Member { needs: Resources::cpus(1), program: ProgramId::OWN, count: 4 }];
    let placement = bench.rule(A, 2, Rule { gang: too_many, ..Rule::default() });
    let refused = why(&bench.want(A, Shape { placement, ..ONE() }, 4));
    assert_eq!(refused, "all nodes together cannot hold the 4 members of the group at once");
}

#[test]
fn nobody_sits_on_a_part_of_a_gang() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 2, &[]);
    bench.join(N2, 1, &[]);
    let gang = vec![Member { needs: Resources::cpus(1), program: ProgramId::OWN, count: 3 }];
    let placement = bench.rule(A, 1, Rule { gang, ..Rule::default() });
    assert_eq!(placed_on(&bench.want(A, Shape { placement, ..ONE() }, 3)).len(), 3);
    let mut held = 0;
    for number in 1..=3 {
        let on_first = bench.head.leases[&lease(number)].node == N1;
        if on_first {
            bench.placed(N1, number);
            held += 1;
        }
    }
    assert_eq!(held, 2);
    let lost = bench.ended(N2, (1..=3).find(|it| bench.head.leases[&lease(*it)].node == N2).unwrap(), None);
    assert_eq!((placed_on(&lost).len(), recalls(&lost)), (1, 0), "it fits again");
    bench.head.leaving.insert(N2);
    bench.head.note_room(N2);
    let lost = bench.ended(N2, 4, None);
    assert_eq!((placed_on(&lost).len(), recalls(&lost)), (0, 2), "GA-4");
}

#[test]
fn what_needs_nothing_is_spread_by_the_size_of_nodes() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 4, &[]);
    bench.join(N2, 2, &[]);
    let placement = bench.rule(A, 1, Rule { kept: true, ..Rule::default() });
    let effects = bench.want(A, Shape { placement, ..Shape::default() }, 6);
    let nodes: Vec<_> = placed_on(&effects).into_iter().map(|(node, _)| node).collect();
    assert_eq!(nodes.iter().filter(|node| **node == N1).count(), 4, "{nodes:?}");
    assert_eq!(nodes.len(), 6);
}
