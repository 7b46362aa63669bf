//! A client on a bench: one event goes in, the whole list of effects comes out.

use super::*;
use paceline_proto::data::{Reply, Status};
use paceline_proto::{
    Bytes, Death, DeathCause, FunctionId, Incarnation, MemoryUse, NodeId, OutOfMemory, Seq, SlotId,
};

mod apart;
mod cancel;
mod deaths;
mod demand;
mod group;
mod guests;
mod links;
mod notices;
mod order;
mod pool;
mod room;
mod windows;
mod withdraw;

const A: LeaseKey = LeaseKey(0);
const B: LeaseKey = LeaseKey(1);
const C: LeaseKey = LeaseKey(2);

pub(super) struct Bench {
    client: Client<u64>,
    now: Tick,
    submitted: u64,
    keys: Vec<(TaskKey, TaskId)>,
    functions: Vec<FunctionId>,
    /// Replies made on each lease.
    replies: Vec<u64>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Config::default())
    }

    fn with(config: Config) -> Bench {
        let mut client = Client::new(ClientId(1), "bench", config);
        let functions = ["f", "g", "h"].map(|code| client.define(Bytes::from(code)));
        Bench {
            client,
            now: at(0),
            submitted: 0,
            keys: Vec::new(),
            functions: functions.to_vec(),
            replies: Vec::new(),
        }
    }

    /// A bench with leases `A`, `B`, ... whose links are up and which have nothing to do.
    fn with_leases(count: u64) -> Bench {
        let mut bench = Bench::new();
        (1..=count).for_each(|lease| bench.add_lease(lease));
        bench
    }

    fn add_lease(&mut self, lease: u64) {
        self.granted(lease);
        let key = *self.client.lease_keys.get(&LeaseId(lease.into())).unwrap();
        self.up(key);
        self.said(key);
    }

    fn act(&mut self, step: impl FnOnce(&mut Client<u64>, Tick, &mut Vec<Effect<u64>>)) -> Vec<Effect<u64>> {
        let mut out = Vec::new();
        step(&mut self.client, self.now, &mut out);
        self.client.check().unwrap();
        out
    }

    fn handle(&mut self, event: Event) -> Vec<Effect<u64>> {
        self.act(|client, now, out| client.handle(now, event, out))
    }

    fn head_says(&mut self, message: HeadToClient) -> Vec<Effect<u64>> {
        self.handle(Event::FromHead(message))
    }

    /// Submit a task of the first function. Tasks and tickets count from 1.
    fn submit(&mut self) -> Vec<Effect<u64>> {
        self.submit_as(|spec| spec)
    }

    fn submit_as(&mut self, change: impl FnOnce(Spec) -> Spec) -> Vec<Effect<u64>> {
        self.submitted += 1;
        let (ticket, function) = (self.submitted, self.functions[0]);
        let spec = change(Spec { function, shape: Shape::cpus(1), retries: 3, ..Spec::default() });
        let mut place = None;
        let out = self.act(|client, now, out| place = Some(client.submit(now, spec, ticket, out)));
        self.keys.push(place.unwrap());
        out
    }

    fn submit_many(&mut self, count: usize) {
        (0..count).for_each(|_| drop(self.submit()));
    }

    fn cancel(&mut self, task: usize, anyway: bool) -> (bool, Vec<Effect<u64>>) {
        let (key, id) = self.keys[task - 1];
        let mut done = false;
        let out = self.act(|client, _, out| done = client.cancel(key, id, anyway, out));
        (done, out)
    }

    fn kill_interrupted(&mut self) -> Vec<Effect<u64>> {
        self.act(|client, _, out| client.kill_interrupted(out))
    }

    fn granted(&mut self, lease: u64) -> Vec<Effect<u64>> {
        self.granted_at(lease, 1, lease)
    }

    fn granted_at(&mut self, lease: u64, node: u64, slot: u64) -> Vec<Effect<u64>> {
        self.replies.resize(self.replies.len().max(lease as usize + 1), 0);
        self.head_says(HeadToClient::Granted {
            lease: LeaseId(lease.into()),
            node: NodeId(node),
            slot: SlotId(slot),
            shape: Shape::cpus(1),
            incarnation: Incarnation(1),
            secret: LeaseSecret::default(),
            exclusive: None,
        })
    }

    fn up(&mut self, key: LeaseKey) -> Vec<Effect<u64>> {
        self.handle(Event::LinkUp(key))
    }

    fn down(&mut self, key: LeaseKey) -> Vec<Effect<u64>> {
        self.handle(Event::LinkDown(key))
    }

    fn resumed(&mut self, key: LeaseKey, received: u64) -> Vec<Effect<u64>> {
        self.handle(Event::FromSlot(key, FromSlot::Hello { received: Seq(received) }))
    }

    fn running(&mut self, key: LeaseKey, call: u64) -> Vec<Effect<u64>> {
        self.handle(Event::FromSlot(key, FromSlot::Running { call: Seq(call) }))
    }

    fn recall(&mut self, lease: u64) -> Vec<Effect<u64>> {
        self.head_says(HeadToClient::Recall { lease: LeaseId(lease.into()) })
    }

    fn died(&mut self, lease: u64, running: Option<u64>, finished: u64) -> Vec<Effect<u64>> {
        let death = Death {
            cause: DeathCause::Signal(9),
            out_of_memory: OutOfMemory::No,
            running: running.map(Seq),
            finished: Seq(finished),
        };
        self.head_says(HeadToClient::Ended { lease: LeaseId(lease.into()), death })
    }

    fn node_lost(&mut self, lease: u64) -> Vec<Effect<u64>> {
        let death = Death {
            cause: DeathCause::NodeLost,
            out_of_memory: OutOfMemory::No,
            running: None,
            finished: Seq(0),
        };
        self.head_says(HeadToClient::Ended { lease: LeaseId(lease.into()), death })
    }

    /// The slot answers these calls.
    fn replies(&mut self, key: LeaseKey, status: Status, took: Duration, calls: &[u64]) -> Vec<Effect<u64>> {
        let lease = self.client.leases[key.0].id.0 as usize;
        let first = self.replies[lease];
        self.replies[lease] += calls.len() as u64;
        let reply = |seq: &u64| Reply { seq: Seq(*seq), status, took, payload: Bytes::from("v") };
        let replies = calls.iter().map(reply).collect();
        self.handle(Event::FromSlot(key, FromSlot::Replies { first, replies }))
    }

    fn values(&mut self, key: LeaseKey, took: Duration, calls: &[u64]) -> Vec<Effect<u64>> {
        self.replies(key, Status::Value, took, calls)
    }

    fn withdrawn(&mut self, key: LeaseKey, calls: &[u64]) -> Vec<Effect<u64>> {
        self.replies(key, Status::Withdrawn, Duration::ZERO, calls)
    }

    fn pass(&mut self, span: Duration) -> &mut Bench {
        self.now = self.now + span;
        self
    }

    fn tick(&mut self) -> Vec<Effect<u64>> {
        self.handle(Event::Tick)
    }

    /// What goes out on a lease now, in short: `run 1=4 2=5` is tasks 4 and 5 as calls 1 and 2.
    fn said(&mut self, key: LeaseKey) -> Vec<String> {
        let mut messages = Vec::new();
        self.client.outgoing(key, &mut messages);
        messages.iter().map(|message| self.brief(message)).collect()
    }

    fn brief(&self, message: &ToSlot) -> String {
        let numbers = |calls: &[Seq]| calls.iter().map(|seq| format!(" {}", seq.0)).collect::<String>();
        match message {
            ToSlot::Hello(hello) => format!("hello {}", hello.replies),
            ToSlot::Environment(environment) => format!("environment {}", environment.directory),
            ToSlot::Define { bytes, .. } => format!("define {}", String::from_utf8_lossy(bytes)),
            ToSlot::Run { calls, .. } => {
                let one = |call: &paceline_proto::data::Call| {
                    let again = if call.attempt > 1 { format!("/{}", call.attempt) } else { String::new() };
                    format!(" {}={}{again}", call.seq.0, call.task.0)
                };
                format!("run{}", calls.iter().map(one).collect::<String>())
            }
            ToSlot::Withdraw { calls } => format!("withdraw{}", numbers(calls)),
            ToSlot::Cancel { calls } => format!("cancel{}", numbers(calls)),
            ToSlot::Kill { calls } => format!("kill{}", numbers(calls)),
            ToSlot::Ack { acked } => format!("ack {acked}"),
        }
    }

    /// Let the function's tasks be known to take this long: one runs on the lease, which must be idle.
    fn teach(&mut self, key: LeaseKey, took: Duration) {
        self.submit();
        let said = self.said(key);
        let seq = said.last().unwrap().split(['=', ' ']).nth(1).unwrap().parse().unwrap();
        self.values(key, took, &[seq]);
    }
}

fn at(millis: u64) -> Tick {
    Tick::ZERO + Duration::from_secs(1) + ms(millis)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn want(count: u32) -> Effect<u64> {
    Effect::ToHead(ClientToHead::Want { shape: Shape::cpus(1), count, exclusive: None })
}

fn release(lease: u64) -> Effect<u64> {
    Effect::ToHead(ClientToHead::Release { lease: LeaseId(lease.into()) })
}

fn open(key: LeaseKey, lease: u64) -> Effect<u64> {
    Effect::Open { key, lease: LeaseId(lease.into()), node: NodeId(1), secret: LeaseSecret::default() }
}

/// Its slot has nothing to do until the messages come.
fn send_now(key: LeaseKey) -> Effect<u64> {
    Effect::Send { key, now: true }
}

fn send_soon(key: LeaseKey) -> Effect<u64> {
    Effect::Send { key, now: false }
}

fn close(key: LeaseKey) -> Effect<u64> {
    Effect::Close { key }
}

fn wake(at: Tick) -> Effect<u64> {
    Effect::WakeAt(at)
}

fn finished(task: u64, outcome: Outcome) -> Effect<u64> {
    Effect::Finished { ticket: task, task: TaskId(task), outcome }
}

fn value(task: u64) -> Effect<u64> {
    finished(task, Outcome::Value(Bytes::from("v")))
}

fn cancelled(task: u64) -> Effect<u64> {
    finished(task, Outcome::Cancelled)
}

fn charge(slot: u64, cause: DeathCause) -> Charge {
    Charge { slot: SlotId(slot), node: NodeId(1), cause, out_of_memory: OutOfMemory::No }
}

fn lost(task: u64, cause: LostCause, attempts: u32, charges: Vec<Charge>) -> Effect<u64> {
    finished(task, Outcome::Lost(Box::new(Lost { cause, attempts, charges })))
}
