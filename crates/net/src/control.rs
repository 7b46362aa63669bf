//! Control messages over a socket, with the descriptors that some of them bring. Over TLS none do.
//!
//! Owns: framing, order, and which descriptor belongs to which message. Does not own: what is said, or when.
//! [`Inbox`] and [`Outbox`] never wait and serve threads that poll; [`channel`] wraps them for tokio.
//!
//! * CC-1: messages arrive in the order they were sent, each with its own descriptors, however the bytes are cut.
//! * CC-2: sending never waits. What the socket does not take at once is kept, and counted, until it does.
//! * CC-3: a peer that speaks nonsense, or sends fewer descriptors than its messages need, or more, is an error for good.
//!   Descriptors that no message needs are closed at once.
//! * CC-4: what has come of messages that are not whole yet is bounded for all links of one budget together; a link that
//!   brings more than is left is an error for good.

use crate::fds;
use crate::secure::tls::Got;
use crate::secure::{Secured, Tls};
use crate::watch::{self, Watched};
use paceline_proto::control::{
    ClientToHead, HeadToClient, HeadToNode, Message, NodeToHead, NodeToSlot, NodeToZygote, SlotToNode,
    ZygoteToNode,
};
use paceline_proto::frame::Decoder;
use paceline_proto::objects::{FromStore, ToStore};
use paceline_proto::work::LONGEST_RECORD;
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Control messages are short, but for those that carry the record of a piece of work; one that claims more than this is
/// refused.
const LONGEST: usize = LONGEST_RECORD + (64 << 10);

/// A decoder may take in this much beyond a message.
const READ_AHEAD: usize = 1 << 20;

/// A message that may bring descriptors.
pub trait Carries: Message {
    /// How many come with it.
    fn descriptors(&self) -> usize {
        0
    }
}

impl Carries for ClientToHead {}
impl Carries for HeadToClient {}
impl Carries for NodeToHead {}
impl Carries for HeadToNode {}
impl Carries for ZygoteToNode {}

impl Carries for NodeToSlot {
    fn descriptors(&self) -> usize {
        match self {
            NodeToSlot::Attach { .. } | NodeToSlot::Guest { .. } => 1,
            NodeToSlot::Bind { .. }
            | NodeToSlot::Detach { .. }
            | NodeToSlot::Exit
            | NodeToSlot::TooDeep { .. }
            | NodeToSlot::Become { .. } => 0,
        }
    }
}

impl Carries for SlotToNode {
    fn descriptors(&self) -> usize {
        match self {
            SlotToNode::Nest | SlotToNode::Connect | SlotToNode::Objects => 1,
            SlotToNode::Ready { .. }
            | SlotToNode::Detached { .. }
            | SlotToNode::Blocked { .. }
            | SlotToNode::Waits { .. } => 0,
        }
    }
}

impl Carries for ToStore {
    fn descriptors(&self) -> usize {
        usize::from(matches!(self, ToStore::Put { .. }))
    }
}

impl Carries for FromStore {
    fn descriptors(&self) -> usize {
        usize::from(matches!(self, FromStore::Memory { .. }))
    }
}

impl Carries for NodeToZygote {
    fn descriptors(&self) -> usize {
        match self {
            NodeToZygote::Fork { .. } => 4,
            NodeToZygote::Lifeline => 1,
            NodeToZygote::Exit | NodeToZygote::KillAt { .. } => 0,
        }
    }
}

/// A link that holds no more than this of a message is never ended for what others hold (CC-4).
const FREE_BYTES: usize = 64 << 10;

/// Bytes of unfinished messages that several links may hold together (CC-4).
#[derive(Clone, Debug)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    most: usize,
}

impl Budget {
    /// A budget of so many bytes; of one message of any length at least.
    pub fn new(most: usize) -> Budget {
        Budget { used: Arc::default(), most: most.max(LONGEST + READ_AHEAD) }
    }
}

/// What one link has of a budget. Given back with the link.
#[derive(Debug)]
struct Spending {
    budget: Budget,
    own: usize,
}

impl Spending {
    /// The link holds so many bytes now. False: that is more than there are.
    fn set(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.own, bytes);
        if bytes <= before {
            self.budget.used.fetch_sub(before - bytes, Ordering::Relaxed);
            return true;
        }
        let more = bytes - before;
        let is_within = self.budget.used.fetch_add(more, Ordering::Relaxed) + more <= self.budget.most;
        is_within || bytes <= FREE_BYTES
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The receiving end, without waiting.
pub struct Inbox<M> {
    decoder: Decoder,
    spending: Option<Spending>,
    descriptors: Vec<OwnedFd>,
    messages: PhantomData<fn() -> M>,
}

impl<M: Carries> Default for Inbox<M> {
    fn default() -> Inbox<M> {
        let decoder = Decoder::with_limit(LONGEST);
        Inbox { decoder, spending: None, descriptors: Vec::new(), messages: PhantomData }
    }
}

impl<M: Carries> Inbox<M> {
    /// Take in what has arrived. Zero: the peer is gone. `WouldBlock`: nothing has.
    pub fn fill(&mut self, socket: impl AsFd) -> io::Result<usize> {
        fds::receive_with_fds(socket, self.decoder.room(), &mut self.descriptors)
    }

    /// The same, of what is sealed.
    fn fill_sealed(&mut self, socket: impl AsFd, tls: &mut Tls) -> io::Result<usize> {
        match tls.receive(socket, |bytes| self.decoder.feed(bytes))? {
            Got::Bytes { .. } => Ok(1),
            Got::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            Got::Closed => Ok(0),
            Got::Reset => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// The next whole message, with its descriptors.
    #[expect(clippy::should_implement_trait, reason = "it fails, and more may come after the last")]
    pub fn next(&mut self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let next = self.take_message();
        if next.is_err() {
            self.descriptors.clear();
        }
        next
    }

    /// Counts what is buffered (CC-4).
    fn spend(&mut self) -> io::Result<()> {
        let Some(spending) = &mut self.spending else { return Ok(()) };
        match spending.set(self.decoder.buffered()) {
            true => Ok(()),
            false => {
                let most = spending.budget.most;
                let text = format!("links of one peer hold more than {most} bytes of unfinished messages");
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
        }
    }

    fn take_message(&mut self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        self.spend()?;
        let Some(frame) = self.decoder.next_frame().map_err(refused)? else {
            // Descriptors come with the first byte of their message, so what is here belongs to the one that has begun.
            let expected = if self.decoder.is_partial() { fds::MAX_DESCRIPTORS } else { 0 };
            if self.descriptors.len() > expected {
                let text = "descriptors came that no message needs";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            return Ok(None);
        };
        // What is taken out is unfinished no more, however long it waits to be handled.
        self.spend()?;
        let message = M::decode(&frame).map_err(refused)?;
        let count = message.descriptors();
        if count > self.descriptors.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message came without its descriptors"));
        }
        let rest = self.descriptors.split_off(count);
        Ok(Some((message, std::mem::replace(&mut self.descriptors, rest))))
    }
}

fn refused(error: paceline_proto::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The sending end, without waiting.
#[derive(Default)]
pub struct Outbox {
    queue: VecDeque<Letter>,
    queued: usize,
    /// One while something that is sealed already waits, too.
    sealed: usize,
}

struct Letter {
    bytes: Vec<u8>,
    sent: usize,
    descriptors: Vec<OwnedFd>,
}

impl Outbox {
    /// Put a message at the end of the queue.
    pub fn push<M: Carries>(&mut self, message: &M, descriptors: Vec<OwnedFd>) {
        assert_eq!(message.descriptors(), descriptors.len(), "a message goes with its descriptors");
        let mut bytes = Vec::new();
        message.encode(&mut bytes).expect("control messages are far shorter than a frame can be");
        self.queued += bytes.len();
        match self.queue.back_mut() {
            // Nothing is attached to these bytes, so they can travel with those before them.
            Some(last) if descriptors.is_empty() => last.bytes.append(&mut bytes),
            _ => self.queue.push_back(Letter { bytes, sent: 0, descriptors }),
        }
    }

    /// Send as much as the socket takes. `WouldBlock`: it takes no more for now.
    pub fn flush(&mut self, socket: impl AsFd) -> io::Result<()> {
        while let Some(letter) = self.queue.front_mut() {
            let attached: Vec<_> = letter.descriptors.iter().map(AsFd::as_fd).collect();
            let sent = fds::send_with_fds(&socket, &letter.bytes[letter.sent..], &attached)?;
            // They went with the first byte.
            letter.descriptors.clear();
            letter.sent += sent;
            self.queued -= sent;
            if letter.sent == letter.bytes.len() {
                self.queue.pop_front();
            }
        }
        Ok(())
    }

    /// Seal and send as much as the socket takes.
    fn flush_sealed(&mut self, socket: impl AsFd, tls: &mut Tls) -> io::Result<()> {
        loop {
            while let Some(letter) = self.queue.front_mut() {
                assert!(letter.descriptors.is_empty(), "no descriptor travels over TLS");
                let sealed = tls.seal(&letter.bytes[letter.sent..])?;
                letter.sent += sealed;
                self.queued -= sealed;
                if letter.sent < letter.bytes.len() {
                    break;
                }
                self.queue.pop_front();
            }
            let all = tls.flush(&socket)?;
            self.sealed = usize::from(!all);
            match all {
                false => return Err(io::ErrorKind::WouldBlock.into()),
                true if self.queue.is_empty() => return Ok(()),
                true => {}
            }
        }
    }

    /// Bytes that wait.
    pub fn queued(&self) -> usize {
        self.queued + self.sealed
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.queued = 0;
        self.sealed = 0;
    }
}

/// The two ends of a link over this socket. Call it inside a tokio runtime.
pub fn channel<Out: Carries, In: Carries>(
    connection: impl Into<Secured>,
) -> io::Result<(Sender<Out>, Receiver<In>)> {
    channel_within(connection, None)
}

/// The same of a link whose unfinished messages count (CC-4).
pub fn channel_within<Out: Carries, In: Carries>(
    connection: impl Into<Secured>,
    budget: Option<Budget>,
) -> io::Result<(Sender<Out>, Receiver<In>)> {
    let Secured { socket, tls, .. } = connection.into();
    let shared = Arc::new(Shared {
        socket: watch::both_ways(socket)?,
        tls: tls.map(|tls| Mutex::new(*tls)),
        outbox: Mutex::default(),
        pending: Notify::new(),
        drained: Notify::new(),
    });
    let writer = Writer(tokio::spawn(write_rest(shared.clone())));
    let sender = Sender { shared: shared.clone(), _writer: Arc::new(writer), messages: PhantomData };
    let spending = budget.map(|budget| Spending { budget, own: 0 });
    Ok((sender, Receiver { shared, inbox: Inbox { spending, ..Inbox::default() }, reset: false }))
}

struct Shared {
    socket: Watched,
    /// Locked after the outbox where both are.
    tls: Option<Mutex<Tls>>,
    outbox: Mutex<Outbox>,
    /// Something is left in the outbox.
    pending: Notify,
    /// Some of it went.
    drained: Notify,
}

impl Shared {
    fn flush(&self, outbox: &mut Outbox) -> io::Result<()> {
        match &self.tls {
            None => outbox.flush(self.socket.get_ref()),
            Some(tls) => outbox.flush_sealed(self.socket.get_ref(), &mut tls.lock()),
        }
    }

    fn fill<M: Carries>(&self, inbox: &mut Inbox<M>) -> io::Result<usize> {
        match &self.tls {
            None => inbox.fill(self.socket.get_ref()),
            Some(tls) => inbox.fill_sealed(self.socket.get_ref(), &mut tls.lock()),
        }
    }
}

/// Ends with the last sender.
struct Writer(JoinHandle<()>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends what the socket did not take at once.
async fn write_rest(shared: Arc<Shared>) {
    loop {
        shared.pending.notified().await;
        while shared.outbox.lock().queued() > 0 {
            let Ok(mut ready) = shared.socket.writable().await else { return };
            let result = ready.try_io(|_| shared.flush(&mut shared.outbox.lock()));
            if let Ok(Err(_)) = result {
                // The peer is gone; whoever receives finds out, too.
                shared.outbox.lock().clear();
            }
            shared.drained.notify_waiters();
        }
    }
}

/// Sends messages. Clones send over the same link.
pub struct Sender<M> {
    shared: Arc<Shared>,
    _writer: Arc<Writer>,
    messages: PhantomData<fn(M)>,
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Sender<M> {
        Sender { shared: self.shared.clone(), _writer: self._writer.clone(), messages: PhantomData }
    }
}

impl<M: Carries> Sender<M> {
    /// Send, or keep until the socket takes it (CC-2). To a peer that is gone it is lost, as it would be on the way.
    pub fn send(&self, message: &M, descriptors: Vec<OwnedFd>) {
        let mut outbox = self.shared.outbox.lock();
        outbox.push(message, descriptors);
        match self.shared.flush(&mut outbox) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.shared.pending.notify_one(),
            Err(_) => outbox.clear(),
        }
    }

    /// Bytes that wait for the socket.
    pub fn queued(&self) -> usize {
        self.shared.outbox.lock().queued()
    }

    /// Wait until at most `bytes` are queued.
    pub async fn drained_to(&self, bytes: usize) {
        loop {
            let drained = self.shared.drained.notified();
            if self.queued() <= bytes {
                return;
            }
            drained.await;
        }
    }
}

/// Receives messages.
pub struct Receiver<M> {
    shared: Arc<Shared>,
    inbox: Inbox<M>,
    reset: bool,
}

impl<M: Carries> Receiver<M> {
    /// Whether the peer that is gone has not closed the link in order.
    pub fn was_reset(&self) -> bool {
        self.reset
    }

    /// The next message with its descriptors; none when the peer is gone. May be cancelled without losing anything.
    pub async fn next(&mut self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        loop {
            if let Some(message) = self.inbox.next()? {
                return Ok(Some(message));
            }
            let mut ready = self.shared.socket.readable().await?;
            match ready.try_io(|_| self.shared.fill(&mut self.inbox)) {
                Ok(Ok(0)) => return Ok(None),
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.reset = true;
                    return Ok(None);
                }
                Ok(result) => drop(result?),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_proto::{ClientId, Devices, LeaseId, Resources, SlotId};
    use std::io::{Read, Write};
    use std::time::Duration;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limit = Duration::from_secs(10);
        runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("the test is done in time") })
    }

    fn bind(client: u64) -> NodeToSlot {
        NodeToSlot::Bind {
            client: ClientId(client),
            needs: Resources::cpus(1),
            total: Resources::cpus(1),
            own: true,
            devices: Devices::default(),
            files: None,
        }
    }

    #[test]
    fn every_message_gets_its_own_descriptors() {
        run(async {
            let (ours, theirs) = fds::pair().unwrap();
            let (sender, _replies) = channel::<NodeToSlot, SlotToNode>(ours).unwrap();
            let (_answers, mut receiver) = channel::<SlotToNode, NodeToSlot>(theirs).unwrap();
            let mut files = Vec::new();
            for number in 0..50 {
                sender.send(&bind(number), vec![]);
                let (read, write) = rustix::pipe::pipe().unwrap();
                sender.send(&NodeToSlot::Attach { lease: LeaseId(number.into()), secret: None }, vec![write]);
                files.push(std::fs::File::from(read));
            }
            for (number, mut file) in files.into_iter().enumerate() {
                let (message, descriptors) = receiver.next().await.unwrap().unwrap();
                assert_eq!((message, descriptors.len()), (bind(number as u64), 0));
                let (message, descriptors) = receiver.next().await.unwrap().unwrap();
                assert_eq!(message, NodeToSlot::Attach { lease: LeaseId(number as u128), secret: None });
                let [write] = <[OwnedFd; 1]>::try_from(descriptors).unwrap();
                std::fs::File::from(write).write_all(b"mine").unwrap();
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                assert_eq!(text, "mine", "CC-1: connection {number}");
            }
        });
    }

    #[test]
    fn sending_never_waits_and_nothing_is_lost() {
        run(async {
            let (ours, theirs) = fds::pair().unwrap();
            let (sender, _replies) = channel::<HeadToClient, ClientToHead>(ours).unwrap();
            let (_answers, mut receiver) = channel::<ClientToHead, HeadToClient>(theirs).unwrap();
            let stream = paceline_proto::control::Stream::Out;
            let output = move |number: u64| HeadToClient::Output {
                slot: SlotId(number),
                stream,
                text: vec![7; 10_000],
            };
            (0..500).for_each(|number| sender.send(&output(number), vec![]));
            assert!(sender.queued() > 1_000_000, "CC-2");
            let reading = tokio::spawn(async move {
                for number in 0..500 {
                    assert_eq!(receiver.next().await.unwrap().unwrap().0, output(number));
                }
                receiver
            });
            sender.drained_to(0).await;
            let mut receiver = reading.await.unwrap();
            drop((sender, _replies));
            assert!(receiver.next().await.unwrap().is_none(), "the end is seen");
        });
    }

    #[test]
    fn a_missing_descriptor_is_an_error() {
        let (ours, theirs) = fds::pair().unwrap();
        let mut bytes = Vec::new();
        NodeToSlot::Attach { lease: LeaseId(1), secret: None }.encode(&mut bytes).unwrap();
        fds::send_with_fds(&ours, &bytes, &[]).unwrap();
        let mut inbox = Inbox::<NodeToSlot>::default();
        inbox.fill(&theirs).unwrap();
        assert_eq!(inbox.next().unwrap_err().kind(), io::ErrorKind::InvalidData, "CC-3");
    }

    #[test]
    fn unfinished_messages_are_bounded_for_all_links_together() {
        run(async {
            let budget = Budget::new(0);
            let mut header = Vec::new();
            HeadToClient::Over.encode(&mut header).unwrap();
            let length = u32::try_from(LONGEST).unwrap();
            header[4..8].copy_from_slice(&length.to_le_bytes());
            let mut links = Vec::new();
            let mut ended = 0;
            for _ in 0..4 {
                let (ours, theirs) = fds::pair().unwrap();
                let (_, mut receiver) =
                    channel_within::<ClientToHead, HeadToClient>(ours, Some(budget.clone())).unwrap();
                // All but the end of a message of the greatest length.
                let part = [&header[..16], &vec![0; LONGEST - 1][..]].concat();
                let writing = std::thread::spawn(move || {
                    rustix::io::ioctl_fionbio(&theirs, false).unwrap();
                    let _ = std::fs::File::from(theirs.try_clone().unwrap()).write_all(&part);
                    theirs
                });
                let next = tokio::time::timeout(Duration::from_millis(500), receiver.next()).await;
                ended += usize::from(next.is_ok_and(|next| next.is_err()));
                links.push((receiver, writing));
            }
            assert_eq!(ended, 3, "CC-4");
            drop(links);
            assert_eq!(budget.used.load(Ordering::Relaxed), 0, "CC-4: all is given back");
        });
    }

    /// Whether the other end of a pipe is open in this process.
    fn is_open(read: &OwnedFd) -> bool {
        let mut sources = [rustix::event::PollFd::new(read, rustix::event::PollFlags::empty())];
        crate::poll::wait(&mut sources, Some(Duration::ZERO)).unwrap();
        !sources[0].revents().contains(rustix::event::PollFlags::HUP)
    }

    /// What an inbox makes of bytes that come with so many descriptors, and whether any of them stays open.
    fn receive_with(bytes: &[u8], descriptors: usize) -> (io::Result<usize>, bool) {
        let (ours, theirs) = fds::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let attached = vec![write.as_fd(); descriptors];
        fds::send_with_fds(&ours, bytes, &attached).unwrap();
        drop(write);
        let mut inbox = Inbox::<NodeToSlot>::default();
        let received = inbox.fill(&theirs).and_then(|_| {
            let mut count = 0;
            while let Some((_, descriptors)) = inbox.next()? {
                count += descriptors.len();
            }
            Ok(count)
        });
        (received, is_open(&read))
    }

    #[test]
    fn descriptors_that_no_message_needs_are_closed_and_an_error() {
        let mut plain = Vec::new();
        bind(1).encode(&mut plain).unwrap();
        let mut attach = Vec::new();
        NodeToSlot::Attach { lease: LeaseId(1), secret: None }.encode(&mut attach).unwrap();
        for (bytes, needed) in [(&plain, 0), (&attach, 1)] {
            for count in 0..=fds::MAX_DESCRIPTORS {
                let (received, open) = receive_with(bytes, count);
                match count == needed {
                    true => assert_eq!(received.unwrap(), needed),
                    false => {
                        assert_eq!(received.unwrap_err().kind(), io::ErrorKind::InvalidData, "CC-3: {count}")
                    }
                }
                assert!(!open, "CC-3: {count} for {needed}");
            }
        }
    }

    #[test]
    fn descriptors_with_a_message_that_never_ends_are_bounded() {
        let mut bytes = Vec::new();
        NodeToSlot::Attach { lease: LeaseId(1), secret: None }.encode(&mut bytes).unwrap();
        let (ours, theirs) = fds::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut inbox = Inbox::<NodeToSlot>::default();
        let error = bytes.iter().find_map(|byte| {
            fds::send_with_fds(&ours, &[*byte], &[write.as_fd(); fds::MAX_DESCRIPTORS]).unwrap();
            inbox.fill(&theirs).unwrap();
            inbox.next().err()
        });
        assert_eq!(error.unwrap().kind(), io::ErrorKind::InvalidData, "CC-3");
        drop(write);
        assert!(!is_open(&read), "CC-3");
    }

    #[test]
    fn descriptors_beyond_what_fits_are_closed_and_an_error() {
        let mut bytes = Vec::new();
        bind(1).encode(&mut bytes).unwrap();
        let (ours, theirs) = fds::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        fds::send_many(&ours, &bytes, &vec![write.as_fd(); 100]);
        drop(write);
        let mut inbox = Inbox::<NodeToSlot>::default();
        assert_eq!(inbox.fill(&theirs).unwrap_err().kind(), io::ErrorKind::InvalidData, "CC-3");
        assert!(!is_open(&read), "CC-3");
    }

    #[test]
    fn nonsense_is_an_error() {
        let (ours, theirs) = fds::pair().unwrap();
        fds::send_with_fds(&ours, b"GET / HTTP/1.1\r\n", &[]).unwrap();
        let mut inbox = Inbox::<ClientToHead>::default();
        inbox.fill(&theirs).unwrap();
        assert_eq!(inbox.next().unwrap_err().kind(), io::ErrorKind::InvalidData, "CC-3");
    }
}
