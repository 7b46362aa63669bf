//! What is said of work to people, and what must hold of it.

use super::super::{Head, NodeLink};
use super::{Entry, Stage};
use paceline_proto::work::End;
use paceline_proto::{ClientId, LeaseId, Resources, WorkId};

/// One piece of work, as people ask about it.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkStatus {
    pub work: WorkId,
    pub name: String,
    /// One of "waiting", "starting", "running", "unreachable", "stopping", "ended".
    pub state: &'static str,
    /// Where it is, or was last.
    pub node: Option<String>,
    pub needs: Option<Resources>,
    pub restarted: u32,
    pub restarts: Option<u32>,
    /// In seconds since 1970.
    pub submitted: u64,
    pub end: Option<(End, u64)>,
    /// What it waits for, for people.
    pub why: Option<String>,
}

impl Head {
    pub fn works(&self) -> Vec<WorkStatus> {
        let ended = self.works.ended.iter().map(|(id, ended)| WorkStatus {
            work: *id,
            name: ended.name.clone(),
            state: "ended",
            node: ended.node.clone(),
            needs: None,
            restarted: ended.restarted,
            restarts: None,
            submitted: ended.submitted,
            end: Some((ended.end, ended.at)),
            why: None,
        });
        let live = self.works.live.iter().map(|(&id, entry)| self.work_status(id, entry));
        ended.chain(live).collect()
    }

    fn work_status(&self, id: WorkId, entry: &Entry) -> WorkStatus {
        let placed = entry.standing.placed.as_ref();
        let reachable = placed
            .and_then(|placed| self.nodes.get(&placed.node))
            .is_some_and(|node| matches!(node.link, NodeLink::Up { .. }));
        let state = match entry.stage {
            _ if entry.standing.stopping => "stopping",
            Stage::Keeping { .. } | Stage::Waiting => "waiting",
            Stage::Away { .. } => "unreachable",
            Stage::Running { .. } | Stage::Sent { .. } if !reachable => "unreachable",
            Stage::Reserved { .. } | Stage::Sent { .. } => "starting",
            Stage::Running { .. } => "running",
            Stage::Ending(_) => "stopping",
        };
        let waits = || match entry.stage {
            Stage::Waiting => Some(self.what_it_waits_for(ClientId::of_work(id), entry.shape())),
            Stage::Away { .. } => Some(format!(
                "its node is out of reach: it is started again only when it cannot be running there any more, {:?} after \
                 the node was last heard",
                self.earlier_out_of_reach_for()
            )),
            Stage::Keeping { .. } => Some("its record is on its way to the journal's disk".into()),
            Stage::Reserved { .. } => Some("its node hears of it once that is on the journal's disk".into()),
            _ => None,
        };
        let trouble = entry.trouble.as_ref().map(|why| format!("the journal cannot be written: {why}"));
        WorkStatus {
            work: id,
            name: entry.work.name.clone(),
            state,
            node: placed.map(|placed| placed.name.clone()),
            needs: Some(entry.work.needs),
            restarted: entry.standing.restarted,
            restarts: Some(entry.work.restarts),
            submitted: entry.standing.submitted,
            end: None,
            why: trouble.or_else(waits),
        }
    }

    /// What must hold of every piece of work.
    pub(in crate::head) fn check_works(&self) -> Result<(), String> {
        for (&id, entry) in &self.works.live {
            let Some(client) = self.clients.get(&ClientId::of_work(id)) else {
                return Err(format!("{id:?} has no place in the books"));
            };
            let listed: Vec<LeaseId> = client.leases.values().flatten().copied().collect();
            let (lease, wants) = (entry.lease(), entry.stage == Stage::Waiting);
            let placed = entry.standing.placed.as_ref().map(|placed| placed.lease);
            let away = matches!(entry.stage, Stage::Away { .. });
            if wants == client.wants.is_empty() && self.settled_at.is_some() && self.closing.is_none() {
                return Err(format!("DT-3: {id:?} is {:?} and wants {}", entry.stage, client.wants.len()));
            }
            let stopping = entry.standing.stopping;
            if listed.iter().any(|listed| Some(*listed) != lease)
                || (listed.is_empty() && lease.is_some() && !stopping)
            {
                return Err(format!("DT-3: {id:?} is {:?} and holds {listed:?}", entry.stage));
            }
            if lease.is_some() && placed != lease || away && placed.is_none() {
                return Err(format!("DT-2: {id:?} is {:?} and noted at {placed:?}", entry.stage));
            }
            if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                return Err(format!("DT-3: {id:?} runs under {lease:?}, which is over"));
            }
        }
        Ok(())
    }
}
