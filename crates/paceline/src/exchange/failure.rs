//! How a call went wrong inside its slot.

use serde::{Deserialize, Serialize};

/// How a call went wrong inside the slot, as it travels: in MessagePack, for either language to read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Failure {
    /// A Rust function returned an error of this type.
    Failed {
        kind: String,
        message: String,
    },
    Panicked {
        message: String,
        location: String,
    },
    /// A Python function raised an exception of this type.
    Raised {
        kind: String,
        message: String,
        traceback: String,
    },
    /// There is no function of this name. These there are.
    NoSuchTask {
        known: Vec<String>,
    },
    /// The arguments do not have the types that the function takes.
    Arguments {
        message: String,
    },
    /// The value cannot be encoded.
    Value {
        message: String,
    },
}

impl Failure {
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        rmp_serde::to_vec_named(self).map_err(|error| error.to_string())
    }

    pub fn decode(bytes: &[u8]) -> Result<Failure, String> {
        rmp_serde::from_slice(bytes).map_err(|error| error.to_string())
    }
}
