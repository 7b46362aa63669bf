//! What happened lately, for people: the last lines are printed when something fails.

use paceline_core::Tick;
use paceline_proto::data::{FromSlot, ToSlot};
use std::collections::VecDeque;

const KEPT: usize = 80;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracing {
    /// Nothing is kept: a seed that fails is run again with `Last`.
    Off,
    /// The last lines are kept.
    Last,
    /// Every line is printed as it comes.
    All,
}

pub(crate) struct Trace {
    tracing: Tracing,
    lines: VecDeque<String>,
}

impl Trace {
    pub fn new(tracing: Tracing) -> Trace {
        Trace { tracing, lines: VecDeque::new() }
    }

    pub fn is_on(&self) -> bool {
        self.tracing != Tracing::Off
    }

    pub fn add(&mut self, now: Tick, text: &str) {
        let line = format!("{:>4}.{:06} {text}", now.0 / 1_000_000_000, now.0 / 1000 % 1_000_000);
        if self.tracing == Tracing::All {
            println!("{line}");
            return;
        }
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub fn print(&self) {
        for line in &self.lines {
            eprintln!("{line}");
        }
    }
}

/// A message to a slot without its bytes.
pub(crate) fn brief_to(message: &ToSlot) -> String {
    match message {
        ToSlot::Run { acked, calls } => {
            let calls: Vec<String> =
                calls.iter().map(|call| format!("{:?}={:?}/{}", call.seq, call.task, call.attempt)).collect();
            format!("Run {}, acked {acked}", calls.join(" "))
        }
        ToSlot::Define { function, .. } => format!("Define {:x}", function.0 >> 100),
        ToSlot::Environment(_) => "Environment".into(),
        ToSlot::Hello(hello) => format!("Hello with {} replies", hello.replies),
        ToSlot::Withdraw { .. } | ToSlot::Cancel { .. } | ToSlot::Kill { .. } | ToSlot::Ack { .. } => {
            format!("{message:?}")
        }
    }
}

/// A message from a slot without its bytes.
pub(crate) fn brief_from(message: &FromSlot) -> String {
    match message {
        FromSlot::Replies { first, replies } => {
            let replies: Vec<String> =
                replies.iter().map(|reply| format!("{:?}={:?}", reply.seq, reply.status)).collect();
            format!("Replies from {first}: {}", replies.join(" "))
        }
        FromSlot::Hello { .. } | FromSlot::Running { .. } | FromSlot::Begun { .. } => format!("{message:?}"),
    }
}
