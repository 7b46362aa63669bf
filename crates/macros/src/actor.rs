//! The code that stands beside the block of an actor's type.

use crate::class::{Class, Method, function_name};
use crate::options::ActorOptions;
use crate::signature::refuse;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ItemImpl;

pub fn expand(options: &ActorOptions, block: ItemImpl) -> syn::Result<TokenStream> {
    let class = Class::of(block, |_| true)?;
    for method in &class.methods {
        if method.name == "spawn" || method.name == "options" {
            return refuse(method.name.span(), "the attribute adds a function of this name");
        }
    }
    let known_as = class.known_as(options.name.as_ref());
    let block = &class.block;
    let handle = handle(&class);
    let implementation = implementation(options, &class, &known_as);
    let construct = class.construct(&known_as);
    let calls = class.methods.iter().map(|method| class.call(&known_as, method));
    let save = class.save(&known_as, false);
    Ok(quote! {
        #block
        #handle
        #implementation
        #construct
        #(#calls)*
        #save
    })
}

fn handle(class: &Class) -> TokenStream {
    let (name, handle) = (&class.name, format_ident!("{}Handle", class.name));
    let methods = class.methods.iter().enumerate().map(|(index, method)| calls(index, method));
    let own = class.methods.iter().any(|method| method.name == "with_timeout");
    let with_timeout = (!own).then(|| {
        quote! {
            /// The same object, whose calls by this handle may run for so long.
            #[must_use]
            pub fn with_timeout(&self, timeout: ::core::time::Duration) -> #handle {
                #handle { handle: ::paceline::ActorHandle::with_timeout(&self.handle, timeout) }
            }
        }
    });
    let documentation = format!("Stands for a [`{name}`] that lives in a slot, and has its methods.");
    quote! {
        #[doc = #documentation]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct #handle {
            handle: ::paceline::ActorHandle,
        }

        impl ::core::convert::From<::paceline::ActorHandle> for #handle {
            fn from(handle: ::paceline::ActorHandle) -> #handle {
                #handle { handle }
            }
        }

        impl ::core::ops::Deref for #handle {
            type Target = ::paceline::ActorHandle;

            fn deref(&self) -> &::paceline::ActorHandle {
                &self.handle
            }
        }

        impl ::paceline::__private::serde::Serialize for #handle {
            fn serialize<S: ::paceline::__private::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                ::paceline::__private::serialize(&self.handle, serializer)
            }
        }

        impl<'de> ::paceline::__private::serde::Deserialize<'de> for #handle {
            fn deserialize<D: ::paceline::__private::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::core::result::Result<#handle, D::Error> {
                let handle = ::paceline::__private::deserialize::<#name, D>(deserializer)?;
                ::core::result::Result::Ok(#handle { handle })
            }
        }

        #[allow(dead_code, private_interfaces)]
        impl #handle {
            #(#methods)*
            #with_timeout
        }
    }
}

/// The ways to call a method.
fn calls(index: usize, method: &Method) -> TokenStream {
    let Method { name, visibility, documentation, signature } = method;
    let (names, types, output) = (&signature.names, &signature.types, signature.output());
    let submit = format_ident!("submit_{name}");
    let submits = format!("Have [`{name}`](Self::{name}) run; its value comes with the future.");
    let default = documentation.is_empty().then(|| quote!(#[doc = "Run it there, and wait for its value."]));
    quote! {
        #(#documentation)*
        #default
        #visibility fn #name(&self, #(#names: #types),*) -> ::paceline::Result<#output> {
            ::paceline::ActorHandle::call(&self.handle, #index, &(#(#names,)*))
        }

        #[doc = #submits]
        #visibility fn #submit(&self, #(#names: #types),*) -> ::paceline::Future<#output> {
            ::paceline::ActorHandle::submit(&self.handle, #index, &(#(#names,)*))
        }
    }
}

fn implementation(options: &ActorOptions, class: &Class, known_as: &TokenStream) -> TokenStream {
    let (name, handle) = (&class.name, format_ident!("{}Handle", class.name));
    let (visibility, signature) = (&class.constructor.visibility, &class.constructor.signature);
    let (names, types) = (&signature.names, &signature.types);
    let cluster = match names.iter().any(|name| name == "cluster") {
        true => format_ident!("the_cluster"),
        false => format_ident!("cluster"),
    };
    let new = function_name(known_as, "new");
    let methods = class.methods.iter().map(|method| function_name(known_as, &method.name.to_string()));
    let (saves, changes) = (class.saved_as(known_as), options.changes());
    quote! {
        impl ::paceline::Actor for #name {
            const NAME: &'static str = #known_as;
            type Arguments = (#(#types,)*);
            type Handle = #handle;
            const CLASS: &'static ::paceline::__private::Class = &::paceline::__private::Class {
                name: #known_as,
                new: #new,
                methods: &[#(#methods),*],
                saves: #saves,
            };

            fn options() -> ::paceline::ActorBuilder<Self> {
                ::paceline::ActorBuilder::new() #changes
            }
        }

        #[allow(dead_code)]
        impl #name {
            /// Build an object in a slot of its own. Waits for `new`, and fails as that fails.
            #visibility fn spawn(
                #cluster: &::paceline::Cluster, #(#names: #types),*
            ) -> ::paceline::Result<#handle> {
                <#name as ::paceline::Actor>::options().spawn(#cluster, (#(#names,)*))
            }

            /// How an object is to be, if not as the attribute says.
            #visibility fn options() -> ::paceline::ActorBuilder<#name> {
                <#name as ::paceline::Actor>::options()
            }
        }
    }
}
