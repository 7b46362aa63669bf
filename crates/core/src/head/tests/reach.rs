//! Where nodes are, and clients that cannot get there (HD-10).

use super::*;

const N3: NodeId = NodeId(3);

fn there() -> Vec<Address> {
    vec![Address::tcp("there", 7078)]
}

fn node_at(client: ClientId, node: NodeId, addresses: Vec<Address>) -> Effect {
    Effect::ToClient(client, HeadToClient::NodeAt { node, name: "test".into(), addresses })
}

fn via(client: ClientId, number: u64, node: NodeId) -> Effect {
    Effect::ToClient(client, HeadToClient::Via { lease: lease(number), node, addresses: there() })
}

fn relay(node: NodeId, number: u64) -> Effect {
    Effect::ToNode(node, HeadToNode::Relay { lease: lease(number), addresses: there() })
}

impl Bench {
    /// Client A holds a lease on the first of so many nodes that have addresses.
    fn far(nodes: u64) -> Bench {
        let mut bench = Bench { addresses: there(), ..Bench::new() };
        bench.join(N1, 1, &[]);
        bench.hello(A, &[]);
        bench.want(A, Shape::cpus(1), 1);
        let told = bench.placed(N1, 1);
        assert_eq!(told, [node_at(A, N1, there()), granted(A, 1, N1, Shape::cpus(1))], "HD-10");
        (2..=nodes).for_each(|node| drop(bench.join(NodeId(node), 1, &[])));
        bench
    }

    fn unreachable(&mut self, number: u64) -> Vec<Effect> {
        self.client_says(A, ClientToHead::Unreachable { lease: lease(number) })
    }
}

#[test]
fn a_client_is_told_once_where_a_node_is() {
    let mut bench = Bench { addresses: there(), ..Bench::new() };
    bench.join(N1, 2, &[]);
    bench.hello(A, &[]);
    bench.want(A, Shape::cpus(1), 2);
    assert_eq!(bench.placed(N1, 1), [node_at(A, N1, there()), granted(A, 1, N1, Shape::cpus(1))]);
    assert_eq!(bench.placed(N1, 2), [granted(A, 2, N1, Shape::cpus(1))]);
    bench.handle(Event::ClientDown { client: A, end: LinkEnd::Lost });
    let back = bench.hello(A, &[lease(1), lease(2)]);
    assert_eq!(back, [welcome(A), node_at(A, N1, there())], "it may have forgotten");
}

#[test]
fn a_node_that_has_moved_is_told_to_those_who_know_it() {
    let mut bench = Bench::far(1);
    bench.hello(B, &[]);
    bench.handle(Event::NodeDown(N1));
    bench.addresses = vec![Address::tcp("elsewhere", 7078)];
    let moved = bench.join(N1, 1, &[(1, A)]);
    assert_eq!(moved, [welcome_node(N1), node_at(A, N1, bench.addresses.clone())]);
}

#[test]
fn who_cannot_get_there_goes_by_way_of_another_node() {
    let mut bench = Bench::far(3);
    assert_eq!(bench.unreachable(1), [relay(N2, 1), via(A, 1, N2)]);
    assert_eq!(bench.unreachable(1), [end(N2, 1), relay(N3, 1), via(A, 1, N3)], "the next one is tried");
    bench.want(A, Shape::cpus(1), 0);
    let over = bench.client_says(A, ClientToHead::Release { lease: lease(1) });
    assert_eq!(over, [end(N1, 1)]);
    assert_eq!(bench.ended(N1, 1, None), [end(N3, 1)], "nothing more is to be passed on");
}

#[test]
fn without_another_way_the_lease_ends_and_its_client_hears_of_it_when_it_has() {
    let mut bench = Bench::far(2);
    assert_eq!(bench.unreachable(1), [relay(N2, 1), via(A, 1, N2)]);
    assert_eq!(bench.unreachable(1)[..2], [end(N2, 1), end(N1, 1)]);
    assert_eq!(bench.unreachable(1), [], "it is ending");
    assert_eq!(bench.ended(N1, 1, None)[0], ended(A, 1, node_lost()), "HD-4");
}

#[test]
fn who_passes_connections_on_is_told_so_again_on_every_link() {
    let mut bench = Bench::far(2);
    bench.want(A, Shape::cpus(1), 2);
    assert_eq!(bench.placed(N2, 2).last(), Some(&granted(A, 2, N2, Shape::cpus(1))));
    bench.unreachable(1);
    bench.handle(Event::NodeDown(N2));
    let back = bench.join(N2, 1, &[(2, A)]);
    assert_eq!(back, [welcome_node(N2), relay(N2, 1)], "HD-12");
    // The one that the lease is on passes nothing on.
    bench.handle(Event::NodeDown(N1));
    assert_eq!(bench.join(N1, 1, &[(1, A)]), [welcome_node(N1)]);
    bench.client_says(A, ClientToHead::Release { lease: lease(1) });
    bench.ended(N1, 1, None);
    bench.handle(Event::NodeDown(N2));
    assert_eq!(bench.join(N2, 1, &[(2, A)]), [welcome_node(N2)], "the lease is over");
}

#[test]
fn connections_of_a_guest_are_passed_on_again_on_every_link() {
    let mut bench = actors::visited_at(there());
    bench.join(N2, 1, &[]);
    let unreachable = ClientToHead::Unreachable { lease: lease(2) };
    assert_eq!(bench.client_says(B, unreachable), [relay(N2, 2), via(B, 2, N2)]);
    bench.handle(Event::NodeDown(N2));
    assert_eq!(bench.join(N2, 1, &[]), [welcome_node(N2), relay(N2, 2)], "HD-12");
}

#[test]
fn somebody_elses_lease_is_not_redirected() {
    let mut bench = Bench::far(2);
    bench.hello(B, &[]);
    assert_eq!(bench.client_says(B, ClientToHead::Unreachable { lease: lease(1) }), []);
}

#[test]
fn a_client_that_leaves_hears_when_all_is_over() {
    let mut bench = Bench::holding(A, 2);
    assert_eq!(bench.client_says(A, ClientToHead::Bye), [end(N1, 1), end(N1, 2)]);
    assert_eq!(bench.ended(N1, 1, None), []);
    assert_eq!(bench.ended(N1, 2, None), [Effect::ToClient(A, HeadToClient::Over)]);
    let mut bench = Bench::new();
    bench.hello(B, &[]);
    let at_once = bench.client_says(B, ClientToHead::Bye);
    assert_eq!(at_once, [Effect::ToClient(B, HeadToClient::Over)], "it had none");
}
