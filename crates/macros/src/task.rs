//! The code that stands beside a task's function.

use crate::options::Options;
use crate::signature::Signature;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ItemFn;

pub fn expand(options: &Options, function: &ItemFn) -> syn::Result<TokenStream> {
    let signature = Signature::of_task(&function.sig)?;
    let implementation = implementation(options, function, &signature);
    let methods = methods(function, &signature);
    let entry = entry(function, &signature);
    let (visibility, name) = (&function.vis, &function.sig.ident);
    let documentation = format!("The task [`{name}`](fn@{name}): the ways to run it in a slot.");
    Ok(quote! {
        #function

        #[doc = #documentation]
        #[allow(non_camel_case_types)]
        #visibility struct #name {}

        #implementation
        #methods
        #entry
    })
}

fn implementation(options: &Options, function: &ItemFn, signature: &Signature) -> TokenStream {
    let name = &function.sig.ident;
    let types = &signature.types;
    let known_as = match &options.name {
        Some(known_as) => quote!(#known_as),
        None => {
            let own = name.to_string();
            quote!(::core::concat!(::core::module_path!(), "::", #own))
        }
    };
    let output = signature.output();
    let mut changes = TokenStream::new();
    if let Some(retries) = &options.retries {
        changes.extend(quote!(.retries(#retries)));
    }
    if let Some(cpus) = &options.cpus {
        changes.extend(quote!(.cpus(#cpus as f64)));
    }
    if let Some(priority) = &options.priority {
        changes.extend(quote!(.priority(#priority)));
    }
    if let Some(timeout) = &options.timeout {
        changes.extend(quote!(.timeout(#timeout)));
    }
    quote! {
        impl ::paceline::Task for #name {
            const NAME: &'static str = #known_as;
            const OPTIONS: ::paceline::Options = ::paceline::Options::new() #changes;
            type Arguments = (#(#types,)*);
            type Output = #output;
        }
    }
}

fn methods(function: &ItemFn, signature: &Signature) -> TokenStream {
    let (visibility, name) = (&function.vis, &function.sig.ident);
    let Signature { names, types, .. } = signature;
    let cluster = match names.iter().any(|name| name == "cluster") {
        true => format_ident!("the_cluster"),
        false => format_ident!("cluster"),
    };
    let output = quote!(<#name as ::paceline::Task>::Output);
    // One argument needs no tuple around it.
    let (item, pack) = match types.as_slice() {
        [only] => (quote!(#only), quote!(|item| (item,))),
        _ => (quote!((#(#types),*)), quote!(|item| item)),
    };
    quote! {
        #[allow(dead_code)]
        impl #name {
            /// Run it in a slot and wait for its value.
            #visibility fn call(
                #cluster: &(impl ::paceline::Runner + ?::core::marker::Sized), #(#names: #types),*
            ) -> ::paceline::Result<#output> {
                ::paceline::Configured::<#name>::new().call(#cluster, (#(#names,)*))
            }

            /// Have it run in a slot; its value comes with the future.
            #visibility fn submit(
                #cluster: &(impl ::paceline::Runner + ?::core::marker::Sized), #(#names: #types),*
            ) -> ::paceline::Future<#output> {
                ::paceline::Configured::<#name>::new().submit(#cluster, (#(#names,)*))
            }

            /// As `submit`, but never waits for room in the queue.
            #visibility fn try_submit(
                #cluster: &(impl ::paceline::Runner + ?::core::marker::Sized), #(#names: #types),*
            ) -> ::paceline::Result<::paceline::Future<#output>> {
                ::paceline::Configured::<#name>::new().try_submit(#cluster, (#(#names,)*))
            }

            /// Run it for each item and wait for all values, in the order of the items.
            #visibility fn map(
                #cluster: &(impl ::paceline::Runner + ?::core::marker::Sized),
                items: impl ::core::iter::IntoIterator<Item = #item>,
            ) -> ::paceline::Result<::std::vec::Vec<#output>> {
                let items = ::core::iter::Iterator::map(::core::iter::IntoIterator::into_iter(items), #pack);
                ::paceline::Configured::<#name>::new().map(#cluster, items)
            }

            /// The task with other options.
            #visibility fn options() -> ::paceline::Configured<#name> {
                ::paceline::Configured::new()
            }
        }
    }
}

fn entry(function: &ItemFn, signature: &Signature) -> TokenStream {
    let name = &function.sig.ident;
    let Signature { names, .. } = signature;
    let texts = names.iter().map(ToString::to_string);
    let types = quote!(<#name as ::paceline::Task>::Arguments);
    let value = match signature.fallible {
        true => quote!(::paceline::__private::Fallible::split(#name(#(#names),*))?),
        false => quote!(#name(#(#names),*)),
    };
    quote! {
        const _: () = {
            fn run(
                arguments: &[u8],
            ) -> ::core::result::Result<::paceline::Bytes, ::paceline::__private::Failure> {
                let (#(#names,)*) = ::paceline::__private::arguments::<#types>(arguments, &[#(#texts),*])?;
                ::paceline::__private::value::<<#name as ::paceline::Task>::Output>(&#value)
            }
            ::paceline::__private::inventory::submit! {
                ::paceline::__private::Entry::new(<#name as ::paceline::Task>::NAME, run)
            }
        };
    }
}
