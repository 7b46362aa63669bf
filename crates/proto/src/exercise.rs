//! What a fuzzer and the corpus test do with arbitrary bytes: read them as every link would.

use crate::address::Address;
use crate::control::{
    ClientToHead, HeadToClient, HeadToNode, Message, NodeToHead, NodeToSlot, NodeToZygote, SlotToNode,
    ZygoteToNode,
};
use crate::data::{FromSlot, ToSlot};
use crate::frame::{Decoder, Frame};
use crate::lending::Lending;
use crate::objects::{FromStore, ToStore};
use crate::open;
use crate::store::{self, Manifest, Said};
use std::fmt::Debug;

/// Read `bytes` as a stream that arrives in pieces. The first byte says how long they are.
///
/// # Panics
///
/// If a decoder panics, if the pieces matter, or if a message that was understood does not survive another trip.
pub fn exercise(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<{ open::LENGTH }>() {
        let _ = open::Header::decode(header);
    }
    if let Some(answer) = bytes.first_chunk::<{ open::ANSWER }>() {
        let _ = open::Answer::decode(answer);
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(address) = text.parse::<Address>()
    {
        assert_eq!(address.to_string().parse(), Ok(address), "AD-1: what is shown is understood");
    }
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let whole = frames(stream, stream.len().max(1));
    assert_eq!(
        frames(stream, usize::from(piece).max(1)),
        whole,
        "FR-3: the same frames, however they arrive"
    );
    for frame in whole {
        data(frame.clone());
        if let Ok(message) = Lending::decode(&frame) {
            assert_eq!(Lending::decode(&again(|out| message.encode(out))), Ok(message));
        }
        control::<ClientToHead>(&frame);
        control::<HeadToClient>(&frame);
        control::<NodeToHead>(&frame);
        control::<HeadToNode>(&frame);
        control::<NodeToSlot>(&frame);
        control::<SlotToNode>(&frame);
        control::<NodeToZygote>(&frame);
        control::<ZygoteToNode>(&frame);
        control::<ToStore>(&frame);
        control::<FromStore>(&frame);
        stored::<store::ToStore>(&frame);
        stored::<store::FromStore>(&frame);
        if let Ok(manifest) = Manifest::from_bytes(&frame.body) {
            assert_eq!(Manifest::from_bytes(&manifest.to_bytes()), Ok(manifest));
        }
    }
}

fn frames(stream: &[u8], piece: usize) -> Vec<Frame> {
    let mut decoder = Decoder::with_limit(1 << 20);
    let mut found = Vec::new();
    for bytes in stream.chunks(piece) {
        decoder.room().extend_from_slice(bytes);
        while let Ok(Some(frame)) = decoder.next_frame() {
            found.push(frame);
        }
    }
    found
}

fn data(frame: Frame) {
    if let Ok(message) = ToSlot::decode(frame.clone()) {
        let again = again(|out| message.encode(out));
        assert_eq!(ToSlot::decode(again), Ok(message));
    }
    if let Ok(message) = FromSlot::decode(frame) {
        let again = again(|out| message.encode(out));
        assert_eq!(FromSlot::decode(again), Ok(message));
    }
}

fn control<M: Message + PartialEq + Debug>(frame: &Frame) {
    if let Ok(message) = M::decode(frame) {
        let again = again(|out| message.encode(out));
        assert_eq!(M::decode(&again), Ok(message));
    }
}

fn stored<M: store::Message + PartialEq + Debug>(frame: &Frame) {
    if let Ok(said) = Said::<M>::decode(frame.clone()) {
        let again = again(|out| match &said {
            Said::Message(message) => store::encode(message, out),
            Said::Chunk { number, bytes } => store::encode_chunk(*number, bytes, out),
        });
        assert_eq!(Said::decode(again), Ok(said));
    }
}

fn again(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), crate::Error>) -> Frame {
    let mut bytes = Vec::new();
    encode(&mut bytes).expect("what fitted a frame once fits again");
    let mut decoder = Decoder::default();
    decoder.feed(&bytes);
    decoder.next_frame().expect("our own frame is well formed").expect("and whole")
}
