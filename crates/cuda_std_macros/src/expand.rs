//! The entries for the GPU and the handles for the host.

use crate::attribute::{Instance, KernelAttribute};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::{Error, FnArg, GenericParam, ItemFn, Pat, Result, Type};

/// The parts of a kernel function that the expansion needs.
struct Kernel<'a> {
    attribute: &'a KernelAttribute,
    function: &'a ItemFn,
    /// The one type parameter, if any.
    parameter: Option<&'a Ident>,
    arguments: Vec<&'a Ident>,
    types: Vec<&'a Type>,
}

pub fn expand(attribute: &KernelAttribute, function: &ItemFn) -> Result<TokenStream> {
    let kernel = Kernel::new(attribute, function)?;
    let entries = kernel.each_instance(Kernel::entry);
    let handles = kernel.handles();
    Ok(quote! {
        #[inline(always)]
        #function
        #(#entries)*
        #handles
    })
}

impl<'a> Kernel<'a> {
    fn new(attribute: &'a KernelAttribute, function: &'a ItemFn) -> Result<Self> {
        let name = &function.sig.ident;
        if function.sig.unsafety.is_none() {
            return Err(Error::new_spanned(&function.sig, "a kernel must be an `unsafe fn`"));
        }
        let mut parameters = function.sig.generics.params.iter().filter_map(|parameter| match parameter {
            GenericParam::Type(ty) => Some(&ty.ident),
            _ => None,
        });
        let parameter = parameters.next();
        if parameters.next().is_some() {
            return Err(Error::new_spanned(name, "a kernel may have one type parameter"));
        }
        if parameter.is_some() == attribute.types.is_empty() {
            return Err(Error::new_spanned(name, "`types` and the function's type parameter go together"));
        }
        let consts: Vec<String> =
            function.sig.generics.const_params().map(|parameter| parameter.ident.to_string()).collect();
        for instance in &attribute.instances {
            let given: Vec<String> = instance.consts.iter().map(|(key, _)| key.to_string()).collect();
            if given != consts {
                let message = format!("each instance must give {consts:?} in this order, got {given:?}");
                return Err(Error::new_spanned(name, message));
            }
        }
        let (mut arguments, mut types): (Vec<&Ident>, Vec<&Type>) = (Vec::new(), Vec::new());
        for input in &function.sig.inputs {
            match input {
                FnArg::Typed(argument) => match &*argument.pat {
                    Pat::Ident(pattern) => {
                        arguments.push(&pattern.ident);
                        types.push(&*argument.ty);
                    }
                    other => {
                        return Err(Error::new_spanned(other, "a kernel's parameters must be plain names"));
                    }
                },
                FnArg::Receiver(receiver) => {
                    return Err(Error::new_spanned(receiver, "a kernel cannot be a method"));
                }
            }
        }
        let maps = types.iter().take_while(|ty| is_tensor_map(ty)).count();
        if let Some(late) = types.iter().skip(maps).find(|ty| is_tensor_map(ty)) {
            return Err(Error::new_spanned(late, "tensor maps must be a kernel's first parameters"));
        }
        Ok(Kernel { attribute, function, parameter, arguments, types })
    }

    /// One item for each type and instance.
    fn each_instance(
        &self,
        item: impl Fn(&Self, Option<&Type>, &Instance) -> TokenStream,
    ) -> Vec<TokenStream> {
        let mut items = Vec::new();
        for ty in self.type_choices() {
            items.extend(self.attribute.instances.iter().map(|instance| item(self, ty, instance)));
        }
        items
    }

    fn type_choices(&self) -> Vec<Option<&Type>> {
        match self.parameter {
            Some(_) => self.attribute.types.iter().map(Some).collect(),
            None => vec![None],
        }
    }

    fn entry_name(&self, ty: Option<&Type>, instance: &Instance) -> String {
        let mut name = format!("{}_{}", self.attribute.family.value(), self.function.sig.ident);
        if let Some(ty) = ty {
            name.push_str(&format!("_{}", quote!(#ty)));
        }
        for (_, value) in &instance.consts {
            name.push_str(&format!("_{value}"));
        }
        name
    }

    /// `::<f32, 8, 1>`, or nothing.
    fn generics(&self, ty: Option<&Type>, instance: &Instance) -> TokenStream {
        let types = ty.into_iter().map(|ty| quote!(#ty));
        let consts = instance.consts.iter().map(|(_, value)| quote!(#value));
        let all: Vec<TokenStream> = types.chain(consts).collect();
        if all.is_empty() { TokenStream::new() } else { quote!(::<#(#all),*>) }
    }

    /// The `extern "ptx-kernel"` function and its launch bounds.
    fn entry(&self, ty: Option<&Type>, instance: &Instance) -> TokenStream {
        let name = self.entry_name(ty, instance);
        let entry = format_ident!("{name}");
        let (function, arguments, types) = (&self.function.sig.ident, &self.arguments, &self.types);
        let generics = self.generics(ty, instance);
        let alias = self.parameter.zip(ty).map(|(parameter, ty)| quote!(type #parameter = #ty;));
        let mut bounds = format!("//@kernel {name} reqntid={}", instance.threads);
        if instance.min_blocks > 0 {
            bounds.push_str(&format!(" minnctapersm={}", instance.min_blocks));
        }
        let family = &self.attribute.family;
        let maps = types.iter().take_while(|ty| is_tensor_map(ty)).count();
        if maps > 0 {
            bounds.push_str(&format!(" tensor_maps={maps}"));
        }
        // A tensor map stays where the driver put it: the entry takes its address.
        let taken = types.iter().map(|ty| match is_tensor_map(ty) {
            true => quote!(::cuda_std::tma::MapBytes),
            false => quote!(#ty),
        });
        let addresses = arguments.iter().enumerate().take(maps).map(|(i, argument)| {
            let text = format!("mov.b64 {{0}}, {name}_param_{i}; cvta.param.u64 {{0}}, {{0}};");
            quote! {
                let #argument = {
                    let address: u64;
                    ::cuda_std::__private::asm!(
                        #text, out(reg64) address, options(pure, nomem, nostack, preserves_flags)
                    );
                    ::cuda_std::tma::TensorMap::at(address)
                };
            }
        });
        let addresses: Vec<TokenStream> = addresses.collect();
        let ignored = arguments.iter().take(maps).map(|argument| quote!(let _ = #argument;));
        let ignored: Vec<TokenStream> = ignored.collect();
        let architecture = self.attribute.requires_sm_90a.then(|| quote!(, feature = "sm_90a"));
        quote! {
            #[cfg(all(target_arch = "nvptx64", feature = #family #architecture))]
            const _: () = {
                #alias
                #[unsafe(no_mangle)]
                unsafe extern "ptx-kernel" fn #entry(#(#arguments: #taken),*) {
                    #(#ignored)*
                    // SAFETY: the launch fulfils the kernel's contract.
                    unsafe {
                        #(#addresses)*
                        #function #generics(#(#arguments),*)
                    }
                }
                // A module, since `global_asm!` must stand where an item can.
                mod bounds {
                    ::cuda_std::__private::global_asm!(#bounds);
                }
            };
        }
    }

    /// The handle of one entry.
    fn handle(&self, ty: Option<&Type>, instance: &Instance) -> TokenStream {
        let name = self.entry_name(ty, instance);
        let (family, function) = (&self.attribute.family, &self.function.sig.ident);
        let generics = self.generics(ty, instance);
        let (threads, min_blocks) = (instance.threads, instance.min_blocks);
        let keys = instance.consts.iter().map(|(key, _)| key.to_string());
        let values = instance.consts.iter().map(|(_, value)| value);
        let fields = (0..self.arguments.len()).map(syn::Index::from);
        let requires_sm_90a = self.attribute.requires_sm_90a;
        quote! {
            Kernel {
                name: #name,
                family: #family,
                bounds: LaunchBounds { threads: #threads, min_blocks: #min_blocks },
                requires_sm_90a: #requires_sm_90a,
                consts: &[#((#keys, #values)),*],
                // SAFETY: the launch fulfils the kernel's contract.
                body: |arguments| unsafe { super::#function #generics(#(arguments.#fields),*) },
            }
        }
    }

    /// The module of handles. They lie in statics, whose bodies are compiled once, in the crate that declares the kernel; those of
    /// constants would be compiled anew in each crate that uses them.
    fn handles(&self) -> TokenStream {
        let (function, types, visibility) = (&self.function.sig.ident, &self.types, &self.function.vis);
        let count = self.attribute.instances.len();
        let doc = format!("Handles of the kernel [`{function}()`](fn@{function}).");
        let body = match self.parameter {
            Some(parameter) => {
                // An alias must use its parameter.
                let generic = types.iter().any(|ty| mentions(quote!(#ty), parameter));
                let (declared, of_self, of_t) = if generic {
                    (quote!(<#parameter>), quote!(<Self>), quote!(<T>))
                } else {
                    Default::default()
                };
                let implementations = self.attribute.types.iter().map(|ty| {
                    let handles =
                        self.attribute.instances.iter().map(|instance| self.handle(Some(ty), instance));
                    let of_ty = if generic { quote!(<#ty>) } else { Default::default() };
                    quote! {
                        const _: () = {
                            static HANDLES: [Kernel<Args #of_ty>; #count] = [#(#handles),*];
                            impl Instances for #ty {
                                const ALL: &'static [Kernel<Args #of_ty>] = &HANDLES;
                            }
                        };
                    }
                });
                quote! {
                    /// The kernel's parameters.
                    pub type Args #declared = (#(#types,)*);
                    /// An element type that the kernel is built for.
                    pub trait Instances: Copy + 'static {
                        /// The handles, in the order of the instances.
                        const ALL: &'static [Kernel<Args #of_self>];
                    }
                    #(#implementations)*
                    /// The handles for one element type, in the order of the instances.
                    pub fn kernels<T: Instances>() -> &'static [Kernel<Args #of_t>] {
                        T::ALL
                    }
                }
            }
            None => {
                let handles = self.attribute.instances.iter().map(|instance| self.handle(None, instance));
                quote! {
                    /// The kernel's parameters.
                    pub type Args = (#(#types,)*);
                    /// The handles, in the order of the instances.
                    pub const ALL: &[Kernel<Args>] = &HANDLES;
                    static HANDLES: [Kernel<Args>; #count] = [#(#handles),*];
                }
            }
        };
        quote! {
            #[cfg(not(target_arch = "nvptx64"))]
            #[doc = #doc]
            #visibility mod #function {
                use super::*;
                use ::cuda_std::kernel::{Kernel, LaunchBounds};
                #body
            }
        }
    }
}

/// Whether a parameter is a tensor map, by its name.
fn is_tensor_map(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "TensorMap"))
}

/// Whether a type names `parameter`.
fn mentions(tokens: TokenStream, parameter: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *parameter,
        TokenTree::Group(group) => mentions(group.stream(), parameter),
        _ => false,
    })
}
