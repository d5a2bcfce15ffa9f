//! Finds a rustc that can compile device crates: one with the source of its own `core` beside it.
//!
//! Taken, in this order: the one asked for (the builder's method, then `WARPWRIGHT_RUSTC`), where
//! nothing else will do; the active toolchain (rustup's pinned one, as a rule) when it has `rust-src`;
//! the system's pair `/usr/bin/rustc` and its source package.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// The environment variable that names the rustc to use.
pub const RUSTC_VARIABLE: &str = "WARPWRIGHT_RUSTC";

/// The oldest release that is tried: earlier ones lack target features that the recipe names.
const OLDEST: (u32, u32) = (1, 95);

/// A rustc with the source of its `core`, and a cargo to drive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// The compiler.
    pub rustc: PathBuf,
    /// The cargo that goes with it.
    pub cargo: PathBuf,
    /// `1.96.0`
    pub version: String,
    /// The first line of `rustc -vV`: version, commit, date.
    pub version_line: String,
    /// `22.1.8`
    pub llvm: String,
    /// Where the compiler's libraries are, and `core`'s source.
    pub sysroot: PathBuf,
    /// The `library` folder with `core`'s source.
    pub source: PathBuf,
    /// How it was found.
    pub origin: Origin,
    /// What was looked at before, and why it was not taken.
    pub passed_over: Vec<Rejected>,
}

/// Where a rustc was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Named by the caller.
    Explicit,
    /// Named by [`RUSTC_VARIABLE`].
    Environment,
    /// The `rustc` that `PATH` gives: rustup's active toolchain, as a rule.
    Active,
    /// The distribution's package.
    System,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Origin::Explicit => "named by the caller",
            Origin::Environment => "named by WARPWRIGHT_RUSTC",
            Origin::Active => "active toolchain",
            Origin::System => "system package",
        })
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Toolchain { version, llvm, rustc, origin, .. } = self;
        write!(f, "rustc {version}, LLVM {llvm} ({}, {origin})", rustc.display())
    }
}

/// A rustc that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// How it was found.
    pub origin: Origin,
    /// The compiler.
    pub rustc: PathBuf,
    /// Why it will not do.
    pub reason: Reason,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} ({}): {}", self.rustc.display(), self.origin, self.reason)
    }
}

/// Why a rustc cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages tell
pub enum Reason {
    #[error("not found")]
    NotFound,
    #[error("does not run: {0}")]
    DoesNotRun(String),
    #[error("`rustc -vV` said nothing of {0}")]
    Unreadable(&'static str),
    #[error("version {0} is older than {major}.{minor}", major = OLDEST.0, minor = OLDEST.1)]
    TooOld(String),
    #[error("no source of `core` at {0}")]
    NoSource(PathBuf),
    #[error("no cargo beside it or on PATH")]
    NoCargo,
}

/// No usable rustc.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no rustc with the source of its `core` was found{tried}; install one with `{remedy}`", tried = list(rejected))]
pub struct NoToolchain {
    /// What was found and will not do.
    pub rejected: Vec<Rejected>,
    /// The command that installs one.
    pub remedy: &'static str,
}

fn list(rejected: &[Rejected]) -> String {
    let lines: Vec<String> = rejected.iter().map(Rejected::to_string).collect();
    if lines.is_empty() { String::new() } else { format!(" (tried {})", lines.join("; ")) }
}

/// Finds the toolchain that device crates would be compiled with in the current directory.
pub fn discover_toolchain() -> Result<Toolchain, NoToolchain> {
    discover_toolchain_in(&env::current_dir().unwrap_or_default())
}

/// The same for a crate's directory, whose `rust-toolchain.toml` rustup follows.
pub fn discover_toolchain_in(dir: &Path) -> Result<Toolchain, NoToolchain> {
    Search::from_environment(dir).run()
}

impl Toolchain {
    /// The toolchain of a given rustc.
    pub fn from_rustc(rustc: impl Into<PathBuf>) -> Result<Toolchain, Rejected> {
        let rustc = rustc.into();
        let search = Search::from_environment(&env::current_dir().unwrap_or_default());
        search.probe(Origin::Explicit, &rustc).map_err(|reason| Rejected {
            origin: Origin::Explicit,
            rustc,
            reason,
        })
    }
}

/// Where to look: separate from looking, so that the order can be tested.
struct Search {
    named: Option<PathBuf>,
    active: Option<PathBuf>,
    system: Vec<PathBuf>,
    /// Tried when a rustc has no cargo of its own.
    cargo: Option<PathBuf>,
    has_rustup: bool,
    dir: PathBuf,
}

impl Search {
    fn from_environment(dir: &Path) -> Search {
        Search {
            named: env::var_os(RUSTC_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
            active: on_path("rustc"),
            system: vec![PathBuf::from("/usr/bin/rustc")],
            cargo: env::var_os("CARGO").map(PathBuf::from).filter(|path| path.is_file()).or(on_path("cargo")),
            has_rustup: on_path("rustup").is_some(),
            dir: dir.to_owned(),
        }
    }

    fn run(&self) -> Result<Toolchain, NoToolchain> {
        let named = self.named.iter().map(|rustc| (Origin::Environment, rustc));
        let active = self.active.iter().map(|rustc| (Origin::Active, rustc));
        let system = self.system.iter().map(|rustc| (Origin::System, rustc));
        let mut rejected: Vec<Rejected> = Vec::new();
        for (origin, rustc) in named.chain(active).chain(system) {
            match self.probe(origin, rustc) {
                Ok(toolchain) => return Ok(Toolchain { passed_over: rejected, ..toolchain }),
                Err(reason) => {
                    if !rejected.iter().any(|r| r.rustc == *rustc) {
                        rejected.push(Rejected { origin, rustc: rustc.clone(), reason });
                    }
                }
            }
            if origin == Origin::Environment {
                break;
            }
        }
        let remedy = if self.has_rustup {
            "rustup component add rust-src"
        } else {
            "apt-get install -y rustc-web rust-web-src"
        };
        Err(NoToolchain { rejected, remedy })
    }

    fn probe(&self, origin: Origin, rustc: &Path) -> Result<Toolchain, Reason> {
        if !rustc.is_file() {
            return Err(Reason::NotFound);
        }
        let about = self.ask(rustc, &["-vV"])?;
        let sysroot = PathBuf::from(self.ask(rustc, &["--print", "sysroot"])?.trim());
        let field = |name: &str| {
            about.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
        };
        let version = field("release:").ok_or(Reason::Unreadable("its release"))?;
        let llvm = field("LLVM version:").ok_or(Reason::Unreadable("its LLVM version"))?;
        if release_number(&version) < OLDEST {
            return Err(Reason::TooOld(version));
        }
        let source = sysroot.join("lib/rustlib/src/rust/library");
        if !source.join("core/src/lib.rs").is_file() {
            return Err(Reason::NoSource(source));
        }
        // rustup's proxy stands for a real compiler, which is named so that nothing can switch it.
        let real = sysroot.join("bin/rustc");
        let rustc = if real.is_file() { real } else { rustc.to_owned() };
        let cargo = rustc
            .parent()
            .map(|bin| bin.join("cargo"))
            .filter(|cargo| cargo.is_file())
            .or_else(|| self.cargo.clone())
            .ok_or(Reason::NoCargo)?;
        let version_line = about.lines().next().unwrap_or_default().to_owned();
        Ok(Toolchain {
            rustc,
            cargo,
            version,
            version_line,
            llvm,
            sysroot,
            source,
            origin,
            passed_over: vec![],
        })
    }

    fn ask(&self, rustc: &Path, args: &[&str]) -> Result<String, Reason> {
        let mut command = Command::new(rustc);
        command.args(args);
        if self.dir.is_dir() {
            command.current_dir(&self.dir);
        }
        let output = command.output().map_err(|e| Reason::DoesNotRun(e.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no message");
            return Err(Reason::DoesNotRun(first.to_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn release_number(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    /// A folder with a `bin/rustc` that answers as a rustc of `release` would.
    fn fake(root: &Path, name: &str, release: &str, with_source: bool) -> PathBuf {
        let sysroot = root.join(name);
        fs::create_dir_all(sysroot.join("bin")).unwrap();
        if with_source {
            let core = sysroot.join("lib/rustlib/src/rust/library/core/src");
            fs::create_dir_all(&core).unwrap();
            fs::write(core.join("lib.rs"), "").unwrap();
        }
        script(&sysroot.join("bin/cargo"), "exit 0");
        let rustc = sysroot.join("bin/rustc");
        let about = format!("rustc {release} (test)\\nrelease: {release}\\nLLVM version: 22.1.8\\n");
        let body =
            format!("case \"$1\" in -vV) printf '{about}';; --print) echo '{}';; esac", sysroot.display());
        script(&rustc, &body);
        rustc
    }

    fn script(path: &Path, body: &str) {
        fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn search(dir: &Path) -> Search {
        Search {
            named: None,
            active: None,
            system: vec![],
            cargo: None,
            has_rustup: true,
            dir: dir.to_owned(),
        }
    }

    #[test]
    fn the_active_toolchain_is_preferred_when_it_has_the_source() {
        let dir = tempfile::tempdir().unwrap();
        let active = fake(dir.path(), "active", "1.95.0", true);
        let system = fake(dir.path(), "system", "1.96.0", true);
        let found = Search { active: Some(active.clone()), system: vec![system], ..search(dir.path()) }
            .run()
            .unwrap();
        assert_eq!((found.rustc, found.origin), (active, Origin::Active));
        assert_eq!((found.version.as_str(), found.llvm.as_str()), ("1.95.0", "22.1.8"));
        assert_eq!(found.cargo, dir.path().join("active/bin/cargo"));
        assert!(found.passed_over.is_empty());
    }

    #[test]
    fn without_its_source_the_system_pair_is_taken_and_the_reason_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let active = fake(dir.path(), "active", "1.95.0", false);
        let system = fake(dir.path(), "system", "1.96.0", true);
        let search = Search { active: Some(active), system: vec![system.clone()], ..search(dir.path()) };
        let found = search.run().unwrap();
        assert_eq!((found.rustc, found.origin), (system, Origin::System));
        let reason = found.passed_over[0].to_string();
        assert!(reason.contains("(active toolchain): no source of `core` at "), "{reason}");
    }

    #[test]
    fn a_proxy_is_replaced_by_the_compiler_of_its_sysroot() {
        let dir = tempfile::tempdir().unwrap();
        let real = fake(dir.path(), "real", "1.95.0", true);
        let proxy = dir.path().join("rustc");
        script(&proxy, &format!("exec {} \"$@\"", real.display()));
        let found = Search { active: Some(proxy), ..search(dir.path()) }.run().unwrap();
        assert_eq!(found.rustc, real);
    }

    #[test]
    fn a_named_rustc_is_used_or_nothing_is() {
        let dir = tempfile::tempdir().unwrap();
        let good = fake(dir.path(), "good", "1.96.0", true);
        let named = Search { named: Some(good.clone()), active: Some(good.clone()), ..search(dir.path()) };
        assert_eq!(named.run().unwrap().origin, Origin::Environment);
        let missing = dir.path().join("missing");
        let error = Search { named: Some(missing.clone()), active: Some(good), ..search(dir.path()) };
        let error = error.run().unwrap_err();
        assert_eq!(error.rejected.len(), 1);
        assert_eq!(error.rejected[0].reason, Reason::NotFound);
        assert_eq!(error.rejected[0].rustc, missing);
    }

    #[test]
    fn an_old_or_a_broken_rustc_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let old = fake(dir.path(), "old", "1.63.0", true);
        let broken = dir.path().join("broken");
        script(&broken, "echo 'error: toolchain is not installed' >&2; exit 1");
        let error =
            Search { active: Some(broken), system: vec![old], ..search(dir.path()) }.run().unwrap_err();
        assert_eq!(error.rejected[0].reason, Reason::DoesNotRun("error: toolchain is not installed".into()));
        assert_eq!(error.rejected[1].reason, Reason::TooOld("1.63.0".into()));
    }

    #[test]
    fn the_error_names_what_was_tried_and_the_one_command_that_helps() {
        let dir = tempfile::tempdir().unwrap();
        let active = fake(dir.path(), "active", "1.95.0", false);
        let with_rustup = Search { active: Some(active.clone()), ..search(dir.path()) }.run().unwrap_err();
        let text = with_rustup.to_string();
        assert!(text.starts_with("no rustc with the source of its `core` was found (tried "), "{text}");
        assert!(text.ends_with("; install one with `rustup component add rust-src`"), "{text}");
        let without = Search { has_rustup: false, ..search(dir.path()) }.run().unwrap_err().to_string();
        assert_eq!(
            without,
            "no rustc with the source of its `core` was found; install one with `apt-get install -y rustc-web rust-web-src`"
        );
    }
}
