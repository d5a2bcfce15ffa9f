//! `#[kernel]`: entry points on the GPU, typed handles on the host, from one function.

#![deny(missing_docs)]

mod attribute;
mod expand;

use proc_macro::TokenStream;

/// Makes a function a kernel.
///
/// ```text
/// #[kernel(
///     family = "masked_softmax",
///     types = [f32, f16, bf16],
///     instances = [
///         { LANES: 8, PACKS: 1; threads: 128, min_blocks: 8 },
///         { LANES: 32, PACKS: 4; threads: 128, min_blocks: 4 },
///     ],
/// )]
/// pub unsafe fn row<T: Float, const LANES: usize, const PACKS: usize>(x: Global<T>, y: GlobalMut<T>) { … }
/// ```
///
/// `family` names the PTX file, and the crate's feature with which the entries are compiled: families may share the code
/// behind their kernels. `types` instantiates the function's one type parameter, `instances` its
/// const parameters together with the block size and, optionally, how many blocks an SM should hold.
/// A function without const parameters has instances without a part before the `;`.
/// `requires = "sm_90a"` leaves the entries out of PTX for older GPUs.
///
/// On `nvptx64` this emits one `extern "ptx-kernel"` entry for each type and instance, and a comment from
/// which the builder writes `.reqntid` and `.minnctapersm` into it. On the host it emits a module with the
/// function's name that holds `Args`, the tuple of parameter types, and the handles: `ALL`, or for a
/// kernel with a type parameter `kernels::<T>()`, in the order of the instances.
#[proc_macro_attribute]
pub fn kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let attribute = syn::parse_macro_input!(attribute as attribute::KernelAttribute);
    let function = syn::parse_macro_input!(item as syn::ItemFn);
    expand::expand(&attribute, &function).unwrap_or_else(|error| error.into_compile_error()).into()
}
