//! What a daemon is told to be, and what it tells once it is.

use super::limits::{ClientLimits, NodeLimits};
use crate::failure::{Code, Failure, failed, usage};
use crate::settings::Settings;
use paceline_proto::control::Timing;
use paceline_proto::limits;
use paceline_registry::{Home, is_name};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Everything a daemon needs to know. It may hold secrets, so it goes through a pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The cluster's name on this machine; none: as the head says.
    pub name: Option<String>,
    pub home: PathBuf,
    pub head: Option<HeadPlan>,
    /// The head to join, if it is not this process's own.
    pub join: Option<JoinPlan>,
    pub node: Option<NodePlan>,
    pub credentials: Credentials,
    pub timing: Timing,
    pub client_lost: Duration,
    pub leave_within: Duration,
    pub stopped_limit: Duration,
    pub log: LogPlan,
    /// It has left the terminal.
    pub detached: bool,
    /// It ends when its standard input does.
    pub lifeline: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeadPlan {
    pub listen: Listen,
    pub limits: ClientLimits,
    pub python: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinPlan {
    pub address: String,
}

/// Where to listen, and what to tell others about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listen {
    pub bind: String,
    pub port: u16,
    /// Another port will do.
    pub any_port: bool,
    pub advertise: Option<String>,
    /// Nobody said where.
    #[serde(default)]
    pub bind_is_default: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodePlan {
    pub name: String,
    pub listen: Listen,
    pub cpus: Option<f64>,
    /// How many, or which: as the hardware's own reading of it has it.
    pub gpus: Option<String>,
    pub memory: Option<String>,
    /// How much of it is for objects.
    #[serde(default)]
    pub object_memory: Option<String>,
    #[serde(default)]
    pub limits: NodeLimits,
    pub resources: Vec<(String, f64)>,
    pub labels: Vec<(String, String)>,
    pub python: String,
}

/// What opens the cluster. Never printed.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Credentials {
    pub key_file: Option<PathBuf>,
    /// From the environment.
    pub key: Option<String>,
    pub password: Option<String>,
    pub token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogPlan {
    pub level: String,
    pub size: u64,
    pub files: u64,
}

/// What a daemon tells when it serves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Up {
    pub name: String,
    pub cluster: String,
    /// The head's address.
    pub address: Option<String>,
    /// Its own unix socket: the head's if there is one here, else the node's.
    pub unix: String,
    pub node: Option<String>,
    pub resources: Option<String>,
    pub pid: u32,
    /// Lets one machine join.
    pub token: Option<String>,
    /// It had been running before.
    pub already: bool,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// The one line that a daemon writes to its standard output.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    Up(Up),
    Failed { code: u64, message: String, hint: Option<String> },
}

impl Report {
    pub fn of(result: &Result<Up, Failure>) -> Report {
        match result {
            Ok(up) => Report::Up(up.clone()),
            Err(failure) => Report::Failed {
                code: failure.code as u64,
                message: failure.message.clone(),
                hint: failure.hint.clone(),
            },
        }
    }

    pub fn result(self) -> Result<Up, Failure> {
        match self {
            Report::Up(up) => Ok(up),
            Report::Failed { code, message, hint } => {
                Err(Failure { hint, ..Failure::new(Code::of(code), message) })
            }
        }
    }
}

impl Plan {
    /// A plan with everything that head and node share; none of them is in it yet.
    pub fn new(settings: &Settings) -> Result<Plan, Failure> {
        let read = |name| settings.given(name).map(read_secret).transpose();
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let heartbeat = settings.duration("heartbeat", Timing::MIN_HEARTBEAT..=Timing::MAX_HEARTBEAT)?;
        // Silence is no sign of anything before so many heartbeats are missing.
        let longest = Timing::MAX_HEAD_LOST;
        let head_lost = settings.duration("head_lost", heartbeat * Timing::BEATS..=longest)?;
        Ok(Plan {
            name: (!settings.is_default("name")).then(|| settings.text("name").to_owned()),
            home: std::path::absolute(Home::find()?.path())?,
            head: None,
            join: None,
            node: None,
            credentials: Credentials {
                key_file: settings.given("key_file").map(std::path::absolute).transpose()?,
                key: variable("PACELINE_KEY"),
                password: match read("password_file")? {
                    Some(password) => Some(password),
                    None => variable("PACELINE_PASSWORD"),
                },
                token: variable("PACELINE_TOKEN"),
            },
            timing: Timing { heartbeat, head_lost },
            client_lost: settings.duration("client_lost", heartbeat * Timing::BEATS..=longest)?,
            leave_within: settings.duration("leave_within", Duration::ZERO..=longest)?,
            stopped_limit: settings.duration("stopped_limit", Duration::ZERO..=longest)?,
            log: LogPlan {
                level: level(settings)?,
                size: settings.bytes("log_size")?.unwrap_or(4 << 20).max(4096),
                files: settings.count("log_files")?.unwrap_or(3).max(1),
            },
            detached: false,
            lifeline: false,
        })
    }

    /// A node as the settings want it; none if they want none.
    pub fn node(settings: &Settings, name: Option<&str>) -> Result<Option<NodePlan>, Failure> {
        let cpus = amount(settings, "cpus")?;
        if cpus == Some(0.0) {
            return Ok(None);
        }
        let name = name.map_or_else(host_name, str::to_owned);
        if !is_name(&name) {
            let text = format!("a node cannot be called {name:?}");
            return Err(usage(text).hint("letters, digits, '.', '-' and '_' will do, at most 64"));
        }
        let resources = settings.pairs("resources")?.into_iter().map(|(name, value)| {
            let number = value.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
            Ok((name, number.ok_or_else(|| usage(format!("resources: {value:?} is no amount")))?))
        });
        let labels = settings.pairs("labels")?;
        let resources = resources.collect::<Result<Vec<_>, Failure>>()?;
        let words = labels.iter().flat_map(|(label, value)| [("labels", label), ("labels", value)]);
        let words = words.chain(resources.iter().map(|(resource, _)| ("resources", resource)));
        for (setting, word) in words.chain([("name", &name)]) {
            // The head would not take them.
            limits::name(setting, word).map_err(|error| usage(error.to_string()))?;
        }
        Ok(Some(NodePlan {
            limits: NodeLimits::of(settings)?,
            name,
            listen: Listen::of(settings, "node_port")?,
            cpus,
            gpus: settings.given("gpus").map(str::to_owned),
            memory: settings.given("memory").or_else(|| settings.given("memory_limit")).map(str::to_owned),
            object_memory: settings.given("object_memory").map(str::to_owned),
            resources,
            labels,
            python: settings.given("python").unwrap_or("python3").to_owned(),
        }))
    }

    pub fn home(&self) -> Home {
        Home::at_path(self.home.clone())
    }
}

impl Listen {
    pub fn of(settings: &Settings, port: &str) -> Result<Listen, Failure> {
        Ok(Listen {
            bind: settings.text("bind").to_owned(),
            port: settings.port(port)?,
            any_port: port == "node_port" && settings.is_default(port),
            advertise: settings.given("advertise").map(str::to_owned),
            bind_is_default: settings.is_default("bind"),
        })
    }
}

fn amount(settings: &Settings, name: &str) -> Result<Option<f64>, Failure> {
    let wrong = |text: &str| usage(format!("{name} is {text:?}, which is not a number from 0 on"));
    let read = |text: &str| {
        text.parse()
            .ok()
            .filter(|number: &f64| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| wrong(text))
    };
    settings.given(name).map(read).transpose()
}

fn level(settings: &Settings) -> Result<String, Failure> {
    let level = settings.text("log_level");
    if level.parse::<tracing::level_filters::LevelFilter>().is_ok() {
        Ok(level.to_owned())
    } else {
        Err(usage(format!("log_level is {level:?}, which is none of error, warn, info, debug and trace")))
    }
}

/// The first line of a file.
fn read_secret(path: &str) -> Result<String, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| failed(format!("{path} cannot be read: {error}")))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if is_name(&name) { name } else { "node".into() }
}
