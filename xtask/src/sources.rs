//! What determines a family's PTX, as one hash: the device crates' files, but for modules of `kernels-gpu` that the family
//! does not switch on, the versions of what they depend on when compiled for the GPU, the release profile of the workspace, and the
//! builder's settings. Not the compiler: the manifest names it, and a newer one here does not make committed PTX stale.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::families::Family;

const TARGET: &str = "nvptx64-nvidia-cuda";

/// The device crates, read.
pub struct Sources {
    /// The part of the hash that all families share.
    shared: Sha256,
    /// Files of `kernels-gpu` that belong to some families, in order.
    optional: Vec<(Module, String, Vec<u8>)>,
}

impl Sources {
    pub fn read(root: &Path) -> Result<Sources> {
        let graph = Graph::read(root)?;
        let kernels = root.join("kernels-gpu/src");
        let lib =
            fs::read_to_string(kernels.join("lib.rs")).context("kernels-gpu/src/lib.rs cannot be read")?;
        let modules = optional_modules(&lib);
        let (mut shared, mut optional) = (Sha256::new(), Vec::new());
        for dir in &graph.folders {
            let mut files = Vec::new();
            list_files(dir, &mut files).with_context(|| format!("{} cannot be listed", dir.display()))?;
            files.sort();
            for path in files {
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                let bytes = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
                match modules.iter().find(|module| module.has(&kernels, &path)) {
                    Some(module) => optional.push((module.clone(), name, bytes)),
                    None => add(&mut shared, name.as_bytes(), &bytes),
                }
            }
        }
        for version in &graph.versions {
            add(&mut shared, b"dependency", version.as_bytes());
        }
        let manifest = fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml cannot be read")?;
        add(&mut shared, b"profile", release_profile(&manifest).as_bytes());
        Ok(Sources { shared, optional })
    }

    pub fn of(&self, root: &Path, family: &Family) -> String {
        let mut hash = self.shared.clone();
        for (_, name, bytes) in
            self.optional.iter().filter(|(module, ..)| module.features.contains(family.name))
        {
            add(&mut hash, name.as_bytes(), bytes);
        }
        for arch in family.arches {
            add(&mut hash, b"builder", family.builder(root, *arch).fingerprint().as_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A module of `kernels-gpu` that only some features switch on.
#[derive(Clone, Debug, PartialEq)]
struct Module {
    name: String,
    features: BTreeSet<String>,
}

impl Module {
    /// Whether a file below `src` is the module's.
    fn has(&self, src: &Path, path: &Path) -> bool {
        let below = path.strip_prefix(src).unwrap_or(Path::new(""));
        below.starts_with(&self.name) || below == Path::new(&format!("{}.rs", self.name))
    }
}

/// The modules that a crate's root declares behind `cfg(feature = "…")` or `cfg(any(feature = "…", …))`; behind other conditions they count
/// as always there.
fn optional_modules(lib: &str) -> Vec<Module> {
    let code = lib.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join(" ");
    let of_item = |item: &str| {
        let (attributes, name) = item.rsplit_once("mod ")?;
        let (_, condition) = attributes.split_once("#[cfg(")?;
        let features = condition.split("feature = \"").skip(1).filter_map(|rest| rest.split_once('"'));
        let features: BTreeSet<String> = features.map(|(feature, _)| feature.to_owned()).collect();
        let plain = !features.is_empty() && !["not(", "all("].iter().any(|other| condition.contains(other));
        plain.then(|| Module { name: name.trim().to_owned(), features })
    };
    code.split(';').filter_map(of_item).collect()
}

/// Lengths keep neighbours apart.
fn add(hash: &mut Sha256, name: &[u8], content: &[u8]) {
    for part in [name, content] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
}

/// Sources and manifests of a crate: not its tests, benches and examples, which are not compiled.
fn list_files(dir: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let skipped = ["tests", "benches", "examples", "target"].contains(&name.as_str());
        if skipped || name.starts_with('.') || name.ends_with('~') {
            continue;
        }
        if path.is_dir() {
            list_files(&path, out)?;
        } else if !name.ends_with(".md") {
            out.push(path);
        }
    }
    Ok(())
}

/// The `[profile.release…]` sections of a manifest, with which PTX is compiled.
fn release_profile(manifest: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            inside = line == "[profile.release]" || line.starts_with("[profile.release.");
        }
        if inside {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// What `kernels-gpu` is made of when compiled for the GPU.
#[derive(Debug, Default)]
struct Graph {
    /// Its own folder and those of the workspace crates it uses.
    folders: BTreeSet<PathBuf>,
    /// Name and version of the other crates it uses.
    versions: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl Graph {
    fn read(root: &Path) -> Result<Graph> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(root)
            .args(["metadata", "--format-version=1", "--filter-platform", TARGET])
            .output()
            .context("cargo does not start")?;
        if !output.status.success() {
            bail!("cargo cannot read the workspace: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata: Metadata =
            serde_json::from_slice(&output.stdout).context("cargo's metadata cannot be read")?;
        Graph::of(&metadata, "kernels-gpu")
    }

    fn of(metadata: &Metadata, name: &str) -> Result<Graph> {
        let packages: BTreeMap<&str, &Package> =
            metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
        let nodes: BTreeMap<&str, &Node> =
            metadata.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
        let first = metadata.packages.iter().find(|package| package.name == name);
        let first = first.with_context(|| format!("the workspace has no package `{name}`"))?;
        let mut waiting = vec![first.id.as_str()];
        let mut seen = BTreeSet::new();
        let mut graph = Graph::default();
        while let Some(id) = waiting.pop() {
            let Some(package) = packages.get(id).filter(|_| seen.insert(id)) else { continue };
            match &package.source {
                Some(source) => {
                    graph.versions.insert(format!("{} {} {source}", package.name, package.version))
                }
                None => graph.folders.insert(package.manifest_path.with_file_name("")),
            };
            let deps = nodes.get(id).map_or(&[][..], |node| &node.deps);
            let compiled = |dep: &&Dependency| dep.dep_kinds.iter().any(|k| k.kind.as_deref() != Some("dev"));
            waiting.extend(deps.iter().filter(compiled).map(|dep| dep.pkg.as_str()));
        }
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_release_profile_of_the_manifest_counts() {
        let manifest = "[workspace]\nmembers = []\n[profile.release]\n# why\ndebug = 1\n\n[profile.dev]\nopt-level = 1\n\
            [profile.release.package.x]\nlto = true\n[patch]\nx = 1\n";
        let expected = "[profile.release]\ndebug = 1\n[profile.release.package.x]\nlto = true\n";
        assert_eq!(release_profile(manifest), expected);
    }

    #[test]
    fn modules_belong_to_the_families_that_switch_them_on() {
        let lib = "//! All; of it.\n#![cfg_attr(x, no_std)]\nuse core::mem;\n#[cfg(feature = \"rows\")]\npub mod rows;\n\
            #[cfg(any(\n    feature = \"rows\",\n    feature = \"probe\"\n))]\nmod exchange;\nmod always;\n\
            #[cfg(not(feature = \"rows\"))]\nmod other;\n";
        let module = |name: &str, features: &[&str]| Module {
            name: name.to_owned(),
            features: features.iter().map(|&feature| feature.to_owned()).collect(),
        };
        let modules = optional_modules(lib);
        assert_eq!(modules, [module("rows", &["rows"]), module("exchange", &["probe", "rows"])]);
        let src = Path::new("/w/kernels-gpu/src");
        let of = |file: &str| modules.iter().position(|module| module.has(src, &src.join(file)));
        let files = ["rows/mod.rs", "rows/a/b.rs", "exchange.rs", "lib.rs", "always.rs", "rows_hopper.rs"];
        assert_eq!(files.map(of), [Some(0), Some(0), Some(1), None, None, None]);
        assert!(!modules[0].has(src, Path::new("/w/crates/cuda_std/src/rows/mod.rs")));
    }

    #[test]
    fn names_and_contents_are_kept_apart() {
        let hash = |pairs: &[(&str, &str)]| {
            let mut hash = Sha256::new();
            pairs.iter().for_each(|(name, content)| add(&mut hash, name.as_bytes(), content.as_bytes()));
            hash.finalize()
        };
        assert_ne!(hash(&[("a", "bc")]), hash(&[("ab", "c")]));
        assert_ne!(hash(&[("a", "b"), ("c", "d")]), hash(&[("a", "bcd")]));
    }

    #[test]
    fn tests_and_notes_of_a_crate_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["src/lib.rs", "src/op/mod.rs", "tests/a.rs", "Cargo.toml", "README.md", ".x"] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let mut files = Vec::new();
        list_files(dir.path(), &mut files).unwrap();
        files.sort();
        let want = ["Cargo.toml", "src/lib.rs", "src/op/mod.rs"].map(|file| dir.path().join(file));
        assert_eq!(files, want);
    }

    #[test]
    fn the_graph_follows_what_is_compiled_for_the_gpu() {
        let json = r#"{"packages": [
            {"id": "k", "name": "kernels-gpu", "version": "0.1.0", "source": null, "manifest_path": "/w/kernels-gpu/Cargo.toml"},
            {"id": "s", "name": "cuda_std", "version": "0.1.0", "source": null, "manifest_path": "/w/crates/cuda_std/Cargo.toml"},
            {"id": "h", "name": "half", "version": "2.4.0", "source": "registry+x", "manifest_path": "/r/half/Cargo.toml"},
            {"id": "t", "name": "proptest", "version": "1.0.0", "source": "registry+x", "manifest_path": "/r/p/Cargo.toml"},
            {"id": "o", "name": "host", "version": "0.1.0", "source": null, "manifest_path": "/w/host/Cargo.toml"}],
            "resolve": {"nodes": [
            {"id": "k", "deps": [{"pkg": "s", "dep_kinds": [{"kind": null}]}, {"pkg": "t", "dep_kinds": [{"kind": "dev"}]}]},
            {"id": "s", "deps": [{"pkg": "h", "dep_kinds": [{"kind": null}, {"kind": "dev"}]}]},
            {"id": "o", "deps": [{"pkg": "k", "dep_kinds": [{"kind": null}]}]}]}}"#;
        let graph = Graph::of(&serde_json::from_str(json).unwrap(), "kernels-gpu").unwrap();
        let folders: Vec<_> = graph.folders.iter().map(|path| path.components().as_path()).collect();
        assert_eq!(folders, [Path::new("/w/crates/cuda_std"), Path::new("/w/kernels-gpu")]);
        assert_eq!(graph.versions.into_iter().collect::<Vec<_>>(), ["half 2.4.0 registry+x"]);
    }
}
