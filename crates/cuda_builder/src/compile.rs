//! Runs cargo and rustc, and turns what they leave into a [`Built`].

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use crate::{
    BuildError, Built, CrateProblem, CudaBuilder, Emit, Toolchain, discover_toolchain_in, error::io_error,
    metadata,
};

const TARGET: &str = "nvptx64-nvidia-cuda";

pub(crate) fn run(builder: &CudaBuilder) -> Result<Built, BuildError> {
    let dir = fs::canonicalize(&builder.path).unwrap_or_else(|_| builder.path.clone());
    if !dir.join("Cargo.toml").is_file() {
        return Err(BuildError::Crate { path: builder.path.clone(), problem: CrateProblem::NoManifest });
    }
    let toolchain = match &builder.toolchain {
        Some(toolchain) => toolchain.clone(),
        None => discover_toolchain_in(&dir)?,
    };
    let package = Package::read(&dir, &toolchain)?;
    if let Some(missing) = builder.features.iter().find(|name| !package.features.contains(name)) {
        let problem = CrateProblem::NoFeature(missing.clone());
        return Err(BuildError::Crate { path: builder.path.clone(), problem });
    }
    let target_dir = builder.target_dir.clone().unwrap_or_else(|| package.target_dir.join("cuda_builder"));
    // cargo does not tell builds apart by flags that map paths: in one folder, `core` would be compiled
    // anew whenever the architecture changes.
    let target_dir = target_dir.join(format!("{}-ptx{}", builder.arch, builder.isa()));
    fs::create_dir_all(&target_dir).map_err(io_error(&target_dir))?;
    let target_dir = fs::canonicalize(&target_dir).map_err(io_error(&target_dir))?;

    // rustc names its output after the crate alone, so two builds must not meet in one folder.
    let lock_path = target_dir.join(".cuda_builder.lock");
    let lock = File::create(&lock_path).map_err(io_error(&lock_path))?;
    lock.lock().map_err(io_error(&lock_path))?;

    let output = target_dir.join(TARGET).join(if builder.release { "release" } else { "debug" });
    let assembly = output.join("deps").join(format!("{}.s", package.library));
    let ir = assembly.with_extension("ll");
    forget(&output, &package.name, &[&assembly, &ir])?;
    let warnings = compile(builder, &toolchain, &package, &dir, &target_dir)?;
    let raw = fs::read_to_string(&assembly)
        .map_err(|_| BuildError::NoPtx { crate_name: package.name.clone(), path: assembly.clone() })?;
    let mut finished = metadata::finish(&raw, builder.arch).map_err(|source| BuildError::Metadata {
        crate_name: package.name.clone(),
        arch: builder.arch.name(),
        source,
    })?;
    finished.text.insert_str(0, &heading(builder, &toolchain));

    let default_name = format!("{}.{}.ptx", package.library, builder.arch);
    let ptx = builder.copy_to.clone().unwrap_or_else(|| target_dir.join(default_name));
    if let Some(parent) = ptx.parent() {
        fs::create_dir_all(parent).map_err(io_error(parent))?;
    }
    fs::write(&ptx, &finished.text).map_err(io_error(&ptx))?;
    let llvm_ir = match builder.emit {
        Emit::Ptx => None,
        Emit::LlvmIr => {
            let copy = ptx.with_extension("ll");
            fs::copy(&ir, &copy).map_err(io_error(&ir))?;
            Some(copy)
        }
    };
    Ok(Built {
        ptx,
        text: finished.text,
        arch: builder.arch,
        toolchain,
        kernels: finished.kernels,
        functions: finished.functions,
        llvm_ir,
        warnings,
    })
}

/// The one comment of the file.
fn heading(builder: &CudaBuilder, toolchain: &Toolchain) -> String {
    let isa = builder.isa();
    let mut line = format!(
        "// {}, LLVM {}, for {} with PTX {}.{}",
        toolchain.version_line,
        toolchain.llvm,
        builder.arch,
        isa / 10,
        isa % 10
    );
    builder.llvm_args.iter().for_each(|argument| line.extend([" ", argument]));
    line.push('\n');
    line
}

/// Removes the crate's last output and cargo's memory of it. cargo would take the crate for built when
/// the same features were built before, though another build has overwritten the output since.
fn forget(output: &Path, package: &str, files: &[&Path]) -> Result<(), BuildError> {
    for file in files.iter().filter(|file| file.exists()) {
        fs::remove_file(file).map_err(io_error(file))?;
    }
    let memory = output.join(".fingerprint");
    let Ok(entries) = fs::read_dir(&memory) else { return Ok(()) };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.rsplit_once('-').is_some_and(|(of, _)| of == package) {
            fs::remove_dir_all(&path).map_err(io_error(&path))?;
        }
    }
    Ok(())
}

fn compile(
    builder: &CudaBuilder,
    toolchain: &Toolchain,
    package: &Package,
    dir: &Path,
    target_dir: &Path,
) -> Result<String, BuildError> {
    let mut command = cargo(toolchain);
    let profile = if builder.release { "RELEASE" } else { "DEV" };
    let debug = if builder.line_info { "line-tables-only" } else { "0" };
    for (key, value) in
        [("LTO", "fat"), ("PANIC", "abort"), ("CODEGEN_UNITS", "1"), ("DEBUG", debug), ("STRIP", "none")]
    {
        command.env(format!("CARGO_PROFILE_{profile}_{key}"), value);
    }
    // For every crate of the graph, so that all agree on the target.
    let mut flags = vec![
        format!("-Ctarget-cpu={}", builder.arch),
        format!("-Ctarget-feature=+ptx{}", builder.isa()),
        "-Zlocation-detail=none".to_owned(),
    ];
    flags.extend(path_maps(toolchain, package, target_dir));
    command
        .current_dir(dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .args(["rustc", "--lib", "--crate-type", "cdylib", "--target", TARGET, "-Zbuild-std=core"])
        .arg("--manifest-path")
        .arg(dir.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target_dir);
    if builder.release {
        command.arg("--release");
    }
    if builder.no_default_features {
        command.arg("--no-default-features");
    }
    let mut features = builder.features.clone();
    features.extend(builder.arch.crate_feature().map(str::to_owned).filter(|f| package.features.contains(f)));
    if !features.is_empty() {
        command.arg("--features").arg(features.join(","));
    }
    // No PTX linker is needed, since LTO leaves one module: a linker that does nothing satisfies rustc.
    command.args(["--", "-Clinker=true"]);
    command.arg(match builder.emit {
        Emit::Ptx => "--emit=asm",
        Emit::LlvmIr => "--emit=asm,llvm-ir",
    });
    command.args(builder.llvm_args.iter().map(|argument| format!("-Cllvm-args={argument}")));
    let output =
        command.output().map_err(|source| BuildError::Start { program: toolchain.cargo.clone(), source })?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(without_progress(&messages))
    } else {
        Err(BuildError::Compile { crate_name: package.name.clone(), arch: builder.arch.name(), messages })
    }
}

/// A cargo that uses the toolchain's rustc and nothing that an outer cargo or build script has set.
fn cargo(toolchain: &Toolchain) -> Command {
    let mut command = Command::new(&toolchain.cargo);
    for (key, value) in env::vars_os() {
        let Some(name) = key.to_str() else { continue };
        if is_outer_cargo(name) {
            command.env_remove(&key);
        } else if name == "LD_LIBRARY_PATH" {
            // rustup and `cargo run` add the libraries of *their* toolchain.
            command.env(&key, without_toolchains(&value));
        }
    }
    command.env("RUSTC", &toolchain.rustc).env("RUSTC_BOOTSTRAP", "1");
    command
}

fn is_outer_cargo(name: &str) -> bool {
    const KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
        "CARGO_BUILD_JOBS",
    ];
    const DROPPED: [&str; 6] = ["CARGO", "__CARGO", "RUSTC", "RUSTFLAGS", "RUSTDOC", "RUSTUP_TOOLCHAIN"];
    // What cargo sets for build scripts, which some libraries' own build scripts react to.
    const BUILD_SCRIPT: [&str; 8] =
        ["TARGET", "HOST", "OUT_DIR", "OPT_LEVEL", "PROFILE", "DEBUG", "NUM_JOBS", "MAKEFLAGS"];
    !KEPT.iter().any(|prefix| name.starts_with(prefix))
        && (DROPPED.iter().any(|prefix| name.starts_with(prefix)) || BUILD_SCRIPT.contains(&name))
}

fn without_toolchains(value: &OsString) -> OsString {
    let kept = env::split_paths(value)
        .filter(|path| !path.iter().any(|part| part == "toolchains" || part == "target"));
    env::join_paths(kept).unwrap_or_default()
}

/// No machine's folders in the output.
fn path_maps(toolchain: &Toolchain, package: &Package, target_dir: &Path) -> Vec<String> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .unwrap_or_default();
    // rustc takes the last map that fits, so the more special ones come later.
    let mut maps = vec![
        (package.workspace_root.clone(), "."),
        (target_dir.to_owned(), "/target"),
        (toolchain.sysroot.join("lib/rustlib/src/rust"), "/rustc"),
    ];
    let real_source = fs::canonicalize(toolchain.sysroot.join("lib/rustlib/src/rust"));
    maps.extend(real_source.ok().map(|path| (path, "/rustc")));
    let registries = fs::read_dir(cargo_home.join("registry/src"));
    maps.push((cargo_home, "/cargo"));
    // One folder per registry, with a name that differs between mirrors.
    maps.extend(registries.into_iter().flatten().flatten().map(|entry| (entry.path(), "/deps")));
    maps.iter()
        .filter(|(from, _)| !from.as_os_str().is_empty())
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
        .collect()
}

fn without_progress(messages: &str) -> String {
    const PROGRESS: [&str; 7] =
        ["Compiling", "Finished", "Downloading", "Downloaded", "Updating", "Blocking", "Locking"];
    let is_progress = |line: &str| {
        PROGRESS.iter().any(|word| line.trim_start().starts_with(word))
            || (line.starts_with("warning: `") && line.contains(" generated "))
    };
    // The PTX version is a target feature that rustc does not call stable; it says so for each crate.
    let mut kept = Vec::new();
    for paragraph in messages.split("\n\n") {
        let lines: Vec<&str> = paragraph.lines().filter(|line| !is_progress(line)).collect();
        let text = lines.join("\n");
        let is_noise = text.contains("unstable feature specified for `-Ctarget-feature`");
        if !is_noise && !text.trim().is_empty() {
            kept.push(text);
        }
    }
    kept.join("\n\n")
}

/// What cargo says about the device crate.
struct Package {
    name: String,
    /// The library's name as rustc has it, with underscores.
    library: String,
    features: Vec<String>,
    workspace_root: PathBuf,
    target_dir: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    features: std::collections::BTreeMap<String, Vec<String>>,
    targets: Vec<MetadataTarget>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    name: String,
    kind: Vec<String>,
}

impl Package {
    fn read(dir: &Path, toolchain: &Toolchain) -> Result<Package, BuildError> {
        let manifest = dir.join("Cargo.toml");
        let mut command = cargo(toolchain);
        // The one variable of the outer cargo that is meant for every build of the user.
        if let Some(target_dir) = env::var_os("CARGO_TARGET_DIR") {
            command.env("CARGO_TARGET_DIR", target_dir);
        }
        command.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(&manifest);
        let output = command
            .output()
            .map_err(|source| BuildError::Start { program: toolchain.cargo.clone(), source })?;
        let problem = |problem| BuildError::Crate { path: dir.to_owned(), problem };
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            return Err(problem(CrateProblem::Unreadable(said)));
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout)
            .map_err(|error| problem(CrateProblem::Unreadable(error.to_string())))?;
        let package = metadata
            .packages
            .into_iter()
            .find(|package| package.manifest_path == manifest)
            .ok_or_else(|| problem(CrateProblem::NoLibrary))?;
        let is_library =
            |target: &&MetadataTarget| target.kind.iter().any(|k| k == "lib" || k.ends_with("lib"));
        let library =
            package.targets.iter().find(is_library).ok_or_else(|| problem(CrateProblem::NoLibrary))?;
        Ok(Package {
            library: library.name.replace('-', "_"),
            name: package.name,
            features: package.features.into_keys().collect(),
            workspace_root: metadata.workspace_root,
            target_dir: metadata.target_directory,
        })
    }
}

impl CudaBuilder {
    pub(crate) fn isa(&self) -> u32 {
        self.ptx_isa.unwrap_or_else(|| self.arch.default_ptx_isa())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outer_cargo_is_forgotten_but_its_network_settings_are_kept() {
        for name in [
            "CARGO",
            "CARGO_MANIFEST_DIR",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_DIR",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "TARGET",
        ] {
            assert!(is_outer_cargo(name), "{name}");
        }
        for name in
            ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_REGISTRIES_X_INDEX", "RUSTUP_HOME", "PATH", "TARGET_X"]
        {
            assert!(!is_outer_cargo(name), "{name}");
        }
    }

    #[test]
    fn only_real_warnings_are_kept() {
        let messages = "   Compiling core v0.0.0\nwarning: unstable feature specified for `-Ctarget-feature`: `ptx80`\n  |\n  = note: x\n\n\
                        warning: unused variable: `x`\n --> src/lib.rs:1:1\n\n\
                        warning: `k` (lib) generated 2 warnings\nwarning: `l` (lib) generated 1 warning\n    Finished `release` profile\n";
        assert_eq!(without_progress(messages), "warning: unused variable: `x`\n --> src/lib.rs:1:1");
    }

    #[test]
    fn a_folder_without_a_manifest_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = CudaBuilder::new(dir.path()).build().unwrap_err().to_string();
        assert_eq!(error, format!("{}: has no Cargo.toml", dir.path().display()));
    }
}
