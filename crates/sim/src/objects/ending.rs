//! How processes end, and what must be so when everything has come to rest.

use super::{SLOTS, World};
use paceline_core::objects::{Event, LinkId};
use paceline_proto::ClientId;
use paceline_proto::objects::ToStore;

impl World {
    /// A process dies, and another one starts in its place.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        let clients = self.random.percent(10);
        let Some(id) = self.living(Some(clients), None) else { return Ok(()) };
        let owner = self.processes[id].owner;
        self.met.deaths += 1;
        self.processes[id].alive = false;
        // What it had sent may be lost with it, from somewhere on.
        let keeps = self.random.below(self.processes[id].out.len() + 1);
        self.processes[id].out.truncate(keeps);
        if !clients {
            return self.start(owner, false);
        }
        self.end_site_of(id);
        // Its slots go on for a while, and miss what was its.
        self.calls.retain(|_, call| call.caller != id);
        let next = ClientId(self.processes.len() as u64 + 100);
        self.start(next, true)?;
        (0..SLOTS).try_for_each(|_| self.start(next, false))
    }

    /// Everybody lets go, and everything comes to rest.
    pub(super) fn rest(&mut self) -> Result<(), String> {
        for round in 0..200_000 {
            self.step(false)?;
            if round % 50 == 0 {
                self.let_go_of_everything();
            }
            let asks = self.processes.iter().any(|process| process.alive && !process.asked.is_empty());
            let sends = self.processes.iter().any(|process| !process.out.is_empty());
            let hears =
                (0..self.processes.len()).any(|id| self.processes[id].alive && !self.inbound[id].is_empty());
            let dead = self.processes.iter().all(|process| process.alive || process.noticed);
            let holds = self.processes.iter().any(|process| process.alive && !process.refs.is_empty());
            if !asks && !sends && !hears && dead && !holds && self.calls.is_empty() && self.sites.is_quiet() {
                for left in self.sites.statuses() {
                    if left.objects > self.unsent.len() || left.waiting > 0 {
                        return Err(format!("SO-2: {left:?}"));
                    }
                }
                return self.end();
            }
        }
        let alive = self.processes.iter().filter(|process| process.alive && !process.asked.is_empty());
        let waits: Vec<_> = alive.map(|process| &process.asked).collect();
        let calls: Vec<_> = self.calls.values().map(|call| &call.state).collect();
        Err(format!("SO-3: it does not come to rest: {waits:?}, {calls:?}, {:?}", self.sites.statuses()))
    }

    /// Every owner ends.
    pub(super) fn end(&mut self) -> Result<(), String> {
        for id in 0..self.processes.len() {
            if std::mem::replace(&mut self.processes[id].alive, false) {
                let site = self.processes[id].site;
                self.tell(site, Event::LinkDown(LinkId(id as u64)))?;
            }
        }
        self.end_sites()?;
        let left =
            self.sites.statuses().into_iter().find(|left| left.objects + left.waiting > 0 || left.used > 0);
        left.map_or(Ok(()), |left| Err(format!("SO-2: {left:?}")))
    }

    pub(super) fn let_go_of_everything(&mut self) {
        for id in 0..self.processes.len() {
            if !self.processes[id].alive || !self.processes[id].asked.is_empty() {
                continue;
            }
            while !self.processes[id].refs.is_empty() {
                self.drop_ref(id, 0);
            }
            for object in std::mem::take(&mut self.processes[id].having) {
                self.say(id, &ToStore::LetGo { object });
            }
        }
    }
}
