//! The interpreter that slots run: asked once, at the start of a node.

use crate::failure::{Failure, failed};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What an interpreter tells of itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Python {
    /// Starts the zygote.
    pub command: Vec<String>,
    pub python: [u8; 3],
    pub paceline: String,
    /// How many CPUs this process may use.
    pub cpus: f64,
}

const ASK: &str = "import sys
if sys.argv[1]: sys.path.insert(0, sys.argv[1])
from paceline._daemon import tell
tell()";

/// Ask it, in a moment or never.
pub fn ask(program: &str) -> Result<Python, Failure> {
    let hint = "PACELINE_PYTHON or --python names the interpreter that has paceline installed";
    let output = Command::new(program)
        .args(["-c", ASK])
        .arg(package().unwrap_or_default())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("{program} cannot be run: {error}")).hint(hint))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last = words.lines().last().unwrap_or("it says nothing").to_owned();
        return Err(failed(format!("{program} cannot run slots: {last}")).hint(hint));
    }
    let told: Python = serde_json::from_slice(&output.stdout)
        .map_err(|error| failed(format!("{program} does not answer as expected: {error}")).hint(hint))?;
    if told.paceline != env!("CARGO_PKG_VERSION") {
        let ours = env!("CARGO_PKG_VERSION");
        let text = format!("{program} has paceline {}, and this is paceline {ours}", told.paceline);
        return Err(failed(text).hint(hint));
    }
    Ok(told)
}

/// Where the package is that this program came with; none if it did not come with one.
fn package() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let binaries = program.parent()?;
    let package = binaries.parent()?;
    let is_ours = binaries.file_name()? == "_bin" && package.file_name()? == "paceline";
    is_ours.then(|| package.parent().map(PathBuf::from))?
}
