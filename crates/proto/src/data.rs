//! The data link between a client and a slot: calls one way, replies the other, many in a frame.
//!
//! Calls and replies are laid out by hand: they are most of all bytes, and a fixed record costs a few nanoseconds where
//! a general codec costs a hundred. What a payload holds is between the two languages; nobody in between looks.

use crate::error::Error;
use crate::frame::{self, Frame, Segment};
use crate::ids::{ClientId, FunctionId, LeaseId, Seq, TaskId};
use bytes::{Buf, Bytes};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A message that may carry payloads with parts outside of them.
pub trait Parcel: Sized {
    fn decode(frame: Frame) -> Result<Self, Error>;
    fn encode_with(&self, segments: &[Segment], out: &mut Vec<u8>) -> Result<(), Error>;
    fn payloads(&mut self) -> impl Iterator<Item = &mut Bytes>;
    fn any_payload(&self, test: impl Fn(&Bytes) -> bool) -> bool;
    /// The payload, if there is just one.
    fn only_payload(&self) -> Option<&Bytes>;
    /// The same as several messages, each with one payload.
    fn apart(&self) -> Vec<(Self, Bytes)>;
}

impl Parcel for ToSlot {
    fn decode(frame: Frame) -> Result<ToSlot, Error> {
        ToSlot::decode(frame)
    }

    fn encode_with(&self, segments: &[Segment], out: &mut Vec<u8>) -> Result<(), Error> {
        ToSlot::encode_with(self, segments, out)
    }

    fn payloads(&mut self) -> impl Iterator<Item = &mut Bytes> {
        let calls = match self {
            ToSlot::Run { calls, .. } => &mut calls[..],
            _ => &mut [],
        };
        calls.iter_mut().map(|call| &mut call.payload)
    }

    fn any_payload(&self, test: impl Fn(&Bytes) -> bool) -> bool {
        matches!(self, ToSlot::Run { calls, .. } if calls.iter().any(|call| test(&call.payload)))
    }

    fn only_payload(&self) -> Option<&Bytes> {
        match self {
            ToSlot::Run { calls, .. } if calls.len() == 1 => calls.first().map(|call| &call.payload),
            _ => None,
        }
    }

    fn apart(&self) -> Vec<(ToSlot, Bytes)> {
        let ToSlot::Run { acked, calls } = self else { return Vec::new() };
        let one =
            |call: &Call| (ToSlot::Run { acked: *acked, calls: vec![call.clone()] }, call.payload.clone());
        calls.iter().map(one).collect()
    }
}

impl Parcel for FromSlot {
    fn decode(frame: Frame) -> Result<FromSlot, Error> {
        FromSlot::decode(frame)
    }

    fn encode_with(&self, segments: &[Segment], out: &mut Vec<u8>) -> Result<(), Error> {
        FromSlot::encode_with(self, segments, out)
    }

    fn payloads(&mut self) -> impl Iterator<Item = &mut Bytes> {
        let replies = match self {
            FromSlot::Replies { replies, .. } => &mut replies[..],
            _ => &mut [],
        };
        replies.iter_mut().map(|reply| &mut reply.payload)
    }

    fn any_payload(&self, test: impl Fn(&Bytes) -> bool) -> bool {
        matches!(self, FromSlot::Replies { replies, .. } if replies.iter().any(|reply| test(&reply.payload)))
    }

    fn only_payload(&self) -> Option<&Bytes> {
        match self {
            FromSlot::Replies { replies, .. } if replies.len() == 1 => {
                replies.first().map(|reply| &reply.payload)
            }
            _ => None,
        }
    }

    fn apart(&self) -> Vec<(FromSlot, Bytes)> {
        let FromSlot::Replies { first, replies } = self else { return Vec::new() };
        let one = |(index, reply): (usize, &Reply)| {
            let first = first + index as u64;
            (FromSlot::Replies { first, replies: vec![reply.clone()] }, reply.payload.clone())
        };
        replies.iter().enumerate().map(one).collect()
    }
}

/// Client to slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToSlot {
    /// Opens or reopens the link.
    Hello(Hello),
    /// Where user code runs; comes before the first function that needs it.
    Environment(Environment),
    /// The bytes of a function, once per slot.
    Define { function: FunctionId, bytes: Bytes },
    /// Calls in order. `acked` replies have arrived at the client.
    Run { acked: u64, calls: Vec<Call> },
    /// Give back those of these calls that have not begun: they are answered with [`Status::Withdrawn`].
    Withdraw { calls: Vec<Seq> },
    /// End these calls: unbegun ones are dropped, a running one is interrupted.
    Cancel { calls: Vec<Seq> },
    /// As `Cancel`, and a running one is not asked: its slot ends at once.
    Kill { calls: Vec<Seq> },
    /// `acked` replies have arrived; sent when there is no call to carry it.
    Ack { acked: u64 },
}

/// Slot to client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromSlot {
    /// Answers [`Hello`]: the last call that arrived.
    Hello { received: Seq },
    /// Replies in the order they were made; the first is number `first` (from 0) on this lease.
    Replies { first: u64, replies: Vec<Reply> },
    /// This call has been running for a while.
    Running { call: Seq },
    /// These calls have begun and go on beside those that come after them.
    Begun { calls: Vec<Seq> },
}

/// How a client introduces itself on a data link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub client: ClientId,
    pub lease: LeaseId,
    /// How many replies the client has.
    pub replies: u64,
    /// The calls of this lease can go nowhere else: none is given back that was not asked for.
    pub keeps: bool,
}

/// What user code finds around it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    pub directory: String,
    pub path: Vec<String>,
    pub variables: Vec<(String, String)>,
    /// How often the files have changed that the client brings to other machines.
    pub files: u64,
}

/// One call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    pub seq: Seq,
    pub task: TaskId,
    /// Which run of the task this is, from 1.
    pub attempt: u32,
    /// It never runs again, so its reply must not be lost: the slot sends it before it begins another call.
    pub at_most_once: bool,
    pub function: FunctionId,
    /// How long it may run; zero for as long as it likes.
    pub timeout: Duration,
    pub payload: Bytes,
}

/// The end of one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub seq: Seq,
    pub status: Status,
    /// How long user code ran.
    pub took: Duration,
    pub payload: Bytes,
}

/// What a reply's payload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// The value.
    Value = 0,
    /// The user's exception.
    Raised = 1,
    /// The value or exception could not be encoded; the payload says why.
    Unsendable = 2,
    /// The call was cancelled before or while it ran.
    Cancelled = 3,
    /// The call was asked back before it began, and will never run here.
    Withdrawn = 4,
    /// The call ran longer than it may, and was stopped.
    TimedOut = 5,
}

const TO_HELLO: u8 = 1;
const TO_ENVIRONMENT: u8 = 2;
const TO_DEFINE: u8 = 3;
const TO_RUN: u8 = 4;
const TO_WITHDRAW: u8 = 5;
const TO_CANCEL: u8 = 6;
const TO_ACK: u8 = 7;
const TO_KILL: u8 = 8;
const FROM_HELLO: u8 = 33;
const FROM_REPLIES: u8 = 34;
const FROM_RUNNING: u8 = 35;
const FROM_BEGUN: u8 = 36;

/// In the `attempt` of a record: [`Call::at_most_once`].
const AT_MOST_ONCE: u32 = 1 << 31;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CallRecord {
    seq: U64,
    task: U64,
    function: U128,
    timeout: U64,
    /// With [`AT_MOST_ONCE`].
    attempt: U32,
    length: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ReplyRecord {
    seq: U64,
    took: U64,
    length: U32,
    status: U32,
}

impl ToSlot {
    /// Append this message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.encode_with(&[], out)
    }

    /// As [`ToSlot::encode`], for calls whose payload has parts outside of it.
    pub fn encode_with(&self, segments: &[Segment], out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            ToSlot::Hello(hello) => postcard_frame(TO_HELLO, hello, out),
            ToSlot::Environment(environment) => postcard_frame(TO_ENVIRONMENT, environment, out),
            ToSlot::Define { function, bytes } => frame::encode(TO_DEFINE, &[], out, |out| {
                out.extend_from_slice(&function.0.to_le_bytes());
                out.extend_from_slice(bytes);
            }),
            ToSlot::Run { acked, calls } => encode_run(*acked, calls, segments, out),
            ToSlot::Withdraw { calls } => encode_seqs(TO_WITHDRAW, calls, out),
            ToSlot::Cancel { calls } => encode_seqs(TO_CANCEL, calls, out),
            ToSlot::Kill { calls } => encode_seqs(TO_KILL, calls, out),
            ToSlot::Ack { acked } => {
                frame::encode(TO_ACK, &[], out, |out| out.extend_from_slice(&acked.to_le_bytes()))
            }
        }
    }

    /// How many bytes of arguments it carries.
    pub fn payload_bytes(&self) -> usize {
        match self {
            ToSlot::Run { calls, .. } => calls.iter().map(|call| call.payload.len()).sum(),
            _ => 0,
        }
    }

    pub fn decode(frame: Frame) -> Result<ToSlot, Error> {
        let mut body = frame.body;
        match frame.kind {
            TO_HELLO => from_postcard(&body, "hello").map(ToSlot::Hello),
            TO_ENVIRONMENT => from_postcard(&body, "environment").map(ToSlot::Environment),
            TO_DEFINE => {
                let function = FunctionId(take::<U128>(&mut body, "function")?.get());
                Ok(ToSlot::Define { function, bytes: body })
            }
            TO_RUN => decode_run(body),
            TO_WITHDRAW => decode_seqs(body).map(|calls| ToSlot::Withdraw { calls }),
            TO_CANCEL => decode_seqs(body).map(|calls| ToSlot::Cancel { calls }),
            TO_KILL => decode_seqs(body).map(|calls| ToSlot::Kill { calls }),
            TO_ACK => Ok(ToSlot::Ack { acked: take::<U64>(&mut body, "ack")?.get() }),
            found => Err(Error::Kind { found }),
        }
    }
}

impl FromSlot {
    /// Append this message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.encode_with(&[], out)
    }

    /// As [`FromSlot::encode`], for replies whose payload has parts outside of it.
    pub fn encode_with(&self, segments: &[Segment], out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            FromSlot::Hello { received } => encode_seqs(FROM_HELLO, &[*received], out),
            FromSlot::Replies { first, replies } => encode_replies(*first, replies, segments, out),
            FromSlot::Running { call } => encode_seqs(FROM_RUNNING, &[*call], out),
            FromSlot::Begun { calls } => encode_seqs(FROM_BEGUN, calls, out),
        }
    }

    /// How many bytes of values it carries.
    pub fn payload_bytes(&self) -> usize {
        match self {
            FromSlot::Replies { replies, .. } => replies.iter().map(|reply| reply.payload.len()).sum(),
            _ => 0,
        }
    }

    pub fn decode(frame: Frame) -> Result<FromSlot, Error> {
        match frame.kind {
            FROM_HELLO => Ok(FromSlot::Hello { received: decode_one(frame.body)? }),
            FROM_REPLIES => decode_replies(frame.body),
            FROM_RUNNING => Ok(FromSlot::Running { call: decode_one(frame.body)? }),
            FROM_BEGUN => decode_seqs(frame.body).map(|calls| FromSlot::Begun { calls }),
            found => Err(Error::Kind { found }),
        }
    }
}

fn encode_run(acked: u64, calls: &[Call], segments: &[Segment], out: &mut Vec<u8>) -> Result<(), Error> {
    let size: usize = calls.iter().map(|call| size_of::<CallRecord>() + call.payload.len()).sum();
    out.reserve(frame::HEADER + 12 + size);
    frame::encode(TO_RUN, segments, out, |out| {
        out.extend_from_slice(&acked.to_le_bytes());
        out.extend_from_slice(&(calls.len() as u32).to_le_bytes());
        for call in calls {
            let record = CallRecord {
                seq: call.seq.0.into(),
                task: call.task.0.into(),
                function: call.function.0.into(),
                timeout: (call.timeout.as_nanos() as u64).into(),
                attempt: ((call.attempt & !AT_MOST_ONCE) | if call.at_most_once { AT_MOST_ONCE } else { 0 })
                    .into(),
                length: (call.payload.len() as u32).into(),
            };
            out.extend_from_slice(record.as_bytes());
            out.extend_from_slice(&call.payload);
        }
    })
}

fn decode_run(mut body: Bytes) -> Result<ToSlot, Error> {
    let acked = take::<U64>(&mut body, "run")?.get();
    let count = take_count(&mut body, size_of::<CallRecord>(), "run")?;
    let mut calls = Vec::with_capacity(count);
    for _ in 0..count {
        let record = take::<CallRecord>(&mut body, "call")?;
        calls.push(Call {
            seq: Seq(record.seq.get()),
            task: TaskId(record.task.get()),
            attempt: record.attempt.get() & !AT_MOST_ONCE,
            at_most_once: record.attempt.get() & AT_MOST_ONCE != 0,
            function: FunctionId(record.function.get()),
            timeout: Duration::from_nanos(record.timeout.get()),
            payload: take_bytes(&mut body, record.length.get(), "call")?,
        });
    }
    end(&body, "run")?;
    Ok(ToSlot::Run { acked, calls })
}

fn encode_replies(
    first: u64,
    replies: &[Reply],
    segments: &[Segment],
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let size: usize = replies.iter().map(|reply| size_of::<ReplyRecord>() + reply.payload.len()).sum();
    out.reserve(frame::HEADER + 12 + size);
    frame::encode(FROM_REPLIES, segments, out, |out| {
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&(replies.len() as u32).to_le_bytes());
        for reply in replies {
            let record = ReplyRecord {
                seq: reply.seq.0.into(),
                took: (reply.took.as_nanos() as u64).into(),
                length: (reply.payload.len() as u32).into(),
                status: (reply.status as u32).into(),
            };
            out.extend_from_slice(record.as_bytes());
            out.extend_from_slice(&reply.payload);
        }
    })
}

fn decode_replies(mut body: Bytes) -> Result<FromSlot, Error> {
    let first = take::<U64>(&mut body, "replies")?.get();
    let count = take_count(&mut body, size_of::<ReplyRecord>(), "replies")?;
    let mut replies = Vec::with_capacity(count);
    for _ in 0..count {
        let record = take::<ReplyRecord>(&mut body, "reply")?;
        let status = match record.status.get() {
            0 => Status::Value,
            1 => Status::Raised,
            2 => Status::Unsendable,
            3 => Status::Cancelled,
            4 => Status::Withdrawn,
            5 => Status::TimedOut,
            _ => return Err(Error::Malformed { what: "reply status" }),
        };
        replies.push(Reply {
            seq: Seq(record.seq.get()),
            status,
            took: Duration::from_nanos(record.took.get()),
            payload: take_bytes(&mut body, record.length.get(), "reply")?,
        });
    }
    end(&body, "replies")?;
    Ok(FromSlot::Replies { first, replies })
}

fn encode_seqs(kind: u8, calls: &[Seq], out: &mut Vec<u8>) -> Result<(), Error> {
    frame::encode(kind, &[], out, |out| {
        out.extend_from_slice(&(calls.len() as u32).to_le_bytes());
        calls.iter().for_each(|seq| out.extend_from_slice(&seq.0.to_le_bytes()));
    })
}

fn decode_seqs(mut body: Bytes) -> Result<Vec<Seq>, Error> {
    let count = take_count(&mut body, size_of::<U64>(), "calls")?;
    let calls = (0..count)
        .map(|_| take::<U64>(&mut body, "call").map(|seq| Seq(seq.get())))
        .collect::<Result<_, _>>()?;
    end(&body, "calls")?;
    Ok(calls)
}

fn decode_one(body: Bytes) -> Result<Seq, Error> {
    let [one] = decode_seqs(body)?[..] else { return Err(Error::Malformed { what: "call" }) };
    Ok(one)
}

pub(crate) fn postcard_frame<T: Serialize>(kind: u8, value: &T, out: &mut Vec<u8>) -> Result<(), Error> {
    let body = postcard::to_stdvec(value).map_err(|_| Error::Malformed { what: "message" })?;
    frame::encode(kind, &[], out, |out| out.extend_from_slice(&body))
}

pub(crate) fn from_postcard<'a, T: Deserialize<'a>>(body: &'a [u8], what: &'static str) -> Result<T, Error> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(Error::Malformed { what }),
    }
}

pub(crate) fn take<T: FromBytes + Unaligned>(body: &mut Bytes, what: &'static str) -> Result<T, Error> {
    let (value, _) = T::read_from_prefix(body).map_err(|_| Error::Malformed { what })?;
    body.advance(size_of::<T>());
    Ok(value)
}

/// A count of records of at least `each` bytes: one that cannot be true is refused before anything is allocated.
fn take_count(body: &mut Bytes, each: usize, what: &'static str) -> Result<usize, Error> {
    let count = take::<U32>(body, what)?.get() as usize;
    if count > body.len() / each { Err(Error::Malformed { what }) } else { Ok(count) }
}

fn take_bytes(body: &mut Bytes, length: u32, what: &'static str) -> Result<Bytes, Error> {
    let length = length as usize;
    if length > body.len() { Err(Error::Malformed { what }) } else { Ok(body.split_to(length)) }
}

fn end(body: &Bytes, what: &'static str) -> Result<(), Error> {
    if body.is_empty() { Ok(()) } else { Err(Error::Malformed { what }) }
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
