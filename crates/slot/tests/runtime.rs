//! A slot's two threads against a client and a node played by the test, over real sockets.

use bytes::Bytes;
use paceline_net::control::Outbox;
use paceline_net::{Link, Page, Received, fds, poll};
use paceline_proto::control::NodeToSlot;
use paceline_proto::data::{Call, FromSlot, Hello, Reply, Status, ToSlot};
use paceline_proto::{ClientId, FunctionId, LeaseId, Seq, SlotId, TaskId};
use paceline_slot::{Next, Runtime};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEASE: LeaseId = LeaseId(7);

/// The client's end, and the node's kept open: a slot whose node is gone ends its process, which here is the test.
struct Client {
    link: Link,
    /// The calls that the slot says go on beside others.
    begun: Vec<Seq>,
}

fn start(buffer: Option<usize>) -> (Arc<Runtime>, Client) {
    let (node, control) = fds::pair().unwrap();
    let (page, memory) = Page::create().unwrap();
    std::mem::forget(page);
    let runtime = Runtime::start(SlotId(1), control, memory).unwrap();
    let (ours, theirs) = fds::pair().unwrap();
    for socket in [&ours, &theirs] {
        if let Some(size) = buffer {
            set_socket_send_buffer_size(socket, size).unwrap();
            set_socket_recv_buffer_size(socket, size).unwrap();
        }
    }
    let mut outbox = Outbox::default();
    outbox.push(&NodeToSlot::Attach { lease: LEASE, secret: None }, vec![theirs]);
    outbox.flush(&node).unwrap();
    std::mem::forget(node);
    let mut client = Client { link: Link::new(ours), begun: Vec::new() };
    client.send(&ToSlot::Hello(Hello { client: ClientId(1), lease: LEASE, replies: 0, keeps: false }));
    (Arc::new(runtime), client)
}

impl Client {
    fn send(&mut self, message: &ToSlot) {
        message.encode(self.link.out()).unwrap();
        while !self.link.flush().unwrap() {
            self.wait(PollFlags::OUT);
        }
    }

    fn wait(&self, interest: PollFlags) {
        let mut one = [PollFd::new(&self.link, interest)];
        assert!(poll::wait(&mut one, Some(Duration::from_secs(10))).unwrap(), "the slot says nothing");
    }

    /// The next replies, whatever else comes before.
    fn replies(&mut self) -> Vec<Reply> {
        loop {
            while let Some(frame) = self.link.next_frame().unwrap() {
                match FromSlot::decode(frame).unwrap() {
                    FromSlot::Replies { replies, .. } => return replies,
                    FromSlot::Begun { calls } => self.begun.extend(calls),
                    _ => {}
                }
            }
            if self.link.receive().unwrap() == Received::Nothing {
                self.wait(PollFlags::IN);
            }
        }
    }
}

fn run(calls: impl IntoIterator<Item = u64>) -> ToSlot {
    run_with(calls, Bytes::new())
}

fn run_with(calls: impl IntoIterator<Item = u64>, payload: Bytes) -> ToSlot {
    let call = |seq| Call {
        seq: Seq(seq),
        task: TaskId(seq),
        attempt: 1,
        at_most_once: false,
        function: FunctionId(1),
        timeout: Duration::ZERO,
        payload: payload.clone(),
    };
    ToSlot::Run { acked: 0, calls: calls.into_iter().map(call).collect() }
}

/// The next call, waiting for it as a slot's main thread does.
fn claim(runtime: &Runtime, finished: Option<(Seq, Status, Bytes)>) -> Call {
    let mut next = runtime.advance(finished);
    loop {
        match next {
            Some(Next::Call(call)) => return call,
            Some(other) => panic!("not a call: {other:?}"),
            None => runtime.wait(),
        }
        next = runtime.advance(None);
    }
}

fn done(call: &Call) -> Option<(Seq, Status, Bytes)> {
    Some((call.seq, Status::Value, Bytes::new()))
}

fn statuses(replies: &[Reply]) -> Vec<(u64, Status)> {
    replies.iter().map(|reply| (reply.seq.0, reply.status)).collect()
}

#[test]
fn calls_are_taken_back_while_user_code_runs() {
    let (runtime, mut client) = start(None);
    client.send(&run(1..=3));
    // The main thread is in user code from here on: it does not come back.
    assert_eq!(claim(&runtime, None).seq, Seq(1));
    // The companion has to notice that first.
    std::thread::sleep(Duration::from_millis(5));
    let asked = Instant::now();
    client.send(&ToSlot::Withdraw { calls: vec![Seq(2), Seq(3)] });
    let replies = client.replies();
    assert!(asked.elapsed() < Duration::from_millis(50), "{:?}", asked.elapsed());
    assert_eq!(statuses(&replies), [(2, Status::Withdrawn), (3, Status::Withdrawn)]);
}

#[test]
fn a_call_that_comes_and_is_withdrawn_in_one_breath_is_answered() {
    let (runtime, mut client) = start(None);
    client.send(&run([1]));
    client.send(&ToSlot::Withdraw { calls: vec![Seq(1)] });
    let waiting = runtime.clone();
    let main = std::thread::spawn(move || claim(&waiting, None));
    assert_eq!(statuses(&client.replies()), [(1, Status::Withdrawn)]);
    client.send(&run([2]));
    assert_eq!(main.join().unwrap().seq, Seq(2));
}

#[test]
fn reply_to_a_call_at_most_once_leaves_before_the_next_call_begins() {
    let (runtime, mut client) = start(None);
    let ToSlot::Run { acked, calls } = run(1..=20) else { unreachable!() };
    let calls = calls.into_iter().map(|call| Call { at_most_once: true, ..call }).collect();
    client.send(&ToSlot::Run { acked, calls });
    let mut call = claim(&runtime, None);
    while call.seq < Seq(20) {
        let finished = call.seq;
        call = claim(&runtime, done(&call));
        // The companion could send it as well, a little later.
        assert_ne!(client.link.receive().unwrap(), Received::Nothing, "{finished:?}");
        assert_eq!(statuses(&client.replies()), [(finished.0, Status::Value)]);
    }
}

#[test]
fn a_reply_does_not_wait_for_the_long_call_behind_it() {
    let delay = || {
        let (runtime, mut client) = start(None);
        client.send(&run([1, 2]));
        let first = claim(&runtime, None);
        let second = claim(&runtime, done(&first));
        let began = Instant::now();
        // The main thread is in the second call now; only the companion can send.
        assert_eq!(second.seq, Seq(2));
        assert_eq!(statuses(&client.replies()), [(1, Status::Value)]);
        began.elapsed()
    };
    // On a machine that is busy with other things every thread wakes late. So it is measured beside one that has nothing
    // to do with a slot, and a few times over.
    let mut seen = Vec::new();
    for _ in 0..8 {
        let (delays, wakes): (Vec<_>, Vec<_>) = (0..9).map(|_| (delay(), wake_of_another_thread())).unzip();
        let (delay, wake) = (median(delays), median(wakes));
        if delay < Duration::from_millis(2) + wake {
            return;
        }
        seen.push((delay, wake));
    }
    panic!("replies, and another thread's words: {seen:?}");
}

/// How long it takes until the word of a thread is there that sleeps for as long as a reply waits.
fn wake_of_another_thread() -> Duration {
    let (sender, word) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let began = Instant::now();
        std::thread::sleep(Duration::from_micros(200));
        sender.send(began)
    });
    word.recv_timeout(Duration::from_secs(10)).unwrap().elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn large_calls_and_replies_that_cross_never_stall() {
    let (runtime, mut client) = start(Some(64 << 10));
    let large = Bytes::from(vec![7; 8 << 20]);
    let main = {
        let (runtime, large) = (runtime.clone(), large.clone());
        std::thread::spawn(move || {
            let mut finished = None;
            for _ in 0..4 {
                let call = claim(&runtime, finished.take());
                assert_eq!(call.payload.len(), large.len());
                finished = Some((call.seq, Status::Value, large.clone()));
            }
            // Hand in the last one, and see that it goes.
            assert!(runtime.advance(finished).is_none());
            loop {
                runtime.wait();
                assert!(runtime.advance(None).is_none());
            }
        })
    };
    for seq in 1..=4 {
        run_with([seq], large.clone()).encode(client.link.out()).unwrap();
    }
    let mut received = 0;
    loop {
        let all = client.link.flush().unwrap();
        while client.link.receive().unwrap() == Received::More {}
        while let Some(frame) = client.link.next_frame().unwrap() {
            if let FromSlot::Replies { replies, .. } = FromSlot::decode(frame).unwrap() {
                received += replies.iter().filter(|reply| reply.payload.len() == large.len()).count();
            }
        }
        if received == 4 {
            break;
        }
        client.wait(if all { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT });
    }
    assert!(!main.is_finished());
}

#[test]
fn replies_of_short_calls_travel_together() {
    let (runtime, mut client) = start(None);
    client.send(&run(1..=50));
    let mut finished = None;
    for _ in 0..50 {
        finished = done(&claim(&runtime, finished.take()));
    }
    assert!(runtime.advance(finished).is_none());
    let mut frames = 0;
    let mut count = 0;
    while count < 50 {
        count += client.replies().len();
        frames += 1;
    }
    assert!(frames <= 10, "{frames} frames for 50 replies");
}

/// Wait until the slot has said that this call goes on beside others.
fn has_begun(client: &mut Client, call: Seq) {
    while !client.begun.contains(&call) {
        while let Some(frame) = client.link.next_frame().unwrap() {
            if let FromSlot::Begun { calls } = FromSlot::decode(frame).unwrap() {
                client.begun.extend(calls);
            }
        }
        if !client.begun.contains(&call) && client.link.receive().unwrap() == Received::Nothing {
            client.wait(PollFlags::IN);
        }
    }
}

#[test]
fn deferred_calls_are_answered_from_other_threads_whatever_main_does() {
    let (runtime, mut client) = start(None);
    client.send(&run(1..=3));
    let mut deferred = Vec::new();
    for _ in 0..2 {
        let call = claim(&runtime, None);
        deferred.push(runtime.defer(call.seq).unwrap());
    }
    assert_eq!(claim(&runtime, None).seq, Seq(3), "it runs on the main thread, beside them");
    let second = deferred.pop().unwrap();
    let answering = runtime.clone();
    std::thread::spawn(move || answering.answer(second, Status::Value, Bytes::new())).join().unwrap();
    assert_eq!(statuses(&client.replies()), [(2, Status::Value)]);
    has_begun(&mut client, Seq(1)); // so the client hears that it takes no room
    assert!(!client.begun.contains(&Seq(3)), "it is not beside others, they are beside it");
    assert!(runtime.advance(Some((Seq(3), Status::Value, Bytes::new()))).is_none());
    assert_eq!(statuses(&client.replies()), [(3, Status::Value)]);
    let (first, waiting) = (deferred.pop().unwrap(), runtime.clone());
    let main = std::thread::spawn(move || claim(&waiting, None));
    runtime.answer(first, Status::Raised, Bytes::new());
    runtime.answer(first, Status::Value, Bytes::new());
    assert_eq!(statuses(&client.replies()), [(1, Status::Raised)], "once, and while main waits");
    client.send(&run([4]));
    assert_eq!(main.join().unwrap().seq, Seq(4));
}

#[test]
fn a_call_waits_until_fewer_are_deferred() {
    let (runtime, mut client) = start(None);
    client.send(&run(1..=2));
    let first = claim(&runtime, None);
    runtime.allow_deferred(1);
    let first = runtime.defer(first.seq).unwrap();
    assert!(runtime.advance(None).is_none(), "SL-6");
    let waiting = runtime.clone();
    let main = std::thread::spawn(move || claim(&waiting, None));
    runtime.answer(first, Status::Value, Bytes::new());
    assert_eq!(main.join().unwrap().seq, Seq(2));
    assert_eq!(statuses(&client.replies()), [(1, Status::Value)]);
}

#[test]
fn a_deferred_call_that_is_cancelled_or_has_had_its_time_is_told_to_stop() {
    let (runtime, mut client) = start(None);
    let mut timed = run([2]);
    if let ToSlot::Run { calls, .. } = &mut timed {
        calls[0].timeout = Duration::from_millis(20);
    }
    client.send(&run([1]));
    client.send(&timed);
    let (stops, heard) = std::sync::mpsc::channel();
    let listening = runtime.clone();
    std::thread::spawn(move || while stops.send(listening.next_stop()).is_ok() {});
    let deferred: Vec<_> = (0..2)
        .map(|_| {
            let call = claim(&runtime, None);
            runtime.defer(call.seq).unwrap()
        })
        .collect();
    let main = runtime.clone();
    std::thread::spawn(move || claim(&main, None));
    let soon = Duration::from_secs(10);
    assert_eq!(heard.recv_timeout(soon).unwrap(), deferred[1], "its time is over");
    runtime.answer(deferred[1], Status::Raised, Bytes::new());
    assert_eq!(statuses(&client.replies()), [(2, Status::TimedOut)]);
    client.send(&ToSlot::Cancel { calls: vec![Seq(1)] });
    assert_eq!(heard.recv_timeout(soon).unwrap(), deferred[0]);
    runtime.answer(deferred[0], Status::Raised, Bytes::new());
    assert_eq!(statuses(&client.replies()), [(1, Status::Cancelled)]);
}
