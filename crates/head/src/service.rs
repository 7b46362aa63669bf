//! The event loop: links in, the core's effects out.

use crate::ask::{Asker, Gatherings, HEAD, Next, Reading, Steward, View};
use crate::explain;
use crate::journal::{Journal, JournalError};
use crate::links::{Limits, Links, Meaning, Origin, Peer, Place};
use crate::message::FromHead;
use crate::report;
use crate::works::{self, Works};
use paceline_core::Tick;
use paceline_core::head::{Config, Effect, Event, Head, Status};
use paceline_net::secure::Secured;
use paceline_net::{alarm, clock};
use paceline_proto::control::{HeadToClient, HeadToNode};
use paceline_proto::question::{Answer, ClientQuestion, NodeQuestion, Question, node_name};
use paceline_proto::work::{LONGEST_RECORD, to_bytes};
use paceline_proto::{Epoch, NodeId, Work};
use serde_json::json;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;

/// Messages that wait for the event loop; beyond that, links are not read.
const INBOX: usize = 256;
/// How long the last messages may take to come, and again to leave, when the head ends.
const FAREWELL: Duration = Duration::from_millis(300);

/// How long the journal's disk may take for the last writes when the head ends.
const JOURNAL_FAREWELL: Duration = Duration::from_secs(2);

/// How long nodes may take to go when the cluster is stopped.
const STOP_LIMIT: Duration = Duration::from_secs(8);

/// A head with this in its own environment is gone before it tells a node to run a program that its journal says is placed.
/// For tests.
const EXIT_BEFORE_RUN: &str = "PACELINE_FAULT_EXIT_BEFORE_RUN";

/// What is asked of the head from outside.
enum Request {
    Accept(Secured, Origin, Place),
    Status(Box<dyn FnOnce(Status) + Send>),
    Stop { by: String },
    Close,
    Crash,
}

/// Reaches a head. Cheap to clone, usable from any thread; the head ends when the last one is gone.
#[derive(Clone)]
pub struct Handle {
    requests: mpsc::UnboundedSender<Request>,
}

impl Handle {
    /// Serve the peer at the other end of this connection. It introduces itself by its first message.
    pub fn accept(&self, connection: impl Into<Secured>) {
        let _ = self.requests.send(Request::Accept(connection.into(), Origin::Peer, None));
    }

    /// The same of a link that comes from a slot, which may do what tasks need and nothing else.
    /// `place` is dropped with the link.
    pub fn accept_slot(&self, connection: impl Into<Secured>, place: impl Send + Sync + 'static) {
        let _ = self.requests.send(Request::Accept(connection.into(), Origin::Slot, Some(Box::new(place))));
    }

    /// Ask how things stand. The answer never comes if the head has ended.
    pub fn status(&self, answer: impl FnOnce(Status) + Send + 'static) {
        let _ = self.requests.send(Request::Status(Box::new(answer)));
    }

    /// End the cluster: tell every node to go, then end. `by` says who wants that, for people.
    pub fn stop(&self, by: impl Into<String>) {
        let _ = self.requests.send(Request::Stop { by: by.into() });
    }

    /// End the head once it has said what it has to say.
    pub fn close(&self) {
        let _ = self.requests.send(Request::Close);
    }

    /// Makes the head panic, so that tests can see what a defect of it does.
    #[doc(hidden)]
    pub fn crash(&self) {
        let _ = self.requests.send(Request::Crash);
    }
}

/// Why a head ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was told to, or nobody can reach it any more.
    Closed,
    /// A later start of the same head exists; this one must not go on.
    Superseded { by: Epoch },
}

/// A head, ready to run.
pub struct Service {
    core: Head,
    requests: mpsc::UnboundedReceiver<Request>,
    wake: Option<Tick>,
    superseded: Option<Epoch>,
    steward: Option<Box<dyn Steward>>,
    gatherings: Gatherings,
    /// Answers of this process that took their time, by the number of the question.
    own_answers: mpsc::UnboundedReceiver<(u64, Answer)>,
    own_answering: mpsc::UnboundedSender<(u64, Answer)>,
    /// Those who wait for the cluster's end, once it was asked for.
    stopping: Option<Vec<Asker>>,
    works: Works,
    limits: Limits,
}

/// A head and the way to reach it. What is sent before it runs is not lost.
pub fn service(config: Config) -> (Service, Handle) {
    let (sender, requests) = mpsc::unbounded_channel();
    let (own_answering, own_answers) = mpsc::unbounded_channel();
    let service = Service {
        limits: Limits::of(&config),
        core: Head::new(config),
        requests,
        wake: None,
        superseded: None,
        steward: None,
        gatherings: Gatherings::default(),
        own_answers,
        own_answering,
        stopping: None,
        works: Works::default(),
    };
    (service, Handle { requests: sender })
}

impl Service {
    /// Let this one answer what only the process around the head knows.
    pub fn with_steward(mut self, steward: Box<dyn Steward>) -> Service {
        self.steward = Some(steward);
        self
    }

    /// Keep work that is submitted in this journal, and go on with what is there. Without one, nothing can be submitted.
    pub fn with_journal(mut self, journal: Journal) -> Result<Service, JournalError> {
        let (works, ended) = works::read(&journal)?;
        tracing::info!(works = works.len(), "work from before");
        self.core.restore(works, ended);
        self.works.open(journal)?;
        Ok(self)
    }

    /// Be the head until told to end. Runs on any tokio runtime.
    pub async fn run(mut self) -> End {
        let (sender, mut arrivals) = mpsc::channel(INBOX);
        let mut links = Links::new(sender, self.limits);
        let mut closing = None;
        // Nodes that end are heard out: there may be something for clients in it.
        let is_late = |closing: Option<u64>| closing.is_some_and(|at| at <= clock::now());
        while self.superseded.is_none() && (closing.is_none() || links.has_nodes() && !is_late(closing)) {
            tokio::select! {
                // Requests first, or a flood of messages would keep the head from ending.
                biased;
                request = self.requests.recv(), if closing.is_none() || self.stopping.is_some() => match request {
                    Some(Request::Accept(connection, origin, place)) => {
                        if let Err(error) = links.accept(connection, origin, place) {
                            tracing::error!(%error, "a link could not be watched");
                        }
                    }
                    Some(Request::Status(answer)) => answer(self.core.status()),
                    Some(Request::Crash) => panic!("the head was asked to crash by a test"),
                    Some(Request::Stop { by }) => self.begin_stop(None, by, &mut links),
                    Some(Request::Close) | None => closing = Some(clock::now() + FAREWELL.as_nanos() as u64),
                },
                news = self.works.news() => {
                    let events = self.works.on_news(news);
                    self.step_all(events.into(), &mut links);
                }
                // Before time passes judgement, what has arrived is handled.
                Some(arrival) = arrivals.recv() => {
                    for meaning in links.on_arrival(arrival, &self.core) {
                        self.on_meaning(meaning, &mut links);
                    }
                    self.answer_finished(&links);
                }
                Some((number, text)) = self.own_answers.recv() => {
                    self.gatherings.on_own_answer(number, text);
                    self.answer_finished(&links);
                }
                () = alarm::reached(closing) => break,
                () = alarm::reached(self.gatherings.wake()) => self.answer_finished(&links),
                () = alarm::reached(self.wake.map(|at| at.0)) => {
                    self.wake = None;
                    self.step(Event::Tick, &mut links);
                }
            }
            for event in links.drop_unread() {
                self.on_meaning(Meaning::Event(event), &mut links);
            }
            if self.stopping.is_some() && closing.is_none() {
                closing = Some(clock::now() + STOP_LIMIT.as_nanos() as u64);
            }
        }
        if let Some(by) = self.superseded {
            return End::Superseded { by };
        }
        let unwritten = self.works.finish(JOURNAL_FAREWELL).await;
        if unwritten > 0 {
            tracing::warn!(unwritten, "the journal's disk did not take the last writes in time");
        }
        self.finish_stop(&links);
        links.drain(FAREWELL).await;
        End::Closed
    }

    fn on_meaning(&mut self, meaning: Meaning, links: &mut Links) {
        match meaning {
            Meaning::Event(event) => {
                match event {
                    Event::NodeDown(node) => self.gatherings.on_gone(Peer::Node(node)),
                    Event::ClientDown { client, .. } => self.gatherings.on_gone(Peer::Client(client)),
                    _ => {}
                }
                self.step(event, links);
            }
            Meaning::Asked(asker, question) => self.on_question(asker, question, links),
            Meaning::Answered(peer, number, text) => self.gatherings.on_answer(peer, number, text),
        }
    }

    fn on_question(&mut self, asker: Asker, question: Question, links: &mut Links) {
        tracing::debug!(?question, "asked");
        let now = clock::now();
        if let Some(why) = self.gatherings.refuse(asker, self.works.waiting_of(asker.link)) {
            return links.answer(asker, Err(why));
        }
        let reading = match &question {
            Question::CleanLogs => self.reading(&question),
            Question::Logs { of: None, .. } => self.reading(&question),
            Question::Logs { of: Some(of), .. } if of == HEAD && !self.is_program(of) => {
                self.reading(&question)
            }
            _ => None,
        };
        let next = match question {
            Question::Status => self.gatherings.status(asker, links.nodes(), now),
            Question::Logs { of: Some(ref name), lines } if self.is_program(name) => {
                self.gatherings.program_log(asker, name, lines, links.nodes(), now)
            }
            Question::Logs { of, lines } => match self.nodes_of(of.as_deref()) {
                Ok(nodes) => self.gatherings.logs(asker, lines, nodes, now),
                Err(why) => Next::Answer(asker, Err(why)),
            },
            Question::CleanLogs => self.gatherings.clean_logs(asker, links.nodes(), now),
            Question::Drain { node } => Next::Answer(asker, self.drain(&node, links)),
            Question::Stop => {
                let by = format!("`paceline stop`{}", links.whereabouts(asker));
                return self.begin_stop(Some(asker), by, links);
            }
            Question::Explain { what } => {
                let status = self.core.status();
                let trouble = self.works.trouble();
                let answer = explain::answer(what.as_deref(), &status, &self.core.waits(), trouble);
                match what.as_deref().and_then(|what| explain::task_of(what, &status, &links.clients())) {
                    Some((task, clients)) => {
                        self.gatherings.task(asker, task, answer, (clients, links.nodes()), now)
                    }
                    None => Next::Answer(asker, answer),
                }
            }
            Question::Submit { work } => return self.on_submit(asker, work, links),
            Question::StopProgram { name } => {
                let asker = self.works.wait(asker);
                return self.step(Event::StopWork { asker, name }, links);
            }
            Question::Programs => Next::Answer(asker, Ok(report::programs(&self.core.status()).to_string())),
            Question::Token { .. } | Question::StopHead => Next::Answer(asker, self.ask_steward(&question)),
        };
        match next {
            Next::Answer(asker, text) => links.answer(asker, text),
            Next::Nodes(number, question, nodes) => {
                if let Some(reading) = reading {
                    self.gatherings.await_own(number);
                    let answers = self.own_answering.clone();
                    tokio::task::spawn_blocking(move || _ = answers.send((number, reading())));
                }
                for node in nodes {
                    let message = HeadToNode::Ask { number, question: question.clone() };
                    links.send(Peer::Node(node), &FromHead::Node(message));
                }
                // There may be none.
                self.answer_finished(links);
            }
            Next::Task(number, task, clients, nodes) => {
                for client in clients {
                    let question = ClientQuestion::Task { task };
                    let message = HeadToClient::Ask { number, question };
                    links.send(Peer::Client(client), &FromHead::Client(message));
                }
                for node in nodes {
                    let message = HeadToNode::Ask { number, question: NodeQuestion::Status };
                    links.send(Peer::Node(node), &FromHead::Node(message));
                }
                self.answer_finished(links);
            }
        }
    }

    /// Returns what finds out what the process around the head has to say to this, if there is one.
    fn reading(&self, question: &Question) -> Option<Reading> {
        self.steward.as_ref().map(|steward| steward.read(question))
    }

    fn ask_steward(&mut self, question: &Question) -> Answer {
        match &mut self.steward {
            Some(steward) => steward.answer(question),
            None => {
                Err("this cluster is a part of the program that uses it, and cannot be asked that".into())
            }
        }
    }

    fn answer_finished(&mut self, links: &Links) {
        // What the cluster is like is collected once for an answer, not for each part of it that comes in.
        if !self.gatherings.has_finished(clock::now()) {
            return;
        }
        let about = self.steward.as_ref().map(|steward| steward.about()).unwrap_or_default();
        let (status, waits) = (self.core.status(), self.core.waits());
        let actors = self.core.actors();
        let view = View {
            about,
            status: &status,
            waits: &waits,
            actors: &actors,
            journal: self.works.report(),
            links: &|peer| links.way(peer),
        };
        for (asker, text) in self.gatherings.finished(clock::now(), &view) {
            links.answer(asker, text);
        }
    }

    /// Whose logs are meant.
    fn nodes_of(&self, name: Option<&str>) -> Result<Vec<NodeId>, String> {
        match name {
            None => Ok(self.core.status().nodes.into_iter().map(|node| node.node).collect()),
            Some(HEAD) => Ok(Vec::new()),
            Some(name) => self.node_named(name).map(|node| vec![node]),
        }
    }

    fn node_named(&self, name: &str) -> Result<NodeId, String> {
        match self.core.nodes_named(name)[..] {
            [node] => Ok(node),
            [] => {
                let mut names: Vec<String> =
                    self.core.status().nodes.into_iter().map(|node| node.name).collect();
                names.sort();
                let names = if names.is_empty() { "none".into() } else { names.join(", ") };
                Err(format!("there is no node {name} in this cluster; its nodes: {names}"))
            }
            ref several => {
                let numbers: Vec<String> = several.iter().map(|&node| node_name(node)).collect();
                Err(format!(
                    "several nodes are called {name}: name one by its number: {}",
                    numbers.join(", ")
                ))
            }
        }
    }

    fn drain(&mut self, name: &str, links: &mut Links) -> Answer {
        let node = self.node_named(name)?;
        self.step(Event::Drain(node), links);
        Ok(json!({"draining": name, "node": node_name(node)}).to_string())
    }

    fn begin_stop(&mut self, asker: Option<Asker>, by: String, links: &mut Links) {
        tracing::info!(by, "the cluster is stopped");
        self.stopping.get_or_insert_default().extend(asker);
        self.step(Event::Close { by }, links);
    }

    fn finish_stop(&mut self, links: &Links) {
        // Those that did not go, and those that were out of reach.
        let left: Vec<String> = self.core.status().nodes.into_iter().map(|node| node.name).collect();
        for asker in self.stopping.take().into_iter().flatten() {
            links.answer(asker, Ok(json!({"stopped": true, "left": left}).to_string()));
        }
    }

    fn on_submit(&mut self, asker: Asker, work: Work, links: &mut Links) {
        if !self.works.has_journal() {
            let why = "this cluster is a part of the program that uses it: nothing outlives that program";
            return links.answer(asker, Err(why.into()));
        }
        let size = to_bytes(&work).len();
        if size > LONGEST_RECORD {
            let why = format!(
                "the start record of {} has {size} bytes, and may have {LONGEST_RECORD}; put large things into files",
                work.name
            );
            return links.answer(asker, Err(why));
        }
        let asker = self.works.wait(asker);
        self.step(Event::Submit { asker, work }, links);
    }

    /// Whether something was submitted by that name, and no node is called the same.
    fn is_program(&self, name: &str) -> bool {
        self.core.nodes_named(name).is_empty() && self.core.works().iter().any(|work| work.name == name)
    }

    fn step(&mut self, event: Event, links: &mut Links) {
        self.step_all(VecDeque::from([event]), links);
    }

    fn step_all(&mut self, mut events: VecDeque<Event>, links: &mut Links) {
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            self.core.handle(Tick(clock::now()), event, &mut effects);
            for effect in effects {
                events.extend(self.perform(effect, links));
            }
        }
    }

    fn perform(&mut self, effect: Effect, links: &mut Links) -> Vec<Event> {
        match effect {
            Effect::ToClient(client, message) => links.send(Peer::Client(client), &FromHead::Client(message)),
            Effect::ToNode(_, HeadToNode::Run { .. }) if std::env::var_os(EXIT_BEFORE_RUN).is_some() => {
                std::process::abort()
            }
            Effect::ToNode(node, message) => links.send(Peer::Node(node), &FromHead::Node(message)),
            Effect::DropNode(node) => links.drop_peer(Peer::Node(node)),
            Effect::DropClient(client) => links.drop_peer(Peer::Client(client)),
            Effect::Superseded { by } => {
                tracing::error!(start = by.number(), "a later start of this head exists: this one ends");
                self.superseded = Some(by);
            }
            Effect::WakeAt(at) => self.wake = Some(at),
            Effect::Write { work, write } => return self.works.write(work, write),
            Effect::Told { asker, told } => {
                if let Some(asker) = self.works.found(asker) {
                    links.answer(asker, told.map(|name| json!({"program": name}).to_string()));
                }
            }
        }
        Vec::new()
    }
}
