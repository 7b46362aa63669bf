//! Actors of a session that others call, and actors of others that it calls.

use crate::session::{INTERRUPTED, Session, WAIT_SLICE, received};
use paceline_core::client::{Card, PoolId};
use paceline_proto::control::ClientToHead;
use paceline_proto::limits;
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

/// What the head knows of a name.
#[derive(Clone, PartialEq, Debug)]
pub enum Search {
    Found(Found),
    /// Nobody has it now, but the actor is there to stay: its owner is being started, or has not come back yet.
    Coming,
    /// There is none; what became of the last one, if the head knows.
    Absent {
        gone: Option<String>,
    },
}

/// What was found; if nothing was, whether it is about to come, and why the last one is no more.
type Answer = (Option<Found>, bool, Option<String>);

/// What the head says of the name of a new actor.
enum Naming {
    Given,
    Refused(String),
    /// Whether it is free will be known within this time.
    Held(Duration),
}

/// Who waits for the head to say something of actors.
#[derive(Default)]
pub(crate) struct Askers {
    asked: u64,
    finding: Vec<(u64, mpsc::Sender<Answer>)>,
    naming: Vec<(ActorId, mpsc::Sender<Naming>)>,
}

impl Askers {
    pub fn on_found(&mut self, number: u64, answer: Answer) {
        if let Some(place) = self.finding.iter().position(|(asked, _)| *asked == number) {
            let _ = self.finding.swap_remove(place).1.send(answer);
        }
    }

    /// Whoever asked waits no more.
    fn forget_name(&mut self, actor: ActorId) {
        self.naming.retain(|(named, _)| *named != actor);
    }

    /// Returns why the actor may not have its name, if nobody waits to hear that.
    pub fn on_known(&mut self, actor: ActorId, refused: Option<String>) -> Option<String> {
        let Some(place) = self.naming.iter().position(|(named, _)| *named == actor) else { return refused };
        let answer = refused.map_or(Naming::Given, Naming::Refused);
        let _ = self.naming.swap_remove(place).1.send(answer);
        None
    }

    /// The head will say it later. Returns whether somebody waits for it.
    pub fn on_held(&mut self, actor: ActorId, within: Duration) -> bool {
        let asker = self.naming.iter().find(|(named, _)| *named == actor);
        asker.is_some_and(|(_, asker)| asker.send(Naming::Held(within)).is_ok())
    }
}

impl Session {
    /// Have a name for an actor that is about to be made, so that no other one is made of it meanwhile. An error is a
    /// sentence that says why it cannot have the name. `interrupted` is asked again and again while the head has not said
    /// whether the name is free. The actor ends with [`Session::end_actor`], or with the pool that [`Session::host_actor`] has
    /// it be.
    pub fn claim_actor(
        &self,
        actor: ActorId,
        name: &str,
        card: Card,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        if self.shared.closed() {
            return Err("the cluster is closed".into());
        }
        limits::name("name of an actor", name).map_err(|error| error.to_string())?;
        let card = Card { name: Some(name.to_owned()), ..card };
        let (sender, answer) = mpsc::channel();
        {
            let mut state = self.shared.state.lock();
            self.shared.announce(&mut state);
            state.inner.actors.naming.push((actor, sender));
            state.inner.act(|core, effects| core.host_actor(actor, card, None, effects));
        }
        let mut limit = Instant::now() + ANSWER_LIMIT;
        let refused = loop {
            match answer.recv_timeout(WAIT_SLICE) {
                Ok(Naming::Given) => return Ok(()),
                Ok(Naming::Refused(why)) => break why,
                Ok(Naming::Held(within)) => limit = Instant::now() + within + ANSWER_LIMIT,
                Err(_) if self.shared.closed() => break "the cluster is closed".into(),
                Err(_) if interrupted() => break "its maker was interrupted".into(),
                Err(_) if Instant::now() < limit => {}
                Err(_) => break format!("the head does not say whether the name {name} is free"),
            }
        };
        let mut state = self.shared.state.lock();
        state.inner.actors.forget_name(actor);
        state.inner.act(|core, effects| core.end_actor(actor, &refused, effects));
        Err(refused)
    }

    /// Let others call the actor that this pool is. One whose name was claimed has its card. An error is a sentence that says
    /// why they cannot.
    pub fn host_actor(&self, actor: ActorId, card: Option<Card>, pool: &PoolId) -> Result<(), String> {
        if self.shared.closed() {
            return Err("the cluster is closed".into());
        }
        let mut state = self.shared.state.lock();
        self.shared.announce(&mut state);
        let hosted = state.inner.act(|core, effects| core.host_pool(actor, card, pool, effects));
        if hosted { Ok(()) } else { Err("the actor has ended already".into()) }
    }

    /// Have a program run, whatever becomes of this one. When it returns, the program is in the head's journal. `interrupted`
    /// is asked again and again; a program whose asker was interrupted may be there all the same.
    pub fn submit_program(
        &self,
        work: Work,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<String, String> {
        self.ask(Question::Submit { work }, JOURNAL_LIMIT, interrupted)
    }

    /// End a submitted program. The head is told before this returns, and may take so long to say that it has heard.
    pub fn stop_program(
        &self,
        name: &str,
        within: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<String, String> {
        self.ask(Question::StopProgram { name: name.to_owned() }, within, interrupted)
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

    /// Returns the actor of this name. Waits so long for one that is about to come, and then says [`Search::Coming`].
    /// `interrupted` is asked again and again meanwhile.
    pub fn find_actor(
        &self,
        name: &str,
        within: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Search, String> {
        limits::name("name of an actor", name).map_err(|error| error.to_string())?;
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
            let Some((found, comes, gone)) = received(&answer, ASK_SILENT, interrupted) else {
                self.shared.state.lock().inner.actors.finding.retain(|(asked, _)| *asked != number);
                if interrupted() {
                    return Err(INTERRUPTED.into());
                }
                if heard.elapsed() >= ANSWER_LIMIT.max(within) {
                    return Err("the head does not answer".into());
                }
                continue;
            };
            heard = Instant::now();
            match found {
                Some(found) => return Ok(Search::Found(found)),
                None if !comes => return Ok(Search::Absent { gone }),
                None if began.elapsed() >= within => return Ok(Search::Coming),
                None if interrupted() => return Err(INTERRUPTED.into()),
                None => {}
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }
}
