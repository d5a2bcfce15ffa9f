//! The attribute's arguments.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitInt, LitStr, Result, Token, Type, braced, bracketed};

/// What stands in `#[kernel(…)]`.
pub struct KernelAttribute {
    pub family: LitStr,
    pub types: Vec<Type>,
    pub instances: Vec<Instance>,
    pub requires_sm_90a: bool,
}

/// One choice of the const parameters, and the launch bounds that go with it.
pub struct Instance {
    pub consts: Vec<(Ident, usize)>,
    pub threads: u32,
    pub min_blocks: u32,
}

impl Parse for KernelAttribute {
    fn parse(input: ParseStream) -> Result<Self> {
        let (mut family, mut types, mut instances, mut requires_sm_90a) =
            (None, Vec::new(), Vec::new(), false);
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            match key.to_string().as_str() {
                "family" => family = Some(input.parse()?),
                "types" => {
                    let list;
                    bracketed!(list in input);
                    types = Punctuated::<Type, Token![,]>::parse_terminated(&list)?.into_iter().collect();
                }
                "instances" => {
                    let list;
                    bracketed!(list in input);
                    instances =
                        Punctuated::<Instance, Token![,]>::parse_terminated(&list)?.into_iter().collect();
                }
                "requires" => {
                    let arch: LitStr = input.parse()?;
                    if arch.value() != "sm_90a" {
                        return Err(Error::new(arch.span(), "`requires` must be \"sm_90a\""));
                    }
                    requires_sm_90a = true;
                }
                _ => {
                    return Err(Error::new(key.span(), "must be one of family, types, instances, requires"));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let family = family.ok_or_else(|| input.error("`family = \"…\"` is required"))?;
        if instances.is_empty() {
            return Err(input.error("`instances` needs at least one"));
        }
        Ok(KernelAttribute { family, types, instances, requires_sm_90a })
    }
}

impl Parse for Instance {
    fn parse(input: ParseStream) -> Result<Self> {
        let body;
        braced!(body in input);
        let (mut consts, mut threads, mut min_blocks) = (Vec::new(), None, 0);
        let mut bounds = false;
        while !body.is_empty() {
            if body.peek(Token![;]) {
                body.parse::<Token![;]>()?;
                bounds = true;
                continue;
            }
            let key: Ident = body.parse()?;
            body.parse::<Token![:]>()?;
            let value: LitInt = body.parse()?;
            match (bounds, key.to_string().as_str()) {
                (false, _) => consts.push((key, value.base10_parse()?)),
                (true, "threads") => threads = Some(value.base10_parse()?),
                (true, "min_blocks") => min_blocks = value.base10_parse()?,
                _ => return Err(Error::new(key.span(), "must be `threads` or `min_blocks` after the `;`")),
            }
            if body.peek(Token![,]) {
                body.parse::<Token![,]>()?;
            }
        }
        let threads: u32 = threads.ok_or_else(|| body.error("an instance needs `; threads: N`"))?;
        if threads == 0 || threads > 1024 {
            return Err(body.error("`threads` must be in 1..=1024"));
        }
        Ok(Instance { consts, threads, min_blocks })
    }
}
