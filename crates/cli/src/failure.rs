//! How a command fails: what happened, what to do next, and an exit code that scripts can rely on.

use std::fmt;

/// Exit codes. They are a promise: docs/cli.md lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Something went wrong that has no code of its own.
    Failed = 1,
    /// The command line or a setting is wrong.
    Usage = 2,
    /// There is no such cluster here, or none at all.
    NoCluster = 3,
    /// Nobody answers at the address.
    Unreachable = 4,
    /// The other side refused: wrong key, another version, another owner.
    Refused = 5,
    /// The address is taken.
    InUse = 6,
    /// It took too long.
    TimedOut = 7,
}

impl Code {
    pub fn of(number: u64) -> Code {
        let all =
            [Code::Usage, Code::NoCluster, Code::Unreachable, Code::Refused, Code::InUse, Code::TimedOut];
        all.into_iter().find(|code| *code as u64 == number).unwrap_or(Code::Failed)
    }

    /// The name programs see.
    pub fn name(self) -> &'static str {
        match self {
            Code::Failed => "failed",
            Code::Usage => "usage",
            Code::NoCluster => "no-cluster",
            Code::Unreachable => "unreachable",
            Code::Refused => "refused",
            Code::InUse => "in-use",
            Code::TimedOut => "timed-out",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
    /// What was printed as JSON says it already.
    pub is_printed: bool,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), hint: None, is_printed: false }
    }

    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// Marks it as told by what was printed as JSON: nothing but one value may be there.
    pub fn printed(self) -> Failure {
        Failure { is_printed: true, ..self }
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({"error": self.message, "code": self.code.name(), "hint": self.hint})
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

pub fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Code::Usage, message)
}

pub fn failed(message: impl Into<String>) -> Failure {
    Failure::new(Code::Failed, message)
}

impl From<paceline_registry::Error> for Failure {
    fn from(error: paceline_registry::Error) -> Failure {
        use paceline_registry::Error;
        let text = error.to_string();
        match error {
            Error::Homeless => usage(text).hint("set PACELINE_HOME to a directory of your own"),
            Error::Name { .. } => usage(text),
            Error::Foreign { .. } => {
                Failure::new(Code::Refused, text).hint("only the owner of a cluster may look after it")
            }
            Error::Io { .. } => failed(text),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        failed(error.to_string())
    }
}
