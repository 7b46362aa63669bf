//! The command line of this process, which every user of the machine can read.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// The option whose value is a secret.
const TOKEN_OPTION: &[u8] = b"--token";

/// Returns the arguments, after overwriting a token in what other users can see of them.
pub fn take() -> Vec<OsString> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.iter().any(|argument| argument.as_encoded_bytes().starts_with(TOKEN_OPTION)) {
        // Without /proc nobody can read them either.
        let _ = overwrite_token();
    }
    arguments
}

/// Overwrites the token where the kernel shows the arguments from.
fn overwrite_token() -> io::Result<()> {
    let (begin, end) = argument_range(&std::fs::read_to_string("/proc/self/stat")?)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let memory: File = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or_default()];
    memory.read_exact_at(&mut bytes, begin)?;
    memory.write_all_at(&without_token(&bytes), begin)
}

/// Returns where the arguments are in memory: fields 48 and 49 of `/proc/self/stat`.
fn argument_range(stat: &str) -> Option<(u64, u64)> {
    // The name, field 2, is in parentheses and may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(48 - 3);
    let (begin, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (begin < end).then_some((begin, end))
}

/// Returns the same arguments, each ended by a zero byte, with the token replaced letter by letter.
fn without_token(bytes: &[u8]) -> Vec<u8> {
    let mut hidden = Vec::with_capacity(bytes.len());
    let mut is_token = false;
    for argument in bytes.split_inclusive(|byte| *byte == 0) {
        let text = argument.strip_suffix(b"\0").unwrap_or(argument);
        let visible = match text.strip_prefix(TOKEN_OPTION) {
            Some(rest) if rest.first() == Some(&b'=') => TOKEN_OPTION.len() + 1,
            _ if is_token => 0,
            _ => text.len(),
        };
        is_token = text == TOKEN_OPTION;
        hidden.extend_from_slice(&text[..visible]);
        hidden.extend(std::iter::repeat_n(b'x', text.len() - visible));
        hidden.extend_from_slice(&argument[text.len()..]);
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_in_arguments_is_replaced_and_nothing_else() {
        let hide = |text: &str| String::from_utf8(without_token(text.as_bytes())).unwrap();
        assert_eq!(hide("paceline\0join\0a:1\0--token\0pl1-5a\0"), "paceline\0join\0a:1\0--token\0xxxxxx\0");
        assert_eq!(
            hide("paceline\0--token=pl1-5a\0--cpus\x002\0"),
            "paceline\0--token=xxxxxx\0--cpus\x002\0"
        );
        assert_eq!(hide("paceline\0token\0--json\0"), "paceline\0token\0--json\0");
    }

    #[test]
    fn argument_range_is_found_behind_any_name() {
        let numbers: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("7 (a ) 1 (b) {}", numbers.join(" "));
        assert_eq!(argument_range(&stat), Some((48, 49)));
    }
}
