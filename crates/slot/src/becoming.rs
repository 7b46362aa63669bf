//! A slot that becomes a program of its head's: the process stays, with its group, its parent and its outputs.
//!
//! * BE-1: nothing of the slot is left in what it becomes: every descriptor but the three standard ones closes.
//! * BE-2: it ends with the zygote as any slot does: the kernel keeps that wish for the process.
//! * BE-3: what cannot be run says why on its error output, and ends as a shell would: 127 for what is not there, 126 for
//!   what cannot be run.

use crate::THREAD_COUNTS;
use paceline_net::signals;
use paceline_proto::Resources;
use paceline_proto::work::{self, Command, Directory};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// What a slot is to become.
pub(crate) struct Becoming {
    pub start: Vec<u8>,
    /// What it finds in its environment because of where it is.
    pub variables: Vec<(String, String)>,
}

impl Becoming {
    /// Called by the main thread, to which signals are meant to go.
    pub(crate) fn now(self, needs: Option<Resources>, devices: &[(&'static str, String)]) -> ! {
        let (code, why) = match work::from_bytes::<Command>(&self.start) {
            Ok(command) => become_program(&command, &self.variables, needs.unwrap_or_default(), devices),
            Err(error) => (126, format!("its start record cannot be read: {error}")),
        };
        eprintln!("paceline: {why}");
        signals::leave(code);
    }
}

/// Returns only if it could not.
fn become_program(
    command: &Command,
    variables: &[(String, String)],
    needs: Resources,
    devices: &[(&'static str, String)],
) -> (i32, String) {
    let Some((program, arguments)) = command.arguments.split_first() else {
        return (126, "there is no program to run".into());
    };
    // A slot of Python was started as the interpreter that its node was told to use.
    let python = std::env::args().next().filter(|_| program == work::PYTHON);
    let program = python.as_ref().unwrap_or(program);
    let mut process = std::process::Command::new(program);
    process.args(arguments);
    if !command.input.is_empty() {
        match input(&command.input) {
            Ok(file) => drop(process.stdin(file)),
            Err(error) => return (126, format!("{program} cannot be given its input: {error}")),
        }
    }
    match &command.directory {
        Directory::Only(path) if !Path::new(path).is_dir() => {
            return (126, format!("{program} cannot be run in {path}: this machine has no such directory"));
        }
        Directory::Only(path) => drop(process.current_dir(path)),
        Directory::Rather(path) if Path::new(path).is_dir() => drop(process.current_dir(path)),
        Directory::Rather(_) | Directory::Any => drop(process.current_dir(home())),
    }
    for name in THREAD_COUNTS.iter().filter(|name| std::env::var_os(name).is_none()) {
        process.env(name, needs.threads().to_string());
    }
    process.envs(devices.iter().map(|(name, value)| (name, value)));
    process.envs(variables.iter().map(|(name, value)| (name, value)));
    process.envs(command.variables.iter().map(|(name, value)| (name, value)));
    let error = process.exec();
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    (code, format!("{program} cannot be run: {error}"))
}

/// A file with these bytes that has no name, to be read from its beginning.
fn input(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"paceline-input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Where a program runs that has no better place.
fn home() -> String {
    std::env::var("HOME").ok().filter(|home| Path::new(home).is_dir()).unwrap_or_else(|| "/".into())
}
