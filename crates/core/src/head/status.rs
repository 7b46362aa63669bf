//! What the head can tell about itself.

use super::{Head, LeaseState, NodeLink, WorkStatus};
use paceline_proto::{Address, ClientId, LeaseId, Names, NodeId, Resources, Shape};

/// The cluster as the head sees it, in the order of ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    pub nodes: Vec<NodeStatus>,
    /// Clients by id and name.
    pub clients: Vec<(ClientId, String)>,
    pub leases: Vec<LeaseStatus>,
    /// What custom resources are called.
    pub names: Names,
    /// What the head owns, what has ended first.
    pub works: Vec<WorkStatus>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    pub node: NodeId,
    pub name: String,
    pub total: Resources,
    pub free: Resources,
    pub reachable: bool,
    /// It was asked to finish what it runs and go.
    pub leaving: bool,
    /// Where it takes data connections.
    pub addresses: Vec<Address>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LeaseStatus {
    pub lease: LeaseId,
    pub client: ClientId,
    pub node: NodeId,
    pub shape: Shape,
    /// One of "placing", "held", "recalled", "broken", "ending", "unclaimed".
    pub state: &'static str,
}

impl Head {
    /// Returns whether this client is here, or may come back.
    pub fn knows_client(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    pub fn status(&self) -> Status {
        Status {
            names: self.names.clone(),
            nodes: (self.nodes.iter())
                .map(|(&node, entry)| NodeStatus {
                    node,
                    name: entry.name.clone(),
                    total: entry.total,
                    free: entry.free(),
                    reachable: matches!(entry.link, NodeLink::Up { .. }),
                    leaving: self.leaving.contains(&node),
                    addresses: entry.addresses.clone(),
                })
                .collect(),
            clients: (self.clients.iter())
                .filter(|(id, _)| !self.is_work(**id))
                .map(|(&id, client)| (id, client.name.clone()))
                .collect(),
            works: self.works(),
            leases: (self.leases.iter())
                .map(|(&lease, entry)| LeaseStatus {
                    lease,
                    client: entry.client,
                    node: entry.node,
                    shape: entry.shape,
                    state: match entry.state {
                        LeaseState::Placing => "placing",
                        LeaseState::Held { .. } => "held",
                        LeaseState::Recalled { .. } => "recalled",
                        LeaseState::Broken => "broken",
                        LeaseState::Ending => "ending",
                        LeaseState::Unclaimed { .. } => "unclaimed",
                    },
                })
                .collect(),
        }
    }
}
