//! What a task takes and gives, and which functions cannot be tasks.

use proc_macro2::Span;
use quote::format_ident;
use syn::spanned::Spanned;
use syn::{FnArg, Ident, ItemFn, Pat, ReturnType, Type};

pub struct Signature {
    /// Names for the parameters; made up where the function has a pattern.
    pub names: Vec<Ident>,
    pub types: Vec<Type>,
    /// What the function returns, as written.
    pub returns: Type,
    /// It returns a `Result` of some kind.
    pub fallible: bool,
}

impl Signature {
    pub fn of(function: &ItemFn) -> syn::Result<Signature> {
        let signature = &function.sig;
        let refuse = |span: Span, message: &str| Err(syn::Error::new(span, message));
        if signature.asyncness.is_some() {
            return refuse(
                signature.asyncness.span(),
                "a task runs on its own in a slot and cannot be async",
            );
        }
        if signature.unsafety.is_some() {
            return refuse(signature.unsafety.span(), "a task cannot be unsafe: any slot may call it");
        }
        if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
            return refuse(
                signature.generics.span(),
                "a task cannot be generic: slots find it by its name alone",
            );
        }
        let (mut names, mut types) = (Vec::new(), Vec::new());
        for (index, input) in signature.inputs.iter().enumerate() {
            let FnArg::Typed(parameter) = input else {
                return refuse(input.span(), "a task is a free function: it has no self");
            };
            match &*parameter.ty {
                Type::Reference(_) => {
                    let message = "a task's arguments travel to another process: take an owned value";
                    return refuse(parameter.ty.span(), message);
                }
                Type::ImplTrait(_) => {
                    return refuse(parameter.ty.span(), "a task cannot be generic: name the type");
                }
                _ => {}
            }
            names.push(match &*parameter.pat {
                Pat::Ident(name) if name.subpat.is_none() => name.ident.clone(),
                _ => format_ident!("argument{index}"),
            });
            types.push((*parameter.ty).clone());
        }
        let returns = match &signature.output {
            ReturnType::Default => syn::parse_quote!(()),
            ReturnType::Type(_, returns) => (**returns).clone(),
        };
        let fallible = is_result(&returns);
        Ok(Signature { names, types, returns, fallible })
    }
}

/// Whatever is called `Result`: the standard one, `io::Result`, `anyhow::Result`. What it fails with is found out by a
/// trait, so aliases do no harm; one by another name travels as a plain value.
fn is_result(returns: &Type) -> bool {
    match returns {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Result"),
        _ => false,
    }
}
