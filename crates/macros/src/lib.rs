//! `#[paceline::task]`: a function that also runs in slots.
//!
//! The function stays what it is. Beside it stands a type of the same name (types and functions have separate names in
//! Rust) that carries the remote ways to call it, and an entry in the registry that slots look it up in.
#![forbid(unsafe_code)]

mod options;
mod signature;
mod task;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

/// Make a function callable in slots. See the documentation of the `paceline` crate.
#[proc_macro_attribute]
pub fn task(options: TokenStream, function: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::Options);
    let function = parse_macro_input!(function as ItemFn);
    task::expand(&options, &function).unwrap_or_else(|error| error.to_compile_error()).into()
}
