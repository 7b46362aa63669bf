//! What a task or a method takes and gives, and which functions cannot be any.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{FnArg, Ident, Pat, ReturnType, Safety, Type};

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
    /// That of a free function.
    pub fn of_task(signature: &syn::Signature) -> syn::Result<Signature> {
        if let Some(receiver) = signature.receiver() {
            return refuse(receiver.span(), "a task is a free function: it has no self");
        }
        Signature::of(signature, "a task")
    }

    /// That of a function; what it takes besides `self`, if it is a method.
    pub fn of(signature: &syn::Signature, what: &str) -> syn::Result<Signature> {
        if signature.asyncness.is_some() {
            let message = format!("{what} runs on its own in a slot and cannot be async");
            return refuse(signature.asyncness.span(), &message);
        }
        if let Safety::Unsafe(word) = &signature.safety {
            return refuse(word.span(), &format!("{what} cannot be unsafe: anybody may have it called"));
        }
        if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
            let message = format!("{what} cannot be generic: slots find it by its name alone");
            return refuse(signature.generics.span(), &message);
        }
        let (mut names, mut types) = (Vec::new(), Vec::new());
        for (index, input) in signature.inputs.iter().enumerate() {
            let FnArg::Typed(parameter) = input else { continue };
            match &*parameter.ty {
                Type::Reference(_) => {
                    let message =
                        format!("arguments of {what} travel to another process: take an owned value");
                    return refuse(parameter.ty.span(), &message);
                }
                Type::ImplTrait(_) => {
                    return refuse(parameter.ty.span(), &format!("{what} cannot be generic: name the type"));
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
        if let Type::Reference(_) = returns {
            let message = format!("the value of {what} travels to another process: return an owned one");
            return refuse(returns.span(), &message);
        }
        let fallible = is_result(&returns);
        Ok(Signature { names, types, returns, fallible })
    }

    /// The type of its value, if it has one.
    pub fn output(&self) -> TokenStream {
        let returns = &self.returns;
        match self.fallible {
            true => quote!(<#returns as ::paceline::__private::Fallible>::Value),
            false => quote!(#returns),
        }
    }
}

pub fn refuse<T>(span: Span, message: &str) -> syn::Result<T> {
    Err(syn::Error::new(span, message))
}

/// Whatever is called `Result`: the standard one, `io::Result`, `anyhow::Result`. What it fails with is found out by a
/// trait, so aliases do no harm; one by another name travels as a plain value.
fn is_result(returns: &Type) -> bool {
    match returns {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Result"),
        _ => false,
    }
}
