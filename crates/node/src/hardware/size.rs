//! Numbers of bytes as people write them.

use thiserror::Error;

#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{text:?} is no amount of memory: give a number of bytes, or one with a unit as in 5GB")]
pub struct NotASize {
    pub text: String,
}

/// `1048576`, `1 MB`, `1MiB`, `1m` and `0.5GB` are sizes; a unit is a power of 1024.
pub fn size(text: &str) -> Result<u64, NotASize> {
    parse(text.trim()).ok_or_else(|| NotASize { text: text.to_owned() })
}

fn parse(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !matches!(letter, '0'..='9' | '.' | '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: u64 = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        "T" | "TB" | "TIB" => 1 << 40,
        _ => return None,
    };
    let number = number.replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let bytes = number.parse::<f64>().ok()? * unit as f64;
    (bytes < (1u64 << 60) as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_sizes_in_many_ways() {
        for text in ["1048576", "1 MB", "1MiB", "1m", "1024K", " 1_048_576 b "] {
            assert_eq!(size(text), Ok(1 << 20), "{text}");
        }
        assert_eq!(size("0.5GB"), Ok(1 << 29));
        assert_eq!(size("2T"), Ok(2 << 40));
        for text in ["", "GB", "-1", "1.5.2G", "5 apples", "1e9", "99999999999T"] {
            assert_eq!(size(text), Err(NotASize { text: text.into() }));
        }
    }
}
