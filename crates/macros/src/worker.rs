//! The code that stands beside the block of a worker's type.

use crate::class::{Class, Method, function_name};
use crate::options::WorkerOptions;
use crate::signature::refuse;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ItemImpl;
use syn::spanned::Spanned;

pub fn expand(options: &WorkerOptions, block: ItemImpl) -> syn::Result<TokenStream> {
    let class = Class::of(block, |name| name == "run" || name == "update")?;
    let method = |name: &str| class.methods.iter().find(|method| method.name == name);
    let Some(run) = method("run") else {
        return refuse(class.block.self_ty.span(), "jobs call a method run, which must be in this block");
    };
    let update = method("update");
    let known_as = class.known_as(options.name.as_ref());
    let block = &class.block;
    let implementation = implementation(options, &class, &known_as, run, update);
    let construct = class.construct(&known_as);
    let calls = [Some(run), update].into_iter().flatten().map(|method| class.call(&known_as, method));
    let save = class.save(&known_as, true);
    Ok(quote! {
        #block
        #implementation
        #construct
        #(#calls)*
        #save
    })
}

/// What the caller of a method gives, the tuple that travels, and how the one becomes the other. One argument needs no
/// tuple around it.
fn packed(method: &Method) -> (TokenStream, TokenStream, TokenStream) {
    match method.signature.types.as_slice() {
        [only] => (quote!(#only), quote!((#only,)), quote!((it,))),
        types => (quote!((#(#types),*)), quote!((#(#types),*)), quote!(it)),
    }
}

fn implementation(
    options: &WorkerOptions,
    class: &Class,
    known_as: &TokenStream,
    run: &Method,
    update: Option<&Method>,
) -> TokenStream {
    let name = &class.name;
    let (visibility, signature) = (&class.constructor.visibility, &class.constructor.signature);
    let (names, types) = (&signature.names, &signature.types);
    let cluster = match names.iter().any(|name| name == "cluster") {
        true => format_ident!("the_cluster"),
        false => format_ident!("cluster"),
    };
    let new = function_name(known_as, "new");
    let methods = [Some(run), update].into_iter().flatten();
    let methods = methods.map(|method| function_name(known_as, &method.name.to_string()));
    let (saves, changes) = (class.saved_as(known_as), options.changes());
    let output = run.signature.output();
    let (job, job_arguments, pack_job) = packed(run);
    let (change, change_arguments, pack_change) = match update {
        Some(update) => packed(update),
        None => (quote!(::paceline::NoUpdate), quote!((::paceline::NoUpdate,)), quote!((it,))),
    };
    quote! {
        impl ::paceline::Worker for #name {
            const NAME: &'static str = #known_as;
            type Arguments = (#(#types,)*);
            type Job = #job;
            type Output = #output;
            type Update = #change;
            type JobArguments = #job_arguments;
            type UpdateArguments = #change_arguments;
            const CLASS: &'static ::paceline::__private::Class = &::paceline::__private::Class {
                name: #known_as,
                new: #new,
                methods: &[#(#methods),*],
                saves: #saves,
            };

            fn job(it: Self::Job) -> Self::JobArguments {
                #pack_job
            }

            fn update(it: Self::Update) -> Self::UpdateArguments {
                #pack_change
            }

            fn options() -> ::paceline::WorkerBuilder<Self> {
                ::paceline::WorkerBuilder::new() #changes
            }
        }

        #[allow(dead_code)]
        impl #name {
            /// Open a pool whose slots each build an object with these arguments, as many as the cluster has room for.
            #visibility fn spawn(
                #cluster: &::paceline::Cluster, #(#names: #types),*
            ) -> ::paceline::Result<::paceline::WorkerPool<#name>> {
                <#name as ::paceline::Worker>::options().spawn(#cluster, (#(#names,)*))
            }

            /// How a pool is to be, if not as the attribute says.
            #visibility fn options() -> ::paceline::WorkerBuilder<#name> {
                <#name as ::paceline::Worker>::options()
            }
        }
    }
}
