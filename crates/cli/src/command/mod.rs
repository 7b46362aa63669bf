//! The commands, one file each.

mod completion;
mod config;
mod doctor;
mod explain;
mod join;
mod logs;
mod node;
mod start;
mod status;
mod stop;
mod submit;
mod token;

use crate::args::{Cli, Command, Config, Which};
use crate::ask::{self, Target};
use crate::failure::Failure;
use crate::settings::Settings;
use paceline_registry::Home;

pub fn run(cli: Cli) -> Result<(), Failure> {
    let json = cli.json;
    match cli.command {
        Command::Start(args) => start::run(&args, json),
        Command::Join(args) => join::run(&args, json),
        Command::Status(args) => status::run(&args, json),
        Command::Stop(args) => stop::run(&args, json),
        Command::Submit(args) => submit::run(&args, json),
        Command::Explain(args) => explain::run(&args, json),
        Command::Doctor(args) => doctor::run(&args, json),
        Command::Config(Config::Show(which)) => config::show(&which, json),
        Command::Logs(args) => logs::run(&args, json),
        Command::Node(node) => node::run(&node, json),
        Command::Token(args) => token::run(&args, json),
        Command::Completion { shell } => completion::run(shell),
        Command::Daemon => crate::daemon::from_stdin(),
    }
}

/// The cluster a command is about.
fn target(which: &Which) -> Result<Target, Failure> {
    ask::target(&Home::find()?, &Settings::gather(which.flags())?)
}
