//! The command line.

use crate::settings::Flags;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Run Python and Rust work on a pool of processes, on this machine and beyond.
#[derive(Parser, Debug)]
#[command(
    name = "paceline",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    args_override_self = true
)]
#[command(
    after_help = "Settings also come from paceline.toml and PACELINE_* variables: see paceline config show."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a cluster: a head, and a node on this machine
    Start(Start),
    /// Let this machine join a cluster as a node
    Join(Join),
    /// Show the clusters of this machine, what they have and what they do
    Status(Status),
    /// End a cluster: its nodes on every machine, then its head
    Stop(Stop),
    /// Run a program on some node of a cluster, whatever becomes of this shell
    Submit(Submit),
    /// Tell where a task is and why it waits, what a lease, client or node does, or why work waits
    Explain(Explain),
    /// Look for what could keep clusters from working on this machine
    Doctor(Which),
    /// Settings and where they came from
    #[command(subcommand)]
    Config(Config),
    /// Show the last lines that head and nodes logged
    Logs(Logs),
    /// Look after single nodes
    #[command(subcommand)]
    Node(Node),
    /// Make a token by which a machine can join
    Token(Token),
    /// Print the completions of a shell: eval "$(paceline completion bash)"
    Completion {
        /// bash, zsh, fish, elvish or powershell
        shell: Shell,
    },
    /// Be a daemon; the plan comes from standard input
    #[command(hide = true)]
    Daemon,
}

/// Which cluster is meant.
#[derive(Args, Debug, Default)]
pub struct Which {
    /// The cluster's name on this machine [default: default, or the only one there is]
    #[arg(long)]
    pub name: Option<String>,

    /// The head's address, for a cluster on other machines
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,

    /// File with the cluster's key
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<String>,
}

impl Which {
    pub fn flags(&self) -> Flags {
        vec![
            ("name", self.name.clone()),
            ("address", self.address.clone()),
            ("key_file", self.key_file.clone()),
        ]
    }
}

/// What a node has, and where it listens.
#[derive(Args, Debug)]
pub struct Has {
    /// CPUs of this node, also fractions [default: all this process may use]
    #[arg(long, value_name = "NUMBER")]
    pub cpus: Option<String>,

    /// GPUs of this node [default: all there are]
    #[arg(long, value_name = "NUMBER")]
    pub gpus: Option<String>,

    /// Memory of this node, as in 8G [default: what the machine has]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,

    /// Other resources by name, as in licence=2,disk=1
    #[arg(long, value_name = "NAME=NUMBER,...")]
    pub resources: Option<String>,

    /// What tasks may ask of a node, as in zone=b,fast=yes
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub labels: Option<String>,

    /// The node's own name [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// The node's port [default: 7078, or a free one]
    #[arg(long, value_name = "PORT")]
    pub node_port: Option<String>,

    /// The address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<String>,

    /// The host name or address that others are told
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,

    /// File with the cluster's key
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<String>,

    /// File with a password that opens the cluster
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<String>,

    /// The interpreter that slots run
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,

    /// Without the head for this long, nodes end themselves [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub head_lost: Option<String>,

    /// How often nodes and head say that they live [default: 2s]
    #[arg(long, value_name = "TIME")]
    pub heartbeat: Option<String>,

    /// Log everything
    #[arg(long)]
    pub debug: bool,

    /// Stay in the foreground until stopped
    #[arg(long)]
    pub foreground: bool,

    /// End when standard input does
    #[arg(long, hide = true)]
    pub lifeline: bool,
}

impl Has {
    fn flags(&self) -> Flags {
        vec![
            ("cpus", self.cpus.clone()),
            ("gpus", self.gpus.clone()),
            ("memory", self.memory.clone()),
            ("resources", self.resources.clone()),
            ("labels", self.labels.clone()),
            ("node_port", self.node_port.clone()),
            ("bind", self.bind.clone()),
            ("advertise", self.advertise.clone()),
            ("key_file", self.key_file.clone()),
            ("password_file", self.password_file.clone()),
            ("python", self.python.clone()),
            ("head_lost", self.head_lost.clone()),
            ("heartbeat", self.heartbeat.clone()),
            ("log_level", self.debug.then(|| "debug".into())),
        ]
    }
}

#[derive(Args, Debug)]
pub struct Start {
    /// The cluster's name on this machine [default: default]
    #[arg(long)]
    pub name: Option<String>,

    /// The head's port; 0: any free one [default: 7077]
    #[arg(long)]
    pub port: Option<String>,

    /// Start the head only (the same as --cpus 0)
    #[arg(long)]
    pub no_node: bool,

    #[command(flatten)]
    pub has: Has,
}

impl Start {
    pub fn flags(&self) -> Flags {
        let mut flags = self.has.flags();
        flags.extend([("name", self.name.clone()), ("port", self.port.clone())]);
        if self.no_node {
            flags.push(("cpus", Some("0".into())));
        }
        flags
    }
}

#[derive(Args, Debug)]
pub struct Join {
    /// Where the head is
    #[arg(value_name = "HOST:PORT")]
    pub address: String,

    /// A token from `paceline start` or `paceline token`; - reads it from standard input. Better: PACELINE_TOKEN
    #[arg(long)]
    pub token: Option<String>,

    /// What the cluster is called on this machine [default: as its head calls it]
    #[arg(long)]
    pub name: Option<String>,

    #[command(flatten)]
    pub has: Has,
}

impl Join {
    pub fn flags(&self) -> Flags {
        let mut flags = self.has.flags();
        flags.extend([("name", self.name.clone()), ("address", Some(self.address.clone()))]);
        flags
    }
}

#[derive(Args, Debug)]
pub struct Status {
    #[command(flatten)]
    pub which: Which,

    /// Show nodes, clients and leases, too
    #[arg(long, short)]
    pub verbose: bool,
}

#[derive(Args, Debug)]
pub struct Stop {
    #[command(flatten)]
    pub which: Which,

    /// Only this machine's node, or the one of this name: the rest of the cluster goes on. With --head: both
    #[arg(long, value_name = "NODE", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["all"])]
    pub node: Option<String>,

    /// Only the head: nodes wait for another one for as long as head_lost says. A node in its process ends with it, so
    /// that has to be said: --head --node
    #[arg(long, conflicts_with = "all")]
    pub head: bool,

    /// Only this program, which was submitted: the cluster goes on
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["node", "head", "all"])]
    pub program: Option<String>,

    /// Every cluster of this user on this machine
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
}

#[derive(Args, Debug)]
pub struct Submit {
    /// What to call it [default: after the program]
    #[arg(long)]
    pub name: Option<String>,

    /// CPUs it needs, also fractions
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    pub cpus: f64,

    /// GPUs it needs, also fractions
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0)]
    pub gpus: f64,

    /// Memory it needs, and may have, as in 8G
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,

    /// Other resources it needs, as in licence=2,disk=1
    #[arg(long, value_name = "NAME=NUMBER,...")]
    pub resources: Option<String>,

    /// Where it runs on its node [default: this directory if the node has it, else its user's home]
    #[arg(long, value_name = "DIRECTORY")]
    pub cwd: Option<String>,

    /// A variable of its environment, on top of its node's; without a value, the one it has here
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,

    /// How often it is started again when it fails or its node is lost
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub restarts: u32,

    /// Return when it has ended, with its exit code
    #[arg(long)]
    pub wait: bool,

    /// The cluster's name on this machine [default: default, or the only one there is]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,

    /// The head's address, for a cluster on other machines
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,

    /// File with the cluster's key
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<String>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
}

impl Submit {
    pub fn which(&self) -> Which {
        Which { name: self.cluster.clone(), address: self.address.clone(), key_file: self.key_file.clone() }
    }
}

#[derive(Args, Debug)]
pub struct Explain {
    /// A task by its number (42, or NAME/42 of one client), or a lease, client or node as status shows it
    /// [default: whatever waits]
    pub what: Option<String>,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Subcommand, Debug)]
pub enum Config {
    /// Show every setting, its value, and where that came from
    Show(Which),
}

#[derive(Args, Debug)]
pub struct Logs {
    /// `head`, a node's name, or that of a program that was submitted [default: head and all nodes]
    pub of: Option<String>,

    /// How many lines of each
    #[arg(long, short = 'n', default_value_t = 50)]
    pub lines: u32,

    /// Throw the logs away
    #[arg(long)]
    pub clean: bool,

    #[command(flatten)]
    pub which: Which,
}

#[derive(Subcommand, Debug)]
pub enum Node {
    /// Let a node finish what it runs and leave
    Drain {
        /// Its name, or its number as status shows it
        node: String,

        /// Return when it is gone
        #[arg(long)]
        wait: bool,

        #[command(flatten)]
        which: Which,
    },
}

#[derive(Args, Debug)]
pub struct Token {
    /// Good for any number of joins, as long as this head lives
    #[arg(long)]
    pub reusable: bool,

    #[command(flatten)]
    pub which: Which,
}
