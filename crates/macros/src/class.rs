//! An `impl` block whose type lives in slots: its constructor, its methods, and those that save and restore it.

use crate::signature::{Signature, refuse};
use proc_macro2::{Group, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{
    Attribute, Ident, ImplItem, ImplItemFn, ItemImpl, LitStr, ReceiverKind, Type, Visibility, parse_quote,
};

pub struct Class {
    /// The block, without the marks that are only meant for us.
    pub block: ItemImpl,
    pub name: Ident,
    pub constructor: Method,
    /// What takes `&self` or `&mut self`, apart from those below.
    pub methods: Vec<Method>,
    /// Marked with `#[checkpoint]` and `#[restore]`.
    pub saves: Option<(Method, Method)>,
}

pub struct Method {
    pub name: Ident,
    pub visibility: Visibility,
    pub documentation: Vec<Attribute>,
    pub signature: Signature,
}

impl Class {
    /// `wanted` says which methods count.
    pub fn of(mut block: ItemImpl, wanted: impl Fn(&Ident) -> bool) -> syn::Result<Class> {
        let name = type_name(&block)?;
        let (mut constructor, mut methods) = (None, Vec::new());
        let (mut checkpoint, mut restore) = (None, None);
        for item in &mut block.items {
            let ImplItem::Fn(function) = item else { continue };
            let (saves, restores) = (take(function, "checkpoint"), take(function, "restore"));
            match function.sig.receiver() {
                None if function.sig.ident == "new" => {
                    constructor = Some(Method::of(function, &name, "new")?);
                }
                None => {
                    if saves || restores {
                        return refuse(function.sig.span(), "this takes &self, or &mut self");
                    }
                }
                Some(_) if saves => {
                    let method = Method::of(function, &name, "what gives the checkpoint")?;
                    if !method.signature.types.is_empty() {
                        return refuse(function.sig.span(), "a checkpoint is asked for without arguments");
                    }
                    set(&mut checkpoint, function, method)?;
                }
                Some(_) if restores => {
                    let method = Method::of(function, &name, "what takes the checkpoint")?;
                    if method.signature.types.len() != 1 {
                        return refuse(function.sig.span(), "this takes what #[checkpoint] has returned");
                    }
                    set(&mut restore, function, method)?;
                }
                Some(receiver) if wanted(&function.sig.ident) => {
                    if !matches!(receiver.kind, ReceiverKind::Reference(..)) {
                        return refuse(
                            receiver.span(),
                            "the object stays in its slot: take &self, or &mut self",
                        );
                    }
                    methods.push(Method::of(function, &name, "a method")?);
                }
                Some(_) => {}
            }
        }
        let Some(constructor) = constructor else {
            return refuse(
                block.self_ty.span(),
                "slots build objects with a function new(...) -> Self, which must be in this block",
            );
        };
        let saves = match (checkpoint, restore) {
            (Some(checkpoint), Some(restore)) => Some((checkpoint, restore)),
            (None, None) => None,
            _ => return refuse(block.self_ty.span(), "#[checkpoint] and #[restore] come together"),
        };
        Ok(Class { block, name, constructor, methods, saves })
    }

    /// What slots know the type by, as an expression.
    pub fn known_as(&self, name: Option<&LitStr>) -> TokenStream {
        match name {
            Some(name) => quote!(#name),
            None => {
                let own = self.name.to_string();
                quote!(::core::concat!(::core::module_path!(), "::", #own))
            }
        }
    }

    /// The entry by which slots build an object.
    pub fn construct(&self, known_as: &TokenStream) -> TokenStream {
        let (name, Signature { names, types, fallible, .. }) = (&self.name, &self.constructor.signature);
        let texts = names.iter().map(ToString::to_string);
        let object = match fallible {
            true => quote!(::paceline::__private::Fallible::split(<#name>::new(#(#names),*))?),
            false => quote!(<#name>::new(#(#names),*)),
        };
        entry(
            &function_name(known_as, "new"),
            &quote! {
                let (#(#names,)*) = ::paceline::__private::arguments::<(#(#types,)*)>(arguments, &[#(#texts),*])?;
                let object: #name = #object;
                ::paceline::__private::construct(object);
                ::paceline::__private::value(&())
            },
        )
    }

    /// The entry by which slots call a method.
    pub fn call(&self, known_as: &TokenStream, method: &Method) -> TokenStream {
        let (name, called) = (&self.name, &method.name);
        let Signature { names, types, fallible, .. } = &method.signature;
        let texts = names.iter().map(ToString::to_string);
        let output = method.signature.output();
        let value = quote!(::paceline::__private::with::<#name, _>(|object| object.#called(#(#names),*))?);
        let value = match fallible {
            true => quote!(::paceline::__private::Fallible::split(#value)?),
            false => value,
        };
        entry(
            &function_name(known_as, &called.to_string()),
            &quote! {
                let (#(#names,)*) = ::paceline::__private::arguments::<(#(#types,)*)>(arguments, &[#(#texts),*])?;
                ::paceline::__private::value::<#output>(&#value)
            },
        )
    }

    /// The entries by which slots save an object and restore it; `always`, or only one that was just built.
    pub fn save(&self, known_as: &TokenStream, always: bool) -> TokenStream {
        let Some((checkpoint, restore)) = &self.saves else { return TokenStream::new() };
        let (name, saves, restores) = (&self.name, &checkpoint.name, &restore.name);
        let state = &restore.signature.types[0];
        let given = quote!(::paceline::__private::checkpoint::<#name, _>(|object| object.#saves())?);
        let given = match checkpoint.signature.fallible {
            true => quote!(::paceline::__private::Fallible::split(#given)?),
            false => given,
        };
        let taken = match restore.signature.fallible {
            true => {
                quote!(::paceline::__private::Fallible::split(object.#restores(state)).map(::core::mem::drop))
            }
            false => quote!({ object.#restores(state); ::core::result::Result::Ok(()) }),
        };
        let save = entry(
            &function_name(known_as, &saves.to_string()),
            &quote! {
                // Of the type that is put back, or one that cannot be would show only after a death.
                let state: #state = #given;
                let _ = arguments;
                ::paceline::__private::value(&state)
            },
        );
        let restore = entry(
            &function_name(known_as, &restores.to_string()),
            &quote! {
                let (state,) = ::paceline::__private::arguments::<(#state,)>(arguments, &["state"])?;
                ::paceline::__private::restore::<#name>(#always, |object| #taken)
            },
        );
        quote!(#save #restore)
    }

    /// The names of both, as an expression.
    pub fn saved_as(&self, known_as: &TokenStream) -> TokenStream {
        match &self.saves {
            None => quote!(::core::option::Option::None),
            Some((checkpoint, restore)) => {
                let save = function_name(known_as, &checkpoint.name.to_string());
                let restore = function_name(known_as, &restore.name.to_string());
                quote!(::core::option::Option::Some((#save, #restore)))
            }
        }
    }
}

impl Method {
    fn of(function: &ImplItemFn, class: &Ident, what: &str) -> syn::Result<Method> {
        let mut signature = Signature::of(&function.sig, what)?;
        for named in signature.types.iter_mut().chain([&mut signature.returns]) {
            *named = without_self(named, class)?;
        }
        Ok(Method {
            name: function.sig.ident.clone(),
            visibility: function.vis.clone(),
            documentation: function.attrs.iter().filter(|it| it.path().is_ident("doc")).cloned().collect(),
            signature,
        })
    }
}

/// What slots know a function of the type by.
pub fn function_name(known_as: &TokenStream, function: &str) -> TokenStream {
    quote!(::core::concat!(#known_as, "::", #function))
}

/// Something that slots find by its name.
fn entry(name: &TokenStream, body: &TokenStream) -> TokenStream {
    quote! {
        const _: () = {
            fn run(
                arguments: &[u8],
            ) -> ::core::result::Result<::paceline::Bytes, ::paceline::__private::Failure> {
                #body
            }
            ::paceline::__private::inventory::submit! {
                ::paceline::__private::Entry::of_object(#name, run)
            }
        };
    }
}

/// The type that the block is of.
fn type_name(block: &ItemImpl) -> syn::Result<Ident> {
    if let Some((of, _)) = &block.trait_ {
        return refuse(of.span(), "this is for the type's own block, `impl Type { ... }`");
    }
    if !block.generics.params.is_empty() {
        return refuse(block.generics.span(), "the type cannot be generic: slots find it by its name alone");
    }
    match &*block.self_ty {
        Type::Path(path) if path.qself.is_none() && path.path.get_ident().is_some() => {
            Ok(path.path.get_ident().expect("seen just now").clone())
        }
        other => refuse(other.span(), "the type is called by its plain name here, and has no parameters"),
    }
}

/// Whether the function has this mark, which goes.
fn take(function: &mut ImplItemFn, mark: &str) -> bool {
    let before = function.attrs.len();
    function.attrs.retain(|attribute| !attribute.path().is_ident(mark));
    function.attrs.len() < before
}

fn set(place: &mut Option<Method>, function: &ImplItemFn, method: Method) -> syn::Result<()> {
    match place.replace(method) {
        None => Ok(()),
        Some(_) => refuse(function.sig.span(), "there is one already"),
    }
}

/// The type as others say it, who mean something else by `Self`.
fn without_self(named: &Type, class: &Ident) -> syn::Result<Type> {
    fn replaced(tokens: TokenStream, class: &Ident) -> TokenStream {
        let replace = |tree| match tree {
            TokenTree::Ident(word) if word == "Self" => class.to_token_stream(),
            TokenTree::Group(group) => {
                let inner = Group::new(group.delimiter(), replaced(group.stream(), class));
                TokenTree::Group(inner).into()
            }
            other => other.into(),
        };
        tokens.into_iter().flat_map(replace).collect()
    }
    let tokens = replaced(named.to_token_stream(), class);
    Ok(parse_quote!(#tokens))
}
