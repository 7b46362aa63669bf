//! Several encoded values one after the other, each with its length before it.

/// Append one, written by `write`. Fails if it is too long to be counted.
pub fn push<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    too_long: impl FnOnce() -> E,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let Ok(length) = u32::try_from(out.len() - start - 4) else { return Err(too_long()) };
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// The values of a chunk. None in place of the first that is cut off; nothing comes after it.
pub fn iter(mut bytes: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let next = bytes
            .split_first_chunk::<4>()
            .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
        bytes = next.map_or(&[], |(_, rest)| rest);
        Some(next.map(|(value, _)| value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_and_what_is_cut_off_is_noticed() {
        let mut bytes = Vec::new();
        for value in [&b"one"[..], b"", b"three"] {
            let write = |out: &mut Vec<u8>| {
                out.extend_from_slice(value);
                Ok::<_, ()>(())
            };
            push(&mut bytes, write, || ()).unwrap();
        }
        assert!(iter(&bytes).eq([Some(&b"one"[..]), Some(b""), Some(b"three")]));
        assert!(iter(&bytes[..bytes.len() - 1]).eq([Some(&b"one"[..]), Some(b""), None]));
        assert!(iter(&bytes[..2]).eq([None]));
        assert_eq!(iter(&[]).count(), 0);
    }
}
