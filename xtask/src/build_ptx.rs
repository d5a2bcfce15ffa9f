//! `cargo xtask build-ptx`: compiles the families to `host/ptx`, or checks that this is not needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::mpsc,
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use cuda_builder::{Arch, Ptxas, Toolchain, discover_toolchain_in, find_ptxas};

use crate::{
    families::{FAMILIES, Family, select},
    manifest::{FamilyEntry, FileEntry, KernelEntry, Manifest, sha256},
    sources::Sources,
};

#[derive(clap::Args)]
pub struct Args {
    /// Build nothing: fail if host/ptx is not what the sources give
    #[arg(long)]
    check: bool,
    /// With --check: also compile, where the compiler is the one of the manifest, and compare bytes
    #[arg(long, requires = "check")]
    rebuild: bool,
    /// Only this family
    #[arg(long)]
    family: Option<String>,
    /// Compile what is up to date too
    #[arg(long, conflicts_with = "check")]
    force: bool,
}

pub fn run(root: &Path, args: &Args) -> Result<()> {
    let families = select(args.family.as_deref())?;
    let sources = Sources::read(root)?;
    if args.check {
        let manifest = Manifest::load(root)?;
        for family in &families {
            let stale = staleness(root, &manifest, family, &sources.of(root, family));
            if let Some(reason) = stale {
                bail!("{reason}: run `cargo xtask build-ptx`");
            }
        }
        if args.family.is_none() {
            no_strays(root, &manifest)?;
        }
        println!("host/ptx is what the sources give: {} families", families.len());
        return if args.rebuild { rebuild(root, &manifest, &families) } else { Ok(()) };
    }

    let mut manifest = Manifest::load_or_new(root);
    let stale: Vec<&Family> = families
        .iter()
        .filter(|family| {
            args.force || staleness(root, &manifest, family, &sources.of(root, family)).is_some()
        })
        .copied()
        .collect();
    if args.family.is_none() {
        remove_strays(root, &mut manifest)?;
    }
    if stale.is_empty() {
        println!("host/ptx is up to date: {} families", families.len());
        return Ok(());
    }
    let toolchain = discover_toolchain_in(root)?;
    println!("{toolchain}");
    for rejected in &toolchain.passed_over {
        println!("  not {rejected}");
    }
    let ptxas = find_ptxas();
    match &ptxas {
        Some(ptxas) => println!("ptxas {} ({})", ptxas.version, ptxas.path.display()),
        None => println!("no ptxas, so no registers in the manifest: `{}`", cuda_builder::ptxas::REMEDY),
    }
    build(root, &stale, &toolchain, ptxas.as_ref(), |family, files| {
        let entry = FamilyEntry {
            sources: sources.of(root, family),
            rustc: toolchain.version_line.clone(),
            llvm: toolchain.llvm.clone(),
            ptxas: ptxas.as_ref().map(|ptxas| ptxas.version.clone()),
            files,
        };
        manifest.families.insert(family.name.to_owned(), entry);
        manifest.save(root)
    })
}

/// Why a family must be built, if it must.
fn staleness(root: &Path, manifest: &Manifest, family: &Family, sources: &str) -> Option<String> {
    let name = family.name;
    let Some(entry) = manifest.families.get(name) else {
        return Some(format!("family `{name}` was never built"));
    };
    if entry.sources != sources {
        return Some(format!("family `{name}` was built from other sources"));
    }
    for arch in family.arches {
        let file = family.file(*arch);
        let Some(recorded) = entry.files.get(&file) else {
            return Some(format!("family `{name}` was not built for {arch}"));
        };
        match fs::read(Manifest::folder(root).join(&file)) {
            Ok(bytes) if sha256(&bytes) == recorded.sha256 => {}
            Ok(_) => return Some(format!("host/ptx/{file} is not the file that was built")),
            Err(_) => return Some(format!("host/ptx/{file} is missing")),
        }
    }
    None
}

/// Names in `host/ptx` and in the manifest that no family has.
fn strays(root: &Path, manifest: &Manifest) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let wanted: BTreeSet<String> =
        FAMILIES.iter().flat_map(|family| family.arches.iter().map(|arch| family.file(*arch))).collect();
    let mut files = BTreeSet::new();
    let folder = Manifest::folder(root);
    if folder.is_dir() {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("{} cannot be listed", folder.display()))?
        {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".ptx") && !wanted.contains(&name) {
                files.insert(name);
            }
        }
    }
    let is_stray = |name: &&String| !FAMILIES.iter().any(|family| family.name == name.as_str());
    Ok((files, manifest.families.keys().filter(is_stray).cloned().collect()))
}

fn no_strays(root: &Path, manifest: &Manifest) -> Result<()> {
    let (files, families) = strays(root, manifest)?;
    match (files.first(), families.first()) {
        (Some(file), _) => bail!("host/ptx/{file} belongs to no family: run `cargo xtask build-ptx`"),
        (_, Some(family)) => {
            bail!("the manifest has a family `{family}` that is gone: run `cargo xtask build-ptx`")
        }
        (None, None) => Ok(()),
    }
}

fn remove_strays(root: &Path, manifest: &mut Manifest) -> Result<()> {
    let (files, families) = strays(root, manifest)?;
    for file in &files {
        fs::remove_file(Manifest::folder(root).join(file))
            .with_context(|| format!("{file} cannot be removed"))?;
        println!("removed host/ptx/{file}, which belongs to no family");
    }
    for family in &families {
        manifest.families.remove(family);
    }
    if families.is_empty() { Ok(()) } else { manifest.save(root) }
}

/// Builds families, the architectures side by side, as each has a target folder of its own. A family's files are replaced when all of
/// them are built, and then it is `done`.
fn build(
    root: &Path,
    families: &[&Family],
    toolchain: &Toolchain,
    ptxas: Option<&Ptxas>,
    mut done: impl FnMut(&Family, BTreeMap<String, FileEntry>) -> Result<()>,
) -> Result<()> {
    let scratch = tempfile::tempdir().context("no temporary folder")?;
    let folder = Manifest::folder(root);
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    let arches: BTreeSet<Arch> = families.iter().flat_map(|family| family.arches).copied().collect();
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for arch in arches {
            let (sender, scratch) = (sender.clone(), scratch.path());
            scope.spawn(move || {
                for family in families.iter().filter(|family| family.arches.contains(&arch)) {
                    let path = scratch.join(family.file(arch));
                    let result = build_file(root, family, arch, toolchain, ptxas, &path);
                    // Nobody listens any more where another build has failed.
                    if sender.send((*family, arch, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut said = BTreeSet::new();
        let mut built: BTreeMap<&str, BTreeMap<String, FileEntry>> = BTreeMap::new();
        for (family, arch, result) in results {
            let (file, warnings) = result?;
            for warning in warnings.split("\n\n").filter(|text| !text.is_empty()) {
                // Each once, whatever it is compiled for.
                if said.insert(warning.to_owned()) {
                    eprintln!("{warning}");
                }
            }
            let files = built.entry(family.name).or_default();
            files.insert(family.file(arch), file);
            if files.len() == family.arches.len() {
                for name in files.keys() {
                    let path = folder.join(name);
                    fs::copy(scratch.path().join(name), &path)
                        .with_context(|| format!("{} cannot be written", path.display()))?;
                }
                done(family, std::mem::take(files))?;
            }
        }
        Ok(())
    })
}

fn build_file(
    root: &Path,
    family: &Family,
    arch: Arch,
    toolchain: &Toolchain,
    ptxas: Option<&Ptxas>,
    path: &Path,
) -> Result<(FileEntry, String)> {
    let start = Instant::now();
    let built = family.builder(root, arch).toolchain(toolchain.clone()).copy_to(path).build()?;
    let compiled = start.elapsed().as_secs_f64();
    let report = match ptxas {
        Some(ptxas) => Some(ptxas.assemble(path, arch.name(), &path.with_extension("cubin"))?),
        None => None,
    };
    let kernels: Vec<KernelEntry> =
        built.kernels.iter().map(|facts| KernelEntry::new(facts, report.as_ref())).collect();
    let assembled = start.elapsed().as_secs_f64() - compiled;
    let count = kernels.len();
    let bytes = built.text.len();
    println!(
        "host/ptx/{}: {count} kernels, {bytes} bytes, rustc {compiled:.1} s, ptxas {assembled:.1} s",
        family.file(arch)
    );
    let file =
        FileEntry { arch: arch.name().to_owned(), sha256: sha256(built.text.as_bytes()), bytes, kernels };
    Ok((file, built.warnings))
}

/// Compiles again and compares, family by family, where the compiler is the recorded one.
fn rebuild(root: &Path, manifest: &Manifest, families: &[&Family]) -> Result<()> {
    let toolchain = discover_toolchain_in(root)?;
    let scratch = tempfile::tempdir().context("no temporary folder")?;
    for family in families {
        let Some(entry) = manifest.families.get(family.name) else { continue };
        if entry.rustc != toolchain.version_line || entry.llvm != toolchain.llvm {
            println!(
                "{}: not compared, built with {} (LLVM {}), here is {} (LLVM {})",
                family.name, entry.rustc, entry.llvm, toolchain.version_line, toolchain.llvm
            );
            continue;
        }
        for arch in family.arches {
            let name = family.file(*arch);
            let builder =
                family.builder(root, *arch).toolchain(toolchain.clone()).copy_to(scratch.path().join(&name));
            let text = builder.build()?.text;
            let committed = fs::read_to_string(Manifest::folder(root).join(&name))
                .with_context(|| format!("host/ptx/{name} cannot be read"))?;
            if let Some(line) = first_difference(&committed, &text) {
                bail!("host/ptx/{name} is not what {} gives: line {line} differs", toolchain.version_line);
            }
            println!("host/ptx/{name}: the same bytes");
        }
    }
    Ok(())
}

/// The number of the first line that differs.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    if a == b {
        return None;
    }
    let same = a.lines().zip(b.lines()).take_while(|(a, b)| a == b).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(root: &Path, family: &Family) -> Manifest {
        let folder = Manifest::folder(root);
        fs::create_dir_all(&folder).unwrap();
        let files = family.arches.iter().map(|arch| {
            let text = format!("ptx of {arch}");
            fs::write(folder.join(family.file(*arch)), &text).unwrap();
            let entry = FileEntry {
                arch: arch.to_string(),
                sha256: sha256(text.as_bytes()),
                bytes: text.len(),
                kernels: vec![],
            };
            (family.file(*arch), entry)
        });
        let entry = FamilyEntry {
            sources: "s".into(),
            rustc: "r".into(),
            llvm: "l".into(),
            ptxas: None,
            files: files.collect(),
        };
        let mut manifest = Manifest::default();
        manifest.families.insert(family.name.into(), entry);
        manifest
    }

    #[test]
    fn each_way_to_be_stale_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let family = &FAMILIES[0];
        let manifest = fixture(dir.path(), family);
        let stale = |manifest: &Manifest, sources: &str| staleness(dir.path(), manifest, family, sources);
        assert_eq!(stale(&manifest, "s"), None);
        assert_eq!(stale(&manifest, "other").unwrap(), "family `probe` was built from other sources");
        assert_eq!(stale(&Manifest::default(), "s").unwrap(), "family `probe` was never built");
        let mut half = manifest.clone();
        half.families.get_mut("probe").unwrap().files.remove("probe.sm_90a.ptx");
        assert_eq!(stale(&half, "s").unwrap(), "family `probe` was not built for sm_90a");
        let file = Manifest::folder(dir.path()).join("probe.sm_80.ptx");
        fs::write(&file, "edited").unwrap();
        assert_eq!(stale(&manifest, "s").unwrap(), "host/ptx/probe.sm_80.ptx is not the file that was built");
        fs::remove_file(&file).unwrap();
        assert_eq!(stale(&manifest, "s").unwrap(), "host/ptx/probe.sm_80.ptx is missing");
    }

    #[test]
    fn what_no_family_has_is_found_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = fixture(dir.path(), &FAMILIES[0]);
        assert!(no_strays(dir.path(), &manifest).is_ok());
        let file = Manifest::folder(dir.path()).join("gone.sm_80.ptx");
        fs::write(&file, "").unwrap();
        let entry = manifest.families["probe"].clone();
        manifest.families.insert("gone".into(), entry);
        let error = no_strays(dir.path(), &manifest).unwrap_err().to_string();
        assert_eq!(error, "host/ptx/gone.sm_80.ptx belongs to no family: run `cargo xtask build-ptx`");
        remove_strays(dir.path(), &mut manifest).unwrap();
        assert!(!file.exists() && !manifest.families.contains_key("gone"));
        assert!(no_strays(dir.path(), &manifest).is_ok());
    }

    #[test]
    fn the_first_line_that_differs_is_counted_from_one() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
    }
}
