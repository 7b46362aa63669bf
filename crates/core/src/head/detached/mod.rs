//! Work that the head owns: it outlives whoever submitted it, and must exist once.
//!
//! Owns: every piece of work from its submission to its end, and when it may be started again. Does not own: the journal
//! (the shell writes what [`Write`] says and tells when it has), the lease under which the work runs, which is one of the
//! head's books as any other: its client is the work itself.
//!
//! * DT-1: whoever submits hears of it when the record is in the journal, and not before; so nothing accepted is lost.
//! * DT-2: where it runs is in the journal before its node hears of it.
//! * DT-3: it is started again only when it cannot be running any more: its node says so, another start of that node
//!   shows that it is gone, or the node has been silent for as long as it takes to end the work by its own clock, and a
//!   heartbeat more. Before that it is out of reach, and waited for.
//! * DT-7: work that was placed and never begun, because the head died before it could tell the node, is started again and is
//!   charged for nothing. It was never begun if the very start of the node that was to run it does not know it.
//! * DT-4: a node is told that its news of an end were heard when the journal knows them.
//! * DT-5: its lease is never asked back; a node that is to go waits for its end.
//! * DT-6: who submits the same work again, by its token, is told of the one there is.

mod reports;
mod status;

use super::{Client, Effect, Head, Want};
use crate::time::Tick;
use paceline_proto::control::HeadToNode;
use paceline_proto::work::{End, Ended, LONGEST_RECORD, Placed, Standing};
use paceline_proto::{
    ClientId, Death, DeathCause, LeaseId, NodeId, OutOfMemory, Shape, SlotId, Work, WorkId,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use status::WorkStatus;

/// So many pieces of work are remembered after their end.
pub const ENDS_KEPT: usize = 200;
/// The most that there may be at a time.
const MOST: usize = 10_000;

/// What is to be in the journal of one piece of work.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Its record, which is new.
    Keep(Work),
    /// How far it has come.
    Note(Standing),
    /// How it ended, in place of the rest. The time is the shell's to fill in.
    End(Ended),
    /// Nothing.
    Forget,
    /// Of no work at all: the longest time for which anything may go on without a head (FE-4).
    HeadLost(Duration),
}

/// How a write went: when it was written, in seconds since 1970, or why not.
pub type Wrote = Result<u64, String>;

/// What one that submits or stops is told: what the work is called, or why not.
pub type Told = Result<String, String>;

/// All of it.
#[derive(Default)]
pub(super) struct Works {
    pub(super) live: BTreeMap<WorkId, Entry>,
    /// What has ended, the latest last.
    ended: VecDeque<(WorkId, Ended)>,
    numbered: u32,
}

pub(super) struct Entry {
    work: Work,
    stage: Stage,
    /// What the journal knows once everything under way is written.
    standing: Standing,
    /// Notes that are on their way into the journal.
    unwritten: u32,
    /// An end that its node has told, and is not told that it was heard.
    news: Option<(NodeId, LeaseId)>,
    /// When to write again what could not be written.
    again: Option<Tick>,
    /// Why it could not.
    trouble: Option<String>,
}

#[derive(Clone, PartialEq, Debug)]
enum Stage {
    /// Its record is being written for those who wait for it.
    Keeping {
        askers: Vec<u64>,
    },
    /// It needs a lease.
    Waiting,
    /// It has one; the node hears of it when that is in the journal.
    Reserved {
        lease: LeaseId,
    },
    /// The node was told.
    Sent {
        lease: LeaseId,
    },
    Running {
        lease: LeaseId,
        slot: SlotId,
    },
    /// Its node is out of reach; from then on it cannot be running.
    Away {
        until: Tick,
    },
    /// Its end is being written.
    Ending(Ended),
}

/// What is known of a node that counts as lost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Gone {
    /// Its process is: nothing of it runs.
    Dead,
    /// It was last heard then.
    Silent { heard: Tick },
}

impl Head {
    /// What the journal has, before anything else happens: pieces of work, and ends from the oldest.
    pub fn restore(&mut self, works: Vec<(WorkId, Work, Standing)>, ended: Vec<(WorkId, Ended)>) {
        for (id, work, standing) in works {
            self.learn_names(work.resources.clone());
            let mut client = Client::new(Tick(0), ClientId::of_work(id), work.name.clone());
            client.heard = None;
            self.clients.insert(ClientId::of_work(id), client);
            self.note_kept(ClientId::of_work(id));
            // When that was is known when the first thing happens.
            let stage = if standing.placed.is_some() {
                Stage::Away { until: Tick(u64::MAX) }
            } else {
                Stage::Waiting
            };
            self.works.live.insert(id, Entry::new(work, stage, standing));
        }
        self.works.ended = ended.into();
    }

    /// The first thing has happened: from now on time is counted.
    pub(super) fn begin_works(&mut self, now: Tick) {
        let until = self.out_of_reach_at(now);
        for id in self.works.live.keys().copied().collect::<Vec<_>>() {
            let entry = self.works.live.get_mut(&id).expect("listed just now");
            match &mut entry.stage {
                Stage::Away { until: at } => *at = until,
                Stage::Waiting => self.want_lease(now, id),
                _ => {}
            }
        }
        if self.works.live.values().any(Entry::is_away) {
            self.no_later_than(until);
        }
    }

    /// Returns whether an earlier start of the head has accepted the submitted program of this name: it may have run then.
    pub(super) fn is_of_earlier_head(&self, name: &str) -> bool {
        let earlier = |id: &WorkId| id.0 >> 32 < self.config.epoch.number();
        self.works.live.iter().any(|(id, entry)| earlier(id) && entry.work.name == name)
    }

    pub(super) fn on_submit(&mut self, now: Tick, asker: u64, work: Work, out: &mut Vec<Effect>) {
        let same = |entry: &&mut Entry| entry.work.token == work.token;
        if let Some(known) = self.works.live.values_mut().find(same) {
            // DT-6.
            match &mut known.stage {
                Stage::Keeping { askers } => askers.push(asker),
                _ => out.push(Effect::Told { asker, told: Ok(known.work.name.clone()) }),
            }
            return;
        }
        if let Some((_, ended)) = self.works.ended.iter().find(|(_, ended)| ended.token == work.token) {
            return out.push(Effect::Told { asker, told: Ok(ended.name.clone()) });
        }
        if let Err(why) = self.acceptable(now, &work) {
            return out.push(Effect::Told { asker, told: Err(why) });
        }
        self.works.numbered += 1;
        let id = WorkId(self.config.epoch.number() << 32 | u64::from(self.works.numbered));
        self.learn_names(work.resources.clone());
        self.clients
            .insert(ClientId::of_work(id), Client::new(now, ClientId::of_work(id), work.name.clone()));
        self.note_kept(ClientId::of_work(id));
        out.push(Effect::Write { work: id, write: Write::Keep(work.clone()) });
        let stage = Stage::Keeping { askers: vec![asker] };
        self.works.live.insert(id, Entry::new(work, stage, Standing::default()));
    }

    fn acceptable(&mut self, now: Tick, work: &Work) -> Result<(), String> {
        let name = &work.name;
        if self.closing.is_some() {
            return Err("the cluster is ending".into());
        }
        if !Work::is_name(name) {
            return Err(format!(
                "{name:?} is no name for a program: letters, digits, dots, dashes and underscores are, up to 64"
            ));
        }
        if work.start.len() > LONGEST_RECORD {
            let (size, most) = (work.start.len(), LONGEST_RECORD);
            return Err(format!(
                "the start record of {name} has {size} bytes, and may have {most}; put large things into files"
            ));
        }
        if let Some((_, other)) = self.works.live.iter().find(|(_, entry)| entry.work.name == *name) {
            let node =
                other.standing.placed.as_ref().map_or(String::new(), |placed| format!(" on {}", placed.name));
            return Err(format!(
                "a program {name} is there already{node}: give this one another name, or stop that one"
            ));
        }
        if self.works.live.len() >= MOST {
            return Err(format!("the head looks after {MOST} programs already; wait for some to end"));
        }
        let most = self.config.max_submitted_bytes;
        let kept: usize = self.works.live.values().map(|entry| entry.work.weight()).sum();
        if kept + work.weight() > most {
            return Err(format!(
                "the start records of all programs may have {most} bytes, and those that are there have {kept} \
                 (max_submitted_bytes of the head); wait for some to end, or put large things into files"
            ));
        }
        self.could_ever_run(now, work.needs).map_err(|why| format!("{name} can never run: {why}"))
    }

    pub(super) fn on_written(&mut self, now: Tick, id: WorkId, wrote: Wrote, out: &mut Vec<Effect>) {
        let Some(entry) = self.works.live.get_mut(&id) else { return };
        let at = match wrote {
            Ok(at) => at,
            Err(why) => return self.on_not_written(now, id, why, out),
        };
        entry.trouble = None;
        entry.again = None;
        match &mut entry.stage {
            Stage::Keeping { askers } => {
                let askers = std::mem::take(askers);
                entry.standing.submitted = at;
                entry.stage = Stage::Waiting;
                let stopping = entry.standing.stopping;
                let name = entry.work.name.clone();
                for asker in askers {
                    // DT-1.
                    out.push(Effect::Told { asker, told: Ok(name.clone()) });
                }
                if stopping {
                    // Somebody has stopped it while its record was on its way to the disk.
                    return self.finish_work(now, id, End::Stopped, out);
                }
                self.want_lease(now, id);
            }
            Stage::Ending(ended) => {
                if entry.unwritten > 0 {
                    // A note from before; the end comes after it.
                    entry.unwritten -= 1;
                    return;
                }
                let ended = Ended { at, ..ended.clone() };
                let news = entry.news;
                let name = entry.work.name.clone();
                self.end_actors_of_program(&name);
                self.works.live.remove(&id);
                self.works.ended.push_back((id, ended));
                if self.works.ended.len() > ENDS_KEPT {
                    self.works.ended.pop_front();
                }
                self.hear(news, out);
                self.forget_client(ClientId::of_work(id), out);
            }
            _ => {
                entry.unwritten = entry.unwritten.saturating_sub(1);
                if entry.unwritten == 0 {
                    let news = entry.news.take();
                    self.hear(news, out);
                    self.send(id, out);
                }
            }
        }
    }

    fn on_not_written(&mut self, now: Tick, id: WorkId, why: String, out: &mut Vec<Effect>) {
        let again = now + self.config.heartbeat;
        let entry = self.works.live.get_mut(&id).expect("seen by the caller");
        if let Stage::Keeping { askers } = &mut entry.stage {
            for asker in std::mem::take(askers) {
                out.push(Effect::Told { asker, told: Err(why.clone()) });
            }
            self.works.live.remove(&id);
            return self.forget_client(ClientId::of_work(id), out);
        }
        if entry.unwritten > 0 {
            entry.unwritten -= 1;
            if matches!(entry.stage, Stage::Ending(_)) {
                // What matters now comes after it.
                return;
            }
        }
        entry.trouble = Some(why);
        entry.again = Some(again);
        self.no_later_than(again);
    }

    /// DT-4.
    fn hear(&self, news: Option<(NodeId, LeaseId)>, out: &mut Vec<Effect>) {
        if let Some((node, lease)) = news {
            self.tell_node(node, HeadToNode::Heard { lease }, out);
        }
    }

    pub(super) fn on_stop_work(&mut self, now: Tick, asker: u64, name: &str, out: &mut Vec<Effect>) {
        let Some((&id, entry)) = self.works.live.iter_mut().find(|(_, entry)| entry.work.name == name) else {
            let ended = self.works.ended.iter().any(|(_, ended)| ended.name == name);
            let told = if ended {
                Ok(name.into())
            } else {
                Err(format!("there is no program {name} in this cluster"))
            };
            return out.push(Effect::Told { asker, told });
        };
        out.push(Effect::Told { asker, told: Ok(name.into()) });
        if std::mem::replace(&mut entry.standing.stopping, true) {
            return;
        }
        match entry.stage.clone() {
            Stage::Keeping { .. } | Stage::Ending(_) => {}
            Stage::Waiting => self.finish_work(now, id, End::Stopped, out),
            Stage::Reserved { lease } | Stage::Sent { lease } | Stage::Running { lease, .. } => {
                self.note(id, out);
                self.end(lease, out);
            }
            Stage::Away { .. } => self.note(id, out),
        }
    }

    /// Ask for the lease that it needs.
    fn want_lease(&mut self, now: Tick, id: WorkId) {
        let shape = self.works.live[&id].shape();
        self.turns += 1;
        let want = Want { count: 1, order: self.turns, since: now, told: false, exclusive: None };
        let client = ClientId::of_work(id);
        self.clients.get_mut(&client).expect("work that lives is a client").wants.insert(shape, want);
        self.note_hunger(client);
        self.dirty = true;
    }

    pub(super) fn is_work(&self, client: ClientId) -> bool {
        client.work().is_some_and(|work| self.works.live.contains_key(&work))
    }

    /// It has a lease on this node, in the books. True if it is one of ours.
    pub(super) fn on_work_granted(
        &mut self,
        client: ClientId,
        lease: LeaseId,
        node: NodeId,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(id) = client.work() else { return false };
        let Some(entry) = self.works.live.get_mut(&id) else { return false };
        assert!(entry.stage == Stage::Waiting, "DT-3: {id:?} is granted a lease and is {:?}", entry.stage);
        entry.stage = Stage::Reserved { lease };
        let at = &self.nodes[&node];
        entry.standing.placed =
            Some(Placed { node, incarnation: at.incarnation, lease, name: at.name.clone() });
        let shape = entry.shape();
        self.clients.get_mut(&client).expect("it was granted something").wants.remove(&shape);
        self.note(id, out);
        true
    }

    fn note(&mut self, id: WorkId, out: &mut Vec<Effect>) {
        let entry = self.works.live.get_mut(&id).expect("only of work that lives is anything noted");
        entry.unwritten += 1;
        out.push(Effect::Write { work: id, write: Write::Note(entry.standing.clone()) });
    }

    /// Tell the node (DT-2).
    fn send(&mut self, id: WorkId, out: &mut Vec<Effect>) {
        let entry = self.works.live.get_mut(&id).expect("its note was written just now");
        let Stage::Reserved { lease } = entry.stage else { return };
        if entry.standing.stopping || self.closing.is_some() {
            return;
        }
        entry.stage = Stage::Sent { lease };
        let (name, start) = (entry.work.name.clone(), entry.work.start.clone());
        let held = &self.leases[&lease];
        let (node, shape, devices) = (held.node, held.shape, held.devices);
        let run = HeadToNode::Run { lease, holder: ClientId::of_work(id), shape, devices, name, start };
        self.tell_node(node, run, out);
    }

    /// Its node has a slot for it, which becomes it.
    pub(super) fn on_work_placed(&mut self, client: ClientId, lease: LeaseId, slot: SlotId) {
        if let Some(entry) = client.work().and_then(|id| self.works.live.get_mut(&id))
            && entry.stage == (Stage::Sent { lease })
        {
            entry.stage = Stage::Running { lease, slot };
        }
    }

    /// Whether this is news of the end of work, which are heard when the journal knows them (DT-4).
    pub(super) fn is_news_of_work(&self, node: NodeId, lease: LeaseId) -> bool {
        // Said again, on the same link or on another, while the journal is slow.
        if self.works.live.values().any(|entry| entry.news == Some((node, lease))) {
            return true;
        }
        let Some(held) = self.leases.get(&lease).filter(|held| held.node == node) else { return false };
        let entry = held.client.work().and_then(|id| self.works.live.get(&id));
        entry.is_some_and(|entry| entry.lease() == Some(lease))
    }

    /// Its lease is over, as its node says; `death` is how it died.
    pub(super) fn on_work_over(
        &mut self,
        now: Tick,
        client: ClientId,
        lease: LeaseId,
        death: Option<&Death>,
        out: &mut Vec<Effect>,
    ) {
        let Some(id) = client.work() else { return };
        let Some(entry) = self.works.live.get_mut(&id) else { return };
        if entry.lease() != Some(lease) {
            return;
        }
        let started = matches!(entry.stage, Stage::Running { .. });
        let died = death.filter(|death| death.cause != DeathCause::NodeLost);
        // Of what was never sent the node knows nothing, and news from before may still be on their way to the disk.
        if death.is_some()
            && !matches!(entry.stage, Stage::Reserved { .. })
            && let Some(placed) = &entry.standing.placed
        {
            entry.news = Some((placed.node, lease));
        }
        match died {
            _ if entry.standing.stopping => self.finish_work(now, id, End::Stopped, out),
            Some(death) => {
                let out_of_memory = !matches!(death.out_of_memory, OutOfMemory::No | OutOfMemory::Likely(_));
                self.on_failure(now, id, End::Died { cause: death.cause, out_of_memory }, out);
            }
            None if started => self.on_failure(now, id, End::NodeLost, out),
            // The node had no room for it, or has never heard of it.
            None => self.start_over(now, id, out),
        }
    }

    fn on_failure(&mut self, now: Tick, id: WorkId, end: End, out: &mut Vec<Effect>) {
        let entry = self.works.live.get_mut(&id).expect("seen by the caller");
        if end.is_success()
            || entry.standing.restarted >= entry.work.restarts
            || entry.standing.stopping
            || self.closing.is_some()
        {
            let end = if entry.standing.stopping { End::Stopped } else { end };
            return self.finish_work(now, id, end, out);
        }
        entry.standing.restarted += 1;
        self.start_over(now, id, out);
    }

    fn start_over(&mut self, now: Tick, id: WorkId, out: &mut Vec<Effect>) {
        let entry = self.works.live.get_mut(&id).expect("seen by the caller");
        if entry.standing.stopping {
            return self.finish_work(now, id, End::Stopped, out);
        }
        entry.standing.placed = None;
        entry.stage = Stage::Waiting;
        self.note(id, out);
        self.want_lease(now, id);
    }

    fn finish_work(&mut self, _now: Tick, id: WorkId, end: End, out: &mut Vec<Effect>) {
        let entry = self.works.live.get_mut(&id).expect("seen by the caller");
        let Standing { placed, restarted, submitted, .. } = &entry.standing;
        let ended = Ended {
            token: entry.work.token,
            name: entry.work.name.clone(),
            end,
            node: placed.as_ref().map(|placed| placed.name.clone()),
            restarted: *restarted,
            submitted: *submitted,
            at: 0,
        };
        entry.stage = Stage::Ending(ended.clone());
        out.push(Effect::Write { work: id, write: Write::End(ended) });
        let client = ClientId::of_work(id);
        self.clients.get_mut(&client).expect("work that lives is a client").wants.clear();
        self.note_hunger(client);
    }

    pub(super) fn works_on_deadline(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let mut next: Option<Tick> = None;
        for id in self.works.live.keys().copied().collect::<Vec<_>>() {
            let entry = self.works.live.get_mut(&id).expect("listed just now");
            if entry.again.is_some_and(|at| at <= now) {
                entry.again = None;
                let write = match &entry.stage {
                    Stage::Ending(ended) => Write::End(ended.clone()),
                    _ => {
                        entry.unwritten += 1;
                        Write::Note(entry.standing.clone())
                    }
                };
                out.push(Effect::Write { work: id, write });
            }
            let over = matches!(entry.stage, Stage::Away { until } if until <= now);
            let due = match entry.stage {
                Stage::Away { until } if !over => Some(until),
                _ => None,
            };
            next = next.into_iter().chain(due).chain(entry.again).min();
            if over {
                self.on_failure(now, id, End::NodeLost, out);
            }
        }
        next.into_iter().for_each(|at| self.no_later_than(at));
    }

    pub(super) fn works_on_gap(&mut self, gap: Duration) {
        for entry in self.works.live.values_mut() {
            if let Stage::Away { until } = &mut entry.stage {
                *until = *until + gap;
            }
            entry.again = entry.again.map(|at| at + gap);
        }
    }

    /// The cluster ends, and its work with it.
    pub(super) fn forget_works(&mut self, out: &mut Vec<Effect>) {
        for &work in self.works.live.keys() {
            out.push(Effect::Write { work, write: Write::Forget });
        }
    }
}

impl Works {
    /// What is called what and has not ended.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let live = self.live.values().filter(|entry| !matches!(entry.stage, Stage::Ending(_)));
        live.map(|entry| &*entry.work.name)
    }

    /// Whether there is work of this name that has not ended.
    pub(super) fn lives(&self, name: &str) -> bool {
        self.live.values().any(|entry| entry.work.name == name && !matches!(entry.stage, Stage::Ending(_)))
    }
}

impl Entry {
    fn new(work: Work, stage: Stage, standing: Standing) -> Entry {
        Entry { work, stage, standing, unwritten: 0, news: None, again: None, trouble: None }
    }

    fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away { .. })
    }

    /// The lease under which it runs, or will.
    fn lease(&self) -> Option<LeaseId> {
        match self.stage {
            Stage::Reserved { lease } | Stage::Sent { lease } | Stage::Running { lease, .. } => Some(lease),
            Stage::Keeping { .. } | Stage::Waiting | Stage::Away { .. } | Stage::Ending(_) => None,
        }
    }

    fn shape(&self) -> Shape {
        Shape::of(self.work.needs)
    }
}
