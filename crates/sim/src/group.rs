//! Clients that have groups: members that are granted together or not at all.
//!
//! * SG-1: no call of a group is sent before as many leases were granted for it as it has members.
//! * SG-2: the calls of a member go to one slot, and none of them to another.
//! * SG-3: only a group that has lost a lease ends its tasks for it.

use crate::job::Job;
use crate::ledger::named;
use crate::world::{Event, Sim};
use paceline_core::client::Outcome;
use paceline_proto::data::Call;
use paceline_proto::{LeaseId, ProgramId, Resources, Rule, Shape};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) struct Group {
    client: usize,
    shape: Shape,
    size: u32,
    open: bool,
    /// Leases of its shape that its client had before it was opened.
    before: BTreeSet<LeaseId>,
    /// Where the calls of each member went.
    leases: BTreeMap<u32, LeaseId>,
    lost: bool,
}

impl Sim {
    /// Open a group, use one, or close one.
    pub(crate) fn some_group(&mut self, client: usize) {
        let mine = self.groups.iter().enumerate().filter(|(_, group)| group.client == client && group.open);
        let open: Vec<usize> = mine.map(|(number, _)| number).collect();
        if open.len() < 2 && (open.is_empty() || self.random.percent(20)) {
            let size = self.random.within(1..4) as u32;
            let rule = Rule { one_per_node: self.random.percent(20), ..Rule::default() };
            let group = self.open_group(client, size, Resources::cpus(1), rule);
            let lasts = self.random.span(Duration::from_millis(1)..Duration::from_millis(3_000));
            return self.after(lasts, Event::GroupEnds { group });
        }
        let group = self.random.pick(&open);
        for _ in 0..self.random.within(1..6) {
            let job = self.load.job(&mut self.random);
            if !self.clients[client].core.has_room(job.size) {
                return;
            }
            let member = self.random.below(self.groups[group].size as usize) as u32;
            self.submit_to_member(group, member, job);
        }
    }

    pub(crate) fn open_group(&mut self, client: usize, size: u32, needs: Resources, rule: Rule) -> usize {
        self.ledger.tally.groups += 1;
        let shape =
            self.client_does(client, |core, out| core.open_group(size, needs, ProgramId::OWN, rule, out));
        let before = self.leases_of(client, shape);
        let (leases, lost) = (BTreeMap::new(), false);
        self.groups.push(Group { client, shape, size, open: true, before, leases, lost });
        let group = self.groups.len() - 1;
        self.note(|_| format!("client {client} opens group {group} of {size}: {shape:?}"));
        group
    }

    pub(crate) fn submit_to_member(&mut self, group: usize, member: u32, job: Job) -> usize {
        let Group { client, shape, .. } = self.groups[group];
        let job = Job { shape, member: Some((group, member)), levels: 0, ..job };
        self.submit_job(client, job)
    }

    pub(crate) fn close_group(&mut self, group: usize) {
        let Group { client, shape, open, .. } = self.groups[group];
        if !open {
            return;
        }
        self.note(|_| format!("client {client} closes group {group}"));
        self.groups[group].open = false;
        for entry in &mut self.ledger.entries {
            entry.cancelled |= entry.job.member.is_some_and(|(of, _)| of == group);
        }
        if self.clients[client].alive {
            self.client_does(client, |core, out| core.close_group(&shape, out));
        }
    }

    pub(crate) fn close_groups(&mut self) {
        (0..self.groups.len()).for_each(|group| self.close_group(group));
    }

    fn leases_of(&self, client: usize, shape: Shape) -> BTreeSet<LeaseId> {
        let shapes = self.clients[client].shapes.iter();
        shapes.filter(|(_, other)| **other == shape).map(|(lease, _)| *lease).collect()
    }

    /// Calls are about to be sent under a lease (SG-1, SG-2).
    pub(crate) fn check_members(&mut self, client: usize, lease: LeaseId, calls: &[Call]) {
        for call in calls {
            let Some((group, member)) = self.ledger.entries[named(&call.payload)].job.member else {
                continue;
            };
            let granted = self.leases_of(client, self.groups[group].shape);
            let Group { size, before, leases, .. } = &mut self.groups[group];
            let mine = granted.difference(before).count();
            assert!(mine >= *size as usize, "SG-1: {:?} is sent with {mine} of {size} members", call.task);
            let news = leases.is_empty();
            let known = *leases.entry(member).or_insert(lease);
            assert_eq!(known, lease, "SG-2: member {member} of group {group} is in two places");
            let others = leases.iter().filter(|(other, at)| **other != member && **at == lease);
            assert_eq!(others.count(), 0, "SG-2: two members of group {group} are in one place");
            self.ledger.tally.whole_groups += u64::from(news);
        }
    }

    /// A task has ended, and its group may be the reason (SG-3).
    pub(crate) fn check_group_lost(&mut self, task: usize, outcome: &Outcome) {
        let (Outcome::GroupLost(_), Some((group, _))) = (outcome, self.ledger.entries[task].job.member)
        else {
            return;
        };
        let Group { client, shape, .. } = self.groups[group];
        let mut all = self.leases_of(client, shape).into_iter();
        let alone = self.clients[client].core.group_places(&shape).is_none();
        assert!(alone, "SG-3: group {group} is whole");
        let has_ended = all.any(|lease| self.ledger.has_ended(lease));
        assert!(has_ended, "SG-3: no lease of group {group} has ended");
        let news = !std::mem::replace(&mut self.groups[group].lost, true);
        self.ledger.tally.lost_groups += u64::from(news);
    }
}
