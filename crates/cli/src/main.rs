//! The command line, and the daemons it starts.
//!
//! Data goes to standard output, everything else to the error output. Exit codes are those of [`failure::Code`].
#![forbid(unsafe_code)]

mod args;
mod arguments;
mod ask;
mod command;
mod daemon;
mod failure;
mod settings;
mod show;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::Cli::parse_from(arguments::take());
    let json = cli.json;
    match command::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if json && !failure.is_printed {
                show::json(&failure.json());
            }
            show::failure(&failure);
            ExitCode::from(failure.code as u8)
        }
    }
}
