//! Control messages over a socket, with the descriptors that some of them bring. Over TLS none do.
//!
//! Owns: framing, order, and which descriptor belongs to which message. Does not own: what is said, or when.
//! [`Inbox`] and [`Outbox`] never wait and serve threads that poll; [`channel`] wraps them for tokio.
//!
//! * CC-1: messages arrive in the order they were sent, each with its own descriptors, however the bytes are cut.
//! * CC-2: sending never waits. What the socket does not take at once is kept, and counted, until it does.
//! * CC-3: a peer that speaks nonsense, or sends fewer descriptors than its messages need, is an error for good.

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
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Control messages are short, but for those that carry the record of a piece of work; one that claims more than this is
/// refused.
const LONGEST: usize = LONGEST_RECORD + (64 << 10);

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
            NodeToZygote::Exit => 0,
        }
    }
}

/// The receiving end, without waiting.
pub struct Inbox<M> {
    decoder: Decoder,
    descriptors: Vec<OwnedFd>,
    messages: PhantomData<fn() -> M>,
}

impl<M: Carries> Default for Inbox<M> {
    fn default() -> Inbox<M> {
        Inbox { decoder: Decoder::with_limit(LONGEST), descriptors: Vec::new(), messages: PhantomData }
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
        let Some(frame) = self.decoder.next_frame().map_err(refused)? else { return Ok(None) };
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
    Ok((sender, Receiver { shared, inbox: Inbox::default(), reset: false }))
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
    fn nonsense_is_an_error() {
        let (ours, theirs) = fds::pair().unwrap();
        fds::send_with_fds(&ours, b"GET / HTTP/1.1\r\n", &[]).unwrap();
        let mut inbox = Inbox::<ClientToHead>::default();
        inbox.fill(&theirs).unwrap();
        assert_eq!(inbox.next().unwrap_err().kind(), io::ErrorKind::InvalidData, "CC-3");
    }
}
