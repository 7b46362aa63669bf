//! `paceline completion`.

use crate::args::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::{Shell, generate};

pub fn run(shell: Shell) -> Result<(), Failure> {
    generate(shell, &mut Cli::command(), "paceline", &mut std::io::stdout());
    Ok(())
}
