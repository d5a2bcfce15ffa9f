//! `host/ptx/manifest.json`: what the committed PTX was built from, and what it came to.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use cuda_builder::{Expectation, KernelFacts, LaunchBounds, ptxas};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    pub families: BTreeMap<String, FamilyEntry>,
}

/// One family, built at one time with one compiler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyEntry {
    /// SHA-256 of what determines the PTX: see `sources`.
    pub sources: String,
    pub rustc: String,
    pub llvm: String,
    /// The `ptxas` that the figures of `assembled` come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptxas: Option<String>,
    pub files: BTreeMap<String, FileEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileEntry {
    pub arch: String,
    pub sha256: String,
    pub bytes: usize,
    pub kernels: Vec<KernelEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelEntry {
    pub name: String,
    pub bounds: LaunchBounds,
    pub param_bytes: u32,
    pub static_shared_bytes: u32,
    pub dynamic_shared: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expects: Vec<Expectation>,
    /// What `ptxas` made of it for the file's architecture, where there was a `ptxas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assembled: Option<AssembledEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssembledEntry {
    pub registers: u32,
    pub spill_bytes: u32,
    pub stack_bytes: u32,
    pub shared_bytes: u32,
}

impl KernelEntry {
    pub fn new(facts: &KernelFacts, report: Option<&ptxas::Report>) -> KernelEntry {
        let assembled =
            report.and_then(|report| report.kernels.iter().find(|kernel| kernel.name == facts.name));
        KernelEntry {
            name: facts.name.clone(),
            bounds: facts.bounds,
            param_bytes: facts.param_bytes,
            static_shared_bytes: facts.static_shared_bytes,
            dynamic_shared: facts.dynamic_shared,
            expects: facts.expects.clone(),
            assembled: assembled.map(|kernel| AssembledEntry {
                registers: kernel.registers,
                spill_bytes: kernel.spill_store_bytes + kernel.spill_load_bytes,
                stack_bytes: kernel.stack_bytes,
                shared_bytes: kernel.shared_bytes,
            }),
        }
    }
}

impl Default for Manifest {
    fn default() -> Manifest {
        Manifest { format: FORMAT, families: BTreeMap::new() }
    }
}

impl Manifest {
    /// The folder of the committed PTX.
    pub fn folder(root: &Path) -> PathBuf {
        root.join("host/ptx")
    }

    fn path(root: &Path) -> PathBuf {
        Manifest::folder(root).join("manifest.json")
    }

    /// The manifest to build upon: an empty one where there is none that can be read, so that everything
    /// is built anew.
    pub fn load_or_new(root: &Path) -> Manifest {
        if !Manifest::path(root).exists() {
            return Manifest::default();
        }
        Manifest::load(root).unwrap_or_else(|error| {
            eprintln!("starting afresh: {error:#}");
            Manifest::default()
        })
    }

    pub fn load(root: &Path) -> Result<Manifest> {
        let path = Manifest::path(root);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{} cannot be read: run `cargo xtask build-ptx`", path.display()))?;
        let manifest: Manifest =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
        let format = manifest.format;
        ensure!(format == FORMAT, "{} has format {format}, this tool knows {FORMAT}", path.display());
        Ok(manifest)
    }

    pub fn save(&self, root: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).context("the manifest does not serialize")?;
        text.push('\n');
        let path = Manifest::path(root);
        fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a String does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let kernel = KernelEntry {
            name: "k".into(),
            bounds: LaunchBounds { maxnreg: Some(64), ..LaunchBounds::default() },
            param_bytes: 12,
            static_shared_bytes: 0,
            dynamic_shared: false,
            expects: vec![],
            assembled: None,
        };
        let file = FileEntry { arch: "sm_80".into(), sha256: sha256(b""), bytes: 0, kernels: vec![kernel] };
        let family = FamilyEntry {
            sources: sha256(b"abc"),
            rustc: "rustc 1.96.0".into(),
            llvm: "22.1.8".into(),
            ptxas: None,
            files: [("f.ptx".to_owned(), file)].into(),
        };
        Manifest { families: [("f".to_owned(), family)].into(), ..Manifest::default() }
    }

    #[test]
    fn a_manifest_survives_being_saved() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(Manifest::folder(dir.path())).unwrap();
        assert_eq!(Manifest::load_or_new(dir.path()), Manifest::default());
        sample().save(dir.path()).unwrap();
        assert_eq!(Manifest::load(dir.path()).unwrap(), sample());
    }

    #[test]
    fn a_missing_or_foreign_manifest_is_reported_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let missing = format!("{:#}", Manifest::load(dir.path()).unwrap_err());
        assert!(missing.contains("manifest.json cannot be read: run `cargo xtask build-ptx`"), "{missing}");
        fs::create_dir_all(Manifest::folder(dir.path())).unwrap();
        fs::write(Manifest::path(dir.path()), r#"{"format": 9, "families": {}}"#).unwrap();
        let foreign = format!("{:#}", Manifest::load(dir.path()).unwrap_err());
        assert!(foreign.ends_with("has format 9, this tool knows 1"), "{foreign}");
        assert_eq!(Manifest::load_or_new(dir.path()), Manifest::default());
    }

    #[test]
    fn hashes_are_hexadecimal_sha256() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
