//! What crosses from one language to another: calls, values and failures as MessagePack.
//!
//! Owns: the layout of a call to a function that goes by its name, and of what comes back. The Rust face uses it between
//! programs of its own as well; the Python binding has a codec of its own for the values in it.
//!
//! ```text
//! call    | 16 | the arguments, as one MessagePack array (nil if there are none) |
//! chunk   | 17 | length u32 | arguments | length u32 | arguments | ...
//! value   | MessagePack |
//! values  | length u32 | MessagePack | length u32 | MessagePack | ...              of a chunk, in its order
//! ```
//!
//! * EX-1: an array of numbers is an ext of type [`array::EXT`], whatever language it is in: its element type, its shape
//!   and its bytes in C order, little endian.

pub mod array;
pub mod chunk;
mod failure;

pub use failure::Failure;

use paceline_proto::Start;

/// First byte of a payload: one call.
pub const CALL: u8 = 16;
/// First byte of a payload: the function is called for each of several lists of arguments.
pub const EACH: u8 = 17;

/// What the bytes of a function begin with that a Rust program knows by its name: the name follows.
pub const NAMED: u8 = b'N';

pub(crate) const ARGUMENT: &str = "paceline-zygote";
pub(crate) const VARIABLE: &str = "PACELINE_ZYGOTE";

/// How a Rust program is started as a zygote.
pub fn start_of(path: &str) -> Start {
    Start { command: vec![path.into(), ARGUMENT.into()], variables: vec![(VARIABLE.into(), "1".into())] }
}
