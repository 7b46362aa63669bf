//! Payloads with parts outside of them: large buffers that are not copied into the bytes of a call or a reply.
//!
//! Such a payload begins with a byte that begins no other: no form of a call, no pickle, no MessagePack, no text.
//!
//! ```text
//! | mark u8 | 0 u8 u16 | count u32 | number u64 | length u64 ... `count` times | the payload itself ... |
//! ```
//!
//! The number is the process's own name for the parts, and means nothing elsewhere: whoever receives such a payload puts
//! its own number there before anybody looks.

/// The first byte.
pub const MARK: u8 = 0xc1;

/// At most so many buffers travel outside of one payload.
pub const MOST: usize = 1024;

const HEAD: usize = 16;

/// Whether a payload has parts outside of it.
pub fn is_parted(payload: &[u8]) -> bool {
    payload.first() == Some(&MARK)
}

/// A payload with parts, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parted<'a> {
    pub number: u64,
    pub lengths: Vec<u64>,
    pub inner: &'a [u8],
}

impl<'a> Parted<'a> {
    /// None: it has none, or is malformed.
    pub fn read(payload: &'a [u8]) -> Option<Parted<'a>> {
        let (number, lengths, inner) = split(payload)?;
        Some(Parted { number, lengths: lengths.collect(), inner })
    }

    pub fn write(&self) -> Vec<u8> {
        write(self.number, self.lengths.iter().copied(), self.inner)
    }
}

/// A payload with parts of these lengths.
pub fn write(number: u64, lengths: impl ExactSizeIterator<Item = u64>, inner: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + 8 * lengths.len() + inner.len());
    out.extend_from_slice(&[MARK, 0, 0, 0]);
    out.extend_from_slice(&(lengths.len() as u32).to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    lengths.for_each(|length| out.extend_from_slice(&length.to_le_bytes()));
    out.extend_from_slice(inner);
    out
}

/// Number, lengths and the payload itself. None: it has no parts, or is malformed.
pub fn split(payload: &[u8]) -> Option<(u64, impl Iterator<Item = u64> + '_, &[u8])> {
    let (head, rest) = payload.split_at_checked(HEAD).filter(|_| is_parted(payload))?;
    let count = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
    let number = u64::from_le_bytes(head[8..].try_into().ok()?);
    let (lengths, inner) = rest.split_at_checked(count.checked_mul(8).filter(|_| count <= MOST)?)?;
    let length = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight of them"));
    Some((number, lengths.chunks_exact(8).map(length), inner))
}

/// The number of a payload's parts. None: it has none, or is malformed.
pub fn number(payload: &[u8]) -> Option<u64> {
    split(payload).map(|(number, _, _)| number)
}

/// The payload itself, without what says where its parts are.
pub fn inner(payload: &[u8]) -> &[u8] {
    if !is_parted(payload) {
        return payload;
    }
    split(payload).map_or(&[], |(_, _, inner)| inner)
}

/// How many bytes a payload is, with all of its parts.
pub fn carried(payload: &[u8]) -> usize {
    if !is_parted(payload) {
        return payload.len();
    }
    let parts = split(payload).map_or(0, |(_, lengths, _)| lengths.fold(0, u64::saturating_add));
    payload.len().saturating_add(parts as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let parted = Parted { number: 7, lengths: vec![1 << 40, 3], inner: b"pickle" };
        let bytes = parted.write();
        assert_eq!(Parted::read(&bytes), Some(parted));
        assert_eq!(inner(&bytes), b"pickle");
        assert_eq!(carried(&bytes), bytes.len() + (1 << 40) + 3);
        assert_eq!(carried(b"plain"), 5);
    }

    #[test]
    fn nonsense_is_nothing() {
        for bytes in [&b""[..], b"\x80\x05", &[MARK], &[MARK, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(Parted::read(bytes), None);
        }
        let many = [&[MARK, 0, 0, 0][..], &u32::MAX.to_le_bytes(), &[0; 64]].concat();
        assert_eq!(Parted::read(&many), None);
        assert_eq!(carried(&many), many.len());
    }
}
