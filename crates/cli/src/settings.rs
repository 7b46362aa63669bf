//! Every setting by name, in one table: what it is called in `paceline.toml`, in the environment and on the command
//! line, what it is by default, and where its value came from.
//!
//! * ST-1: defaults, then the user's `paceline.toml`, then that of the directory, then `PACELINE_*`, then flags: the last
//!   that says something counts.
//! * ST-2: a name that nobody knows is an error that names the file.

use crate::failure::{Failure, usage};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One setting.
pub struct Setting {
    pub name: &'static str,
    pub default: &'static str,
    pub help: &'static str,
}

const fn row(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, default, help }
}

/// All of them. The environment variable of `head_lost` is `PACELINE_HEAD_LOST`, its flag `--head-lost`.
pub const TABLE: &[Setting] = &[
    row("name", "default", "which of this user's clusters on this machine"),
    row("address", "", "the head to talk to, host:port; empty: a cluster on this machine"),
    row("port", "7077", "the head's port; 0: any free one"),
    row("node_port", "7078", "the node's port; another free one if it is taken, unless it was given"),
    row("bind", "127.0.0.1", "the address to listen on; 0.0.0.0 or [::] for every interface"),
    row("advertise", "", "the host name or address that others are told, if not the one they see"),
    row("cpus", "", "CPUs of the node; empty: all that this process may use; 0: no node"),
    row("gpus", "", "GPUs of the node; empty: all there are"),
    row("memory", "", "memory of the node, as in 8G; empty: what the machine has"),
    row("resources", "", "other resources of the node by name: licence=2,disk=1"),
    row("labels", "", "what tasks may ask of a node: zone=b,fast=yes"),
    row("key_file", "", "file with the cluster's key; empty: one of the cluster's own"),
    row("password_file", "", "file with a password that opens the cluster, too"),
    row("heartbeat", "2s", "how often nodes and head say that they live; three missed and they are lost"),
    row("head_lost", "60s", "without the head for this long, nodes end themselves"),
    row("client_lost", "30s", "a client whose link is down keeps its leases for this long"),
    row("leave_within", "5s", "how long a node that is told to go waits for what it runs"),
    row("log_level", "info", "error, warn, info, debug or trace"),
    row("log_size", "4M", "a log file is put aside when it is this long"),
    row("log_files", "3", "how many are kept"),
    row("python", "", "the interpreter that slots run; empty: the one paceline was installed for"),
    row("home", "", "where this user's clusters are kept; empty: ~/.local/state/paceline"),
    row("memory_limit", "", "bytes for all slots together before the largest is ended; off: never"),
    row(
        "object_memory",
        "",
        "bytes of objects that a node keeps in memory, as in 8G; empty: 30 % of what it has",
    ),
    row("stopped_limit", "30s", "a slot that was stopped (SIGSTOP) for this long is ended; 0: never"),
    row("max_group_members", "10000", "members of one group"),
    row("max_shapes", "20000", "kinds of slots that one client waits for at a time"),
    row("max_placements", "20000", "placement rules that the head keeps for one client"),
    row("max_programs", "1000", "programs that the head keeps for one client"),
    row("max_actors", "20000", "actors that one client makes for others to call"),
    row("max_called_actors", "20000", "actors of others that one client calls"),
    row(
        "max_claimed_leases",
        "100000",
        "leases that one client claims, or states to be lost, after a restart of the head",
    ),
    row(
        "max_unread_bytes",
        "64M",
        "bytes that wait for a peer that does not read, or for the clients of one machine, before a link is dropped",
    ),
    row(
        "max_client_state",
        "256M",
        "bytes that the head keeps for one client and its tasks: names, programs, rules, requests, actors",
    ),
    row("max_submitted_bytes", "1G", "bytes of the start records of all submitted programs"),
    row("max_client_links", "2000", "links to the head that the clients of one machine have at a time"),
    row(
        "max_task_links",
        "4096",
        "links that the tasks of one client have at a time on one node, and all tasks of a machine at the head",
    ),
    row("max_slot_links", "64", "links that one slot opens through its node at a time"),
    row("max_store_links", "512", "links of one client at a time to the stores of a node"),
    row("spin_us", "20", "how long both ends look at a socket before they sleep, in microseconds"),
];

/// Where a value came from.
#[derive(Clone, PartialEq, Debug)]
pub enum Source {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(String),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Variable(name) | Source::Flag(name) => f.write_str(name),
        }
    }
}

/// The value of every setting.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings(BTreeMap<&'static str, (String, Source)>);

/// What flags said: the names of settings and their values.
pub type Flags = Vec<(&'static str, Option<String>)>;

impl Settings {
    /// Out of files, the environment and flags (ST-1).
    pub fn gather(flags: Flags) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        for path in files() {
            settings.read(&path)?;
        }
        for setting in TABLE {
            let variable = variable_of(setting.name);
            if let Ok(value) = std::env::var(&variable)
                && !value.is_empty()
            {
                settings.set(setting.name, value, Source::Variable(variable));
            }
        }
        for (name, value) in flags {
            if let Some(value) = value {
                settings.set(name, value, Source::Flag(flag_of(name)));
            }
        }
        Ok(settings)
    }

    fn read(&mut self, path: &Path) -> Result<(), Failure> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            text => text.map_err(|error| usage(format!("{} cannot be read: {error}", path.display())))?,
        };
        let table: toml::Table =
            text.parse().map_err(|error| usage(format!("{} is not TOML: {error}", path.display())))?;
        for (name, value) in table {
            let Some(setting) = TABLE.iter().find(|setting| setting.name == name.replace('-', "_")) else {
                let hint = "paceline config show lists all there are";
                return Err(usage(format!("{} sets {name}, which is no setting", path.display())).hint(hint));
            };
            let value = plain(&value).ok_or_else(|| {
                usage(format!("{} sets {name} to something that is no text, number or table", path.display()))
            })?;
            self.set(setting.name, value, Source::File(path.to_owned()));
        }
        Ok(())
    }

    fn set(&mut self, name: &'static str, value: String, source: Source) {
        self.0.insert(name, (value, source));
    }

    pub fn rows(&self) -> impl Iterator<Item = (&'static Setting, &str, &Source)> {
        TABLE.iter().map(|setting| {
            let (value, source) = &self.0[setting.name];
            (setting, value.as_str(), source)
        })
    }

    pub fn text(&self, name: &str) -> &str {
        &self.0[name].0
    }

    /// None if it is empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub fn is_default(&self, name: &str) -> bool {
        self.0[name].1 == Source::Default
    }

    fn wrong(&self, name: &str, expected: &str) -> Failure {
        let (value, source) = &self.0[name];
        usage(format!("{name} is {value:?} (from {source}), which is not {expected}"))
    }

    pub fn port(&self, name: &str) -> Result<u16, Failure> {
        self.text(name).parse().map_err(|_| self.wrong(name, "a port between 0 and 65535"))
    }

    pub fn count(&self, name: &str) -> Result<Option<u64>, Failure> {
        let read = |text: &str| text.parse().map_err(|_| self.wrong(name, "a whole number"));
        self.given(name).map(read).transpose()
    }

    /// Returns a time within this range.
    pub fn duration(&self, name: &str, range: RangeInclusive<Duration>) -> Result<Duration, Failure> {
        let wrong = || self.wrong(name, "a time such as 500ms, 2s, 10m or 1h");
        let span = duration(self.text(name)).ok_or_else(wrong)?;
        if self.is_default(name) {
            // What nobody has set follows what is set beside it.
            return Ok(span.clamp(*range.start(), *range.end()));
        }
        if range.contains(&span) {
            return Ok(span);
        }
        let (least, most) = (in_words(*range.start()), in_words(*range.end()));
        let hint = match name {
            "head_lost" | "client_lost" => ": three heartbeats at least",
            _ => "",
        };
        Err(self.wrong(name, &format!("a time from {least} to {most}{hint}")))
    }

    pub fn bytes(&self, name: &str) -> Result<Option<u64>, Failure> {
        let wrong = || self.wrong(name, "a size such as 512M or 8G");
        self.given(name).map(|text| bytes(text).ok_or_else(wrong)).transpose()
    }

    /// `a=1,b=2`.
    pub fn pairs(&self, name: &str) -> Result<Vec<(String, String)>, Failure> {
        let pair = |text: &str| {
            let (key, value) =
                text.split_once('=').ok_or_else(|| self.wrong(name, "a list such as a=1,b=2"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        };
        self.text(name).split(',').filter(|text| !text.trim().is_empty()).map(pair).collect()
    }
}

impl Default for Settings {
    fn default() -> Settings {
        let rows = TABLE.iter().map(|row| (row.name, (row.default.to_owned(), Source::Default)));
        Settings(rows.collect())
    }
}

pub fn variable_of(name: &str) -> String {
    format!("PACELINE_{}", name.to_ascii_uppercase())
}

pub fn flag_of(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// Where `paceline.toml` may be: the user's, then that of this directory.
pub fn files() -> Vec<PathBuf> {
    if let Some(file) = std::env::var_os("PACELINE_CONFIG").filter(|file| !file.is_empty()) {
        return vec![file.into()];
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let user = user.map(|config| config.join("paceline/paceline.toml"));
    user.into_iter().chain([PathBuf::from("paceline.toml")]).collect()
}

/// As it would be written on the command line.
fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Table(table) => {
            let pairs = table.iter().map(|(name, value)| Some(format!("{name}={}", plain(value)?)));
            Some(pairs.collect::<Option<Vec<_>>>()?.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Array(_) => None,
    }
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    let unit = match text[split..].trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

/// As a setting would say it.
fn in_words(span: Duration) -> String {
    match span.as_millis() {
        millis if millis % 1000 != 0 => format!("{millis}ms"),
        millis if millis % 86_400_000 == 0 && millis > 0 => format!("{}d", millis / 86_400_000),
        millis if millis % 3_600_000 == 0 && millis > 0 => format!("{}h", millis / 3_600_000),
        millis => format!("{}s", millis / 1000),
    }
}

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    let unit = match text[split..].trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 1u64,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    (number.is_finite() && number >= 0.0).then_some((number * unit as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_says_something_counts() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("paceline.toml");
        std::fs::write(&file, "port = 7000\nresources = { disk = 2 }\n").unwrap();
        let mut settings = Settings::default();
        settings.read(&file).unwrap();
        assert_eq!(settings.port("port").unwrap(), 7000, "ST-1");
        assert_eq!(settings.pairs("resources").unwrap(), [("disk".to_owned(), "2".to_owned())]);
        settings.set("port", "7001".into(), Source::Flag("--port".into()));
        assert_eq!(settings.port("port").unwrap(), 7001, "ST-1");
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("paceline.toml");
        std::fs::write(&file, "prot = 7000\n").unwrap();
        let text = Settings::default().read(&file).unwrap_err().to_string();
        assert!(text.contains("prot") && text.contains("paceline.toml"), "ST-2: {text}");
    }

    #[test]
    fn times_and_sizes() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("1.5m"), Some(Duration::from_secs(90)));
        assert_eq!(duration("soon"), None);
        assert_eq!(bytes("2GiB"), Some(2 << 30));
        assert_eq!(bytes("0.5k"), Some(512));
        assert_eq!(bytes("much"), None);
    }
}
