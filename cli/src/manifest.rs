//! What `cargo xtask build-ptx` noted about the PTX in this program.

use std::collections::BTreeMap;

use cuda_builder::LaunchBounds;
use serde::{Deserialize, Serialize};

use crate::error::CliError;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub families: BTreeMap<String, Family>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Family {
    pub sources: String,
    pub rustc: String,
    pub llvm: String,
    #[serde(default)]
    pub ptxas: Option<String>,
    pub files: BTreeMap<String, File>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    pub arch: String,
    pub bytes: usize,
    pub kernels: Vec<Kernel>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    pub name: String,
    pub bounds: LaunchBounds,
    pub static_shared_bytes: u32,
    pub dynamic_shared: bool,
    /// Absent where there was no `ptxas`.
    #[serde(default)]
    pub assembled: Option<Assembled>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assembled {
    pub registers: u32,
    pub spill_bytes: u32,
    pub stack_bytes: u32,
    pub shared_bytes: u32,
}

impl Manifest {
    /// Of the PTX in this program.
    pub fn embedded() -> Result<Manifest, CliError> {
        Manifest::parse(warpwright::manifest())
    }

    pub fn parse(text: &str) -> Result<Manifest, CliError> {
        serde_json::from_str(text).map_err(|source| CliError::Manifest { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_manifest_has_each_family_of_the_library() {
        let manifest = Manifest::embedded().unwrap();
        for family in warpwright::families() {
            let files = &manifest.families[family.name].files;
            assert_eq!(files.len(), family.archs().len(), "{}", family.name);
            assert!(files.values().all(|file| !file.kernels.is_empty()), "{}", family.name);
        }
    }
}
