//! The pins by which references travel in a result, so that whoever lets go of it undecoded can let go of them, too.
//!
//! They are named after the value itself, where nobody who decodes it looks: a pickle says itself where it ends.
//!
//! ```text
//! | the value ... | pin u128 ... `count` times | count u32 | mark, 16 bytes |
//! ```
//!
//! Should the bytes of a value end like this by accident, pins are named that nobody knows, and nothing happens.

use crate::ids::PinId;
use crate::parts;

/// The last bytes.
const MARK: [u8; 16] = *b"\xf3\x1d\x8e\x07pins\xa9\x52\xc4\x6b\x90\x3e\xd7\x18";

/// At most so many are named.
const MOST: usize = 1 << 20;

/// Whether a payload names pins.
#[inline]
pub fn has(payload: &[u8]) -> bool {
    payload.ends_with(&MARK) && parts::inner(payload).ends_with(&MARK)
}

/// Name these behind the value.
pub fn append(pins: &[PinId], out: &mut Vec<u8>) {
    if pins.is_empty() || pins.len() > MOST {
        return;
    }
    pins.iter().for_each(|pin| out.extend_from_slice(&pin.0.to_le_bytes()));
    out.extend_from_slice(&(pins.len() as u32).to_le_bytes());
    out.extend_from_slice(&MARK);
}

/// Those that a payload names.
pub fn of(payload: &[u8]) -> Vec<PinId> {
    let named = || {
        let rest = parts::inner(payload).strip_suffix(&MARK)?;
        let (rest, count) = rest.split_last_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let start = rest.len().checked_sub(count.checked_mul(16).filter(|_| count <= MOST)?)?;
        Some(&rest[start..])
    };
    let pin = |bytes: &[u8]| PinId(u128::from_le_bytes(bytes.try_into().expect("sixteen of them")));
    named().map_or_else(Vec::new, |named| named.chunks_exact(16).map(pin).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Parted;

    #[test]
    fn pins_are_found_behind_a_value() {
        let pins = [PinId(7), PinId(u128::MAX)];
        let mut bytes = b"value.".to_vec();
        append(&[], &mut bytes);
        assert!(!has(&bytes) && of(&bytes).is_empty());
        append(&pins, &mut bytes);
        assert!(has(&bytes) && bytes.starts_with(b"value."));
        assert_eq!(of(&bytes), pins);
        let parted = Parted { number: 3, lengths: vec![9], inner: &bytes }.write();
        assert!(has(&parted));
        assert_eq!(of(&parted), pins);
    }

    #[test]
    fn nonsense_names_none() {
        for bytes in [&b""[..], &MARK, &[&[0xff; 4][..], &MARK].concat(), &[parts::MARK; 40]] {
            assert_eq!(of(bytes), []);
        }
    }
}
