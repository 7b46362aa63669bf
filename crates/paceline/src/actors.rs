//! Actors of a session that others call, and actors of others that it calls.

use crate::session::Session;
use paceline_core::client::{Card, PoolId};
use paceline_proto::control::ClientToHead;
use paceline_proto::question::Question;
use paceline_proto::{ActorId, Work};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long the head may take to say whether a name is free, or whose it is.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long it may take to write a program into its journal.
const JOURNAL_LIMIT: Duration = Duration::from_secs(30);
/// How often it is asked again for an actor that is about to come.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// And if it says nothing: the question may be lost with a link.
const ASK_SILENT: Duration = Duration::from_millis(500);

/// An actor that was found by its name, and what its owner says of it.
pub type Found = (ActorId, Vec<u8>);

/// What was found, and whether it is about to come if nothing was.
type Answer = (Option<Found>, bool);

/// Who waits for the head to say something of actors.
#[derive(Default)]
pub(crate) struct Askers {
    asked: u64,
    finding: Vec<(u64, mpsc::Sender<Answer>)>,
    naming: Vec<(ActorId, mpsc::Sender<Option<String>>)>,
}

impl Askers {
    pub fn on_found(&mut self, number: u64, found: Option<Found>, comes: bool) {
        if let Some(place) = self.finding.iter().position(|(asked, _)| *asked == number) {
            let _ = self.finding.swap_remove(place).1.send((found, comes));
        }
    }

    /// Whoever asked waits no more.
    fn forget_name(&mut self, actor: ActorId) {
        self.naming.retain(|(named, _)| *named != actor);
    }

    pub fn on_known(&mut self, actor: ActorId, refused: Option<String>) {
        if let Some(place) = self.naming.iter().position(|(named, _)| *named == actor) {
            let _ = self.naming.swap_remove(place).1.send(refused);
        }
    }
}

impl Session {
    /// Let others call the actor that this pool is, and find it by its name if it has one. An error is a sentence that says
    /// why they cannot.
    pub fn host_actor(&self, actor: ActorId, card: Card, pool: &PoolId) -> Result<(), String> {
        if self.shared.closed() {
            return Err("the cluster is closed".into());
        }
        let named = card.name.clone();
        let (sender, answer) = mpsc::channel();
        {
            let mut state = self.shared.state.lock();
            self.shared.announce(&mut state);
            if named.is_some() {
                state.inner.actors.naming.push((actor, sender));
            }
            if !state.inner.act(|core, effects| core.host_pool(actor, card, pool, effects)) {
                state.inner.actors.forget_name(actor);
                return Err("the actor has ended already".into());
            }
        }
        let Some(name) = named else { return Ok(()) };
        let refused = match answer.recv_timeout(ANSWER_LIMIT) {
            Ok(None) => return Ok(()),
            Ok(Some(why)) => why,
            Err(_) => format!("the head does not say whether the name {name} is free"),
        };
        let mut state = self.shared.state.lock();
        state.inner.actors.forget_name(actor);
        state.inner.act(|core, effects| core.end_actor(actor, &refused, effects));
        Err(refused)
    }

    /// Have a program run, whatever becomes of this one. When it returns, the program is in the head's journal.
    pub fn submit_program(&self, work: Work) -> Result<String, String> {
        self.ask(Question::Submit { work }, JOURNAL_LIMIT)
    }

    /// End an actor: one of our own, or somebody else's, who is told.
    pub fn end_actor(&self, actor: ActorId, why: &str) {
        if !self.shared.closed() {
            let mut state = self.shared.state.lock();
            state.inner.act(|core, effects| core.destroy_actor(actor, why, effects));
            self.shared.wake_leader(&state);
        }
    }

    /// Have a handle to an actor of somebody else's. Its calls name it.
    pub fn visit(&self, actor: ActorId) {
        let mut state = self.shared.state.lock();
        // Before it wants something: a slot says first for which task it works.
        self.shared.announce(&mut state);
        state.inner.act(|core, effects| core.visit(actor, effects));
    }

    /// One handle less.
    pub fn leave_actor(&self, actor: ActorId) {
        if !self.shared.closed() {
            self.shared.state.lock().inner.act(|core, effects| core.leave_actor(actor, effects));
        }
    }

    /// The actor of this name. One that is about to come is waited for, for so long.
    pub fn find_actor(&self, name: &str, within: Duration) -> Result<Option<Found>, String> {
        let began = Instant::now();
        let mut heard = began;
        loop {
            if self.shared.closed() {
                return Err("the cluster is closed".into());
            }
            let (sender, answer) = mpsc::channel();
            let number = {
                let mut state = self.shared.state.lock();
                let askers = &mut state.inner.actors;
                askers.asked += 1;
                let number = askers.asked;
                askers.finding.push((number, sender));
                state.inner.say(&ClientToHead::Find { number, name: name.to_owned() });
                number
            };
            let Ok((found, comes)) = answer.recv_timeout(ASK_SILENT) else {
                self.shared.state.lock().inner.actors.finding.retain(|(asked, _)| *asked != number);
                if heard.elapsed() >= ANSWER_LIMIT.max(within) {
                    return Err("the head does not answer".into());
                }
                continue;
            };
            heard = Instant::now();
            if found.is_some() || !comes || began.elapsed() >= within {
                return Ok(found);
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }
}
