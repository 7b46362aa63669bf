//! What may stand in the parentheses of the attributes.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, LitStr, Token};

/// `#[task(name = "...", retries = 3, cpus = 1.0, priority = 0, timeout = Duration::from_secs(60))]`, each once and in
/// any order.
#[derive(Default)]
pub struct Options {
    pub name: Option<LitStr>,
    pub retries: Option<Expr>,
    pub cpus: Option<Expr>,
    pub priority: Option<Expr>,
    pub timeout: Option<Expr>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Options> {
        let mut options = Options::default();
        each(input, |key, input| {
            match key.to_string().as_str() {
                "name" => set(&mut options.name, key.span(), input.parse()?)?,
                "retries" => set(&mut options.retries, key.span(), input.parse()?)?,
                "cpus" => set(&mut options.cpus, key.span(), input.parse()?)?,
                "priority" => set(&mut options.priority, key.span(), input.parse()?)?,
                "timeout" => set(&mut options.timeout, key.span(), input.parse()?)?,
                _ => {
                    let message = "a task has the options name, retries, cpus, priority and timeout";
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            Ok(())
        })?;
        Ok(options)
    }
}

/// `#[actor(name = "...", cpus = 1.0, restarts = 0, timeout = Duration::from_secs(60))]`
#[derive(Default)]
pub struct ActorOptions {
    pub name: Option<LitStr>,
    cpus: Option<Expr>,
    restarts: Option<Expr>,
    timeout: Option<Expr>,
}

impl Parse for ActorOptions {
    fn parse(input: ParseStream<'_>) -> syn::Result<ActorOptions> {
        let mut options = ActorOptions::default();
        each(input, |key, input| {
            match key.to_string().as_str() {
                "name" => set(&mut options.name, key.span(), input.parse()?)?,
                "cpus" => set(&mut options.cpus, key.span(), input.parse()?)?,
                "restarts" => set(&mut options.restarts, key.span(), input.parse()?)?,
                "timeout" => set(&mut options.timeout, key.span(), input.parse()?)?,
                _ => {
                    let message = "an actor has the options name, cpus, restarts and timeout here; the others are \
                                   set with options()";
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            Ok(())
        })?;
        Ok(options)
    }
}

impl ActorOptions {
    /// The calls that tell a builder.
    pub fn changes(&self) -> TokenStream {
        let mut changes = TokenStream::new();
        if let Some(cpus) = &self.cpus {
            changes.extend(quote!(.cpus(#cpus as f64)));
        }
        if let Some(restarts) = &self.restarts {
            changes.extend(quote!(.restarts(#restarts)));
        }
        if let Some(timeout) = &self.timeout {
            changes.extend(quote!(.timeout(#timeout)));
        }
        changes
    }
}

/// `#[worker(name = "...", cpus = 1.0, retries = 3, timeout = Duration::from_secs(60))]`
#[derive(Default)]
pub struct WorkerOptions {
    pub name: Option<LitStr>,
    cpus: Option<Expr>,
    retries: Option<Expr>,
    timeout: Option<Expr>,
}

impl Parse for WorkerOptions {
    fn parse(input: ParseStream<'_>) -> syn::Result<WorkerOptions> {
        let mut options = WorkerOptions::default();
        each(input, |key, input| {
            match key.to_string().as_str() {
                "name" => set(&mut options.name, key.span(), input.parse()?)?,
                "cpus" => set(&mut options.cpus, key.span(), input.parse()?)?,
                "retries" => set(&mut options.retries, key.span(), input.parse()?)?,
                "timeout" => set(&mut options.timeout, key.span(), input.parse()?)?,
                _ => {
                    let message = "a worker has the options name, cpus, retries and timeout here; the others are \
                                   set with options()";
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            Ok(())
        })?;
        Ok(options)
    }
}

impl WorkerOptions {
    /// The calls that tell a builder.
    pub fn changes(&self) -> TokenStream {
        let mut changes = TokenStream::new();
        if let Some(cpus) = &self.cpus {
            changes.extend(quote!(.cpus(#cpus as f64)));
        }
        if let Some(retries) = &self.retries {
            changes.extend(quote!(.retries(#retries)));
        }
        if let Some(timeout) = &self.timeout {
            changes.extend(quote!(.timeout(#timeout)));
        }
        changes
    }
}

/// Read `key = value, key = value`.
fn each(
    input: ParseStream<'_>,
    mut take: impl FnMut(&Ident, ParseStream<'_>) -> syn::Result<()>,
) -> syn::Result<()> {
    while !input.is_empty() {
        let key: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        take(&key, input)?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

fn set<T>(option: &mut Option<T>, span: Span, value: T) -> syn::Result<()> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(syn::Error::new(span, "this option stands here twice")),
    }
}
