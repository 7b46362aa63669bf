//! Frames: a fixed header, a table of out-of-band segments, a body.
//!
//! ```text
//! | magic u16 | version u8 | kind u8 | body u32 | segments u16 | cpu u16 | reserved u32 |   16 bytes, little endian
//! | segment u32 | flags u32 | offset u64 | length u64 |  ... `segments` times             24 bytes each
//! | body ...                                                                           |
//! | what segments with the flag [`INLINE`] hold, one after the other                     |
//! ```
//!
//! A segment is a range of memory that both ends have, or, with that flag, bytes that follow the frame and are read
//! straight into a place of their own.
//!
//! * FR-1: a header may claim what it likes: room is made for as many bytes again as have arrived; once those are many,
//!   for many times as many, so that a long frame is not moved again and again.
//! * FR-2: a decoder that has returned an error returns it again for ever: framing is lost.
//! * FR-3: bytes may arrive in any pieces; the frames are the same.

use crate::error::Error;
use crate::version::PROTOCOL;
use bytes::{Buf, Bytes, BytesMut};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u16 = u16::from_le_bytes(*b"PL");

/// A decoder asks for this much room before it knows how long the next frame is.
const READ_AHEAD: usize = 64 * 1024;

/// Of so many bytes that have arrived, a decoder makes room for this many times as many.
const MANY: usize = 1 << 20;
const TIMES: usize = 64;

/// More segments than this in one frame are refused.
pub const MAX_SEGMENTS: usize = 4096;

/// The longest body a frame can name.
pub const MAX_BODY: usize = u32::MAX as usize;

/// The segment's bytes follow the frame.
pub const INLINE: u32 = 1;

/// Bytes of the fixed header.
pub const HEADER: usize = size_of::<Header>();

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: U16,
    version: u8,
    kind: u8,
    body: U32,
    segments: U16,
    cpu: U16,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct SegmentEntry {
    segment: U32,
    flags: U32,
    offset: U64,
    length: U64,
}

/// A range of shared memory that belongs to a frame without being in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    pub segment: u32,
    pub flags: u32,
    pub offset: u64,
    pub length: u64,
}

/// One received frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub kind: u8,
    /// The CPU the sender ran on as it sent: a waiting reader spins only if that is not its own.
    pub cpu: u16,
    pub segments: Vec<Segment>,
    pub body: Bytes,
    /// The bytes of the segments with the flag [`INLINE`], in order.
    pub inline: Vec<Vec<u8>>,
}

/// Append a frame to `out`. `write` appends the body.
pub fn encode(
    kind: u8,
    segments: &[Segment],
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), Error> {
    let start = out.len();
    let header = Header {
        magic: MAGIC.into(),
        version: PROTOCOL,
        kind,
        body: 0.into(),
        segments: (segments.len() as u16).into(),
        cpu: 0.into(),
        reserved: 0.into(),
    };
    if segments.len() > MAX_SEGMENTS {
        return Err(Error::TooLarge { length: segments.len() as u64, limit: MAX_SEGMENTS as u64 });
    }
    out.extend_from_slice(header.as_bytes());
    for segment in segments {
        let entry = SegmentEntry {
            segment: segment.segment.into(),
            flags: segment.flags.into(),
            offset: segment.offset.into(),
            length: segment.length.into(),
        };
        out.extend_from_slice(entry.as_bytes());
    }
    let body = out.len();
    write(out);
    let length = out.len() - body;
    if length > MAX_BODY {
        out.truncate(start);
        return Err(Error::TooLarge { length: length as u64, limit: MAX_BODY as u64 });
    }
    out[start + 4..start + 8].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// Write the CPU into a frame that begins at the start of `frame`, just before it is sent.
pub fn stamp_cpu(frame: &mut [u8], cpu: u16) {
    if let Some(place) = frame.get_mut(10..12) {
        place.copy_from_slice(&cpu.to_le_bytes());
    }
}

/// Cuts a stream of bytes into frames.
#[derive(Default)]
pub struct Decoder {
    buffer: BytesMut,
    /// A frame of which only inline bytes are missing.
    filling: Option<Filling>,
    broken: Option<Error>,
    limit: Option<usize>,
}

/// A frame, and how long its inline segments are that are still to come; the last one that has begun may be part.
struct Filling {
    frame: Frame,
    lengths: std::vec::IntoIter<usize>,
    missing: usize,
}

impl Filling {
    fn new(frame: Frame) -> Filling {
        let lengths = frame.segments.iter().filter(|segment| segment.flags & INLINE != 0);
        let lengths: Vec<usize> = lengths.map(|segment| segment.length as usize).collect();
        Filling { frame, lengths: lengths.into_iter(), missing: 0 }
    }

    /// Begin with the next segment if one is whole. False: all are.
    fn next(&mut self) -> Result<bool, Error> {
        while self.missing == 0 {
            let Some(length) = self.lengths.next() else { return Ok(false) };
            let mut place = Vec::new();
            // Memory that is never written is never taken, so that a claim alone costs nothing (FR-1).
            place
                .try_reserve_exact(length)
                .map_err(|_| Error::TooLarge { length: length as u64, limit: isize::MAX as u64 })?;
            self.frame.inline.push(place);
            self.missing = length;
        }
        Ok(true)
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let count = self.missing.min(bytes.len());
        if let Some(place) = self.frame.inline.last_mut() {
            place.extend_from_slice(&bytes[..count]);
            self.missing -= count;
        }
        count
    }
}

impl Decoder {
    /// A decoder that refuses bodies longer than `limit`.
    pub fn with_limit(limit: usize) -> Decoder {
        Decoder { limit: Some(limit), ..Decoder::default() }
    }

    /// Where to put received bytes: room is kept for the rest of the frame that has begun, within reason (FR-1).
    pub fn room(&mut self) -> &mut BytesMut {
        let missing = match self.header() {
            Ok(Some(header)) => self.frame_length(&header).saturating_sub(self.buffer.len()),
            _ => 0,
        };
        let arrived = self.buffer.len();
        let most = if arrived < MANY { arrived.max(READ_AHEAD) } else { arrived.saturating_mul(TIMES) };
        self.buffer.reserve(missing.clamp(READ_AHEAD, most));
        &mut self.buffer
    }

    /// Take in bytes that were received elsewhere.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if let Some(filling) = &mut self.filling {
            bytes = &bytes[filling.put(bytes)..];
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Where the next bytes belong if they are those of a segment, and how many: whoever appends them says so to
    /// [`Decoder::placed`].
    pub fn place(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let filling = self.filling.as_mut().filter(|filling| filling.missing > 0)?;
        filling.frame.inline.last_mut().map(|place| (place, filling.missing))
    }

    pub fn placed(&mut self, count: usize) {
        if let Some(filling) = &mut self.filling {
            filling.missing -= count;
        }
    }

    /// The next whole frame, if it has arrived.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.cut().inspect_err(|error| self.broken = Some(error.clone()))
    }

    /// Bytes of frames that are not taken out yet.
    pub fn buffered(&self) -> usize {
        let inline = |filling: &Filling| filling.frame.inline.iter().map(Vec::len).sum::<usize>();
        self.buffer.len() + self.filling.as_ref().map_or(0, inline)
    }

    /// Whether a frame has begun but not ended.
    pub fn is_partial(&self) -> bool {
        !self.buffer.is_empty() || self.filling.is_some()
    }

    fn cut(&mut self) -> Result<Option<Frame>, Error> {
        if self.filling.is_some() {
            return self.fill();
        }
        let Some(header) = self.header()? else { return Ok(None) };
        if self.buffer.len() < self.frame_length(&header) {
            return Ok(None);
        }
        let count = header.segments.get() as usize;
        let length = self.frame_length(&header);
        let mut frame = self.buffer.split_to(length).freeze();
        if length >= READ_AHEAD {
            // What comes next must not keep the memory of a long frame, or be kept by it.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        frame.advance(HEADER);
        let segments: Vec<Segment> = (0..count).map(|_| take_segment(&mut frame)).collect();
        let follows = segments.iter().any(|segment| segment.flags & INLINE != 0);
        let (kind, cpu) = (header.kind, header.cpu.get());
        let frame = Frame { kind, cpu, segments, body: frame, inline: Vec::new() };
        if follows {
            let all = frame.segments.iter().filter(|segment| segment.flags & INLINE != 0);
            let all = all.fold(0_u64, |sum, segment| sum.saturating_add(segment.length));
            let limit = self.limit.unwrap_or(isize::MAX as usize) as u64;
            if all > limit {
                return Err(Error::TooLarge { length: all, limit });
            }
            self.filling = Some(Filling::new(frame));
            return self.fill();
        }
        Ok(Some(frame))
    }

    /// Move what has arrived to where it belongs. The frame, once it is whole.
    fn fill(&mut self) -> Result<Option<Frame>, Error> {
        let Some(filling) = &mut self.filling else { return Ok(None) };
        while filling.next()? {
            let count = filling.put(&self.buffer);
            self.buffer.advance(count);
            if filling.missing > 0 {
                return Ok(None);
            }
        }
        Ok(self.filling.take().map(|filling| filling.frame))
    }

    fn header(&self) -> Result<Option<Header>, Error> {
        let Ok((header, _)) = Header::read_from_prefix(&self.buffer) else { return Ok(None) };
        if header.magic.get() != MAGIC {
            return Err(Error::Magic { found: header.magic.get() });
        }
        if header.version != PROTOCOL {
            return Err(Error::Version { found: header.version });
        }
        let count = header.segments.get() as usize;
        if count > MAX_SEGMENTS {
            return Err(Error::TooLarge { length: count as u64, limit: MAX_SEGMENTS as u64 });
        }
        let limit = self.limit.unwrap_or(MAX_BODY);
        let length = header.body.get() as usize;
        if length > limit {
            return Err(Error::TooLarge { length: length as u64, limit: limit as u64 });
        }
        Ok(Some(header))
    }

    fn frame_length(&self, header: &Header) -> usize {
        HEADER + header.segments.get() as usize * size_of::<SegmentEntry>() + header.body.get() as usize
    }
}

fn take_segment(frame: &mut Bytes) -> Segment {
    let (entry, _) = SegmentEntry::read_from_prefix(frame).expect("the frame's length counts its segments");
    frame.advance(size_of::<SegmentEntry>());
    Segment {
        segment: entry.segment.get(),
        flags: entry.flags.get(),
        offset: entry.offset.get(),
        length: entry.length.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(kind: u8, segments: &[Segment], body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(kind, segments, &mut out, |out| out.extend_from_slice(body)).unwrap();
        out
    }

    #[test]
    fn golden_bytes() {
        let segment = Segment { segment: 7, flags: 1, offset: 2, length: 3 };
        let mut bytes = one(9, &[segment], b"hi");
        stamp_cpu(&mut bytes, 5);
        #[rustfmt::skip]
        assert_eq!(bytes, [
            b'P', b'L', 1, 9, 2, 0, 0, 0, 1, 0, 5, 0, 0, 0, 0, 0,
            7, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
            b'h', b'i',
        ]);
    }

    #[test]
    fn a_broken_decoder_stays_broken() {
        let mut decoder = Decoder::default();
        decoder.feed(b"GET / HTTP/1.1\r\n");
        let first = decoder.next_frame().unwrap_err();
        decoder.feed(&one(1, &[], b""));
        assert_eq!(decoder.next_frame().unwrap_err(), first, "FR-2");
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let mut bytes = one(1, &[], b"");
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(decoder.room().capacity() <= 4 * READ_AHEAD, "FR-1");
        decoder.feed(&vec![0; MANY]);
        assert!(decoder.room().capacity() <= (TIMES + 2) * MANY, "FR-1");
        let mut strict = Decoder::with_limit(1024);
        strict.feed(&bytes);
        assert!(matches!(strict.next_frame(), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn segments_that_follow_a_frame_get_places_of_their_own() {
        let lengths = [70_000_usize, 0, 3];
        let entries: Vec<Segment> = lengths
            .iter()
            .map(|length| Segment { segment: 0, flags: INLINE, offset: 0, length: *length as u64 })
            .collect();
        let mut stream = one(5, &entries, b"body");
        lengths
            .iter()
            .enumerate()
            .for_each(|(byte, length)| stream.resize(stream.len() + length, byte as u8));
        stream.extend_from_slice(&one(6, &[], b"next"));
        for piece in [1000, 1 << 20] {
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for bytes in stream.chunks(piece) {
                let mut bytes = bytes;
                if let Some((place, missing)) = decoder.place() {
                    let count = missing.min(bytes.len());
                    place.extend_from_slice(&bytes[..count]);
                    decoder.placed(count);
                    bytes = &bytes[count..];
                }
                decoder.feed(bytes);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found.len(), 2);
            let inline: Vec<(usize, bool)> = found[0]
                .inline
                .iter()
                .enumerate()
                .map(|(byte, place)| (place.len(), place.iter().all(|each| *each == byte as u8)))
                .collect();
            assert_eq!(inline, [(70_000, true), (0, true), (3, true)]);
            assert_eq!((&found[0].body[..], &found[1].body[..]), (&b"body"[..], &b"next"[..]));
            assert!(!decoder.is_partial());
        }
        let mut decoder = Decoder::default();
        let huge = Segment { segment: 0, flags: INLINE, offset: 0, length: u64::MAX };
        decoder.feed(&one(5, &[huge], b""));
        assert!(matches!(decoder.next_frame(), Err(Error::TooLarge { .. })), "FR-1");
    }

    proptest! {
        #[test]
        fn any_pieces_give_the_same_frames(
            frames in proptest::collection::vec(
                (any::<u8>(), 0..3_usize, proptest::collection::vec(any::<u8>(), 0..300)), 1..8),
            piece in 1..97_usize,
        ) {
            let stream: Vec<u8> = frames.iter().flat_map(|(kind, segments, body)| {
                let segments: Vec<_> = (0..*segments).map(|i| Segment {
                    segment: i as u32, flags: 0, offset: i as u64 * 8, length: u64::MAX,
                }).collect();
                one(*kind, &segments, body)
            }).collect();
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for bytes in stream.chunks(piece) {
                decoder.room().extend_from_slice(bytes);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    found.push((frame.kind, frame.segments.len(), frame.body.to_vec()));
                }
            }
            prop_assert_eq!(found, frames);
            prop_assert!(!decoder.is_partial());
        }
    }
}
