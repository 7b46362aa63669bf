//! `#[paceline::task]`: a function that also runs in slots. `#[paceline::actor]` and `#[paceline::worker]`: a type whose
//! objects live in slots.
//!
//! Functions and types stay what they are. Beside a function stands a type of the same name (types and functions have
//! separate names in Rust) that carries the remote ways to call it; beside a type a handle with its methods. Slots look
//! both up in a registry.
#![forbid(unsafe_code)]

mod actor;
mod class;
mod options;
mod signature;
mod task;
mod worker;

use proc_macro::TokenStream;
use syn::{ItemFn, ItemImpl, parse_macro_input};

/// Make a function callable in slots. See the documentation of the `paceline` crate.
#[proc_macro_attribute]
pub fn task(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::Options);
    let function = parse_macro_input!(function as ItemFn);
    task::expand(&options, &function).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Let objects of a type live in slots. Stands before its `impl` block, which has `new`, and the methods that can be
/// called there. Methods marked `#[checkpoint]` and `#[restore]` save what an object that is built anew begins with. See
/// the documentation of the `paceline` crate.
#[proc_macro_attribute]
pub fn actor(options: TokenStream, block: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::ActorOptions);
    let block = parse_macro_input!(block as ItemImpl);
    actor::expand(&options, block).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Let every slot of a pool have an object of a type. Stands before its `impl` block, which has `new`, `run` for jobs, and
/// perhaps `update` for what all slots are told. Methods marked `#[checkpoint]` and `#[restore]` let the state of one slot
/// stand for all updates. See the documentation of the `paceline` crate.
#[proc_macro_attribute]
pub fn worker(options: TokenStream, block: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::WorkerOptions);
    let block = parse_macro_input!(block as ItemImpl);
    worker::expand(&options, block).unwrap_or_else(|error| error.to_compile_error()).into()
}
