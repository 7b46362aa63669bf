//! What people see. Data goes to standard output, everything else to the error output; colours only where they help,
//! and only in a terminal.

pub mod status;

use crate::failure::Failure;
use serde_json::Value;
use std::io::{IsTerminal, Write};

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";

/// A line of data.
pub fn line(text: &str) {
    // Whoever reads may have had enough.
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub fn json(value: &Value) {
    line(&serde_json::to_string_pretty(value).expect("JSON is text"));
}

/// Returns a time in seconds since 1970 as people read it, in UTC.
pub fn time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // From days to the date in the proleptic Gregorian calendar, in eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A line about what happens.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub fn failure(failure: &Failure) {
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "{} {}", paint("error:", RED, &stderr), failure.message);
    if let Some(hint) = &failure.hint {
        let _ = writeln!(stderr, "{} {hint}", paint("hint:", BOLD, &stderr));
    }
}

/// A title, and lines to copy below it.
pub fn started(title: &str, lines: &[(&str, String)]) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{}", paint(title, GREEN, &stdout));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, text) in lines {
        let _ = writeln!(stdout, "  {}  {text}", paint(&format!("{name:width$}"), DIM, &stdout));
    }
}

fn paint(text: &str, code: &str, out: &impl IsTerminal) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if out.is_terminal() && !plain { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
}

/// Columns as wide as they need to be.
pub fn table(heads: &[&str], rows: Vec<Vec<String>>) -> Vec<String> {
    let heads: Vec<String> = heads.iter().map(|head| head.to_string()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    let columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let show = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(show).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_is_a_date_in_utc() {
        assert_eq!(super::time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(super::time(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(super::time(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(super::time(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(super::time(1_735_689_599), "2024-12-31 23:59:59 UTC");
    }
}
