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
