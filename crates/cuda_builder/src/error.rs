#![allow(missing_docs)] // the messages tell

use std::{io, path::PathBuf};

use crate::{metadata::MetadataError, toolchain::NoToolchain};

/// Why a device crate was not compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    #[error(transparent)]
    Toolchain(#[from] NoToolchain),
    #[error("{path}: {problem}", path = path.display())]
    Crate { path: PathBuf, problem: CrateProblem },
    #[error("`{program}` does not start: {source}", program = program.display())]
    Start { program: PathBuf, source: io::Error },
    /// The messages are the compiler's own, in full.
    #[error("{crate_name} does not compile for {arch}:\n{messages}")]
    Compile { crate_name: String, arch: &'static str, messages: String },
    #[error("{crate_name} compiled, but left no PTX at {path}", path = path.display())]
    NoPtx { crate_name: String, path: PathBuf },
    #[error("{crate_name} for {arch}: {source}")]
    Metadata { crate_name: String, arch: &'static str, source: MetadataError },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Why a folder cannot be built as a device crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrateProblem {
    #[error("has no Cargo.toml")]
    NoManifest,
    #[error("cargo cannot read it:\n{0}")]
    Unreadable(String),
    #[error("has no library target")]
    NoLibrary,
    #[error("has no feature `{0}`")]
    NoFeature(String),
}

pub(crate) fn io_error(path: &std::path::Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    |source| BuildError::Io { path, source }
}
