//! `#[paceline::task]`: a function that also runs in slots. `#[paceline::actor]`: a type whose objects live in slots.
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
    let options = parse_macro_input!(options as options::ObjectOptions);
    let block = parse_macro_input!(block as ItemImpl);
    actor::expand(&options, block).unwrap_or_else(|error| error.to_compile_error()).into()
}
