//! Shapes of other programs than the client's own.

use super::*;
use paceline_proto::{ProgramId, Start, StartError};

const P: ProgramId = ProgramId(5);

fn start() -> Start {
    Start { command: vec!["/bin/shapes".into()], variables: vec![] }
}

fn shape() -> Shape {
    Shape { program: P, ..Shape::cpus(1) }
}

fn told(node: NodeId) -> Effect {
    Effect::ToNode(node, HeadToNode::Program { program: P, start: start() })
}

#[test]
fn a_node_hears_how_a_program_is_started_before_every_lease_of_it() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.join(N1, 2, &[]);
    assert_eq!(bench.want(A, shape(), 1), [], "nobody has said what that is");
    bench.client_says(A, ClientToHead::Program { program: P, start: start() });
    bench.client_says(A, ClientToHead::Program { program: P, start: start() });
    assert_eq!(
        bench.want(A, shape(), 2),
        [told(N1), place(N1, 1, A, shape()), told(N1), place(N1, 2, A, shape())]
    );
    assert_eq!(bench.placed(N1, 1), [granted(A, 1, N1, shape())]);
    assert_eq!(bench.want(A, Shape::cpus(1), 1), [crowded(A, Shape::cpus(1))], "CPUs are counted once");
}

#[test]
fn a_program_that_fails_is_told_to_those_that_use_it_and_wanted_no_more() {
    let mut bench = Bench::new();
    bench.hello(A, &[]);
    bench.hello(B, &[]);
    bench.join(N1, 1, &[]);
    bench.client_says(A, ClientToHead::Program { program: P, start: start() });
    bench.want(A, shape(), 3);
    let why = StartError::NotRun { reason: "no such file".into() };
    let failed = NodeToHead::ProgramFailed { program: P, why: why.clone() };
    assert_eq!(
        bench.node_says(N1, failed),
        [Effect::ToClient(A, HeadToClient::ProgramFailed { program: P, why })]
    );
    assert_eq!(bench.ended(N1, 1, None), [], "PR-3: it is not placed again");
    assert_eq!(bench.want(A, shape(), 1), [told(N1), place(N1, 2, A, shape())], "unless asked for");
}
