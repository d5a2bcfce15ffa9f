//! Compiles a device crate to PTX, with the builder API of Rust-CUDA's `cuda_builder` and a released
//! rustc instead of a forked code generator.
//!
//! ```no_run
//! use cuda_builder::{Arch, CudaBuilder};
//!
//! # fn main() -> Result<(), cuda_builder::BuildError> {
//! let built = CudaBuilder::new("kernels-gpu")
//!     .arch(Arch::Sm90a)
//!     .no_default_features(true)
//!     .features(["masked_softmax"])
//!     .copy_to("masked_softmax.ptx")
//!     .build()?;
//! for kernel in &built.kernels {
//!     println!("{}: {} bytes of parameters", kernel.name, kernel.param_bytes);
//! }
//! # Ok(()) }
//! ```
//!
//! What it does: finds a rustc that has the source of its `core` ([`discover_toolchain`]), compiles the
//! crate and `core` for `nvptx64-nvidia-cuda` into one module, takes the kernels' metadata out of it,
//! writes their launch bounds in ([`metadata`]), removes comments and numbers registers and labels by appearance.
//!
//! The same sources, compiler and cargo give the same bytes wherever they lie: paths are mapped away,
//! panic locations are left out, and LLVM's names of private constants are numbered.
//!
//! Of Rust-CUDA's options, these have no counterpart here: `nvvm_opts` (no NVVM; see
//! [`CudaBuilder::llvm_arg`]), `override_libm` (no libdevice), `optix`, and `ftz`, because rustc offers
//! no way to set the function attribute that LLVM decides it by: kernels ask for flushing instructions
//! by name.

#![deny(missing_docs)]

mod arch;
mod compile;
mod error;
pub mod metadata;
pub mod ptx;
pub mod ptxas;
mod tidy;
pub mod toolchain;

use std::path::{Path, PathBuf};

pub use arch::{Arch, UnknownArch};
pub use error::{BuildError, CrateProblem};
pub use metadata::{Dim3, Expectation, KernelFacts, LaunchBounds};
pub use ptxas::{Ptxas, find_cuda_tool, find_ptxas};
pub use toolchain::{NoToolchain, Toolchain, discover_toolchain, discover_toolchain_in};

/// Changes whenever the builder would make other PTX of the same sources: part of what a cache of
/// built PTX is keyed by.
pub const OUTPUT_VERSION: u32 = 4;

/// What to write beside the PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// Only the PTX, which is always written.
    Ptx,
    /// Also the optimised LLVM IR of the whole program: [`Built::llvm_ir`].
    LlvmIr,
}

/// How to compile a device crate. Every method returns the builder; [`build`](CudaBuilder::build) runs.
#[derive(Clone, Debug)]
pub struct CudaBuilder {
    path: PathBuf,
    arch: Arch,
    ptx_isa: Option<u32>,
    release: bool,
    features: Vec<String>,
    no_default_features: bool,
    copy_to: Option<PathBuf>,
    emit: Emit,
    line_info: bool,
    llvm_args: Vec<String>,
    toolchain: Option<Toolchain>,
    target_dir: Option<PathBuf>,
}

/// A compiled device crate.
#[derive(Clone, Debug)]
pub struct Built {
    /// The PTX file: the one asked for with [`CudaBuilder::copy_to`], else one in the target folder.
    pub ptx: PathBuf,
    /// Its text.
    pub text: String,
    /// What it was compiled for.
    pub arch: Arch,
    /// What compiled it.
    pub toolchain: Toolchain,
    /// What is known of each kernel, in the order of the text.
    pub kernels: Vec<KernelFacts>,
    /// Functions left beside the kernels. A module fit to ship has none: what is here was not inlined,
    /// or is a reachable panic.
    pub functions: Vec<String>,
    /// With [`Emit::LlvmIr`].
    pub llvm_ir: Option<PathBuf>,
    /// Warnings of the compiler.
    pub warnings: String,
}

impl CudaBuilder {
    /// A builder for the crate in a folder: release profile, default features, `sm_80`.
    pub fn new(path_to_crate: impl AsRef<Path>) -> CudaBuilder {
        CudaBuilder {
            path: path_to_crate.as_ref().to_owned(),
            arch: Arch::Sm80,
            ptx_isa: None,
            release: true,
            features: Vec::new(),
            no_default_features: false,
            copy_to: None,
            emit: Emit::Ptx,
            line_info: false,
            llvm_args: Vec::new(),
            toolchain: None,
            target_dir: None,
        }
    }

    /// The architecture: `-Ctarget-cpu`. The crate's feature of that name is switched on with an
    /// architecture such as `sm_90a`, where the crate has it.
    pub fn arch(mut self, arch: Arch) -> Self {
        self.arch = arch;
        self
    }

    /// The PTX version, 86 for 8.6: `-Ctarget-feature=+ptx86`. A driver refuses PTX newer than itself.
    /// Default: [`Arch::default_ptx_isa`].
    pub fn ptx_isa(mut self, version: u32) -> Self {
        self.ptx_isa = Some(version);
        self
    }

    /// The release profile (the default) or the dev profile, whose overflow checks and debug assertions
    /// end in calls to panics and so in modules not fit to ship.
    pub fn release(mut self, release: bool) -> Self {
        self.release = release;
        self
    }

    /// Crate features to switch on; adds up over calls.
    pub fn features<S: Into<String>>(mut self, features: impl IntoIterator<Item = S>) -> Self {
        self.features.extend(features.into_iter().map(Into::into));
        self
    }

    /// Leaves the crate's default features out.
    pub fn no_default_features(mut self, yes: bool) -> Self {
        self.no_default_features = yes;
        self
    }

    /// Where to write the PTX; folders are created.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_owned());
        self
    }

    /// What to write beside the PTX.
    pub fn emit(mut self, emit: Emit) -> Self {
        self.emit = emit;
        self
    }

    /// Rust-CUDA's spelling of [`emit(Emit::LlvmIr)`](CudaBuilder::emit).
    pub fn emit_llvm_ir(self, yes: bool) -> Self {
        self.emit(if yes { Emit::LlvmIr } else { Emit::Ptx })
    }

    /// Source lines in the PTX, for profilers: `.loc` directives with paths from the workspace's root.
    /// Off by default. Instructions stay the same.
    pub fn generate_line_info(mut self, yes: bool) -> Self {
        self.line_info = yes;
        self
    }

    /// Whether LLVM may fuse every `a * b + c` of the module into `fma` (`-nvptx-fma-level`). Without
    /// this call it does not: kernels ask for `fma` where they mean it.
    pub fn fma_contraction(self, yes: bool) -> Self {
        self.llvm_arg(if yes { "-nvptx-fma-level=1" } else { "-nvptx-fma-level=0" })
    }

    /// Whether every `f32` division of the module is `div.approx` (2 ulp, no subnormal quotients) in place
    /// of `div.rn` (`-nvptx-prec-divf32`).
    pub fn fast_div(self, yes: bool) -> Self {
        self.llvm_arg(if yes { "-nvptx-prec-divf32=0" } else { "-nvptx-prec-divf32=2" })
    }

    /// Whether every `f32` square root of the module is `sqrt.approx` in place of `sqrt.rn`
    /// (`-nvptx-prec-sqrtf32`).
    pub fn fast_sqrt(self, yes: bool) -> Self {
        self.llvm_arg(if yes { "-nvptx-prec-sqrtf32=0" } else { "-nvptx-prec-sqrtf32=1" })
    }

    /// An argument for LLVM, with its dash: `-unroll-threshold=2000`. Adds up over calls.
    pub fn llvm_arg(mut self, argument: impl Into<String>) -> Self {
        self.llvm_args.push(argument.into());
        self
    }

    /// The toolchain to use, whatever [`discover_toolchain`] would find.
    pub fn toolchain(mut self, toolchain: Toolchain) -> Self {
        self.toolchain = Some(toolchain);
        self
    }

    /// The folder for intermediate files, with a folder inside for each architecture. Default:
    /// `cuda_builder/` in cargo's target folder. Builds for one architecture wait for one another.
    pub fn target_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.target_dir = Some(path.as_ref().to_owned());
        self
    }

    /// One line that tells apart builders that may make different PTX of the same sources.
    pub fn fingerprint(&self) -> String {
        let mut features = self.features.clone();
        features.sort();
        format!(
            "output={OUTPUT_VERSION} arch={} ptx={} release={} default-features={} features={} line-info={} llvm={}",
            self.arch,
            self.isa(),
            self.release,
            !self.no_default_features,
            features.join(","),
            self.line_info,
            self.llvm_args.join(","),
        )
    }

    /// Compiles.
    pub fn build(&self) -> Result<Built, BuildError> {
        compile::run(self)
    }
}
