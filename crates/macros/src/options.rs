//! What may stand in the parentheses of the attribute.

use proc_macro2::Span;
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
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
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
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

fn set<T>(option: &mut Option<T>, span: Span, value: T) -> syn::Result<()> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(syn::Error::new(span, "this option stands here twice")),
    }
}
