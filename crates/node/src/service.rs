//! The event loop: requests and news in, the core's effects out.

use crate::news::{Desk, News, Printed};
use crate::requests::{Handle, Options, Request};
use crate::shell::Shell;
use paceline_core::node::Event;
use paceline_net::{alarm, clock};
use std::time::Duration;
use tokio::sync::mpsc;

/// Pieces of output on their way from the pipes to the event loop.
const PRINTED: usize = 16;
/// How long slots may take to go when the node ends. Those that have user code get the core's grace of it.
const SLOTS_LIMIT: Duration = Duration::from_millis(1000);

/// Why a node has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was told to, by its head or its process.
    Told,
    /// It has been without its head for too long.
    HeadLost,
}

/// A node, ready to run.
pub struct Service {
    options: Options,
    requests: mpsc::UnboundedReceiver<Request>,
}

/// A node and the way to reach it. What is sent before it runs is not lost.
pub fn service(options: Options) -> (Service, Handle) {
    let (sender, requests) = mpsc::unbounded_channel();
    (Service { options, requests }, Handle { requests: sender })
}

impl Service {
    /// Be the node until told to end, and leave nothing behind. Runs on any tokio runtime. Returns why it has ended.
    pub async fn run(mut self) -> End {
        let (news_sender, mut news) = mpsc::unbounded_channel();
        let (printed_sender, mut printed) = mpsc::channel(PRINTED);
        let mut shell = Shell::new(self.options, Desk { news: news_sender, printed: printed_sender });
        let mut closing = None;
        while !shell.closed() {
            tokio::select! {
                biased;
                request = self.requests.recv(), if closing.is_none() => match request {
                    Some(Request::Head(connection)) => shell.on_head_connection(connection),
                    Some(Request::Offer(connection)) => shell.on_offer(connection),
                    Some(Request::Opened(connection, lease, way)) => shell.on_opened(connection, lease, way),
                    Some(Request::Store(connection, lease, way)) => shell.on_store(connection, lease, way),
                    Some(Request::Owner(connection, lease, way)) => shell.on_owner(connection, lease, way),
                    Some(Request::Objects(connection)) => shell.on_objects(connection, None),
                    Some(Request::Status(answer)) => {
                        let (slots, objects) = shell.status();
                        answer(slots, objects);
                    }
                    Some(Request::Crash) => panic!("the node was asked to crash by a test"),
                    Some(Request::Leave(within)) => shell.step(Event::Leave { within }),
                    Some(Request::Close) | None => {
                        closing = Some(clock::now() + SLOTS_LIMIT.as_nanos() as u64);
                        shell.step(Event::Close);
                    }
                },
                Some(news) = news.recv() => on_news(&mut shell, news, &mut printed),
                Some(printed) = printed.recv(), if shell.takes_output() => shell.on_printed(printed),
                () = alarm::reached(closing) => break,
                () = alarm::reached(shell.wake()) => shell.on_alarm(),
                () = alarm::reached(shell.memory_wake()) => shell.on_memory_wake(),
                () = alarm::reached(shell.limits_wake()) => shell.on_limits_wake(),
                () = alarm::reached(shell.zygotes_wake()) => shell.on_zygotes_wake(),
                () = alarm::reached(shell.store_wake()) => shell.on_store_wake(),
                // The head has taken something; there may be room for output again.
                () = shell.head_drained(), if !shell.takes_output() => {}
            }
        }
        let end = if shell.has_lost_head() { End::HeadLost } else { End::Told };
        shell.end(&mut news, &mut printed).await;
        end
    }
}

pub(crate) fn on_news(shell: &mut Shell, news: News, printed: &mut mpsc::Receiver<Printed>) {
    if matches!(news, News::Gone(..)) {
        // What it printed is here already, and is told before its death even if the head is slow (NS-2).
        while let Ok(printed) = printed.try_recv() {
            shell.on_printed(printed);
        }
    }
    shell.on_news(news);
}
