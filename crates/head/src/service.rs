//! The event loop: links in, the core's effects out.

use crate::links::{Links, Peer};
use crate::message::FromHead;
use paceline_core::Tick;
use paceline_core::head::{Config, Effect, Event, Head, Status};
use paceline_net::secure::Secured;
use paceline_net::{alarm, clock};
use std::time::Duration;
use tokio::sync::mpsc;

/// Messages that wait for the event loop; beyond that, links are not read.
const INBOX: usize = 256;
/// How long the last messages may take to come, and again to leave, when the head ends.
const FAREWELL: Duration = Duration::from_millis(300);

/// What is asked of the head from outside.
enum Request {
    Accept(Secured),
    Status(Box<dyn FnOnce(Status) + Send>),
    Close,
}

/// Reaches a head. Cheap to clone, usable from any thread; the head ends when the last one is gone.
#[derive(Clone)]
pub struct Handle {
    requests: mpsc::UnboundedSender<Request>,
}

impl Handle {
    /// Serve the peer at the other end of this connection. It introduces itself by its first message.
    pub fn accept(&self, connection: impl Into<Secured>) {
        let _ = self.requests.send(Request::Accept(connection.into()));
    }

    /// Ask how things stand. The answer never comes if the head has ended.
    pub fn status(&self, answer: impl FnOnce(Status) + Send + 'static) {
        let _ = self.requests.send(Request::Status(Box::new(answer)));
    }

    /// End the head once it has said what it has to say.
    pub fn close(&self) {
        let _ = self.requests.send(Request::Close);
    }
}

/// A head, ready to run.
pub struct Service {
    core: Head,
    requests: mpsc::UnboundedReceiver<Request>,
    wake: Option<Tick>,
}

/// A head and the way to reach it. What is sent before it runs is not lost.
pub fn service(config: Config) -> (Service, Handle) {
    let (sender, requests) = mpsc::unbounded_channel();
    (Service { core: Head::new(config), requests, wake: None }, Handle { requests: sender })
}

impl Service {
    /// Be the head until told to end. Runs on any tokio runtime.
    pub async fn run(mut self) {
        let (sender, mut arrivals) = mpsc::channel(INBOX);
        let mut links = Links::new(sender);
        let mut closing = None;
        // Nodes that end are heard out: there may be something for clients in it.
        while closing.is_none() || links.has_nodes() {
            tokio::select! {
                // Requests first, or a flood of messages would keep the head from ending.
                biased;
                request = self.requests.recv(), if closing.is_none() => match request {
                    Some(Request::Accept(connection)) => {
                        if let Err(error) = links.accept(connection) {
                            tracing::error!(%error, "a link could not be watched");
                        }
                    }
                    Some(Request::Status(answer)) => answer(self.core.status()),
                    Some(Request::Close) | None => closing = Some(clock::now() + FAREWELL.as_nanos() as u64),
                },
                // Before time passes judgement, what has arrived is handled.
                Some(arrival) = arrivals.recv() => {
                    for event in links.on_arrival(arrival) {
                        self.step(event, &mut links);
                    }
                }
                () = alarm::reached(closing) => break,
                () = alarm::reached(self.wake.map(|at| at.0)) => {
                    self.wake = None;
                    self.step(Event::Tick, &mut links);
                }
            }
        }
        links.drain(FAREWELL).await;
    }

    fn step(&mut self, event: Event, links: &mut Links) {
        let mut effects = Vec::new();
        self.core.handle(Tick(clock::now()), event, &mut effects);
        for effect in effects {
            match effect {
                Effect::ToClient(client, message) => {
                    links.send(Peer::Client(client), &FromHead::Client(message))
                }
                Effect::ToNode(node, message) => links.send(Peer::Node(node), &FromHead::Node(message)),
                Effect::DropNode(node) => links.drop_peer(Peer::Node(node)),
                Effect::WakeAt(at) => self.wake = Some(at),
            }
        }
    }
}
